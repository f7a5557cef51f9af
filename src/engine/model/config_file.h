#pragma once
// What a model's config.json says that is not of its family: tokens with a meaning, the spread of fresh weights.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/huggingface.h"

namespace vitrine {

/// The ids under "eos_token_id", "bos_token_id" or "pad_token_id"; empty if there are none. Errors: FileError for other values.
std::vector<int64_t> config_token_ids(const ModelFiles& files, const std::string& key);

/// Says the id, or null, where the configuration leaves the key out.
void set_missing_token_id(ModelFiles& files, const std::string& key, std::optional<int64_t> id);

/// The standard deviation of fresh weights, 0.02 if the configuration leaves it out.
/// Errors: FileError for a negative or absurd one.
double initializer_range(const ModelFiles& files);

/// Probabilities of dropout; nothing: as the configuration says.
struct DropoutRates {
  std::optional<double> embedding, attention, residual;
  bool everywhere = false;  // one number for all the places that the family has
};
/// Sets them under the family's keys. Errors: InputError, beginning with `where`, for a place at which the family has no dropout,
/// or several rates where it has one.
void set_dropout(Json& config, const DropoutRates& rates, const std::string& where);

/// What config.json calls a float type; null for others.
const char* torch_name(DType dtype);
/// Says the type of the weights, under the key that the configuration uses.
void set_config_dtype(Json& config, DType dtype);

/// The number of layers that the configuration of any family states; nothing if it has none of the usual keys.
std::optional<int64_t> config_layers(const Json& config);

/// A layer of a model that was put together from layers of others: layer `layer` of the model of `config`.
struct ConfigLayer {
  const Json* config;
  int64_t layer;
};
/// The configuration for these layers instead of its own: their number, and what it lists for each. Errors: UsageError if it has
/// no key for the number of layers.
void set_config_layers(Json& config, const std::vector<ConfigLayer>& layers);
/// Each layer's window (0: none) by what the configuration says; nothing for a family that vitrine does not know.
std::optional<std::vector<int64_t>> config_windows(const Json& config);
/// Says which layers have a window, for families that go by the place of a layer otherwise.
void set_config_windows(Json& config, const std::vector<int64_t>& windows);
void set_config_vocab_size(Json& config, int64_t vocab_size);
/// Whether the embedding is also the output matrix; nothing if the configuration does not say.
std::optional<bool> config_tied(const Json& config);
void set_config_tied(Json& config, bool tied);

/// Removes what says that the weights are packed (model/packed_weights.h).
void set_config_unpacked(Json& config);

}  // namespace vitrine
