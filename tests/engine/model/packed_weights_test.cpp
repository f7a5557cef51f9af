// Packed weights of Hugging Face directories: MXFP4 experts of gpt-oss and FP8. What they stand for, by transformers and torch:
// tests/golden/packed/make.py. Directories with them are among tests/golden/variants.
#include "model/packed_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/export.h"
#include "model/from_gguf.h"
#include "model/to_gguf.h"
#include "quantize/encoding.h"
#include "run.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kPacked = std::string(VITRINE_GOLDEN) + "/packed/", kVariants = std::string(VITRINE_GOLDEN) + "/variants/";

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  const size_t at = text.find(old);
  if (at == std::string::npos || old.size() != by.size()) throw std::invalid_argument(old + " is not there, or not as long");
  return text.replace(at, old.size(), by);
}

ConfigReader config(const Json& quantization) { return {{{"quantization_config", quantization}}, "config.json"}; }
const Json kMxfp4 = {{"quant_method", "mxfp4"}};

Json fp8(const Json& block = nullptr) {
  return {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", block}};
}

Json compressed(const std::string& strategy, const Json& block = nullptr) {
  const Json weights = {{"num_bits", 8}, {"type", "float"}, {"strategy", strategy}, {"block_structure", block}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

std::vector<float> values_of(const StoredTensor& tensor) {
  std::vector<float> values;
  size_t count = 1;
  for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
  for (size_t i = 0; i < count; ++i) values.push_back(element_at(tensor.dtype, tensor.data, i));
  return values;
}

// A zero of MXFP4 has no sign here, as in GGUF's decoders.
void expect_bits(const Checkpoint& checkpoint, const std::string& name, const std::string& values) {
  const StoredTensor* const got = checkpoint.find(name);
  ASSERT_NE(got, nullptr) << name;
  const GoldenTensor want = golden_tensor(checkpoint, values);
  EXPECT_EQ(got->shape, want.shape) << name;
  const std::vector<float> decoded = values_of(*got);
  ASSERT_EQ(decoded.size(), want.size());
  for (size_t i = 0; i < decoded.size(); ++i)
    ASSERT_TRUE(std::memcmp(&decoded[i], &want.values[i], sizeof(float)) == 0 ||
                (got->dtype == DType::mxfp4 && decoded[i] == 0 && want.values[i] == 0))
        << name << ", element " << i << ": " << decoded[i] << ", not " << want.values[i];
}

TEST(PackedWeights, Mxfp4DecodesToTheBitsOfTransformers) {
  Checkpoint checkpoint = open_safetensors(kPacked + "mxfp4.safetensors");
  unpack_weights(checkpoint, config(kMxfp4));
  expect_bits(checkpoint, "X", "values");
  EXPECT_EQ(checkpoint.find("X")->dtype, DType::mxfp4);
  EXPECT_EQ(checkpoint.find("X_blocks"), nullptr);
  EXPECT_EQ(checkpoint.find("X_scales"), nullptr);
  EXPECT_EQ(checkpoint.copied_bytes(), checkpoint.find("X")->bytes);
}

TEST(PackedWeights, Float8DecodesToTheBitsOfTorch) {
  const auto unpacked = [](const Json& quantization, std::initializer_list<const char*> forms) {
    // A file holds one kind of scales; the golden one holds all, so that the others are left out first.
    const Checkpoint all = open_safetensors(kPacked + "fp8.safetensors");
    Checkpoint some("some");
    const auto wanted = [&](const std::string& name) {
      return std::any_of(forms.begin(), forms.end(), [&](const char* form) { return name.starts_with(std::string(form) + "."); });
    };
    for (const auto& [name, tensor] : all.tensors())
      if (wanted(name)) some.add(tensor);
    for (const auto& [name, tensor] : all.unreadable())
      if (wanted(name)) some.add_unreadable(name, tensor);
    unpack_weights(some, config(quantization));
    for (const char* form : forms) expect_bits(some, std::string(form) + ".weight", std::string(form) + ".values");
    EXPECT_TRUE(some.unreadable().empty());
    for (const auto& [name, tensor] : some.tensors()) EXPECT_EQ(name.find("scale"), std::string::npos) << name;
  };
  unpacked(fp8(), {"tensor", "rows", "rows_flat"});
  unpacked(fp8({5, 7}), {"blocks", "experts"});
  unpacked(fp8({3, 32}), {"wide"});
  unpacked(compressed("tensor"), {"tensor"});
  unpacked(compressed("channel"), {"rows"});
  unpacked(compressed("block", {5, 7}), {"blocks"});
}

TEST(PackedWeights, OtherDirectoriesAreLeftAsTheyAre) {
  Checkpoint checkpoint = open_safetensors(kPacked + "mxfp4.safetensors");
  unpack_weights(checkpoint, {Json::object(), "config.json"});
  EXPECT_NE(checkpoint.find("X_blocks"), nullptr);
  EXPECT_EQ(checkpoint.copied_bytes(), 0u);
}

std::string refused(const std::string& content, const Json& quantization) {
  const Scratch scratch;
  const std::string path = scratch.write("model.safetensors", content);
  return message_of<FileError>([&] {
    Checkpoint checkpoint = open_safetensors(path);
    unpack_weights(checkpoint, config(quantization));
  });
}

TEST(PackedWeights, WrongExpertsAreNamed) {
  const std::string file = bytes_of(kPacked + "mxfp4.safetensors");
  EXPECT_CONTAINS(refused(replaced(file, "X_scales", "X_scalez"), kMxfp4), "tensor \"X_blocks\" (header byte ");
  EXPECT_CONTAINS(refused(replaced(file, "X_scales", "X_scalez"), kMxfp4), "has no scales: expected \"X_scales\"");
  EXPECT_CONTAINS(refused(replaced(file, "[2,3,85,16]", "[2,3,16,85]"), kMxfp4),
                  "is [2, 3, 16, 85] of u8; expected [..., outputs, inputs / 32, 16] of u8");
  EXPECT_CONTAINS(refused(replaced(file, "\"shape\":[2,3,85],", "\"shape\":[2,85,3],"), kMxfp4), "tensor \"X_scales\"");
  EXPECT_CONTAINS(refused(replaced(file, "\"shape\":[2,3,85],", "\"shape\":[2,85,3],"), kMxfp4),
                  "is [2, 85, 3] of u8; expected [2, 3, 85] of u8");
  const Checkpoint whole = open_safetensors(kPacked + "mxfp4.safetensors");
  const StoredTensor* const scales = whole.find("X_scales");
  const size_t at = static_cast<size_t>(scales->data - whole.files().front().bytes().data());
  std::string nan = file;
  nan[at + 7] = static_cast<char>(255);
  EXPECT_CONTAINS(refused(nan, kMxfp4), "holds 255, which is NaN, at 7");
}

TEST(PackedWeights, WrongFloat8IsNamed) {
  const std::string file = bytes_of(kPacked + "fp8.safetensors");
  EXPECT_CONTAINS(refused(replaced(file, "\"blocks.weight_scale_inv\"", "\"blocks.weight_scale_xyz\""), fp8()),
                  "tensor \"blocks.weight\" (header byte ");
  EXPECT_CONTAINS(refused(replaced(file, "\"blocks.weight_scale_inv\"", "\"blocks.weight_scale_xyz\""), fp8()),
                  "has no scales: expected \"blocks.weight_scale_inv\" or \"blocks.weight_scale\"");
  EXPECT_CONTAINS(refused(file, fp8()),
                  "is [4, 3] of f32; expected [1], [16, 1] in f32, f16 or bf16, as \"blocks.weight\" is [16, 16]");
  EXPECT_CONTAINS(refused(file, fp8({5, 8})),
                  "is [4, 3] of f32; expected [4, 2], one for each block of [5, 8] in f32, f16 or bf16");
  const auto changed = [&](const std::string& tensor, size_t byte, unsigned char to, bool readable) {
    const Checkpoint whole = open_safetensors(kPacked + "fp8.safetensors");
    const std::byte* const data = readable ? whole.find(tensor)->data : whole.unreadable().find(tensor)->second.data;
    std::string content = file;
    content[static_cast<size_t>(data - whole.files().front().bytes().data()) + byte] = static_cast<char>(to);
    return refused(content, fp8({5, 7}));
  };
  EXPECT_CONTAINS(changed("blocks.weight", 40, 0xff, false), "tensor \"blocks.weight\" (header byte ");
  EXPECT_CONTAINS(changed("blocks.weight", 40, 0x7f, false), "holds a NaN at 40; expected numbers");
  EXPECT_CONTAINS(changed("blocks.weight_scale_inv", 7, 0xff, true), "holds -");
  EXPECT_CONTAINS(changed("blocks.weight_scale_inv", 7, 0xff, true), "at 1; expected a finite scale");
}

TEST(PackedWeights, SettingsThatAreNotReadAreNamed) {
  const auto said = [](const Json& quantization) {
    return message_of<FileError>([&] {
      packing_method(config(quantization));
      const ConfigReader keys = config(quantization);
      packing_method(keys);
      keys.refuse_unread("llama");
    });
  };
  EXPECT_CONTAINS(said({{"quant_method", "fp8"}, {"fmt", "e5m2"}}), "\"quantization_config.fmt\" is \"e5m2\"; is not supported");
  EXPECT_CONTAINS(said(fp8({128})), "\"quantization_config.weight_block_size\" is [128]");
  EXPECT_CONTAINS(said({{"quant_method", "fp8"}, {"expert_dtype", "fp4"}}), "expert_dtype");
  EXPECT_CONTAINS(said(compressed("group")), "strategy");
  EXPECT_CONTAINS(said({{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}}),
                  "is a form of compressed-tensors that vitrine does not read; expected float-quantized (FP8). Use the original");
  Json four = compressed("channel");
  four["config_groups"]["group_0"]["weights"]["num_bits"] = 4;
  EXPECT_CONTAINS(said(four), "num_bits");
  for (const char* method : {"awq", "gptq", "bitsandbytes"}) {
    EXPECT_CONTAINS(said({{"quant_method", method}, {"bits", 4}}),
                    "says that the weights are packed by the method " + std::string(method) + ", which vitrine does not read");
    EXPECT_CONTAINS(said({{"quant_method", method}}), "or a GGUF file of it");
  }
}

// Directories ---------------------------------------------------------------------------------------------------------

TEST(PackedDirectories, HeadersAloneHaveTypesAndSizes) {
  const OpenedModel headers = open_headers(resolve_model(kVariants + "gpt_oss_mxfp4"));
  const OpenedModel whole = open_model(kVariants + "gpt_oss_mxfp4");
  EXPECT_EQ(headers.checkpoint.copied_bytes(), 0u);
  EXPECT_EQ(headers.checkpoint.bytes(), whole.checkpoint.bytes());
  ASSERT_EQ(headers.checkpoint.tensors().size(), whole.checkpoint.tensors().size());
  for (const auto& [name, tensor] : whole.checkpoint.tensors()) {
    const StoredTensor& other = headers.checkpoint.tensors().find(name)->second;
    EXPECT_EQ(other.dtype, tensor.dtype) << name;
    EXPECT_EQ(other.shape, tensor.shape) << name;
    EXPECT_EQ(other.data == nullptr, tensor.dtype == DType::mxfp4) << name;
  }
}

// Without its packing the model is what transformers would save.
TEST(PackedDirectories, AreWrittenWithoutThePacking) {
  ThreadPool pool(2);
  for (const std::string name : {"gpt_oss_mxfp4", "llama_fp8_blocks", "llama_fp8_rows", "llama_fp8_tensor"}) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    OpenedModel opened = as_huggingface(open_model(kVariants + name));
    write_huggingface(opened, {}, scratch / "out", DType::f32);
    const OpenedModel written = open_model(scratch / "out");
    EXPECT_FALSE(written.files.config.contains("quantization_config"));
    if (name == "gpt_oss_mxfp4") {
      EXPECT_EQ(written.checkpoint.find("model.layers.0.mlp.experts.gate_up_proj")->shape, (std::vector<int64_t>{4, 64, 64}));
    }
    const Checkpoint golden = open_safetensors(kVariants + name + "/golden.safetensors");
    for (const std::string prompt : {"0/", "1/"})
      expect_forward(run_forward(*written.model, ids_of(golden_tensor(golden, prompt + "ids")), {.f32 = true}, pool), golden,
                     prompt, tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0])));
  }
}

// As merging reads them: biases of all experts are rows of one tensor.
TEST(PackedDirectories, RowsOfEveryTensorAreThoseThatAreWritten) {
  const Scratch scratch;
  OpenedModel opened = as_huggingface(open_model(kVariants + "gpt_oss_mxfp4"));
  write_huggingface(opened, {}, scratch / "out", DType::f32);
  const Checkpoint written = open_safetensors(scratch / "out");
  for (const FileTensor& tensor : file_tensors(*opened.model, false)) {
    const std::vector<float> want = values_of(*written.find(tensor.name));
    const int64_t width = tensor.width();
    std::vector<float> row(static_cast<size_t>(width)), got;
    for (int64_t i = 0; i < static_cast<int64_t>(want.size()) / width; ++i) {
      read_rows(tensor, i, 1, row.data());
      got.insert(got.end(), row.begin(), row.end());
    }
    EXPECT_EQ(got, want) << tensor.name;
  }
}

std::string gguf_of(const std::string& directory, const Scratch& scratch, const std::string& type) {
  const OpenedModel opened = open_model(directory);
  ThreadPool pool(2);
  const GgufEncoding encoding = mixture_encoding(opened, *find_mixture(type));
  write_gguf(opened, plan_gguf(opened, {{"tokenizer.ggml.model", std::string("none")}}, encoding), encoding, scratch / "out.gguf",
             pool);
  return scratch / "out.gguf";
}

// The file that llama.cpp's converter makes of the same directory (tests/golden/gguf/make_converted.py).
TEST(PackedDirectories, ExpertsKeepTheirBlocksInGguf) {
  const Scratch scratch;
  const Gguf made = open_gguf(gguf_of(kVariants + "gpt_oss_mxfp4", scratch, "bf16"));
  const Gguf want = open_gguf(std::string(VITRINE_GOLDEN) + "/gguf/gpt_oss_mxfp4.gguf");
  ASSERT_EQ(made.checkpoint.tensors().size(), want.checkpoint.tensors().size());
  for (const auto& [name, tensor] : want.checkpoint.tensors()) {
    const StoredTensor* const got = made.checkpoint.find(name);
    ASSERT_NE(got, nullptr) << name;
    EXPECT_EQ(got->dtype, tensor.dtype) << name;
    EXPECT_EQ(got->shape, tensor.shape) << name;
    ASSERT_EQ(got->bytes, tensor.bytes) << name;
    EXPECT_EQ(std::memcmp(got->data, tensor.data, tensor.bytes), 0) << name;
  }
  EXPECT_EQ(made.checkpoint.find("blk.0.ffn_up_exps.weight")->dtype, DType::mxfp4);
  EXPECT_EQ(made.metadata.integer("general.file_type"), want.metadata.integer("general.file_type"));
}

TEST(PackedDirectories, GgufFilesRunAndComeBack) {
  ThreadPool pool(2);
  const Scratch scratch;
  const std::string file = gguf_of(kVariants + "gpt_oss_mxfp4", scratch, "f32");
  const Checkpoint golden = open_safetensors(kVariants + "gpt_oss_mxfp4/golden.safetensors");
  const std::vector<int32_t> ids = ids_of(golden_tensor(golden, "1/ids"));
  const Tolerance tolerance = tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0]));
  const OpenedModel opened = open_model(file);
  expect_forward(run_forward(*opened.model, ids, {.f32 = true}, pool), golden, "1/", tolerance);
  OpenedModel back = as_huggingface(open_model(file));
  expect_forward(run_forward(*back.model, ids, {.f32 = true}, pool), golden, "1/", tolerance);
  write_huggingface(back, {}, scratch / "back", DType::f32);
  OpenedModel direct = as_huggingface(open_model(kVariants + "gpt_oss_mxfp4"));
  write_huggingface(direct, {}, scratch / "direct", DType::f32);
  const Checkpoint a = open_safetensors(scratch / "back"), b = open_safetensors(scratch / "direct");
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const auto& [name, tensor] : b.tensors()) {
    ASSERT_NE(a.find(name), nullptr) << name;
    ASSERT_EQ(a.find(name)->bytes, tensor.bytes) << name;
    EXPECT_EQ(std::memcmp(a.find(name)->data, tensor.data, tensor.bytes), 0) << name;
  }
}

}  // namespace
}  // namespace vitrine
