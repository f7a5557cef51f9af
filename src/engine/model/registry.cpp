#include "model/registry.h"

#include <algorithm>

#include "base/error.h"
#include "model/load.h"
#include "model/packed_weights.h"

// One line a family: src/engine/model/<name>.cpp, or the file of a family that it is a configuration of, defines <name>_family().
#define VITRINE_FAMILIES(FAMILY) \
  FAMILY(gpt2)                   \
  FAMILY(gpt_neo)                \
  FAMILY(gptj)                   \
  FAMILY(gpt_neox)               \
  FAMILY(opt)                    \
  FAMILY(bloom)                  \
  FAMILY(gemma)                  \
  FAMILY(gemma2)                 \
  FAMILY(gemma3_text)            \
  FAMILY(gemma4_text)            \
  FAMILY(llama)                  \
  FAMILY(llama4_text)            \
  FAMILY(mistral)                \
  FAMILY(mixtral)                \
  FAMILY(qwen2)                  \
  FAMILY(qwen3)                  \
  FAMILY(qwen3_moe)              \
  FAMILY(qwen2_moe)              \
  FAMILY(lfm2_moe)               \
  FAMILY(ernie4_5_moe)           \
  FAMILY(qwen3_5_text)           \
  FAMILY(qwen3_5_moe_text)       \
  FAMILY(qwen3_next)             \
  FAMILY(deepseek_v2)            \
  FAMILY(deepseek_v3)            \
  FAMILY(gpt_oss)                \
  FAMILY(olmo2)                  \
  FAMILY(olmo3)                  \
  FAMILY(smollm3)                \
  FAMILY(granite)                \
  FAMILY(granitemoehybrid)       \
  FAMILY(granitehybrid)          \
  FAMILY(olmoe)                  \
  FAMILY(phi)                    \
  FAMILY(phi3)                   \
  FAMILY(phimoe)                 \
  FAMILY(stablelm)               \
  FAMILY(starcoder2)             \
  FAMILY(glm)                    \
  FAMILY(glm4)                   \
  FAMILY(glm4_moe)               \
  FAMILY(lfm2)                   \
  FAMILY(cohere)                 \
  FAMILY(cohere2)                \
  FAMILY(falcon)                 \
  FAMILY(exaone4)                \
  FAMILY(ernie4_5)               \
  FAMILY(hunyuan_v1_dense)       \
  FAMILY(mamba2)                 \
  FAMILY(falcon_h1)              \
  FAMILY(nemotron_h)             \
  FAMILY(nemotron_h_moe)         \
  FAMILY(roformer)               \
  FAMILY(classic_decoder)

namespace vitrine {

#define VITRINE_DECLARE(name) Family name##_family();
VITRINE_FAMILIES(VITRINE_DECLARE)
#undef VITRINE_DECLARE

namespace {

const std::vector<Family>& families() {
#define VITRINE_LIST(name) name##_family(),
  static const std::vector<Family> kFamilies = {VITRINE_FAMILIES(VITRINE_LIST)};
#undef VITRINE_LIST
  return kFamilies;
}

}  // namespace

std::string known_families() {
  std::string list;
  for (const Family& family : families()) list += (list.empty() ? "" : ", ") + std::string(family.name);
  return list;
}

const Family& family_of(const Model& model) {
  for (const Family& family : families())
    if (model.shape().family == family.name) return family;
  throw UsageError("no family is called " + model.shape().family);
}

std::string stated_family(const Json& config) {
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : "";
}

const Family* family_of(const Json& config) {
  const std::string name = stated_family(config);
  for (const Family& family : families())
    if (name == family.name) return &family;
  return nullptr;
}

std::string reward_architecture(const Family& family) {
  if (!family.scores_sequences || family.architecture == nullptr) return "";
  std::string name = family.architecture;
  for (const std::string_view ending : {"ForCausalLM", "LMHeadModel"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  // Of a model that also comes with other parts, which has the plain name there.
  return name + (std::string_view(family.name).ends_with("_text") ? "Text" : "") + "ForSequenceClassification";
}

void set_config_rewards(Json& config, const std::string& where) {
  const Family* const family = family_of(config);
  if (family == nullptr || reward_architecture(*family).empty())
    throw InputError(where + ": transformers has no reward models (…ForSequenceClassification) of the family " +
                     stated_family(config) + ", so none is trained. Take a model of another family, such as Llama or Qwen 3");
  config["architectures"] = Json::array({reward_architecture(*family)});
  config["id2label"] = {{"0", "LABEL_0"}};
  config["label2id"] = {{"LABEL_0", 0}};
  config.erase("num_labels");
}

bool knows_family(std::string_view name, bool gguf) {
  for (const Family& family : families())
    if (const char* own = gguf ? family.gguf : family.name; own != nullptr && name == own) return true;
  return false;
}

namespace {

bool has_key(const ConfigReader& keys, const Family& family) { return keys.find_count(family.gguf_key).value_or(0) > 0; }

// Whether the file is of a family that shares its architecture's name with this one.
bool has_key_of_another(const ConfigReader& keys, const Family& family) {
  return std::any_of(families().begin(), families().end(), [&](const Family& other) {
    return other.gguf_key != nullptr && std::string_view(other.gguf) == family.gguf && has_key(keys, other);
  });
}

// Errors: FileError for a model of another kind than it is opened as.
void check_architecture(const ConfigReader& keys, const Family& family, bool rewards) {
  const std::vector<std::string> stated = keys.strings("architectures");
  const auto is = [&](std::string_view name) { return !name.empty() && stated.size() == 1 && stated[0] == name; };
  const std::string own = reward_architecture(family);
  if (rewards && !is(own))
    keys.fail("architectures", "is not a reward model, which gives a number for a text; expected " +
                                   (own.empty() ? "another family: transformers has none of " + std::string(family.name) : own) +
                                   ". `vitrine train` with reward_model makes one");
  if (rewards || stated.size() != 1 || family.architecture == nullptr || is(family.architecture) || stated[0].ends_with("Model"))
    return;
  if (family.other_architecture != nullptr && is(family.other_architecture)) return;
  keys.fail("architectures",
            (is(own) ? "is a reward model or classifier, which has no next token: `vitrine reward` reads its rewards"
                     : "is not the language model of the family " + std::string(family.name)) +
                "; expected " + family.architecture +
                (family.other_architecture != nullptr ? std::string(" or ") + family.other_architecture : ""));
}

}  // namespace

const Family& find_family(const ConfigReader& keys, bool gguf, bool rewards) {
  if (!gguf) packing_method(keys);  // refuses what is not read
  if (!gguf && !keys.has("model_type") && keys.has("act_fn") && (keys.has("d_vocab") || keys.has("d_head")))
    throw FileError(
        keys.path(),
        "is a configuration of TransformerLens, and vitrine reads models of transformers. What TransformerLens loads "
        "from Hugging Face (gpt2, pythia, …) opens here from its own directory; `vitrine train` makes toy models, also "
        "without MLPs (\"vitrine_mlp\": false; docs/trainability.md)");
  const std::string type = keys.string("model_type");
  for (const Family& family : families()) {
    if (gguf ? family.gguf == nullptr || type != family.gguf : type != family.name) continue;
    if (gguf && (family.gguf_key == nullptr ? has_key_of_another(keys, family) : !has_key(keys, family))) continue;
    if (!gguf) check_architecture(keys, family, rewards);
    return family;
  }
  keys.fail("model_type", "is not a supported family; expected one of " + known_families());
}

std::vector<std::string_view> definition_files(const Family& family) {
  std::vector<std::string_view> files{family.source};
  if (family.second_source != nullptr) files.emplace_back(family.second_source);
  files.insert(files.end(), {"src/engine/model/decoder.cpp", "src/engine/model/parts.cpp"});
  return files;
}

Json without_dropout(Json config) {
  if (!config.is_object()) return config;
  for (const Family& family : families())
    for (const char* key : {family.dropout.embedding, family.dropout.attention, family.dropout.residual})
      if (key != nullptr) config.erase(key);
  return config;
}

void ignore_common_keys(const ConfigReader& keys) {
  keys.ignore({"model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache", "bos_token_id",
               "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id", "initializer_range",
               "_name_or_path", "auto_map", "pretraining_tp", "cache_implementation", "output_attentions", "output_hidden_states",
               "return_dict", "problem_type", "id2label", "label2id", "task_specific_params", "quantization_config_note",
               "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "torchscript", "tokenizer_class",
               "hidden_act", "model_max_length", "n_ctx", "attention_dropout", "use_sliding_window", "max_window_layers",
               "gradient_checkpointing", "chunk_size_feed_forward", "is_llama_config", "transformers.js_config", "n_special",
               "predict_special_tokens", "output_past", "_num_labels", "num_labels", "max_sequence_length", "is_decoder",
               "finetuning_task", "use_bfloat16", "_commit_hash", "unsloth_fixed", "unsloth_version",
               // How older versions of transformers said how to generate.
               "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_return_sequences", "temperature",
               "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "bad_words_ids",
               "begin_suppress_tokens", "diversity_penalty", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty",
               "forced_bos_token_id", "forced_eos_token_id", "num_beam_groups", "output_scores", "prefix",
               "remove_invalid_values", "return_dict_in_generate", "suppress_tokens", "max_new_tokens", "penalty_alpha",
               "renormalize_logits",
               // Of encoders, TensorFlow and TPUs, in files that older versions wrote with every default.
               "cross_attention_hidden_size", "tf_legacy_loss", "use_return_dict", "xla_device", "keys_to_ignore_at_inference"});
  // GPT-2's: f32 scores, which ours always are, and a head for classification.
  keys.ignore({"reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
               "summary_use_proj"});
  keys.find_object("pruned_heads");  // usually empty; refuse_unread names what is in it
  refuse_flags(keys, {"is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"});
}

void ignore_gguf_keys(const ConfigReader& keys) {
  keys.ignore({"model_type", "vocab_size", "attention.value_length", "attention.key_length",
               "rope.scaling.original_context_length", "rope.scaling.finetuned", "context_length", "tie_word_embeddings",
               "attention_bias", "mlp_bias", "attention_k_eq_v", "use_qk_norm", "joined_projections", "num_ln_in_parallel_attn",
               "head_bias", "use_ssm_norm"});
}

}  // namespace vitrine
