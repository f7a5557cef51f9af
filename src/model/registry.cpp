#include "model/registry.h"

#include "model/load.h"

namespace vitrine {
namespace {

const std::vector<FamilyEntry>& families() {
  static const std::vector<FamilyEntry> kFamilies = {
      {"gpt2", "gpt2", "GPT2LMHeadModel", make_gpt2, {"transformer."}, {".attn.bias", ".attn.masked_bias", "lm_head.weight"}},
      {"gemma", "gemma", "GemmaForCausalLM", make_gemma, {"model."}, {"lm_head.weight", ".rotary_emb.inv_freq"}},
      {"gemma2", "gemma2", "Gemma2ForCausalLM", make_gemma2, {"model."}, {"lm_head.weight", ".rotary_emb.inv_freq"}},
      {"llama",
       "llama",
       "LlamaForCausalLM",
       make_llama,
       {"model."},
       {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"}},
      {"mistral", nullptr, "MistralForCausalLM", make_mistral, {"model."}, {"lm_head.weight", ".rotary_emb.inv_freq"}},
      {"qwen2",
       "qwen2",
       "Qwen2ForCausalLM",
       make_qwen2,
       {"model."},
       {"lm_head.weight", ".rotary_emb.inv_freq", "rope_freqs.weight"}},
      {"classic_decoder", nullptr, nullptr, make_classic_decoder, {}, {}},
  };
  return kFamilies;
}

}  // namespace

std::string known_families() {
  std::string list;
  for (const FamilyEntry& family : families()) list += (list.empty() ? "" : ", ") + std::string(family.name);
  return list;
}

const FamilyEntry& find_family(const ConfigReader& keys, bool gguf) {
  const std::string type = keys.string("model_type");
  const std::vector<std::string> architectures = keys.strings("architectures");
  for (const FamilyEntry& family : families()) {
    if (gguf ? family.gguf == nullptr || type != family.gguf : type != family.name) continue;
    if (!gguf && architectures.size() == 1 && family.architecture != nullptr && architectures[0] != family.architecture &&
        !architectures[0].ends_with("Model"))
      keys.fail("architectures", "is not the language model of the family " + type + "; expected " + family.architecture);
    return family;
  }
  keys.fail("model_type", "is a family vitrine does not know; expected one of " + known_families());
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
               "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size"});
  keys.find_object("pruned_heads");  // usually empty; refuse_unread names what is in it
  refuse_flags(keys, {"is_encoder_decoder"});
}

void ignore_gguf_keys(const ConfigReader& keys) {
  keys.ignore({"model_type", "vocab_size", "attention.value_length", "attention.key_length",
               "rope.scaling.original_context_length", "rope.scaling.finetuned", "context_length", "tie_word_embeddings",
               "attention_bias", "mlp_bias"});
}

}  // namespace vitrine
