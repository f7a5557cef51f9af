#pragma once
// The families, one file each; registry.cpp lists them by the names files use. And what their configurations share.
#include <initializer_list>
#include <memory>

#include "model/config.h"

namespace vitrine {

std::unique_ptr<Model> make_gpt2(const ModelConfig& config);
std::unique_ptr<Model> make_gemma(const ModelConfig& config);
std::unique_ptr<Model> make_gemma2(const ModelConfig& config);
std::unique_ptr<Model> make_llama(const ModelConfig& config);
std::unique_ptr<Model> make_mistral(const ModelConfig& config);
std::unique_ptr<Model> make_qwen2(const ModelConfig& config);
std::unique_ptr<Model> make_classic_decoder(const ModelConfig& config);

/// Each layer's window: sliding_window (null: none; absent: `if_absent`) on the layers that layer_types names, or, where the
/// configuration has no such list, on those that `by_default` names. Errors: FileError for a wrong list.
std::vector<int64_t> read_windows(const ModelConfig& config, int64_t n_layers, int64_t if_absent,
                                  bool (*by_default)(int64_t layer));

/// The number of layers. Errors: FileError if it is missing or absurd: what exists per layer is allocated before any weight
/// is looked for.
int64_t read_layers(const ConfigReader& keys, std::string_view key, std::initializer_list<std::string_view> older = {});

/// What a norm adds to the mean square; `fallback` is the reference's for a config.json without it, and GGUF files must say
/// it. Errors: FileError if it is negative.
double read_eps(const ModelConfig& config, std::string_view key, std::string_view gguf_key, double fallback);

/// The share of elements that dropout zeroes. Errors: FileError if it is outside [0, 1).
double read_dropout(const ConfigReader& keys, std::string_view key, double fallback);

/// n_heads must be a multiple of n_kv_heads.
void check_heads(const ConfigReader& keys, int64_t n_heads, int64_t n_kv_heads);

/// What a block leaves out or moves, to show what it is there for (docs/trainability.md).
struct BlockForm {
  bool norms_before = true;   // ln1 and ln2 read the stream in front of their sub-layer
  bool norms_after = false;   // they act on the stream itself, after the sub-layer was added to it
  bool second_norms = false;  // Gemma 2's, on what each sub-layer gives
  bool final_norm = true;
  bool residual = true;  // a sub-layer's result is added to the stream; false: it takes the stream's place
  bool norms() const { return norms_before || norms_after; }
};
/// "vitrine_norms": "off", "pre" or "post", and "vitrine_residual": false, which no other program knows; without them the
/// family's own form. Errors: FileError for another value.
BlockForm read_block_form(const ModelConfig& config, bool second_norms = false);

/// Errors: FileError if one of these flags is there and true: it would change numbers and no weight table knows it.
void refuse_flags(const ConfigReader& keys, std::initializer_list<std::string_view> flags);

}  // namespace vitrine
