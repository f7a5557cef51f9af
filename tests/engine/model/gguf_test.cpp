// Models from GGUF as llama.cpp's converter writes it: 1 + w in Gemma's norms, permuted rows of Llama's q and k, GPT-2's
// matrices transposed, RoPE divisors as a tensor. Files and answers by tests/golden/gguf/make.py.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>

#include "kernels/table.h"
#include "ops/panel.h"
#include "run.h"
#include "support/changed_gguf.h"

namespace vitrine {
namespace {

std::string golden_file(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"; }

// The message of opening llama.gguf with one key changed or, without a value, left out.
std::string message_with(const std::string& key, std::optional<GgufValue> value) {
  const Scratch scratch;
  const std::string path = changed_gguf(scratch, golden_file("llama"), {{key, std::move(value)}});
  return message_of<FileError>([&] { open_model(path); });
}

TEST(GgufModelKeys, NothingIsGuessed) {
  const std::string eps = "llama.attention.layer_norm_rms_epsilon";
  EXPECT_CONTAINS(message_with(eps, {}), "lacks \"attention.layer_norm_rms_epsilon\"; expected a number");
  EXPECT_CONTAINS(message_with(eps, -1.0F), "\"attention.layer_norm_rms_epsilon\" is -1.0; must not be negative");
  EXPECT_CONTAINS(message_with("llama.rope.freq_base", std::nanf("")), "\"rope.freq_base\" is \"NaN\"; expected a number");
  EXPECT_CONTAINS(message_with("llama.attention.head_count_kv", uint32_t{3}),
                  "\"attention.head_count_kv\" is 3; does not divide");
  EXPECT_CONTAINS(message_with("llama.feed_forward_length", uint32_t{7}),
                  "from the file's metadata.\n  Do metadata and weights come from the same model? Convert it again");
}

// Layers without key/value heads are those with a convolution.
TEST(GgufModelKeys, HeadsOfEachLayer) {
  const auto with = [](const std::string& key, const std::optional<GgufValue>& value) {
    const Scratch scratch;
    const std::string path = changed_gguf(scratch, golden_file("lfm2"), {{key, value}});
    return message_of<FileError>([&] { open_model(path); });
  };
  const std::string heads = "lfm2.attention.head_count_kv";
  using List = std::vector<int32_t>;
  EXPECT_CONTAINS(with(heads, List{0, 2}), "has 2 entries; expected one for each of 3 layers");
  EXPECT_CONTAINS(with(heads, List{0, 0, 0}), "gives no layer a key/value head");
  EXPECT_CONTAINS(with(heads, List{2, 4, 0}), "differs between layers with attention");
  EXPECT_CONTAINS(with(heads, List{0, 3, 0}), "does not divide");
  EXPECT_CONTAINS(with(heads, List{0, -2, 0}), "\"attention.head_count_kv\"");
  EXPECT_CONTAINS(with(heads, List{2, 0, 0}), "lacks the tensor \"blk.0.attn_q.weight\"");
  EXPECT_CONTAINS(with(heads, {}), "\"attention.head_count_kv\"");
  EXPECT_CONTAINS(with("lfm2.shortconv.l_cache", {}), "lacks \"conv_L_cache\" (or \"shortconv.l_cache\")");
}

// Gemma 4 has one number, or one for each layer.
TEST(GgufModelKeys, HeadsOfBothKindsOfLayers) {
  const auto with = [](const GgufValue& value) {
    const Scratch scratch;
    const std::string path = changed_gguf(scratch, golden_file("gemma4"), {{"gemma4.attention.head_count_kv", value}});
    return message_of<FileError>([&] { open_model(path); });
  };
  EXPECT_CONTAINS(with(uint32_t{0}), "\"attention.head_count_kv\"");
  EXPECT_CONTAINS(with(std::vector<int32_t>{0}), "\"attention.head_count_kv\"");
  EXPECT_CONTAINS(with(uint32_t{3}), "does not divide the 4 heads");
  EXPECT_CONTAINS(with(std::vector<int32_t>{2, 0}), "has 2 entries; expected one number above 0, or one for each of");
}

// What a file says of how experts are scored is not ignored where it is another way than the family's.
TEST(GgufModelKeys, GatingOfAnotherKind) {
  const auto with = [](const std::string& model, const std::string& architecture, uint32_t function) {
    const Scratch scratch;
    const std::string path =
        changed_gguf(scratch, golden_file(model), {{architecture + ".expert_gating_func", GgufValue(function)}});
    return message_of<FileError>([&] { open_model(path); });
  };
  EXPECT_CONTAINS(with("glm4_moe", "glm4moe", 1),
                  "\"expert_gating_func\" is 1; is not how models of this family score experts; expected 2");
  EXPECT_CONTAINS(with("deepseek_v3", "deepseek2", 3), "is 3; is not supported; expected 1 (V2's softmax) or 2 (V3's sigmoids)");
  EXPECT_CONTAINS(with("olmoe", "olmoe", 2), "expected 1");
  EXPECT_CONTAINS(with("gpt_oss", "gpt-oss", 1), "expected 3");
  EXPECT_CONTAINS(with("llama", "llama", 2), "sets \"expert_gating_func\"");
  const Scratch scratch;
  EXPECT_NO_THROW(open_model(changed_gguf(scratch, golden_file("mixtral"), {{"llama.expert_gating_func", uint32_t{1}}})));
}

// Keys and values that a file holds as two tensors are joined, whatever their types; only those that hold weights are.
TEST(GgufModelTensors, HalvesOfOtherTypesAreRefused) {
  for (const std::string half : {"attn_k_b.weight", "attn_v_b.weight"}) {
    const Scratch scratch;
    const std::string path = changed_gguf(scratch, golden_file("deepseek_v3"), {}, {}, [&](const std::string& name, DType own) {
      return name == "blk.1." + half ? DType::i32 : own;
    });
    EXPECT_CONTAINS(message_of<FileError>([&] { open_model(path); }), "tensor \"blk.1." + half + "\" (header byte ");
    EXPECT_CONTAINS(message_of<FileError>([&] { open_model(path); }), ") has element type i32; expected one of f32, f16, bf16");
  }
}

class GgufModel : public testing::TestWithParam<std::string> {};

TEST_P(GgufModel, F32FileGivesTheGoldenNumbers) {
  const Golden gold = Golden::open(GetParam());
  const OpenedModel opened = open_model(golden_file(GetParam()));
  const Model& model = *opened.model;
  ThreadPool pool(2);
  for (const std::string prompt : {"one", "short", "mid", "long", "repeat"}) {
    SCOPED_TRACE(prompt);
    const std::vector<int32_t> ids = gold.prompt(prompt).ids[0];
    const auto expected = [&](const std::string& what) { return gold[prompt + "/" + what].at(0); };
    Context ctx(pool);
    Recorder seen({{"*hook_resid_pre"}, {"*hook_pattern"}});
    ctx.listen(&seen);
    const Step step = Step::of(ids);
    const Tensor x = model.residual(ctx, step);
    EXPECT_CLOSE(numbers_of(logits(ctx, x, model.head(), every_row(step.rows()))), expected("logits"), gold.tolerance());
    const int64_t n_layers = model.shape().n_layers;
    for (int64_t layer = 0; layer < n_layers; ++layer) {
      const std::string i = std::to_string(layer), block = "blocks." + i + ".";
      EXPECT_CLOSE(seen.values().at(block + "hook_resid_pre").values, expected("hidden." + i), gold.tolerance());
      if (!gold.has(prompt + "/attn." + i)) continue;  // a layer without attention
      EXPECT_CLOSE(seen.values().at(block + "attn.hook_pattern").values, expected("attn." + i), gold.tolerance());
    }
    EXPECT_CLOSE(numbers_of(x), expected("hidden." + std::to_string(n_layers)), gold.tolerance());
  }
}

TEST_P(GgufModel, HasTheShapeOfItsDirectory) {
  const OpenedModel from_gguf = open_model(golden_file(GetParam())),
                    from_directory = open_model(Golden::open(GetParam()).model());
  const ModelShape a = from_gguf.model->shape(), b = from_directory.model->shape();
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.d_model, b.d_model);
  EXPECT_EQ(a.n_layers, b.n_layers);
  EXPECT_EQ(a.n_heads, b.n_heads);
  EXPECT_EQ(a.n_kv_heads, b.n_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.d_ff, b.d_ff);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.context_length, b.context_length);
  EXPECT_EQ(a.tied, b.tied);
  EXPECT_EQ(parameter_count(*from_gguf.model), parameter_count(*from_directory.model));
  EXPECT_EQ(from_gguf.model->hook_names(), from_directory.model->hook_names());
}

INSTANTIATE_TEST_SUITE_P(Every, GgufModel, testing::ValuesIn(Golden::with("gguf")), [](const auto& test) { return test.param; });

TEST(GgufModelRope, ScalingMeetsTheNumbersOfTheConfiguration) {
  ThreadPool pool(2);
  for (const auto& [file, variant] : std::vector<std::pair<std::string, std::string>>{
           {"rope_llama3", "llama_rope_llama3"}, {"rope_linear", "llama_rope_linear"}, {"rope_qwen2", "qwen2_rope_llama3"}}) {
    SCOPED_TRACE(file);
    const OpenedModel opened = open_model(golden_file(file));
    const Checkpoint golden = open_safetensors(std::string(VITRINE_GOLDEN) + "/variants/" + variant + "/golden.safetensors");
    for (const std::string prompt : {"0/", "1/"})
      expect_forward(run_forward(*opened.model, ids_of(golden_tensor(golden, prompt + "ids")), {}, pool), golden, prompt,
                     tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0])));
  }
}

class QuantizedGguf : public testing::TestWithParam<std::string> {
 protected:
  GoldenTensor expected(const std::string& what) const { return golden_tensor(golden_, GetParam() + "/" + what); }
  double number(const std::string& what) const { return static_cast<double>(expected(what).values[0]); }
  // The error of logits against exact ones stays below what rounding of the operands costs by itself (rms and largest).
  void expect_error(const std::string& ids, const std::string& exact, double rms, double most) {
    const std::vector<float> got = run_forward(*opened_.model, ids_of(expected(ids)), {}, pool_).logits;
    const GoldenTensor want = expected(exact);
    ASSERT_EQ(got.size(), want.size());
    double squares = 0, largest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want.values[i]));
      squares += error * error;
      largest = std::max(largest, error);
    }
    EXPECT_LE(std::sqrt(squares / static_cast<double>(got.size())), 1.25 * rms);
    EXPECT_LE(largest, 1.5 * most);
  }
  OpenedModel opened_ = open_model(golden_file("llama_" + GetParam()));
  Checkpoint golden_ = open_safetensors(std::string(VITRINE_GOLDEN) + "/gguf/quantized.safetensors");
  ThreadPool pool_{2};
};

TEST_P(QuantizedGguf, MeetsItsDequantizedWeightsInF32) {
  const std::vector<int32_t> ids = ids_of(expected("ids"));
  const Tolerance tolerance = tolerance_for(number("distance"));
  expect_forward(run_forward(*opened_.model, ids, {.f32 = true}, pool_), golden_, GetParam() + "/", tolerance);
  expect_forward(run_forward(*opened_.model, ids, {.f32 = true, .exact = true}, pool_), golden_, GetParam() + "/", tolerance);
  EXPECT_CLOSE(run_forward(*opened_.model, ids_of(expected("short/ids")), {.f32 = true}, pool_).logits, expected("short/exact"),
               tolerance);
}

TEST_P(QuantizedGguf, ErrsByDefaultNoMoreThanItsOperandsDo) {
  ASSERT_LE(expected("short/ids").size(), kFewRows);
  ASSERT_GT(expected("ids").size(), kFewRows);
  const int64_t rows = static_cast<int64_t>(expected("ids").size());
  const bool int8 = GetParam() != "f16" && &panel_for(kernels(), {}, DType::q8_0, rows) == &kernels().panel_int8;
  expect_error("ids", "exact", number(int8 ? "int8_rms" : "tile_rms"), number(int8 ? "int8_max" : "tile_max"));
  if (GetParam() == "f16") {  // few rows: f32 activations, stored weights widened
    EXPECT_CLOSE(run_forward(*opened_.model, ids_of(expected("short/ids")), {}, pool_).logits, expected("short/exact"),
                 tolerance_for(number("distance")));
  } else {  // activations as int8 per 32 values
    expect_error("short/ids", "short/exact", number("short/int8_rms"), number("short/int8_max"));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, QuantizedGguf, testing::Values("f16", "q8_0", "q4_0"),
                         [](const auto& test) { return test.param; });

// Every block type in one file.
TEST(MixedGguf, MeetsItsDecodedWeights) {
  const OpenedModel opened = open_model(golden_file("mixed"));
  const Checkpoint golden = open_safetensors(std::string(VITRINE_GOLDEN) + "/gguf/mixed.safetensors");
  const std::vector<int32_t> ids = ids_of(golden_tensor(golden, "ids"));
  const Tolerance tolerance = tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0]));
  ThreadPool pool(2);
  std::set<DType> types;
  for (const TensorLine& line : opened.model->tensors())
    if (line.weight != nullptr) types.insert(line.weight->dtype);
  EXPECT_EQ(types.size(), static_cast<size_t>(kWeightTypes) - 4);  // all but f32, f16, bf16 and f8_e4m3
  expect_forward(run_forward(*opened.model, ids, {.f32 = true}, pool), golden, "", tolerance);
  expect_forward(run_forward(*opened.model, ids, {.f32 = true, .exact = true}, pool), golden, "", tolerance);
  // By default all matrices take int8 activations, or operands in bf16 where that is faster.
  const std::vector<float> got = run_forward(*opened.model, ids, {}, pool).logits;
  const GoldenTensor want = golden_tensor(golden, "exact");
  const bool int8 = &panel_for(kernels(), {}, DType::q8_0, std::ssize(ids)) == &kernels().panel_int8;
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i)
    squares += std::pow(static_cast<double>(got[i]) - static_cast<double>(want.values[i]), 2);
  EXPECT_LE(std::sqrt(squares / static_cast<double>(got.size())),
            1.25 * static_cast<double>(golden_tensor(golden, int8 ? "int8_rms" : "tile_rms").values[0]));
}

}  // namespace
}  // namespace vitrine
