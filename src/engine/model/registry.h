#pragma once
// The families, each described by its own file.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/form.h"

namespace vitrine {

/// Where a family's config.json keeps its dropout rates; null: the family has none there.
struct DropoutKeys {
  const char *embedding = nullptr, *attention = "attention_dropout", *residual = nullptr;
};

/// What a family is, beyond its Model. Its file defines it, and registry.cpp lists it.
struct Family {
  const char* name;                    // model_type in config.json
  const char* gguf = nullptr;          // general.architecture; null: the family has no GGUF form
  const char* gguf_key = nullptr;      // of two families of one architecture: above 0 in files of this one, 0 or absent in others
  const char* architecture = nullptr;  // what config.json's "architectures" calls it
  const char* other_architecture = nullptr;  // the same tensors with another use of them (causal beside masked)
  const char* title;                         // as people write it
  const char* paper;
  const char* source;                   // the file with its definition
  const char* second_source = nullptr;  // of parts that it has in common with others, before those of all
  std::unique_ptr<Model> (*make)(const ModelConfig&);
  const char* head = "lm_head.weight";                           // the output matrix, where it is not the embedding
  std::vector<std::string_view> optional_prefixes = {"model."};  // of tensor names, which files of the bare model lack
  /// Of tensors that carry no weights: masks, cached frequencies, a copy of the embedding.
  std::vector<std::string_view> ignored_suffixes = {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"};
  std::vector<std::string_view> ignored_prefixes = {};  // of tensors of parts that are not read
  DropoutKeys dropout = {};
  Form::Norms norms = Form::Norms::pre;  // own: another place than pre or post (Gemma 2's norms on both sides)
  const char* norm_order_key = nullptr;  // the family's own key for the place of its norms; then Form does not apply to it
  bool gguf_holds_factors = false;       // its GGUF files have factors of the configuration in their weights
  bool has_forms = true;                 // false: its blocks have parts that other forms (vitrine_norms) have no place for
  bool scales_residual_init = false;     // fresh matrices that write to the stream are divided by sqrt(2 n_layers)
  bool last_hidden_is_normed = true;     // the reference's last hidden state is the stream after the final norm
  bool scores_sequences = true;          // transformers has its class for a score of a sequence (reward_architecture())
};

/// What config.json's "architectures" calls a reward model of the family: "LlamaForSequenceClassification". Empty: transformers
/// has no such class.
std::string reward_architecture(const Family& family);
/// Makes the configuration of a language model that of a reward model: its class, and one label. Errors: InputError, beginning
/// with `where`, for a family without one.
void set_config_rewards(Json& config, const std::string& where);

/// The family a configuration names. rewards: it must be of a reward model; else of a language model.
/// Errors: FileError for an unknown one, listing those that are known, and for a model of the other kind.
const Family& find_family(const ConfigReader& keys, bool gguf, bool rewards = false);
/// The family that a configuration names; empty if it names none.
std::string stated_family(const Json& config);
/// Whether a family has that name: in GGUF (general.architecture) or as model_type.
bool knows_family(std::string_view name, bool gguf);
/// The family of a model.
const Family& family_of(const Model& model);
/// The family that a config.json names, or null.
const Family* family_of(const Json& config);

/// The files with a family's definition, which `explain` quotes: its own, and those with what families share.
std::vector<std::string_view> definition_files(const Family& family);

/// The configuration without the family's dropout rates, which change no number of a forward pass.
Json without_dropout(Json config);

/// Marks keys as read that change no number of a forward pass. Errors: FileError for an encoder-decoder.
void ignore_common_keys(const ConfigReader& keys);
void ignore_gguf_keys(const ConfigReader& keys);

}  // namespace vitrine
