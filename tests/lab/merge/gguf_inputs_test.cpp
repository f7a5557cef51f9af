// GGUF files, quantized ones among them, and models with LoRA adapters as inputs of a merge: the same as the merge of the
// Hugging Face directories that hold their weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/mapped_file.h"
#include "io/safetensors.h"
#include "merge/run.h"
#include "model/adapter.h"
#include "model/export.h"
#include "model/from_gguf.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

std::string directory_of(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/models/" + name + "/model"; }
std::string gguf_of(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"; }
std::string adapter_of(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/lora/" + name + "/adapter"; }

// Another model of the same shape.
std::string sibling(const Scratch& scratch, const std::string& name) {
  const std::string folder = scratch / "sibling";
  fs::create_directories(folder);
  Json config = read_json(directory_of(name) + "/config.json");
  write_random_model(folder, config, 7);
  return folder;
}

// The model as a directory in f32, its adapter merged into it.
std::string widened(const Scratch& scratch, const std::string& model, const std::string& adapter = "") {
  OpenedModel opened = as_huggingface(open_model(model));
  if (!adapter.empty()) open_adapter(opened, adapter);
  fs::remove_all(scratch / "widened");
  write_huggingface(opened, {}, scratch / "widened", DType::f32);
  return scratch / "widened";
}

Checkpoint merged(const Scratch& scratch, const std::string& yaml, int threads = 2) {
  static int number = 0;
  const std::string out = scratch / ("out" + std::to_string(++number));
  ThreadPool pool(threads);
  write_merge(plan_merge(parse_merge_recipes(yaml, "r.yml").front(), {}), {}, out, pool, {});
  return open_safetensors(out);
}

std::string between(const std::string& method, const std::string& parameters, const std::string& base, const std::string& other) {
  return "merge_method: " + method + "\nbase_model: " + base + "\nparameters: {" + parameters + "}\nmodels:\n- model: " + other +
         "\n";
}

// `tolerance`: of the largest magnitude of each tensor; 0: the same bits.
void expect_same(const Checkpoint& got, const Checkpoint& want, double tolerance) {
  ASSERT_EQ(got.tensors().size(), want.tensors().size());
  for (const auto& [name, wanted] : want.tensors()) {
    SCOPED_TRACE(name);
    const StoredTensor* const found = got.find(name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->shape, wanted.shape);
    EXPECT_EQ(found->dtype, wanted.dtype);
    const GoldenTensor a = as_floats(*found), b = as_floats(wanted);
    double largest = 0, apart = 0;
    for (size_t i = 0; i < b.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(b.values[i])));
      apart = std::max(apart, std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i])));
    }
    EXPECT_LE(apart, tolerance * largest);
  }
}

class GgufInput : public testing::TestWithParam<const char*> {};

// Rows of q and k are permuted, GPT-2's matrices stand the other way round, Gemma's norms hold 1 + w (which rounds w): with any
// of these left as it is, angles and task vectors are others.
TEST_P(GgufInput, IsMergedAsItsDirectory) {
  const Scratch scratch;
  const std::string name = GetParam(), gguf = gguf_of(name), directory = directory_of(name), other = sibling(scratch, name);
  const double tolerance = name.starts_with("gemma") ? 3e-6 : 0;
  for (const auto& [method, parameters] :
       {std::pair("slerp", "t: 0.3"), {"task_arithmetic", "weight: 0.7"}, {"liti", "eta: 1.5"}}) {
    SCOPED_TRACE(method);
    expect_same(merged(scratch, between(method, parameters, gguf, other)),
                merged(scratch, between(method, parameters, directory, other)), tolerance);
    expect_same(merged(scratch, between(method, parameters, other, gguf), 1),
                merged(scratch, between(method, parameters, other, directory)), tolerance);
  }
  const std::string layers =
      "merge_method: passthrough\nslices:\n- sources: [{model: MODEL, layer_range: [1, 2]}]\n"
      "- sources: [{model: MODEL, layer_range: [0, 2]}]\n";
  const auto stacked = [&](const std::string& model) {
    std::string yaml = layers;
    for (size_t at; (at = yaml.find("MODEL")) != std::string::npos;) yaml.replace(at, 5, model);
    return merged(scratch, yaml);
  };
  expect_same(stacked(gguf), stacked(directory), tolerance);
}

// The layers that a configuration of GGUF metadata counts are those of the stack.
TEST(GgufInputs, AStackOfLayersIsCounted) {
  const Scratch scratch;
  const std::string yaml =
      "merge_method: passthrough\nslices:\n- sources: [{model: " + gguf_of("gemma2") + ", layer_range: [0, 3]}]\n";
  ThreadPool pool(1);
  write_merge(plan_merge(parse_merge_recipes(yaml, "r.yml").front(), {}), {}, scratch / "stack", pool, {});
  EXPECT_EQ(open_model(scratch / "stack").model->shape().n_layers, 3);
}

// Half of both files: the mean of w and 1 + w would be off by a half.
TEST(GgufInputs, NormsOfGemmaAreW) {
  const Scratch scratch;
  for (const char* name : {"gemma", "gemma2", "gemma3"}) {
    SCOPED_TRACE(name);
    const std::string yaml = "merge_method: linear\nparameters: {weight: 1}\nmodels:\n- model: " + gguf_of(name) +
                             "\n- model: " + directory_of(name) + "\n";
    expect_same(merged(scratch, yaml), open_safetensors(directory_of(name)), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, GgufInput,
                         testing::Values("gemma", "gemma2", "gemma3", "gemma4", "gemma4_moe", "gpt2_a", "llama", "mixtral",
                                         "qwen2", "qwen3", "qwen3_moe", "olmo2", "olmo3", "smollm3", "granite", "phi3", "glm4",
                                         "gpt_neox", "starcoder2", "stablelm", "phi", "olmoe", "bloom", "cohere",
                                         "command_r_plus", "falcon", "falcon_40b", "phimoe", "exaone4", "ernie4_5", "hunyuan",
                                         "glm4_moe", "llama4"),
                         [](const auto& test) { return std::string(test.param); });

// Falcon-H1's GGUF files have its factors in their weights, and their configuration has none: they merge with each other.
TEST(GgufInputs, WeightsWithFactorsAreNotMergedWithWeightsWithout) {
  const Scratch scratch;
  const std::string file = gguf_of("falcon_h1");
  EXPECT_CONTAINS(message_of<UsageError>([&] { merged(scratch, between("slerp", "t: 0.4", file, directory_of("falcon_h1"))); }),
                  "falcon_h1.gguf holds the factors of Falcon-H1 in its weights, and " + directory_of("falcon_h1") + " does not");
  expect_same(merged(scratch, "merge_method: linear\nparameters: {weight: 1}\nmodels:\n- model: " + file + "\n"),
              open_safetensors(widened(scratch, file)), 0);
}

// Blocks are widened; what comes out has a type of its own.
TEST(GgufInputs, QuantizedWeightsAreWidened) {
  const Scratch scratch;
  const std::string other = sibling(scratch, "llama");
  for (const char* type : {"f16", "q8_0", "q4_0"}) {
    SCOPED_TRACE(type);
    const std::string file = gguf_of(std::string("llama_") + type), wide = widened(scratch, file);
    const Checkpoint result = merged(scratch, between("slerp", "t: 0.4", file, other));
    expect_same(result, merged(scratch, between("slerp", "t: 0.4", wide, other)), 0);
    expect_same(merged(scratch, between("ties", "weight: 0.5, density: 0.3", other, file)),
                merged(scratch, between("ties", "weight: 0.5, density: 0.3", other, wide)), 0);
    for (const auto& [name, tensor] : result.tensors()) EXPECT_EQ(tensor.dtype, DType::f32) << name;
  }
  const Checkpoint sixteen =
      merged(scratch, "merge_method: passthrough\nmodels: [{model: " + gguf_of("llama_q4_0") + "}]\ndtype: bfloat16\n");
  for (const auto& [name, tensor] : sixteen.tensors()) EXPECT_EQ(tensor.dtype, DType::bf16) << name;
}

class AdapterInput : public testing::TestWithParam<const char*> {};

TEST_P(AdapterInput, IsMergedAsItsMergedWeights) {
  const Scratch scratch;
  const std::string name = GetParam(), base = directory_of(name), adapter = adapter_of(name), other = sibling(scratch, name);
  const std::string adapted = widened(scratch, base, adapter), pair = base + "+" + adapter;
  for (const auto& [method, parameters] :
       {std::pair("slerp", "t: 0.3"), {"ties", "weight: 1, density: 0.4"}, {"della", "weight: 1, density: 0.5"}}) {
    SCOPED_TRACE(method);
    expect_same(merged(scratch, between(method, parameters, base, pair)),
                merged(scratch, between(method, parameters, base, adapted)), 0);
    expect_same(merged(scratch, between(method, parameters, pair, other), 1),
                merged(scratch, between(method, parameters, adapted, other)), 0);
  }
  // The other way to write it; and the adapter does something.
  const std::string as_object = "merge_method: passthrough\nmodels: [{model: {model: " + base + ", lora: " + adapter + "}}]\n";
  const Checkpoint alone = merged(scratch, as_object);
  expect_same(alone, open_safetensors(adapted), 0);
  double apart = 0;
  const Checkpoint plain = open_safetensors(base);
  for (const auto& [tensor, stored] : plain.tensors()) {
    const GoldenTensor a = as_floats(stored), b = golden_tensor(alone, tensor);
    for (size_t i = 0; i < a.size(); ++i)
      apart = std::max(apart, std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i])));
  }
  EXPECT_GT(apart, 1e-3);
}

// An adapter belongs to the Hugging Face names and rows, whatever file the base lies in.
TEST_P(AdapterInput, FitsAGgufBase) {
  const Scratch scratch;
  const std::string name = GetParam(), adapter = adapter_of(name), other = sibling(scratch, name);
  const std::string adapted = widened(scratch, directory_of(name), adapter);
  for (const char* parameters : {"t: 0.3", "t: 0"})
    expect_same(merged(scratch, between("slerp", parameters, gguf_of(name) + "+" + adapter, other)),
                merged(scratch, between("slerp", parameters, adapted, other)), name == "gemma2" ? 3e-6 : 0);
}

INSTANTIATE_TEST_SUITE_P(Every, AdapterInput, testing::Values("gpt2_a", "gemma2", "llama"),
                         [](const auto& test) { return std::string(test.param); });

struct Killed {};

TEST(AdapterInputs, AnotherAdapterIsNotResumed) {
  const Scratch scratch;
  fs::copy(adapter_of("llama"), scratch / "adapter");
  const std::string yaml = between("slerp", "t: 0.5", directory_of("llama"), directory_of("llama") + "+" + scratch / "adapter");
  const auto plan = [&] { return plan_merge(parse_merge_recipes(yaml, "r.yml").front(), {}); };
  ThreadPool pool(1);
  const auto stop = [](const MergeProgress&) { throw Killed(); };
  EXPECT_THROW(write_merge(plan(), {}, scratch / "out", pool, {}, stop), Killed);
  EXPECT_EQ(write_merge(plan(), {}, scratch / "out", pool, {.resume = true}), 1u);
  fs::remove_all(scratch / "out");
  EXPECT_THROW(write_merge(plan(), {}, scratch / "out", pool, {}, stop), Killed);
  const std::string file = scratch / "adapter/adapter_model.safetensors";
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  EXPECT_CONTAINS(message_of<UsageError>([&] { write_merge(plan(), {}, scratch / "out", pool, {.resume = true}); }),
                  "was begun with another recipe, other options or other input files");
}

TEST(AdapterInputs, WhatDoesNotFitIsRefused) {
  const Scratch scratch;
  const auto refusal = [&](const std::string& model) {
    return message_of([&] {
      plan_merge(parse_merge_recipes("merge_method: passthrough\nmodels: [{model: " + model + "}]\n", "r.yml").front(), {});
    });
  };
  EXPECT_CONTAINS(refusal(directory_of("gpt2_a") + "+" + adapter_of("llama")), "lora/llama/adapter");
  EXPECT_CONTAINS(refusal(directory_of("llama") + "+" + directory_of("llama")), "adapter_config.json");
  EXPECT_CONTAINS(refusal(directory_of("llama") + "+" + scratch / "nowhere"), "nowhere");
}

}  // namespace
}  // namespace vitrine
