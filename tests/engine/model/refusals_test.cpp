// What a model's files must not say: each refusal is a FileError that names file, key or tensor, and what was expected.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "model/load.h"
#include "model/unknown_keys.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::string config_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A copy of a golden model with a changed configuration or changed tensors.
class Changed {
 public:
  explicit Changed(const std::string& model)
      : source_(Golden::open(model).model()), config_(read_json(source_ + "/config.json")) {}

  Changed& config(const std::function<void(Json&)>& edit) {
    edit(config_);
    return *this;
  }
  Changed& set(const std::string& key, const Json& value) {
    config_[key] = value;
    return *this;
  }
  std::string message() const {
    write();
    return message_of([&] { open_model(scratch_.path()); });
  }
  void loads() const {
    write();
    EXPECT_NO_THROW(open_model(scratch_.path()));
  }
  /// Goes through the tensors, in which `edit` may change shapes, types and names or leave some out (by an empty name).
  Changed& tensors(std::function<void(TensorToWrite&)> edit) {
    edit_ = std::move(edit);
    return *this;
  }
  Changed& add(TensorToWrite tensor) {
    added_.push_back(std::move(tensor));
    return *this;
  }
  const std::string& dir() const { return scratch_.path(); }
  std::string weights() const { return scratch_ / "model.safetensors"; }
  const std::string& source() const { return source_; }

  void write() const {
    scratch_.write("config.json", config_.dump());
    const Checkpoint source = open_safetensors(source_ + "/model.safetensors");
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, tensor] : source.tensors()) {
      TensorToWrite copy{name, tensor.dtype, tensor.shape, tensor.data};
      if (edit_) edit_(copy);
      if (!copy.name.empty()) tensors.push_back(copy);
    }
    tensors.insert(tensors.end(), added_.begin(), added_.end());
    write_safetensors(weights(), tensors);
  }

 private:
  std::string source_;
  Json config_;
  std::function<void(TensorToWrite&)> edit_;
  std::vector<TensorToWrite> added_;
  Scratch scratch_;
};

TEST(Refusals, UnknownRopeTypes) {
  for (const char* type : {"ntk", "mrope"}) {
    const std::string old_names = Changed("llama").set("rope_scaling", {{"rope_type", type}, {"factor", 2.0}}).message();
    EXPECT_CONTAINS(old_names, "config.json: \"rope_scaling.rope_type\" is \"" + std::string(type) + "\"");
    EXPECT_CONTAINS(old_names, "expected default, linear, dynamic, llama3, yarn, longrope or proportional");
    const std::string new_names =
        Changed("qwen2").set("rope_parameters", {{"rope_type", type}, {"rope_theta", 1e4}, {"factor", 2.0}}).message();
    EXPECT_CONTAINS(new_names, "\"rope_parameters.rope_type\" is \"" + std::string(type) + "\"");
  }
}

TEST(Refusals, ImpossibleValues) {
  for (const std::string& model : Golden::all()) {
    SCOPED_TRACE(model);
    const Json own = read_json(Golden::open(model).model() + "/config.json");
    const char* eps = "rms_norm_eps";
    for (const char* key : {"layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"})
      if (own.contains(key) || (model.starts_with("classic") && std::string_view(key) == "layer_norm_eps")) eps = key;
    if (model != "opt") {  // which has no key for it
      EXPECT_CONTAINS(Changed(model).set(eps, -1e-6).message(), "\"" + std::string(eps) + "\" is -1e-06; must not be negative");
    }
    if (model == "mamba2") continue;  // which has no dropout
    const char* dropout = own.contains("resid_pdrop") && own.contains("attn_pdrop") ? "resid_pdrop"
                          : model.starts_with("classic")                            ? "dropout"
                                                                                    : "attention_dropout";
    for (const double share : {-0.1, 1.0})
      EXPECT_CONTAINS(Changed(model).set(dropout, share).message(), "is not a probability; expected a number from 0 to below 1");
  }
  EXPECT_CONTAINS(Changed("gemma2").set("attn_logit_softcapping", 0).message(),
                  "is 0; must not be 0: scores are divided by it. Write null for no cap");
  EXPECT_CONTAINS(Changed("gemma2").set("final_logit_softcapping", 0.0).message(),
                  "is 0.0; must not be 0: scores are divided by it. Write null for no cap");
  EXPECT_CONTAINS(Changed("qwen2")
                      .set("use_sliding_window", false)
                      .config([](Json& c) { c["layer_types"] = Json::array({"sliding_attention", "full_attention"}); })
                      .message(),
                  "names windows, although use_sliding_window is false or absent");
  EXPECT_CONTAINS(Changed("gemma2").set("layer_types", Json::array()).message(), "\"layer_types\" is []; has 0 entries");
}

TEST(Refusals, NameTheKeyThatTheFileHas) {
  EXPECT_CONTAINS(Changed("llama").set("rope_scaling", {{"type", "ntk"}, {"factor", 2.0}}).message(),
                  "\"rope_scaling.type\" is \"ntk\"; is not supported");
  EXPECT_CONTAINS(Changed("gpt2_a").set("alibi", true).message(), "sets \"alibi\", which gpt2 models here do not know");
}

TEST(Refusals, RopeScalingThatMeansNothing) {
  EXPECT_CONTAINS(Changed("llama").set("rope_scaling", {{"rope_type", "linear"}}).message(), "lacks \"rope_scaling.factor\"");
  EXPECT_CONTAINS(Changed("llama").set("rope_scaling", {{"rope_type", "linear"}, {"factor", 0.0}}).message(),
                  "\"rope_scaling.factor\" is 0.0; must be above 0");
  EXPECT_CONTAINS(Changed("llama").set("rope_theta", -1.0).message(), "\"rope_theta\" is -1");
  EXPECT_CONTAINS(Changed("llama")
                      .set("rope_scaling", {{"rope_type", "llama3"},
                                            {"factor", 8.0},
                                            {"low_freq_factor", 4.0},
                                            {"high_freq_factor", 3.0},
                                            {"original_max_position_embeddings", 32}})
                      .message(),
                  "must not be below low_freq_factor");
  // A key of another rope type changes numbers there; here nobody would read it.
  EXPECT_CONTAINS(Changed("llama").set("rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}}).message(),
                  "rope_scaling.beta_fast");
  // transformers ignores it with some rope types and stops at others.
  EXPECT_CONTAINS(Changed("llama").set("rope_scaling", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}).message(),
                  "\"rope_scaling.partial_rotary_factor\" is 0.5");
}

// Each size alone is one that a model may have; what is made of both before any weight is looked for would not fit.
TEST(Refusals, SizesThatAreTooLargeTogether) {
  for (const char* model : {"mixtral", "gpt_oss", "qwen3_moe"})
    EXPECT_CONTAINS(
        Changed(model).set("num_hidden_layers", 16384).set("layer_types", nullptr).set("num_local_experts", 4096).message(),
        "config.json: \"num_local_experts\" is 4096; makes n_experts * n_layers 4096 * 16384; expected at most 131072. Is the "
        "file "
        "damaged?");
  EXPECT_CONTAINS(Changed("llama").set("num_attention_heads", 1 << 20).set("head_dim", 1 << 10).message(),
                  "\"num_attention_heads\" is 1048576; makes n_heads * head_dim 1048576 * 1024; expected at most 16777216");
  EXPECT_CONTAINS(Changed("llama").set("num_hidden_layers", 16384).set("hidden_size", 1 << 20).set("head_dim", 16).message(),
                  "\"hidden_size\" is 1048576; makes d_model * n_layers 1048576 * 16384; expected at most 1073741824");
  EXPECT_CONTAINS(Changed("gemma4").set("per_layer_config", nullptr).set("global_head_dim", INT32_MAX).message(),
                  "makes n_heads * head_dim");
}

TEST(Refusals, UnknownFamily) {
  const std::string message = Changed("llama").set("model_type", "mamba").message();
  EXPECT_CONTAINS(message, "config.json: \"model_type\" is \"mamba\"");
  EXPECT_CONTAINS(message, "expected one of " + known_families());
  EXPECT_CONTAINS(Changed("llama").set("architectures", {"LlamaForSequenceClassification"}).message(), "LlamaForCausalLM");
  EXPECT_CONTAINS(Changed("llama").config([](Json& c) { c.erase("model_type"); }).message(), "lacks \"model_type\"");
  const Json toy = {{"d_model", 512}, {"d_vocab", 48262}, {"act_fn", "gelu"}, {"n_layers", 1}, {"attn_only", true}};
  EXPECT_CONTAINS(Changed("llama").config([&](Json& c) { c = toy; }).message(), "is a configuration of TransformerLens");
}

TEST(Refusals, KeysThatNobodyHonors) {
  for (const std::string& model : Golden::all())
    EXPECT_CONTAINS(Changed(model).set("scale_depth", 0.22).message(), "scale_depth") << model;
  EXPECT_CONTAINS(Changed("gemma2").set("attention_bias", true).message(), "\"attention_bias\" is true");
  EXPECT_CONTAINS(Changed("gemma").set("attention_bias", true).message(), "\"attention_bias\" is true");
  EXPECT_CONTAINS(Changed("gpt2_a").set("add_cross_attention", true).message(), "\"add_cross_attention\" is true");
  EXPECT_CONTAINS(Changed("mistral").set("attention_bias", true).message(), "\"attention_bias\" is true");
  EXPECT_CONTAINS(Changed("qwen2").set("use_mrope", true).message(), "\"use_mrope\" is true");
  EXPECT_CONTAINS(Changed("llama").set("rope_interleaved", true).message(), "\"rope_interleaved\" is true");
  EXPECT_CONTAINS(Changed("llama").set("quantization_config", {{"bits", 4}}).message(), "quantization_config");
  EXPECT_CONTAINS(Changed("llama").set("hidden_act", "mish").message(), "\"hidden_act\" is \"mish\"");
  EXPECT_CONTAINS(Changed("gemma").set("hidden_act", "gelu").set("hidden_activation", "silu").message(),
                  "\"hidden_activation\" is \"silu\"; contradicts hidden_act (gelu)");
}

// transformers' GemmaConfig takes the name "gelu" alone for the tanh form; GELUActivation("gelu_python") is the exact one.
TEST(Refusals, GemmasSlipIsTheNameGeluAlone) {
  const auto activation = [](const char* name) {
    Changed model("gemma");
    model.config([&](Json& config) { config.erase("hidden_activation"); }).set("hidden_act", name);
    model.write();
    return open_model(model.dir()).model->layer(0).activation;
  };
  EXPECT_EQ(activation("gelu"), Activation::gelu_tanh);
  EXPECT_EQ(activation("gelu_pytorch_tanh"), Activation::gelu_tanh);
  EXPECT_EQ(activation("gelu_python"), Activation::gelu_exact);
}

TEST(Refusals, ActivationsByTheirNames) {
  const auto activation = [](const char* name) {
    Changed model("llama");
    model.set("hidden_act", name).write();
    return open_model(model.dir()).model->layer(0).activation;
  };
  EXPECT_EQ(activation("relu2"), Activation::relu_squared);
  EXPECT_EQ(activation("quick_gelu"), Activation::quick_gelu);
  EXPECT_EQ(activation("tanh"), Activation::tanh);
  EXPECT_CONTAINS(Changed("llama").set("hidden_act", "mish").message(), "is not an activation vitrine knows");
}

TEST(Refusals, WhatPublishedConfigurationsSayIsAccepted) {
  Changed("qwen2").set("use_mrope", false).loads();
  Changed("llama").set("rope_interleaved", false).set("is_llama_config", true).set("rope_scaling", nullptr).loads();
  Changed("mistral").set("attention_bias", false).loads();
  Changed("gemma2").set("hidden_act", "gelu_pytorch_tanh").set("cache_implementation", "hybrid").loads();
  Changed("gpt2_a").set("task_specific_params", {{"text-generation", {{"do_sample", true}}}}).set("n_ctx", 64).loads();
  // gpt2-medium, gpt2-xl and distilgpt2; the first Llamas; gemma-2-9b and 27b; what older versions wrote for every model.
  Changed("gpt2_a")
      .set("n_special", 0)
      .set("predict_special_tokens", true)
      .set("output_past", true)
      .set("_num_labels", 1)
      .loads();
  Changed("llama").set("max_sequence_length", 2048).set("pad_token_id", -1).loads();
  Changed("gemma2").config([](Json& c) { c["sliding_window_size"] = c["sliding_window"]; }).loads();
  Changed("llama").set("is_encoder_decoder", false).set("is_decoder", false).set("pruned_heads", Json::object()).loads();
  Changed("mistral").set("max_length", 20).set("do_sample", false).set("temperature", 1.0).set("num_labels", 2).loads();
  Changed("qwen2").set("unsloth_fixed", true).set("unsloth_version", "2024.9").loads();
}

TEST(Refusals, PublishedKeysWithValuesThatWouldChangeNumbers) {
  EXPECT_CONTAINS(Changed("gemma2").set("sliding_window_size", 3).message(), "another name of the same setting");
  EXPECT_CONTAINS(Changed("llama").set("is_encoder_decoder", true).message(), "\"is_encoder_decoder\" is true");
  EXPECT_CONTAINS(Changed("gpt2_a").set("pruned_heads", {{"0", {1, 2}}}).message(), "pruned_heads");
}

TEST(Refusals, WindowsOfALlama) {
  EXPECT_CONTAINS(Changed("llama").set("sliding_window", 4).message(),
                  "\"sliding_window\" is 4; is not a setting of Llama models; expected null, or the model_type mistral");
  Changed("llama").set("sliding_window", nullptr).loads();
}

TEST(Refusals, RotarySettingsOfGemma3) {
  const Json flat = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  EXPECT_CONTAINS(Changed("gemma3").set("rope_parameters", flat).message(), "\"rope_parameters\" is");
  EXPECT_CONTAINS(Changed("gemma3").set("rope_parameters", flat).message(), "has no full_attention");
  const auto theta = [](const Json& config) {
    ModelFiles files;
    files.config = config;
    files.config_path = "config.json";
    return model_from_config(files)->layer(5).rope->theta;
  };
  Json config = read_json(Golden::open("gemma3").model() + "/config.json");
  EXPECT_EQ(theta(config), 1000);
  config["rope_theta"] = 5000.0;  // of layers whose object has none
  EXPECT_EQ(theta(config), 1000);
  config["rope_parameters"]["full_attention"].erase("rope_theta");
  EXPECT_EQ(theta(config), 5000);
}

TEST(Refusals, Yarn) {
  const auto yarn = [](const Json& more) {
    Json rope = {{"rope_type", "yarn"}, {"rope_theta", 1e4}, {"factor", 2.0}, {"original_max_position_embeddings", 64}};
    rope.update(more);
    return rope;
  };
  const auto message = [&](const Json& more) { return Changed("llama").set("rope_parameters", yarn(more)).message(); };
  Changed("llama")
      .set("rope_parameters", yarn({{"beta_fast", nullptr}, {"beta_slow", nullptr}, {"attention_factor", nullptr}}))
      .loads();
  EXPECT_CONTAINS(message({{"original_max_position_embeddings", nullptr}}),
                  "lacks \"rope_parameters.original_max_position_embeddings\"");
  EXPECT_CONTAINS(message({{"beta_fast", 0.5}}), "\"rope_parameters.beta_fast\" is 0.5; must not be below beta_slow");
  EXPECT_CONTAINS(message({{"attention_factor", -1.0}}), "must be above 0");
  EXPECT_CONTAINS(message({{"factor", 0.0}}), "\"rope_parameters.factor\" is 0.0; must be above 0");
  EXPECT_CONTAINS(message({{"mscales", 0.7}}), "sets \"rope_parameters.mscales\"");
}

TEST(Refusals, SettingsOfOlmo3) {
  EXPECT_CONTAINS(Changed("olmo3").set("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}).message(),
                  "has no full_attention; expected an object for each type of layer");
  EXPECT_CONTAINS(Changed("olmo3").set("rope_parameters", nullptr).set("rope_theta", 1e4).message(),
                  "\"rope_theta\" is 10000.0; is not the 500000 of the layers with a window");
  EXPECT_CONTAINS(Changed("olmo3").config([](Json& c) { c["rope_parameters"]["full_attention"]["truncate"] = false; }).message(),
                  "\"rope_parameters.full_attention.truncate\" is false; transformers does not read it for a type of layer");
  EXPECT_CONTAINS(Changed("olmo2").set("sliding_window", 8).message(), "sets \"sliding_window\"");
}

TEST(Refusals, SettingsOfGemma4) {
  EXPECT_CONTAINS(Changed("gemma4").set("num_kv_shared_layers", 6).message(),
                  "\"num_kv_shared_layers\" is 6; leaves no layer with keys and values of its own; expected fewer than 6");
  EXPECT_CONTAINS(Changed("gemma4").set("num_kv_shared_layers", 4).message(),
                  "lets layer 2 read keys and values of an earlier layer with the same window, and there is none");
  EXPECT_CONTAINS(Changed("gemma4").set("use_bidirectional_attention", "all").message(), "expected null or vision");
  EXPECT_CONTAINS(Changed("gemma4").config([](Json& c) { c["per_layer_config"]["5"]["head_dim"] = 4; }).message(),
                  "gives layer 5 other sizes than layers of its kind; expected 8 components of a head");
  EXPECT_CONTAINS(Changed("gemma4").set("vitrine_norms", "off").message(), "which the family gemma4_text has no other form for");
  EXPECT_CONTAINS(Changed("gemma4_moe").set("top_k_experts", 6).message(), "is more than the 5 experts there are");
  Changed("gemma4").config([](Json& c) { c["layer_types"][5] = "sliding_attention"; }).loads();  // the last is global anyway
}

TEST(Refusals, SettingsOfSmolLm3) {
  EXPECT_CONTAINS(Changed("smollm3").set("no_rope_layers", {1, 0}).message(),
                  "\"no_rope_layers\" is [1,0]; has 2 entries; expected one for each of 4 layers");
  EXPECT_CONTAINS(Changed("smollm3").set("no_rope_layer_interval", 0).message(), "\"no_rope_layer_interval\" is 0");
  EXPECT_CONTAINS(Changed("smollm3").config([](Json& c) { c["layer_types"][0] = "sliding_attention"; }).message(),
                  "names windows, although use_sliding_window is false or absent");
}

TEST(Refusals, SettingsOfGlm4) {
  const auto with_share = [](const Json& share) {
    return Changed("glm4").config([&](Json& c) { c["rope_parameters"]["partial_rotary_factor"] = share; }).message();
  };
  EXPECT_CONTAINS(with_share(0.4), "gives 3 rotating components; RoPE needs an even number from 2 to head_dim (8)");
  EXPECT_CONTAINS(with_share(0.1), "gives 0 rotating components");
  EXPECT_CONTAINS(with_share(1.5), "\"rope_parameters.partial_rotary_factor\" is 1.5; is no share; expected a number above 0");
  EXPECT_CONTAINS(Changed("glm4").set("head_dim", 10).message(), "gives 5 rotating components");
  EXPECT_CONTAINS(Changed("glm4").set("num_key_value_heads", 3).message(), "does not divide num_attention_heads (4)");
  EXPECT_CONTAINS(Changed("glm4").set("hidden_act", "mish").message(), "\"hidden_act\" is \"mish\"");
  EXPECT_CONTAINS(Changed("glm4").set("intermediate_size", 16).message(),
                  "\"model.layers.0.mlp.gate_up_proj.weight\" is [28, 12]");
  EXPECT_CONTAINS(Changed("glm4").set("intermediate_size", 16).message(), "expected [32, 12] = [2 * d_ff, d_model]");
  for (const std::string name : {"post_self_attn_layernorm.weight", "post_mlp_layernorm.weight", "self_attn.k_proj.bias"})
    EXPECT_CONTAINS(Changed("glm4")
                        .tensors([&](TensorToWrite& t) {
                          if (t.name.ends_with("0." + name)) t.name.clear();
                        })
                        .message(),
                    "lacks the tensor \"model.layers.0." + name + "\"");
  EXPECT_CONTAINS(Changed("glm4").set("attention_bias", false).message(), "model.layers.0.self_attn.k_proj.bias");
  // The family without norms behind its sub-layers does not ignore a file's.
  EXPECT_CONTAINS(Changed("glm4").set("model_type", "glm").set("architectures", {"GlmForCausalLM"}).message(),
                  "post_mlp_layernorm");
}

TEST(Refusals, SettingsOfGptNeoX) {
  EXPECT_CONTAINS(Changed("gpt_neox").set("rope_theta", 100.0).message(), "is not read by this family; expected rotary_emb_base");
  EXPECT_CONTAINS(Changed("gpt_neox").set("partial_rotary_factor", 0.5).message(), "expected rotary_pct");
  EXPECT_CONTAINS(Changed("gpt_neox").set("num_key_value_heads", 1).message(), "num_key_value_heads");
  EXPECT_CONTAINS(Changed("gpt_neox").set("num_attention_heads", 3).message(), "does not divide hidden_size (16)");
  EXPECT_CONTAINS(Changed("gpt_neox").set("attention_bias", false).message(), "gpt_neox.layers.0.attention.dense.bias");
  EXPECT_CONTAINS(Changed("gpt_neox").set("vitrine_norms", "post").message(), "has no other form for");
}

TEST(Refusals, SettingsOfGptJ) {
  EXPECT_CONTAINS(Changed("gptj").set("rotary_dim", nullptr).message(),
                  "expected the number of components of a head that are rotated");
  EXPECT_CONTAINS(Changed("gptj").set("rotary_dim", 10).message(), "must be even and at most n_embd / n_head (8)");
  EXPECT_CONTAINS(Changed("gptj").set("rotary_dim", 3).message(), "must be even");
  EXPECT_CONTAINS(Changed("gptj").set("rope_theta", 100.0).message(), "rope_theta");
}

TEST(Refusals, SettingsOfOpt) {
  EXPECT_CONTAINS(Changed("opt").set("do_layer_norm_before", false).message(), "in all published models but OPT-350M");
  EXPECT_CONTAINS(Changed("opt").set("word_embed_proj_dim", 8).message(), "expected hidden_size (16)");
  EXPECT_CONTAINS(Changed("opt").set("layer_norm_elementwise_affine", false).message(), "expected true");
  EXPECT_CONTAINS(Changed("opt").set("layerdrop", 0.1).message(), "expected 0");
  EXPECT_CONTAINS(Changed("opt").set("_remove_final_layer_norm", true).message(), "expected false");
  EXPECT_CONTAINS(Changed("opt").set("max_position_embeddings", 64).message(),
                  "expected [66, 16] = [max_position_embeddings + 2");
}

TEST(Refusals, SettingsOfGptNeo) {
  EXPECT_CONTAINS(Changed("gpt_neo").set("attention_layers", {"global", "near"}).message(), "expected global or local");
  EXPECT_CONTAINS(Changed("gpt_neo").set("attention_layers", {"global"}).message(), "has 1 entries; expected one for each of 2");
  EXPECT_CONTAINS(Changed("gpt_neo").set("attention_layers", nullptr).message(), "add attention_layers");
}

TEST(Refusals, SettingsOfStableLmAndStarCoder2) {
  EXPECT_CONTAINS(Changed("stablelm").set("use_parallel_residual", true).message(), "expected false");
  EXPECT_CONTAINS(Changed("stablelm").set("qk_layernorm", true).message(), "expected false");
  EXPECT_CONTAINS(Changed("stablelm").set("head_dim", 4).message(), "expected hidden_size / num_attention_heads");
  EXPECT_CONTAINS(Changed("starcoder2").set("use_bias", false).message(), "does not have: \"model.layers.0.mlp.c_fc.bias\"");
  EXPECT_CONTAINS(Changed("starcoder2").set("layer_types", {"full_attention", "full_attention"}).message(),
                  "is not read by this");
}

TEST(Refusals, SettingsOfBloom) {
  EXPECT_CONTAINS(Changed("bloom").set("apply_residual_connection_post_layernorm", true).message(), "expected false");
  EXPECT_CONTAINS(Changed("bloom").set("n_head", 5).message(), "does not divide hidden_size (12)");
  EXPECT_CONTAINS(Changed("bloom").set("n_embed", 24).message(), "another name of the same setting, is 12");
  EXPECT_CONTAINS(Changed("bloom").set("n_inner", 24).message(), "expected 4 * hidden_size, or null");
  EXPECT_CONTAINS(Changed("bloom").set("rope_theta", 100.0).message(), "rope_theta");
}

TEST(Refusals, SettingsOfCohere) {
  EXPECT_CONTAINS(Changed("cohere").set("use_qk_norm", true).message(),
                  "lacks the tensor \"model.layers.0.self_attn.q_norm.weight\"");
  EXPECT_CONTAINS(Changed("command_r_plus").set("use_qk_norm", false).message(),
                  "does not have: \"model.layers.0.self_attn.k_norm.weight\"");
  EXPECT_CONTAINS(Changed("command_r_plus").set("num_key_value_heads", 4).message(), "k_proj.weight\" is [8, 16]");
  EXPECT_CONTAINS(Changed("cohere").set("rms_norm_eps", 1e-5).message(), "expected layer_norm_eps");
  EXPECT_CONTAINS(Changed("cohere").set("logit_scale", 0).message(), "must not be 0");
  EXPECT_CONTAINS(Changed("cohere").set("head_dim", 4).message(), "expected hidden_size / num_attention_heads");
  EXPECT_CONTAINS(Changed("cohere").set("sliding_window", 8).message(), "sliding_window");
}

TEST(Refusals, OtherFormsOfFalcon) {
  EXPECT_CONTAINS(Changed("falcon").set("alibi", true).message(), "Falcon-RW");
  EXPECT_CONTAINS(Changed("falcon").set("new_decoder_architecture", true).message(),
                  "lacks the tensor \"transformer.h.0.ln_attn.weight\"");
  EXPECT_CONTAINS(Changed("falcon").set("num_ln_in_parallel_attn", 2).message(),
                  "is not supported without new_decoder_architecture; expected 1 or null");
  EXPECT_CONTAINS(Changed("falcon_40b").set("num_ln_in_parallel_attn", 1).message(),
                  "lacks the tensor \"transformer.h.0.input_layernorm.weight\"");
  EXPECT_CONTAINS(Changed("falcon_40b").set("num_ln_in_parallel_attn", 3).message(), "expected 1 or 2");
  EXPECT_CONTAINS(Changed("falcon_40b").set("num_kv_heads", 3).message(), "does not divide num_attention_heads (4)");
  EXPECT_CONTAINS(Changed("falcon_40b").set("num_kv_heads", 1).message(),
                  "expected [24, 16] = [(n_heads + 2 * n_kv_heads) * head_dim, d_model]");
  EXPECT_CONTAINS(Changed("falcon_40b").set("parallel_attn", false).message(), "expected true, as in Falcon 7B");
  Changed("falcon_40b").set("multi_query", false).loads();  // ignored there, as in transformers
  EXPECT_CONTAINS(Changed("falcon").set("multi_query", false).message(), "expected true, as in Falcon 7B");
  EXPECT_CONTAINS(Changed("falcon").set("parallel_attn", false).message(), "expected true, as in Falcon 7B");
}

TEST(Refusals, SettingsOfExaone4Ernie45AndHunyuan) {
  EXPECT_CONTAINS(Changed("exaone4").set("layer_types", {"full_attention"}).message(),
                  "has 1 entries; expected one for each of 2");
  EXPECT_CONTAINS(Changed("exaone4").set("layer_types", {"full_attention", "full_attention"}).message(), "would rotate nothing");
  EXPECT_CONTAINS(Changed("ernie4_5").set("use_bias", true).message(), "model.layers.0.self_attn.q_proj.bias");
  EXPECT_CONTAINS(Changed("ernie4_5").set("partial_rotary_factor", 0.5).message(), "every component of a head rotates");
  Changed("ernie4_5").set("architectures", {"Ernie4_5_ForCausalLM"}).loads();
  Changed("phimoe").set("architectures", {"PhiMoEForCausalLM"}).loads();
  EXPECT_CONTAINS(Changed("hunyuan").set("use_qk_norm", false).message(), "expected true");
  EXPECT_CONTAINS(Changed("hunyuan").set("use_cla", true).message(), "expected false");
}

TEST(Refusals, SettingsOfPhiAndOlmoe) {
  EXPECT_CONTAINS(Changed("phi").set("qk_layernorm", true).message(), "expected false");
  EXPECT_CONTAINS(Changed("phi").set("rms_norm_eps", 1e-5).message(), "expected layer_norm_eps");
  EXPECT_CONTAINS(Changed("olmoe").set("clip_qkv", 8.0).message(), "expected null, as in published models");
  EXPECT_CONTAINS(Changed("olmoe").set("num_experts_per_tok", 6).message(), "is more than the 5 experts there are");
}

TEST(Refusals, SettingsOfFalconH1) {
  EXPECT_CONTAINS(Changed("falcon_h1").set("mamba_d_ssm", 40).message(), "must be mamba_d_ssm (40)");
  EXPECT_CONTAINS(Changed("falcon_h1").set("mamba_d_ssm", nullptr).set("mamba_expand", 3).message(),
                  "must be mamba_expand * hidden_size (48)");
  EXPECT_CONTAINS(Changed("falcon_h1").set("mamba_d_head", "wide").message(), "mamba_d_head");
  EXPECT_CONTAINS(Changed("falcon_h1").set("mamba_n_groups", 3).message(), "expected a multiple of the number of groups (3)");
  EXPECT_CONTAINS(Changed("falcon_h1").set("mlp_multipliers", {1.0}).message(), "holds 1 factors; expected 2");
  EXPECT_CONTAINS(Changed("falcon_h1").set("ssm_multipliers", {1.0, 1.0, 1.0, 1.0, 0.0}).message(),
                  "is 0 or more than f32 holds");
  EXPECT_CONTAINS(Changed("falcon_h1").set("key_multiplier", 1e39).message(), "is 0 or more than f32 holds");
  EXPECT_CONTAINS(Changed("falcon_h1").set("attention_bias", true).set("attention_in_multiplier", 0.5).message(),
                  "is not supported together with attention_bias");
  EXPECT_CONTAINS(Changed("falcon_h1").set("mamba_expand", 1 << 30).message(), "makes mamba_expand * hidden_size");
  EXPECT_CONTAINS(Changed("falcon_h1").set("projectors_bias", true).message(), "mamba.out_proj.bias");
  EXPECT_CONTAINS(Changed("falcon_h1").set("mamba_rms_norm", false).message(), "mamba.norm.weight");
  Changed("falcon_h1").set("mamba_d_head", "auto").loads();
}

TEST(Refusals, SettingsOfNemotronH) {
  const auto pattern = [](const char* text) {
    return Changed("nemotron_h").set("layers_block_type", nullptr).set("hybrid_override_pattern", text).message();
  };
  EXPECT_CONTAINS(pattern("M-x"), "holds \"x\"; expected M, *, - or E for each layer");
  EXPECT_CONTAINS(pattern(""), "names no layer; expected M, *, - or E for each");
  EXPECT_CONTAINS(pattern("M*-"), "tensor \"backbone.layers.1.mixer.q_proj.weight\"");
  EXPECT_CONTAINS(pattern("M-E"), "backbone.layers.2.mixer");
  EXPECT_CONTAINS(Changed("nemotron_h").set("layers_block_type", {"mlp", "conv"}).message(),
                  "holds \"conv\"; expected linear_attention, full_attention, mlp or moe");
  for (const char* flag : {"attention_bias", "tie_word_embeddings"})
    EXPECT_CONTAINS(Changed("nemotron_h").set(flag, true).message(), "expected false");
  EXPECT_CONTAINS(Changed("nemotron_h").set("time_step_min", -1.0).message(), "expected the least step of time");
  EXPECT_CONTAINS(Changed("nemotron_h").set("mamba_n_groups", 3).message(), "expected a multiple of the number of groups (3)");
  EXPECT_CONTAINS(Changed("nemotron_h").set("num_key_value_heads", 3).message(), "does not divide num_attention_heads");
  Changed("nemotron_h").set("layers_block_type", {"mamba", "mlp", "attention"}).set("num_hidden_layers", 7).loads();
}

TEST(Refusals, SettingsOfMamba2) {
  EXPECT_CONTAINS(Changed("mamba2").set("n_groups", 3).message(), "expected a multiple of the number of groups (3)");
  EXPECT_CONTAINS(Changed("mamba2").set("expand", 3).message(), "must be expand * hidden_size (48)");
  EXPECT_CONTAINS(Changed("mamba2").set("state_size", 1 << 20).message(), "is more than a state-space layer here may have");
  EXPECT_CONTAINS(Changed("mamba2").set("state_size", 7).message(), "tensor \"backbone.layers.0.mixer.in_proj.weight\" is");
  EXPECT_CONTAINS(Changed("mamba2").set("time_step_limit", {0.5, 0.1}).message(), "is no range; expected two numbers");
  const Json infinity = {{"__float__", "Infinity"}};
  EXPECT_CONTAINS(Changed("mamba2").set("time_step_limit", {infinity, infinity}).message(), "is no range");
  EXPECT_CONTAINS(Changed("mamba2").set("use_bias", true).message(), "lacks the tensor \"backbone.layers.0.mixer.in_proj.bias\"");
  EXPECT_CONTAINS(Changed("mamba2").set("use_conv_bias", false).message(), "conv1d.bias");
  EXPECT_CONTAINS(Changed("mamba2").set("sliding_window", 8).message(), "sliding_window");
  EXPECT_CONTAINS(Changed("mamba2").set("rescale_prenorm_residual", true).message(), "expected false");
  // As transformers 5 writes it, and as Python does.
  const Changed bare("mamba2");
  bare.loads();
  std::string text = read_json(bare.dir() + "/config.json").dump();
  const std::string named = R"({"__float__":"Infinity"})";
  ASSERT_NE(text.find(named), text.npos);
  text.replace(text.find(named), named.size(), "Infinity");
  std::ofstream(bare.dir() + "/config.json") << text;
  EXPECT_NO_THROW(open_model(bare.dir()));
}

TEST(Refusals, SettingsOfDeepSeek) {
  const auto said = [](const std::string& key, const Json& value) { return Changed("deepseek_v3").set(key, value).message(); };
  EXPECT_CONTAINS(said("n_group", 4), "is 4, which does not divide the 6 experts");
  EXPECT_CONTAINS(said("n_group", 6), "leaves one expert for a group; expected two or more");
  EXPECT_CONTAINS(said("topk_group", 4), "is more than the 3 groups there are");
  EXPECT_CONTAINS(said("num_experts_per_tok", 5), "is more than the 4 experts of the groups that are used (topk_group)");
  EXPECT_CONTAINS(said("scoring_func", "softmax"), "is not supported by this family; expected sigmoid");
  EXPECT_CONTAINS(said("topk_method", "greedy"), "expected noaux_tc");
  EXPECT_CONTAINS(said("moe_layer_freq", 2), "expected 1");
  EXPECT_CONTAINS(said("num_key_value_heads", 1), "all are made of one latent vector");
  EXPECT_CONTAINS(said("attention_bias", true), "expected false");
  EXPECT_CONTAINS(said("vitrine_norms", "post"), "the family deepseek_v3 has no other form for");
}

TEST(Refusals, SettingsOfPhiMoe) {
  const auto said = [](const std::string& key, const Json& value) { return Changed("phimoe").set(key, value).message(); };
  const auto rope = [](const std::string& key, const Json& value) {
    return Changed("phimoe").config([&](Json& c) { c["rope_parameters"][key] = value; }).message();
  };
  EXPECT_CONTAINS(said("num_experts_per_tok", 1), "is not supported by this family, as in transformers; expected 2");
  EXPECT_CONTAINS(said("router_jitter_noise", -0.1), "must not be negative");
  EXPECT_CONTAINS(said("lm_head_bias", false), "does not have: \"lm_head.bias\"");
  EXPECT_CONTAINS(said("attention_bias", false), "self_attn.k_proj.bias");
  EXPECT_CONTAINS(said("vitrine_norms", "post"), "which the family phimoe has no other form for");
  EXPECT_CONTAINS(rope("long_mscale", 1.3), "\"rope_parameters.long_mscale\" is 1.3; differs from short_mscale");
  EXPECT_CONTAINS(rope("short_mscale", 0.0), "must be above 0");
  EXPECT_CONTAINS(rope("short_mscale", nullptr), "lacks \"rope_parameters.short_mscale\"");
  EXPECT_CONTAINS(rope("attention_factor", 1.1), "rope_parameters.attention_factor");
  EXPECT_CONTAINS(rope("rope_type", "llama3"), "expected default or longrope");
}

// The message of reading a variant's configuration with one key changed; "" if it is read.
std::string variant_with(const std::string& variant, const std::string& key, const Json& value) {
  ModelFiles files;
  files.config = read_json(std::string(VITRINE_GOLDEN) + "/variants/" + variant + "/config.json");
  files.config[key] = value;
  files.config_path = "config.json";
  std::string said;
  try {
    model_from_config(files);
  } catch (const FileError& error) {
    said = error.what();
  }
  return said;
}

TEST(Refusals, SettingsOfErnie45Mixtures) {
  const auto said = [](const std::string& key, const Json& value) { return variant_with("ernie4_5_moe", key, value); };
  EXPECT_EQ(said("moe_norm_min", 0.3), "");
  EXPECT_CONTAINS(said("moe_norm_min", -1.0), "must not be negative");
  EXPECT_EQ(said("moe_layer_end_index", -1), "");
  for (const Json& layer : {Json(-2), Json(0.5), Json(1e300)})
    EXPECT_CONTAINS(said("moe_layer_end_index", layer), "is no layer; expected a whole number from 0, or -1 for the last layer");
}

// Routers whose groups cannot be.
TEST(Refusals, GroupsOfExperts) {
  const auto glm = [](const std::string& key, const Json& value) { return Changed("glm4_moe").set(key, value).message(); };
  EXPECT_CONTAINS(glm("n_group", 0), "\"n_group\" is 0");
  EXPECT_CONTAINS(glm("topk_group", 0), "\"topk_group\" is 0");
  EXPECT_CONTAINS(glm("topk_group", 2), "is more than the 1 groups there are");
  EXPECT_CONTAINS(glm("n_group", 2), "which does not divide the 5 experts");
  for (const char* model : {"glm4_moe", "deepseek_v3"})
    EXPECT_CONTAINS(
        Changed(model).set("n_routed_experts", 1).set("num_experts_per_tok", 1).set("n_group", 1).set("topk_group", 1).message(),
        "leaves one expert for a group; expected two or more");
  EXPECT_CONTAINS(variant_with("deepseek_v2_groups", "n_group", 3), "which does not divide the 8 experts");
  EXPECT_CONTAINS(variant_with("deepseek_v2_groups", "topk_group", 5), "is more than the 4 groups there are");
  EXPECT_CONTAINS(variant_with("deepseek_v2_groups", "topk_group", 1), "is more than the 2 experts of the groups that are used");
}

// The layers that predict the tokens after the next one are left out, as in transformers.
TEST(Refusals, FurtherLayersAreLeftOut) {
  for (const std::string model : {"deepseek_v3", "glm4_moe"}) {
    const float number = 1;
    Changed changed(model);
    changed.add({"model.layers.2.eh_proj.weight", DType::f32, {1}, reinterpret_cast<const std::byte*>(&number)});
    changed.set("num_nextn_predict_layers", 1).loads();
    EXPECT_CONTAINS(changed.set("num_nextn_predict_layers", 0).message(), "does not have: \"model.layers.2.eh_proj.weight\"");
    EXPECT_CONTAINS(changed.set("num_nextn_predict_layers", "one").message(), "\"num_nextn_predict_layers\" is \"one\"");
  }
}

TEST(Refusals, SettingsOfLfm2) {
  EXPECT_CONTAINS(Changed("lfm2").set("layer_types", {"conv", "full_attention"}).message(),
                  "has 2 entries; expected one for each of 3 layers");
  EXPECT_CONTAINS(Changed("lfm2").set("layer_types", {"conv", "mamba", "conv"}).message(),
                  "holds \"mamba\"; expected conv or full_attention");
  EXPECT_CONTAINS(Changed("lfm2").set("conv_L_cache", 0).message(), "\"conv_L_cache\" is 0");
  EXPECT_CONTAINS(Changed("lfm2").set("conv_L_cache", 100000).message(), "is more positions than a convolution here may span");
  EXPECT_CONTAINS(Changed("lfm2").set("conv_L_cache", 4).message(), "tensor \"model.layers.0.conv.conv.weight\" is [32, 1, 3]");
  EXPECT_CONTAINS(Changed("lfm2").set("conv_L_cache", 4).message(),
                  "expected [32, 1, 4] = [d_model, 1, conv_L_cache] from config.json");
  EXPECT_CONTAINS(Changed("lfm2").set("block_ffn_dim_multiplier", -1.0).message(),
                  "gives the MLP a width of -21.0; expected one above 0");
  EXPECT_CONTAINS(Changed("lfm2").set("block_ffn_dim_multiplier", 1e300).message(), "expected one above 0");
  EXPECT_CONTAINS(Changed("lfm2").set("conv_bias", true).message(), "lacks the tensor \"model.layers.0.conv.in_proj.bias\"");
  EXPECT_CONTAINS(Changed("lfm2").set("layer_types", nullptr).set("full_attn_idxs", {0}).message(), "self_attn.q_proj.weight");
  Changed("lfm2").set("layer_types", nullptr).set("full_attn_idxs", {1, 99}).loads();
}

TEST(Refusals, SettingsOfQwen35) {
  EXPECT_CONTAINS(Changed("qwen3_5").set("layer_types", {"linear_attention"}).message(),
                  "has 1 entries; expected one for each of 4 layers");
  EXPECT_CONTAINS(Changed("qwen3_5").config([](Json& c) { c["layer_types"][0] = "conv"; }).message(),
                  "holds \"conv\"; expected linear_attention or full_attention");
  EXPECT_CONTAINS(Changed("qwen3_5").set("linear_num_value_heads", 3).message(),
                  "expected a multiple of linear_num_key_heads (2)");
  EXPECT_CONTAINS(Changed("qwen3_5").set("linear_key_head_dim", 1 << 20).message(), "is more than a recurrence here may have");
  EXPECT_CONTAINS(Changed("qwen3_5").config([](Json& c) { c["rope_parameters"]["rope_type"] = "yarn"; }).message(),
                  "lacks \"rope_parameters.factor\"");
  EXPECT_CONTAINS(Changed("qwen3_5").config([](Json& c) { c["rope_parameters"]["partial_rotary_factor"] = 2.0; }).message(),
                  "is no share; expected a number above 0 and up to 1");
  Changed("qwen3_5").config([](Json& c) { c["rope_parameters"].erase("mrope_section"); }).loads();
}

TEST(Refusals, WhatGranite4HasBeyondGranite3) {
  EXPECT_CONTAINS(Changed("granite4").set("num_local_experts", 8).set("num_experts_per_tok", 2).message(),
                  "lacks the tensor \"model.layers.0.block_sparse_moe.router.layer.weight\"");
  EXPECT_CONTAINS(Changed("granite4").config([](Json& c) { c.erase("num_local_experts"); }).message(), "\"num_local_experts\"");
  EXPECT_CONTAINS(Changed("granite4").set("layer_types", {"conv", "attention"}).message(),
                  "holds \"conv\"; expected attention or mamba");
  EXPECT_CONTAINS(Changed("granite4").set("layer_types", {"attention", "mamba"}).message(), "layers.1.mamba.in_proj.weight");
  EXPECT_CONTAINS(Changed("granite4").set("layer_types", nullptr).message(),
                  "layers.0.mamba.in_proj.weight");  // all are Mamba layers
  EXPECT_CONTAINS(Changed("granite4").set("layer_types", {"mamba"}).message(), "expected one for each of 2 layers");
  EXPECT_CONTAINS(Changed("granite4").set("position_embedding_type", "learned").message(), "expected rope, nope or null");
  for (const char* factor : {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"})
    EXPECT_CONTAINS(Changed("granite").set(factor, 0.0).message(), "\"" + std::string(factor) + "\" is 0.0; must be above 0");
}

// What to_dict() of PretrainedConfig has written into config.json with every default (transformers 4.0 to 4.30).
TEST(Refusals, DefaultsThatChangeNoNumberAreTaken) {
  Changed("llama")
      .config([](Json& c) {
        c.merge_patch(Json::parse(R"({"add_cross_attention": false, "tie_encoder_decoder": false, "diversity_penalty": 0.0,
          "encoder_no_repeat_ngram_size": 0, "num_beam_groups": 1, "output_scores": false, "remove_invalid_values": false,
          "return_dict_in_generate": false, "tf_legacy_loss": false, "use_return_dict": true, "max_new_tokens": 20,
          "suppress_tokens": [], "forced_eos_token_id": 2, "prefix": ""})"));
      })
      .loads();
  EXPECT_CONTAINS(Changed("llama").set("add_cross_attention", true).message(), "\"add_cross_attention\" is true");
}

TEST(Refusals, UnknownKeysCanBeLeftOut) {
  const std::string said = Changed("llama").set("new_idea", 3).message();
  EXPECT_CONTAINS(said, "sets \"new_idea\"");
  EXPECT_CONTAINS(said, "or go on without it by --ignore-unknown-keys");
  ModelFiles files = resolve_model(Golden::open("llama").model());
  const Json plain = files.config;
  EXPECT_EQ(drop_unknown_keys(files), std::vector<std::string>{});
  EXPECT_EQ(files.config, plain);
  files.config["new_idea"] = {{"on", true}};
  files.config["a.b"] = 1;
  files.config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"sharpness", 1}};
  EXPECT_EQ(drop_unknown_keys(files), (std::vector<std::string>{"a.b", "new_idea", "rope_scaling.sharpness"}));
  Json wanted = plain;
  wanted["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(files.config, wanted);
  EXPECT_NO_THROW(open_model(files));
  files.config["hidden_size"] = -1;
  EXPECT_CONTAINS(message_of<FileError>([&] { drop_unknown_keys(files); }), "\"hidden_size\" is -1");
}

// A setting is named with the object that holds it.
TEST(Refusals, RotarySettingsWhereTheyStand) {
  const auto with = [](const char* object, const Json& settings) { return Changed("llama").set(object, settings).message(); };
  EXPECT_CONTAINS(with("rope_parameters", {{"rope_type", "default"}, {"rope_theta", -1.0}}),
                  "\"rope_parameters.rope_theta\" is -1.0; must be above 0");
  EXPECT_CONTAINS(with("rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 1e4}, {"factor", 0.0}}),
                  "\"rope_parameters.factor\" is 0.0; must be above 0");
}

TEST(Refusals, RotarySettingsOfPhi3) {
  const auto with = [](const char* key, const Json& value) {
    return Changed("phi3").config([&](Json& c) { c["rope_parameters"][key] = value; }).message();
  };
  EXPECT_CONTAINS(with("short_factor", {1.0, 2.0}), "has 2 numbers; expected 3, one for each pair of rotating components");
  EXPECT_CONTAINS(with("long_factor", {1.0, 0.0, 2.0}), "holds a number that is not above 0");
  EXPECT_CONTAINS(with("long_factor", {1.0, 1e300, 2.0}), "holds a number that is not above 0");
  EXPECT_CONTAINS(with("rope_type", "llama3"), "expected default or longrope");
  EXPECT_CONTAINS(with("partial_rotary_factor", 1.5), "is no share; expected a number above 0 and up to 1");
  EXPECT_CONTAINS(with("partial_rotary_factor", 0.4), "RoPE needs an even number");
  EXPECT_CONTAINS(Changed("phi3").set("original_max_position_embeddings", 1).message(), "must be above 1");
}

TEST(AbsentKeys, MeanWhatTheyMeanInTheReference) {
  const auto shape = [](const char* family, const Json& more = Json::object()) {
    ModelFiles files;
    files.config = {{"model_type", family},   {"hidden_size", 128},        {"intermediate_size", 64},
                    {"num_hidden_layers", 1}, {"num_attention_heads", 32}, {"vocab_size", 10}};
    files.config.update(more);
    files.config_path = "config.json";
    return model_from_config(files)->shape();
  };
  for (const char* glm : {"glm", "glm4"}) {  // transformers 5.24: GlmConfig(), Glm4Config()
    EXPECT_EQ(shape(glm).n_kv_heads, 2);
    EXPECT_EQ(shape(glm).head_dim, 128);
    EXPECT_EQ(shape(glm).context_length, 131072);
    EXPECT_FALSE(shape(glm).tied);
  }
  // transformers 5.23: MistralConfig(), Qwen2Config(), LlamaConfig() of these sizes.
  EXPECT_EQ(shape("mistral").n_kv_heads, 8);
  EXPECT_EQ(shape("mistral", {{"num_key_value_heads", nullptr}}).n_kv_heads, 32);
  EXPECT_EQ(shape("qwen2").n_kv_heads, 32);
  EXPECT_EQ(shape("llama").n_kv_heads, 32);
  EXPECT_EQ(shape("mistral").context_length, 131072);
  EXPECT_EQ(shape("qwen2").context_length, 32768);
  EXPECT_EQ(shape("llama").context_length, 2048);
}

// A configuration of a hundred bytes must not make anybody allocate or count by what it claims.
TEST(Refusals, AbsurdSizes) {
  constexpr int64_t kHuge = INT32_MAX;
  for (const std::string& model : Golden::all()) {
    SCOPED_TRACE(model);
    if (model == "nemotron_h") continue;  // whose layers are listed
    const Json own = read_json(Golden::open(model).model() + "/config.json");
    const char* layers = "num_hidden_layers";
    for (const char* key : {"n_layer", "n_layers", "num_layers"})
      if (own.contains(key)) layers = key;
    EXPECT_CONTAINS(Changed(model).set(layers, kHuge).message(), "asks for 2147483647 layers (" + std::string(layers) + ")");
  }
  const std::string counted = "asks for more parameters than can be counted";
  EXPECT_CONTAINS(Changed("gpt2_a").set("n_embd", kHuge).set("n_head", 1).message(), counted);
  EXPECT_CONTAINS(
      Changed("llama").set("num_hidden_layers", 64).set("hidden_size", 1 << 24).set("intermediate_size", kHuge).message(),
      counted);
}

TEST(Refusals, HeadsThatDoNotDivide) {
  const std::string message = Changed("llama").set("num_key_value_heads", 3).message();
  EXPECT_CONTAINS(message, "\"num_key_value_heads\" is 3; does not divide num_attention_heads (8)");
  EXPECT_CONTAINS(Changed("gemma2").set("num_key_value_heads", 3).message(), "does not divide num_attention_heads");
  EXPECT_CONTAINS(Changed("gpt2_a").set("n_head", 7).message(), "\"n_head\" is 7; does not divide n_embd (48)");
  EXPECT_CONTAINS(Changed("classic_pre").set("n_heads", 5).message(), "\"n_heads\" is 5; does not divide d_model (32)");
  EXPECT_CONTAINS(Changed("llama").set("num_attention_heads", 0).message(), "num_attention_heads");
}

TEST(Refusals, LayerTypes) {
  EXPECT_CONTAINS(Changed("gemma2").set("layer_types", {"full_attention"}).message(),
                  "has 1 entries; expected one for each of 4");
  EXPECT_CONTAINS(
      Changed("gemma2").set("layer_types", {"full_attention", "full_attention", "linear", "full_attention"}).message(),
      "holds \"linear\"; expected sliding_attention or full_attention");
  EXPECT_CONTAINS(Changed("gemma2").set("sliding_window", nullptr).message(), "sliding_window is missing or null");
  EXPECT_CONTAINS(Changed("gemma2").set("query_pre_attn_scalar", 0).message(), "\"query_pre_attn_scalar\" is 0");
}

TEST(Refusals, MissingTensor) {
  for (const std::string& model : Golden::all()) {
    SCOPED_TRACE(model);
    std::string last;
    Changed changed(model);
    const Checkpoint source = open_safetensors(changed.source() + "/model.safetensors");
    for (const auto& [name, tensor] : source.tensors()) last = name;
    changed.tensors([&](TensorToWrite& t) {
      if (t.name == last) t.name.clear();
    });
    const std::string message = changed.message();
    EXPECT_CONTAINS(message, changed.dir() + ": lacks the tensor \"" + last + "\"");
    EXPECT_CONTAINS(message, "from config.json");
    EXPECT_CONTAINS(message, "Do config.json and the weights come from the same model?");
  }
}

TEST(Refusals, ExtraTensor) {
  const float numbers[2] = {1, 2};
  for (const std::string& model : Golden::all()) {
    SCOPED_TRACE(model);
    Changed changed(model);
    changed.add({"model.layers.99.input_layernorm.weight", DType::f32, {2}, numbers});
    const std::string message = changed.message();
    EXPECT_CONTAINS(message, "holds 1 tensor(s) that the family");
    EXPECT_CONTAINS(message, "\"model.layers.99.input_layernorm.weight\"");
  }
  // Fewer layers in the configuration than in the file: every tensor of the last one is left over.
  EXPECT_CONTAINS(Changed("llama").set("num_hidden_layers", 2).message(), "\"model.layers.2.input_layernorm.weight\"");
}

TEST(Refusals, MisshapenTensor) {
  Changed changed("llama");  // 8 query heads, 2 key/value heads, d_model 64
  changed.set("num_key_value_heads", 4);
  const std::string message = changed.message();
  EXPECT_CONTAINS(message, changed.weights() + ": tensor \"model.layers.0.self_attn.k_proj.weight\" is [16, 64] (header byte ");
  EXPECT_CONTAINS(message, "; expected [32, 64] = [n_kv_heads * head_dim, d_model] from config.json.");
  EXPECT_CONTAINS(message, "\n  Do config.json and the weights come from the same model?");
  EXPECT_CONTAINS(Changed("gpt2_a")
                      .tensors([](TensorToWrite& t) {
                        if (t.name.ends_with("h.1.attn.c_attn.weight")) std::swap(t.shape[0], t.shape[1]);
                      })
                      .message(),
                  "is [144, 48] (header byte ");
  EXPECT_CONTAINS(Changed("gpt2_a")
                      .tensors([](TensorToWrite& t) {
                        if (t.name.ends_with("h.1.attn.c_attn.weight")) std::swap(t.shape[0], t.shape[1]);
                      })
                      .message(),
                  "expected [48, 144] = [d_model, 3 * d_model] from config.json");
}

TEST(Refusals, TypesWithoutKernels) {
  Changed changed("llama");
  changed.tensors([](TensorToWrite& t) {
    if (!t.name.ends_with("layers.1.mlp.up_proj.weight")) return;
    t.dtype = DType::i32;
  });
  EXPECT_CONTAINS(changed.message(), "has element type i32; expected one of f32, f16, bf16");
}

TEST(Refusals, PackedWeights) {
  for (const char* method : {"awq", "gptq", "fbgemm_fp8", "bitsandbytes"}) {
    Changed changed("llama");
    changed.set("quantization_config", {{"quant_method", method}, {"bits", 4}});
    EXPECT_CONTAINS(changed.message(), "says that the weights are packed by the method " + std::string(method));
    EXPECT_CONTAINS(changed.message(), "or a GGUF file of it");
  }
  Changed changed("llama");
  changed.set("quantization_config", Json::object());
  EXPECT_CONTAINS(changed.message(), "packed by the method unknown");
  changed.set("quantization_config", nullptr).loads();
}

TEST(Refusals, TruncatedWeights) {
  const Scratch scratch;
  const std::string source = Golden::open("gemma2").model(), whole = config_bytes(source + "/model.safetensors");
  std::filesystem::copy_file(source + "/config.json", scratch / "config.json");
  for (const size_t keep : {size_t{0}, size_t{4}, size_t{8}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    SCOPED_TRACE(keep);
    scratch.write("model.safetensors", std::string_view(whole).substr(0, keep));
    EXPECT_CONTAINS(message_of([&] { open_model(scratch.path()); }), scratch / "model.safetensors");
  }
}

// They would be lost, whatever their type.
TEST(Refusals, ExtraTensorsOfTypesThatAreNotRead) {
  const Scratch scratch;
  const std::string source = Golden::open("llama").model();
  std::filesystem::copy_file(source + "/config.json", scratch / "config.json");
  std::filesystem::copy_file(source + "/model.safetensors", scratch / "first.safetensors");
  std::string header = R"({"model.layers.9.mlp.up_proj.weight":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string size(8, '\0');
  size[0] = static_cast<char>(header.size());
  scratch.write("second.safetensors", size + header + std::string(8, 'x'));
  Json map = {{"model.layers.9.mlp.up_proj.weight", "second.safetensors"}};
  const Checkpoint whole = open_safetensors(source + "/model.safetensors");
  for (const auto& [name, tensor] : whole.tensors()) map[name] = "first.safetensors";
  scratch.write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  EXPECT_CONTAINS(message_of([&] { open_model(scratch.path()); }),
                  "tensor(s) that the family llama does not have: \"model.layers.9.mlp.up_proj.weight\"");
}

// As safetensors' save_model() writes tied weights.
TEST(Refusals, ATiedModelMayStoreItsHeadAlone) {
  for (const auto& [model, embedding] : std::vector<std::pair<std::string, std::string>>{{"gemma", "model.embed_tokens.weight"},
                                                                                         {"gpt2_a", "transformer.wte.weight"}}) {
    Changed changed(model);
    changed.tensors([&](TensorToWrite& t) {
      if (t.name == embedding) t.name = "lm_head.weight";
    });
    changed.loads();
  }
}

TEST(Refusals, HeadThatIsNotTheEmbedding) {
  for (const auto& [model, embedding] :
       std::vector<std::pair<std::string, std::string>>{{"gpt2_a", "transformer.wte.weight"},
                                                        {"gemma", "model.embed_tokens.weight"},
                                                        {"qwen2", "model.embed_tokens.weight"}}) {
    SCOPED_TRACE(model);
    Changed changed(model);
    const Checkpoint source = open_safetensors(changed.source() + "/model.safetensors");
    const StoredTensor& tied = *source.find(embedding);
    std::string bytes(reinterpret_cast<const char*>(tied.data), tied.bytes);
    changed.add({"lm_head.weight", tied.dtype, tied.shape, bytes.data()});
    changed.loads();  // the same once more, as some tools write it
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    const std::string message = changed.message();
    EXPECT_CONTAINS(message, "tensor \"lm_head.weight\" (header byte ");
    EXPECT_CONTAINS(message, "differs from \"" + embedding + "\", although tie_word_embeddings is true");
  }
}

TEST(Refusals, ExpertsThatCannotBe) {
  const auto said = [](const char* model, const char* key, const Json& value) {
    return Changed(model).set(key, value).message();
  };
  EXPECT_CONTAINS(said("qwen3_moe", "num_experts_per_tok", 6), "is more than the 5 experts there are");
  EXPECT_CONTAINS(said("qwen3_moe", "num_local_experts", 1000000), "is more than the 4096 experts a layer may have");
  EXPECT_CONTAINS(said("qwen3_moe", "num_local_experts", 0), "num_local_experts");
  EXPECT_CONTAINS(said("mixtral", "num_local_experts", 5), "expected [5, 32] = [n_experts, d_model]");
  EXPECT_CONTAINS(said("mixtral", "num_local_experts", 3), "tensor \"model.layers.0.block_sparse_moe.gate.weight\" is [4, 32]");
  EXPECT_CONTAINS(said("mixtral", "router_aux_loss_coef", -1), "is below 0; expected the weight of a loss");
  EXPECT_CONTAINS(said("mixtral", "router_jitter_noise", 0.1), "router_jitter_noise");
}

TEST(Refusals, PackedExpertsOfGptOss) {
  Scratch scratch;
  const std::string variant = std::string(VITRINE_GOLDEN) + "/variants/gpt_oss_default_rope";
  Json config = read_json(variant + "/config.json");
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  scratch.write("config.json", config.dump());
  scratch.write("model.safetensors", config_bytes(variant + "/model.safetensors"));
  EXPECT_CONTAINS(message_of([&] { open_model(scratch.path()); }),
                  "expected [4, 74, 24] = [n_experts, 2 * d_ff, d_model] from config.json");
}

}  // namespace
}  // namespace vitrine
