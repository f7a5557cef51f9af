// info: counts of well-known configurations as transformers counts them, sizes, and what a model's files say.
#include "inspect/info.h"

#include <gtest/gtest.h>

#include "support.h"

namespace vitrine {
namespace {

const std::string kConfigs = std::string(VITRINE_GOLDEN) + "/configs/";

TEST(InfoOfConfigs, ParametersAreThoseThatTransformersCounts) {
  const Json expected = read_json(kConfigs + "parameters.json");
  EXPECT_GE(expected.size(), 16u);
  for (const auto& [name, count] : expected.items()) {
    const ModelInfo info = model_info(kConfigs + name + ".json");
    EXPECT_EQ(info.parameters, count.get<int64_t>()) << name;
    EXPECT_EQ(info.kind, "config");
    EXPECT_TRUE(info.stored_bytes.empty());
    // Vectors stay f32 in every form; a byte of q8_0 holds 32/34 of a weight.
    EXPECT_EQ(info.f32_bytes, 4 * info.parameters) << name;
    EXPECT_GE(info.bf16_bytes, 2 * info.parameters) << name;
    EXPECT_LT(info.q8_0_bytes, info.bf16_bytes) << name;
    EXPECT_LT(info.q4_0_bytes, info.q8_0_bytes) << name;
    EXPECT_FALSE(info.no_tokenizer.empty());
  }
}

TEST(InfoOfConfigs, Gemma2bHasTheShapesOfItsPaper) {
  const ModelInfo info = model_info(kConfigs + "gemma-2b.json");
  const ModelShape& s = info.shape;
  EXPECT_EQ(s.family, "gemma");
  EXPECT_EQ(s.n_layers, 18);
  EXPECT_EQ(s.d_model, 2048);
  EXPECT_EQ(s.n_heads, 8);
  EXPECT_EQ(s.n_kv_heads, 1);
  EXPECT_EQ(s.head_dim, 256);
  EXPECT_EQ(s.d_ff, 16384);
  EXPECT_EQ(s.vocab_size, 256000);
  EXPECT_EQ(s.context_length, 8192);
  EXPECT_TRUE(s.tied);
  EXPECT_EQ(info.embedding_parameters, 524288000);
  EXPECT_EQ(info.context, 8192);
  // One key/value head of 256: 18 layers · (256 + 256) numbers a position, in f16 beside weights in bf16.
  EXPECT_EQ(info.bytes_per_position, 18 * 512 * 2);
  EXPECT_EQ(info.cache_bytes, int64_t{8192} * 18 * 512 * 2);
  const ModelInfo wide = model_info(kConfigs + "gemma-2b.json", {.numerics = {.f32 = true}});
  EXPECT_EQ(wide.bytes_per_position, 18 * 512 * 4);
  const ModelInfo keys = model_info(kConfigs + "gemma-2b.json", {.cache_keys = DType::f32});
  EXPECT_EQ(keys.bytes_per_position, 18 * 256 * (4 + 2));
  EXPECT_EQ(info.cache_bytes_full, info.cache_bytes);
}

TEST(InfoOfConfigs, WindowLayersKeepTheirWindowAlone) {
  const ModelInfo info = model_info(kConfigs + "gemma-2-9b.json", {.context = 8192, .batch = 3});
  EXPECT_EQ(info.windows.size(), 42u);
  EXPECT_EQ(info.windows[0], 4096);
  EXPECT_EQ(info.windows[1], kNoWindow);
  EXPECT_LT(info.cache_bytes, info.cache_bytes_full);
  // Half the layers keep 8192 positions, half the window and the pages of one step of 512.
  const double layer = 8 * 512 * 2.0 * 3;
  EXPECT_GE(static_cast<double>(info.cache_bytes), 21 * layer * (8192 + 4096));
  EXPECT_LE(static_cast<double>(info.cache_bytes), 21 * layer * (8192 + 4096 + 1024));
  EXPECT_EQ(static_cast<double>(info.cache_bytes_full), 42 * layer * 8192);
  const ModelInfo small = model_info(kConfigs + "gemma-2-9b.json", {.context = 256});
  EXPECT_EQ(small.cache_bytes, small.cache_bytes_full);  // no window is full
}

TEST(InfoOfConfigs, Gpt3IsGpt2AtItsSize) {
  const ModelInfo info = model_info(kConfigs + "gpt3.json");
  EXPECT_EQ(info.shape.family, "gpt2");
  EXPECT_EQ(info.shape.n_layers, 96);
  EXPECT_EQ(info.shape.head_dim, 128);
  EXPECT_EQ(info.shape.d_ff, 4 * 12288);
  EXPECT_EQ(info.context, 2048);
  EXPECT_EQ(info.f32_bytes, int64_t{698417037312});
}

class InfoOfGolden : public testing::TestWithParam<std::string> {};

TEST_P(InfoOfGolden, SaysWhatTheFilesHold) {
  const Golden gold = Golden::open(GetParam());
  const ModelInfo info = model_info(gold.model());
  EXPECT_EQ(info.kind, "huggingface");
  const std::string meta = gold.dir() + "/golden/meta.json";
  if (std::filesystem::exists(meta)) {
    EXPECT_EQ(info.parameters, read_json(meta).at("parameters").get<int64_t>());
  }
  ASSERT_EQ(info.stored_bytes.size(), 1u);
  int64_t constants = 0;  // no parameters: layer_scalar, e_score_correction_bias
  for (const FileTensor& tensor : info.tensors)
    if (tensor.is_constant()) constants += tensor.rows() * tensor.width();
  EXPECT_EQ(info.stored_bytes.at("f32"), 4 * (info.parameters + constants));
  EXPECT_EQ(info.f32_bytes, 4 * info.parameters);
  const Checkpoint weights = open_safetensors(gold.model());
  EXPECT_EQ(info.tensors.size(), weights.tensors().size());
  for (const FileTensor& tensor : info.tensors) {
    ASSERT_NE(weights.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(tensor.shape, weights.find(tensor.name)->shape);
  }
  EXPECT_EQ(info.tokenizer.empty(), !info.no_tokenizer.empty());
  EXPECT_CONTAINS(info.numerics, "f32 weights multiply in f32");
  EXPECT_FALSE(info.hooks.empty());
  const auto patterns = hook_patterns(info.hooks);
  EXPECT_EQ(patterns.front(), GetParam() == "bloom" ? "ln_embed.hook_scale" : "hook_embed");  // whose stream begins with a norm
  EXPECT_EQ(patterns.back(), "hook_logits");
  EXPECT_EQ(std::count(patterns.begin(), patterns.end(), "blocks.*.attn.hook_pattern"), GetParam() == "mamba2" ? 0 : 1);
  const Json json = to_json(info);
  EXPECT_EQ(json.at("parameters"), info.parameters);
  EXPECT_EQ(json.at("hooks").size(), info.hooks.size());
  EXPECT_EQ(json.at("shape").at("windows").size(), static_cast<size_t>(info.shape.n_layers));
}

INSTANTIATE_TEST_SUITE_P(Every, InfoOfGolden, testing::ValuesIn(Golden::all()), [](const auto& test) { return test.param; });

TEST(Info, SaysWhatPackedWeightsTakeInMemory) {
  const ModelInfo experts = model_info(std::string(VITRINE_GOLDEN) + "/variants/gpt_oss_mxfp4");
  EXPECT_EQ(experts.packing, "mxfp4");
  EXPECT_EQ(experts.stored_bytes.at("mxfp4"), 2 * 4 * (64 * 64 + 64 * 32) / 32 * 17);  // layers, experts, gate and up, down
  EXPECT_FALSE(experts.stored_bytes.contains("u8"));
  const ModelInfo float8 = model_info(std::string(VITRINE_GOLDEN) + "/variants/llama_fp8_rows");
  EXPECT_EQ(float8.packing, "compressed-tensors");
  EXPECT_EQ(float8.run.weights, float8.stored_bytes.at("f32") + float8.stored_bytes.at("bf16"));
  EXPECT_TRUE(model_info(Golden::open("llama").model()).packing.empty());
}

TEST(Info, DescribesTheTokenizerThatLiesBeside) {
  EXPECT_FALSE(model_info(Golden::open("gemma").model()).tokenizer.empty());
  EXPECT_FALSE(model_info(Golden::open("gpt2_a").model()).tokenizer.empty());
  const ModelInfo without = model_info(Golden::open("classic_pre").model());
  EXPECT_TRUE(without.tokenizer.empty());
  EXPECT_FALSE(without.no_tokenizer.empty());
}

TEST(Info, NamesTheArithmetic) {
  const std::string tales = std::string(VITRINE_SOURCE) + "/models/tales9m";
  const ModelInfo automatic = model_info(tales), f32 = model_info(tales, {.numerics = {.f32 = true, .exact = true}});
  EXPECT_EQ(automatic.compute, "auto");
  EXPECT_CONTAINS(automatic.numerics, "16-bit weights");
  EXPECT_EQ(f32.compute, "f32");
  EXPECT_CONTAINS(f32.numerics, "every product is f32");
  EXPECT_CONTAINS(f32.numerics, "exact");
  EXPECT_FALSE(automatic.kernels.empty());
  EXPECT_EQ(automatic.stored_bytes.at("bf16"), 2 * automatic.parameters);
}

TEST(Info, RefusesSizesThatAreNone) {
  const std::string gemma = kConfigs + "gemma-2b.json";
  const auto refused = [](const std::string& model, const InfoOptions& options) {
    return message_of<UsageError>([&] { model_info(model, options); });
  };
  EXPECT_CONTAINS(refused(gemma, {.context = 8193}), "a context of 8193 is longer than that of");
  EXPECT_CONTAINS(refused(gemma, {.context = -1}), "are no sizes");
  EXPECT_CONTAINS(refused(gemma, {.batch = 0}), "are no sizes");
  EXPECT_CONTAINS(refused(kConfigs + "gpt3.json", {.batch = INT32_MAX}), "more bytes than a number can say");
  EXPECT_CONTAINS(message_of<FileError>([] { model_info("no/such/model"); }), "no/such/model");
}

}  // namespace
}  // namespace vitrine
