// GGUF models in the form of a Hugging Face directory. The files were made of the golden directories by
// tests/golden/gguf/make.py, so what comes out must be the directory's.
#include "model/from_gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/adapter.h"
#include "model/export.h"
#include "run.h"
#include "support/changed_gguf.h"

namespace vitrine {
namespace {

std::string gguf_file(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"; }

OpenedModel written(const std::string& gguf, const Scratch& scratch, const std::string& adapter = "") {
  OpenedModel opened = as_huggingface(open_model(gguf));
  if (!adapter.empty()) open_adapter(opened, adapter);
  write_huggingface(opened, {}, scratch / "out", DType::f32);
  return open_model(scratch / "out");
}

void expect_bits(const StoredTensor& got, const std::vector<float>& want) {
  ASSERT_EQ(got.dtype, DType::f32);
  ASSERT_EQ(got.bytes, want.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(got.data, want.data(), got.bytes), 0) << got.name;
}

class FromGguf : public testing::TestWithParam<std::string> {};

TEST_P(FromGguf, GivesBackTheTensorsBitForBit) {
  const Scratch scratch;
  const OpenedModel made = written(gguf_file(GetParam()), scratch);
  const Checkpoint golden = open_safetensors(Golden::open(GetParam()).model());
  const OpenedModel directory = open_model(Golden::open(GetParam()).model());
  EXPECT_EQ(Golden::names_in(made.checkpoint), Golden::names_in(golden));
  for (const auto& [name, tensor] : golden.tensors()) {
    const StoredTensor* const got = made.checkpoint.find(name);
    ASSERT_NE(got, nullptr) << name;
    EXPECT_EQ(got->shape, tensor.shape) << name;
    std::vector<float> want = as_floats(tensor).values;
    const bool centered = (GetParam().starts_with("gemma") && !GetParam().starts_with("gemma4")) ||
                          (GetParam() == "qwen3_5" && !name.ends_with("linear_attn.norm.weight"));
    if (centered && name.ends_with("norm.weight"))
      for (float& w : want) w = (w + 1) - 1;                     // the file holds 1 + w, which is rounded
    for (const TensorLine& part : directory.model->tensors()) {  // factors stay in the weights
      if (part.huggingface != name || !part.layout.gguf_factors) continue;
      float* row = want.data() + part.first_row(false) * part.in.size;
      for (int64_t i = 0; i < part.out.size; ++i, row += part.in.size)
        for (int64_t j = 0; j < part.in.size; ++j) row[j] = part.layout.gguf_factors.apply(row[j], i);
    }
    if (name.ends_with(".A_log")) {  // -exp of it
      EXPECT_CLOSE(as_floats(*got).values, want, (Tolerance{.abs = 1e-6, .rel = 1e-6})) << name;
      continue;
    }
    expect_bits(*got, want);
  }
}

TEST_P(FromGguf, GivesBackTheConfiguration) {
  const Scratch scratch;
  const OpenedModel made = written(gguf_file(GetParam()), scratch), golden = open_model(Golden::open(GetParam()).model());
  const ModelShape a = made.model->shape(), b = golden.model->shape();
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.d_ff, b.d_ff);
  EXPECT_EQ(a.context_length, b.context_length);
  const auto& lines = golden.model->tensors();
  const bool folded =  // factors are in the weights
      std::any_of(lines.begin(), lines.end(), [](const TensorLine& line) { return bool(line.layout.gguf_factors); });
  if (!folded) {
    EXPECT_EQ(a.embedding_scale, b.embedding_scale);
    EXPECT_EQ(made.model->head().scale, golden.model->head().scale);
  }
  EXPECT_EQ(made.model->head().softcap, golden.model->head().softcap);
  for (int64_t layer = 0; layer < b.n_layers; ++layer) {
    const LayerRecord &x = made.model->layer(layer), &y = golden.model->layer(layer);
    if (!folded) {
      EXPECT_EQ(x.attention.scale, y.attention.scale);
      EXPECT_EQ(x.residual_scale, y.residual_scale);
    }
    EXPECT_EQ(x.attention.softcap, y.attention.softcap);
    EXPECT_EQ(x.attention.window, y.attention.window);
    EXPECT_EQ(x.attention.dropout, y.attention.dropout);
    ASSERT_EQ(x.rope.has_value(), y.rope.has_value());
    if (x.rope &&
        x.rope->scaling == RopeSpec::Scaling::longrope) {  // the factors lie in the file here, in the configuration there
      for (const int64_t prompt : {1, 1000}) EXPECT_EQ(rope_frequencies(*x.rope, prompt), rope_frequencies(*y.rope, prompt));
      EXPECT_NEAR(x.rope->attention_factor, y.rope->attention_factor, 1e-7);
    } else {
      EXPECT_EQ(x.rope, y.rope);
    }
    EXPECT_EQ(x.norm.eps, y.norm.eps);
    EXPECT_EQ(x.norm.offset, y.norm.offset);
    EXPECT_EQ(x.activation, y.activation);
  }
  // Keys that both have say the same, special tokens included.
  const Json &got = made.files.config, &want = golden.files.config;
  for (const auto& [key, value] : got.items()) {
    if (!want.contains(key) || key == "n_inner" || key == "pad_token_id") continue;  // null is 4 · d_model; no such GGUF key
    if (folded && (key.ends_with("_multiplier") || key.ends_with("_multipliers"))) continue;
    if (a.family == "lfm2" && (key == "intermediate_size" || key.starts_with("block_"))) continue;  // d_ff before it is adjusted
    if (key.ends_with("_token_id") && !open_gguf(gguf_file(GetParam())).metadata.has("tokenizer.ggml.tokens")) continue;
    EXPECT_EQ(value, want.at(key)) << key;
  }
}

// As it lies in memory, before it is written: nothing but what must move was copied.
TEST_P(FromGguf, RunsAndLeavesTheRestWhereItLies) {
  const Golden gold = Golden::open(GetParam());
  const OpenedModel opened = as_huggingface(open_model(gguf_file(GetParam())));
  ThreadPool pool(2);
  const Forward got = run_forward(*opened.model, gold.prompt("mid").ids[0], {.f32 = true}, pool);
  EXPECT_CLOSE(got.logits, gold["mid/logits"].at(0), gold.tolerance());
  const std::span<const std::byte> file = opened.checkpoint.files().front().bytes();
  int inside = 0, outside = 0, other = 0;  // other: rows in another order, or another number
  for (const TensorLine& line : opened.model->tensors()) {
    const void* const data = line.weight != nullptr ? line.weight->data : line.vector->data;
    const auto* const at = static_cast<const std::byte*>(data);
    ++(at >= file.data() && at < file.data() + file.size() ? inside : outside);
  }
  const OpenedModel as_stored = open_model(gguf_file(GetParam()));
  for (const TensorLine& line : as_stored.model->tensors())
    if (line.layout.gguf_pairs || line.layout.tiles || line.layout.split || line.layout.gguf_minus_exp ||
        line.layout.gguf_offset != 0)
      ++other;
  for (const TensorLine& line : opened.model->tensors())
    if (!line.gguf_odd.empty()) ++other;  // two matrices that became one
  const int layers = static_cast<int>(opened.model->shape().n_layers);
  EXPECT_EQ(outside, other);
  if (GetParam() == "llama") {
    EXPECT_EQ(outside, 2 * layers);  // W_Q, W_K
  } else if (GetParam() == "gemma2") {
    EXPECT_EQ(outside, 4 * layers + 1);  // the norms
  }
  EXPECT_GT(inside, 5 * layers);
}

INSTANTIATE_TEST_SUITE_P(Every, FromGguf, testing::ValuesIn(Golden::with("gguf")), [](const auto& test) { return test.param; });

TEST(FromGgufRope, ScalingMeetsTheNumbersOfTheConfiguration) {
  ThreadPool pool(2);
  for (const auto& [file, variant] : std::vector<std::pair<std::string, std::string>>{
           {"rope_llama3", "llama_rope_llama3"}, {"rope_linear", "llama_rope_linear"}, {"rope_qwen2", "qwen2_rope_llama3"}}) {
    SCOPED_TRACE(file);
    const Scratch scratch;
    const OpenedModel made = written(gguf_file(file), scratch);
    const Checkpoint golden = open_safetensors(std::string(VITRINE_GOLDEN) + "/variants/" + variant + "/golden.safetensors");
    for (const std::string prompt : {"0/", "1/"})
      expect_forward(run_forward(*made.model, ids_of(golden_tensor(golden, prompt + "ids")), {}, pool), golden, prompt,
                     tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0])));
  }
}

TEST(FromGgufQuantized, GivesTheDequantizedWeights) {
  ThreadPool pool(2);
  const Checkpoint golden = open_safetensors(std::string(VITRINE_GOLDEN) + "/gguf/quantized.safetensors");
  for (const std::string type : {"f16", "q8_0", "q4_0"}) {
    SCOPED_TRACE(type);
    const Scratch scratch;
    const OpenedModel made = written(gguf_file("llama_" + type), scratch);
    expect_forward(run_forward(*made.model, ids_of(golden_tensor(golden, type + "/ids")), {}, pool), golden, type + "/",
                   tolerance_for(static_cast<double>(golden_tensor(golden, type + "/distance").values[0])));
  }
}

// An adapter's rows are in the order of the Hugging Face file; GPT-2's matrices lie the other way round.
TEST(FromGgufAdapter, IsMergedAsIntoTheDirectory) {
  for (const std::string name : {"llama", "gpt2_a"}) {
    SCOPED_TRACE(name);
    const Scratch scratch, other;
    const std::string adapter = std::string(VITRINE_GOLDEN) + "/lora/" + name + "/adapter";
    const OpenedModel made = written(gguf_file(name), scratch, adapter);
    OpenedModel golden = open_model(Golden::open(name).model());
    open_adapter(golden, adapter);
    write_huggingface(golden, {}, other / "out", DType::f32);
    const Checkpoint want = open_safetensors(other / "out");
    for (const auto& [tensor_name, tensor] : want.tensors())
      expect_bits(*made.checkpoint.find(tensor_name), as_floats(tensor).values);
  }
}

// Frequencies of Llama 3.1 by transformers (formulas/rope_llama3.json), at four of them: one lies where the rule blends.
TEST(FromGgufRope, TheOriginalContextIsFound) {
  for (const Json& published : read_json(std::string(VITRINE_GOLDEN) + "/formulas/rope_llama3.json")) {
    SCOPED_TRACE(published.at("factor").dump());
    if (published.at("original_context") != 8192) continue;  // no published rule
    const double theta = published.at("theta").get<double>();
    const auto all = published.at("inv_freq").get<std::vector<double>>();
    std::vector<float> divisors;  // of a head of 8 components, whose frequencies are every 16th of a head of 128
    for (size_t i = 0; i < all.size(); i += all.size() / 4)
      divisors.push_back(static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(all.size())) / all[i]));
    ASSERT_EQ(divisors.size(), 4u);
    const Scratch scratch;
    const Json config = huggingface_config(
        open_model(changed_gguf(scratch, gguf_file("llama"), {{"llama.rope.freq_base", static_cast<float>(theta)}}, divisors)));
    const Json& scaling = config.at("rope_scaling");
    EXPECT_EQ(config.at("rope_theta").get<double>(), theta);
    EXPECT_EQ(scaling.at("rope_type"), "llama3");
    EXPECT_NEAR(scaling.at("factor").get<double>(), published.at("factor").get<double>(), 1e-4);
    EXPECT_NEAR(scaling.at("original_max_position_embeddings").get<double>(), published.at("original_context").get<double>(), 2);
  }
}

TEST(FromGgufKeys, AWindowMakesItMistral) {
  const Scratch scratch;
  const OpenedModel made =
      written(changed_gguf(scratch, gguf_file("llama"), {{"llama.attention.sliding_window", uint32_t{5}}}), scratch);
  EXPECT_EQ(made.model->shape().family, "mistral");
  EXPECT_EQ(made.files.config.at("architectures"), Json::array({"MistralForCausalLM"}));
  EXPECT_EQ(made.model->layer(1).attention.window, 5);
}

// transformers 5.24 opens none of these directories without what is asked for here.
TEST(FromGgufKeys, TransformersTakesTheConfiguration) {
  const auto written_of = [](const char* model, const Json& changes) {
    ModelFiles files = resolve_model(Golden::open(model).model());
    files.config.merge_patch(changes);
    return model_from_config(files)->config(ConfigFormat::huggingface);
  };
  const Json gemma = written_of("gemma4", {{"num_hidden_layers", 2},
                                           {"num_kv_shared_layers", 0},
                                           {"hidden_size_per_layer_input", 0},
                                           {"global_head_dim", 8},
                                           {"per_layer_config", nullptr},
                                           {"layer_types", {"full_attention", "full_attention"}}});
  EXPECT_EQ(gemma.at("sliding_window"), 512);
  EXPECT_EQ(gemma.at("layer_types"), Json::array({"full_attention", "full_attention"}));
  for (const char* positions : {"rope", "nope"}) {
    const Json granite = written_of("granite4", {{"position_embedding_type", positions}});
    EXPECT_EQ(2 * granite.at("hidden_size").get<int64_t>() % granite.at("mamba_n_heads").get<int64_t>(), 0);
  }
  const Json odd = {{"num_attention_heads", 5}, {"num_key_value_heads", 5}, {"head_dim", 8}};  // 48 wide
  const Json llama = written_of("llama", odd);
  ASSERT_NE(llama.at("hidden_size").get<int64_t>() % 5, 0);
  EXPECT_EQ(llama.at("model_type"), "mistral");
  EXPECT_TRUE(llama.at("sliding_window").is_null());
  EXPECT_EQ(written_of("llama", Json::object()).at("model_type"), "llama");
}

TEST(FromGgufKeys, WhatADirectoryCannotSayIsRefused) {
  const auto message = [](const std::vector<std::pair<std::string, std::optional<GgufValue>>>& changes,
                          const std::vector<float>& divisors = {}) {
    const Scratch scratch;
    const std::string path = changed_gguf(scratch, gguf_file("llama"), changes, divisors);
    std::string said = message_of<FileError>([&] { as_huggingface(open_model(path)); });
    EXPECT_CONTAINS(said, "changed.gguf");
    return said;
  };
  EXPECT_CONTAINS(message({{"llama.rope.dimension_count", uint32_t{4}}}),
                  "gives the rotating components of a head in layer 0 as 4.0, and its family's config.json can only say 8.0");
  EXPECT_CONTAINS(message({}, {1, 3, 2, 5}), "rope_freqs.weight in a way that is not llama3's");
  for (const float odd : {0.0f, -1.0f, std::nanf(""), INFINITY})  // already where it is opened
    EXPECT_CONTAINS(message({}, {1, odd, 2, 5}), "tensor \"rope_freqs.weight\" holds");
  EXPECT_CONTAINS(message({{"llama.attention.sliding_window", uint32_t{5}}, {"llama.rope.dimension_count", uint32_t{4}}}),
                  "can only say 8.0");
}

}  // namespace
}  // namespace vitrine
