// Models as GGUF files. converted.json holds what llama.cpp's converter makes of the golden directories
// (tests/golden/gguf/make_converted.py): what is written here must be the same, key by key and bit by bit.
#include "model/to_gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/adapter_gguf.h"
#include "model/export.h"
#include "model/from_gguf.h"
#include "model/registry.h"
#include "quantize/encoding.h"
#include "run.h"
#include "support/changed_gguf.h"
#include "support/crc32.h"

namespace vitrine {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const OpenedModel& opened, const std::string& path, const std::string& type) {
  ThreadPool pool(2);
  const GgufEncoding encoding = mixture_encoding(opened, *find_mixture(type));
  write_gguf(opened, plan_gguf(opened, {{"tokenizer.ggml.model", std::string("none")}}, encoding), encoding, path, pool);
}

std::string written_gguf(const std::string& model, const Scratch& scratch, const std::string& type = "f32",
                         const std::string& name = "out.gguf") {
  write(open_model(model), scratch / name, type);
  return scratch / name;
}

const Json& converted() {
  static const Json all = read_json(std::string(VITRINE_GOLDEN) + "/gguf/converted.json");
  return all;
}

// {"BOOL[4]", the CRC-32 of its elements}
Json described(const Json& list) {
  const bool flags = list.front().is_boolean();
  std::vector<int32_t> each;
  for (const Json& one : list) each.push_back(flags ? int{one.get<bool>()} : one.get<int32_t>());
  return {(flags ? "BOOL[" : "INT32[") + std::to_string(each.size()) + "]", crc32_of(std::as_bytes(std::span(each)))};
}

// {"UINT32", 3}
Json described(const GgufMetadata& metadata, const std::string& key) {
  if (const Json config = metadata.config(); config.contains(key) && config[key].is_array()) return described(config[key]);
  const GgufMetadata::Value& value = metadata.values().at(key);
  switch (value.type) {
    case GgufType::u32: return {"UINT32", metadata.integer(key)};
    case GgufType::i32: return {"INT32", metadata.integer(key)};
    case GgufType::f32: return {"FLOAT32", metadata.number(key)};
    case GgufType::flag: return {"BOOL", metadata.flag(key)};
    case GgufType::string: return {"STRING", std::string(metadata.string(key))};
    default: return "another type";
  }
}

class ToGguf : public testing::TestWithParam<std::string> {
 protected:
  std::string directory() const { return Golden::open(GetParam()).model(); }
};

TEST_P(ToGguf, HasTheKeysOfTheConverter) {
  const Scratch scratch;
  const Gguf made = open_gguf(written_gguf(directory(), scratch));
  for (const auto& [key, value] : converted().at(GetParam()).at("keys").items()) {
    if (key.starts_with("tokenizer.") || key == "general.name")
      continue;  // the vocabulary; it makes a title of the folder's name
    // Of a dense Granite 4: what has no meaning without experts and Mamba layers, and a list where one number says it.
    if (GetParam() == "granite4" && (key.find(".ssm.") != key.npos || key.find(".expert_") != key.npos ||
                                     key == "granite.attention.head_count_kv" || key == "granite.rope.scaling.finetuned"))
      continue;
    // Nothing rotates in a Nemotron-H; what its converter says of that, and a context without end.
    if (key == "nemotron_h.rope.dimension_count" || key == "nemotron_h.context_length") continue;
    // It takes GPT-2's d_ff as 4 · d_model whatever the configuration says.
    if (GetParam() == "gpt2_b" && key == "gpt2.feed_forward_length") continue;
    // It takes LongRoPE's usual factor of cosines and sines whatever the configuration says.
    if (GetParam() == "phimoe" && key == "phimoe.rope.scaling.attn_factor") continue;
    ASSERT_TRUE(made.metadata.has(key)) << key;
    EXPECT_EQ(described(made.metadata, key), value) << key;
  }
  EXPECT_EQ(made.metadata.string("general.name"), "model");
}

TEST_P(ToGguf, HasTheTensorsOfTheConverterBitForBit) {
  for (const auto& [type, tensors] : converted().at(GetParam()).at("tensors").items()) {
    SCOPED_TRACE(type);
    const Scratch scratch;
    const Gguf made = open_gguf(written_gguf(directory(), scratch, type));
    EXPECT_EQ(made.metadata.integer("general.file_type"), find_mixture(type)->file_type);
    EXPECT_EQ(made.checkpoint.tensors().size(), tensors.size());
    for (const auto& [name, want] : tensors.items()) {
      const StoredTensor* const got = made.checkpoint.find(name);
      ASSERT_NE(got, nullptr) << name;
      std::string dtype(name_of(got->dtype));
      std::transform(dtype.begin(), dtype.end(), dtype.begin(), [](unsigned char c) { return std::toupper(c); });
      EXPECT_EQ(dtype, want[0].get<std::string>()) << name;
      EXPECT_EQ(got->shape, want[1].get<std::vector<int64_t>>()) << name;
      EXPECT_EQ(crc32_of({got->data, got->bytes}), want[2].get<uint32_t>()) << name;
    }
  }
}

TEST_P(ToGguf, RunsWithTheBitsOfTheDirectory) {
  const Scratch scratch;
  const Golden gold = Golden::open(GetParam());
  const std::vector<int32_t> ids = gold.prompt("mid").ids[0];
  ThreadPool pool(2);
  const std::string file = written_gguf(directory(), scratch);
  const OpenedModel opened = open_model(directory()), stored = open_model(file);
  const Forward want = run_forward(*opened.model, ids, {.f32 = true}, pool);
  const Forward own = run_forward(*stored.model, ids, {.f32 = true}, pool);
  EXPECT_CLOSE(own.logits, gold["mid/logits"].at(0), gold.tolerance());
  const auto any = [&](bool StoredLayout::* is) {
    const auto& lines = opened.model->tensors();
    return std::any_of(lines.begin(), lines.end(), [&](const TensorLine& line) { return line.layout.*is; });
  };
  if (any(&StoredLayout::gguf_minus_exp)) return;  // decays are rounded twice
  if (any(&StoredLayout::by_columns)) return;      // GPT-2: other kernels multiply by matrices that lie the other way round
  // Llama: sums of pairs have another order in the form of GGUF.
  EXPECT_EQ(any(&StoredLayout::gguf_pairs) ? run_forward(*as_huggingface(open_model(file)).model, ids, {.f32 = true}, pool).logits
                                           : own.logits,
            want.logits);
}

TEST_P(ToGguf, ComesBackAsTheDirectory) {
  const Scratch scratch;
  OpenedModel stored = as_huggingface(open_model(written_gguf(directory(), scratch)));
  write_huggingface(stored, {}, scratch / "back", DType::f32);
  const Checkpoint want = open_safetensors(directory()), got = open_safetensors(scratch / "back");
  const OpenedModel opened = open_model(directory());
  if (GetParam() == "granite4") {  // as a Granite 3, which computes the same and has other names
    const Golden gold = Golden::open(GetParam());
    ThreadPool pool(2);
    EXPECT_EQ(stored.model->shape().family, "granite");
    EXPECT_CLOSE(run_forward(*open_model(scratch / "back").model, gold.prompt("mid").ids[0], {.f32 = true}, pool).logits,
                 gold["mid/logits"].at(0), gold.tolerance());
    return;
  }
  for (const TensorLine& line : opened.model->tensors()) {
    const StoredTensor *const a = want.find(line.huggingface), *const b = got.find(line.huggingface);
    ASSERT_NE(a, nullptr) << line.huggingface;
    ASSERT_NE(b, nullptr) << line.huggingface;
    ASSERT_EQ(a->shape, b->shape);
    std::vector<float> values = as_floats(*a).values;
    for (const TensorLine& part : opened.model->tensors()) {  // factors stay in the weights
      if (part.huggingface != line.huggingface || !part.layout.gguf_factors) continue;
      float* row = values.data() + part.first_row(false) * part.in.size;
      for (int64_t i = 0; i < part.out.size; ++i, row += part.in.size)
        for (int64_t j = 0; j < part.in.size; ++j) row[j] = part.layout.gguf_factors.apply(row[j], i);
    }
    if (line.layout.gguf_offset != 0)
      for (float& w : values) w = (w + 1) - 1;  // the file holds 1 + w, which is rounded
    if (line.layout.gguf_minus_exp)
      for (float& w : values) w = std::log(std::exp(w));
    EXPECT_EQ(std::memcmp(values.data(), b->data, b->bytes), 0) << line.huggingface;
  }
}

TEST_P(ToGguf, OfAGgufFileIsThatFile) {
  const Scratch scratch;
  for (const std::string type : {"f32", "f16", "bf16", "q8_0"}) {
    const std::string first = written_gguf(directory(), scratch, type, type + ".gguf");
    const std::string again = written_gguf(first, scratch, type, type + "-again.gguf");
    const Gguf a = open_gguf(first), b = open_gguf(again);
    EXPECT_EQ(a.metadata.values().size(), b.metadata.values().size());
    EXPECT_EQ(a.metadata.config(), b.metadata.config());
    for (const auto& [name, tensor] : a.checkpoint.tensors()) {
      const StoredTensor* const other = b.checkpoint.find(name);
      ASSERT_NE(other, nullptr) << name;
      ASSERT_EQ(tensor.bytes, other->bytes);
      EXPECT_EQ(std::memcmp(tensor.data, other->data, tensor.bytes), 0) << name;
    }
  }
}

// In memory, of a directory and of a GGUF file that was brought into that form: byte for byte the file on the disk.
TEST_P(ToGguf, InMemoryIsTheFile) {
  const Scratch scratch;
  const auto in_memory = [](const OpenedModel& opened) {
    return gguf_bytes(opened, plan_gguf(opened, {{"tokenizer.ggml.model", std::string("none")}}, gguf_in_f32()));
  };
  const std::string first = written_gguf(directory(), scratch, "f32", "first.gguf");
  EXPECT_TRUE(in_memory(open_model(directory())) == content_of(first));
  const std::string again = written_gguf(first, scratch, "f32", "again.gguf");
  EXPECT_TRUE(in_memory(open_model(first)) == content_of(again));
  EXPECT_TRUE(in_memory(as_huggingface(open_model(first))) == content_of(again));
}

std::vector<std::string> with_gguf() {
  std::vector<std::string> names;
  for (const auto& [name, value] : converted().items())
    if (name != "gpt2_b") names.push_back(name);  // GGUF has no words for its activation
  return names;
}
INSTANTIATE_TEST_SUITE_P(Every, ToGguf, testing::ValuesIn(with_gguf()), [](const auto& test) { return test.param; });

// llama.cpp's file of a dense Granite 4 lists a number for each layer and has keys of Mamba layers that are not there.
TEST(ToGgufGranite4, TheFileOfTheConverterRuns) {
  ThreadPool pool(2);
  const Golden gold = Golden::open("granite4");
  const OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/gguf/granite4_dense.gguf");
  EXPECT_CLOSE(run_forward(*opened.model, gold.prompt("mid").ids[0], {.f32 = true}, pool).logits, gold["mid/logits"].at(0),
               gold.tolerance());
}

// And those with Mamba layers and experts, of variants.
TEST(ToGgufHybrids, FilesOfTheConverterRun) {
  ThreadPool pool(2);
  for (const std::string name : {"granite4_hybrid", "granite4_experts", "nemotron_h_moe"}) {
    SCOPED_TRACE(name);
    const Checkpoint golden = open_safetensors(std::string(VITRINE_GOLDEN) + "/variants/" + name + "/golden.safetensors");
    const OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf");
    for (const std::string prompt : {"0/", "1/"})
      expect_forward(run_forward(*opened.model, ids_of(golden_tensor(golden, prompt + "ids")), {.f32 = true}, pool), golden,
                     prompt, tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0])));
  }
}

// A DeepSeek's keys and values of each head, which the file holds as two tensors, are one in memory, and two again when it is
// written.
TEST(ToGgufMixtures, SplitKeysAndValuesArePassedOn) {
  const Scratch scratch;
  const std::string file = std::string(VITRINE_GOLDEN) + "/gguf/deepseek_v3.gguf", again = written_gguf(file, scratch, "q8_0");
  const Gguf a = open_gguf(file), b = open_gguf(again);
  for (const std::string name : {"blk.1.attn_k_b.weight", "blk.1.attn_v_b.weight"})
    EXPECT_EQ(as_floats(*a.checkpoint.find(name)).values, as_floats(*b.checkpoint.find(name)).values) << name;
  EXPECT_NO_THROW(open_model(again));
}

// Qwen3 Next's as today's converter cuts it: queries, keys and values of all heads, then their gates.
TEST(ToGgufMixtures, Qwen3NextRunsInBothForms) {
  ThreadPool pool(2);
  const std::string variant = std::string(VITRINE_GOLDEN) + "/variants/qwen3_next";
  const Checkpoint golden = open_safetensors(variant + "/golden.safetensors");
  const Scratch scratch;
  for (const std::string& file : {std::string(VITRINE_GOLDEN) + "/gguf/qwen3_next.gguf", written_gguf(variant, scratch)})
    expect_forward(run_forward(*open_model(file).model, ids_of(golden_tensor(golden, "0/ids")), {.f32 = true}, pool), golden,
                   "0/", tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0])));
}

// Every variant of a family either has a GGUF form, which gives the same numbers, or is refused by name.
TEST(ToGgufVariants, RunAlikeOrAreRefused) {
  ThreadPool pool(2);
  std::vector<std::string> refused;
  const std::string folder = std::string(VITRINE_GOLDEN) + "/variants/";
  for (const std::string& name : golden_folders("variants")) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    std::string file;
    try {
      file = written_gguf(folder + name, scratch);
    } catch (const FileError& error) {
      EXPECT_CONTAINS(std::string(error.what()), "GGUF");
      refused.push_back(name);
      continue;
    }
    const Checkpoint golden = open_safetensors(folder + name + "/golden.safetensors");
    const OpenedModel stored = open_model(file);
    for (const std::string prompt : {"0/", "1/"})
      if (golden.find(prompt + "ids") != nullptr)
        expect_forward(run_forward(*stored.model, ids_of(golden_tensor(golden, prompt + "ids")), {.f32 = true}, pool), golden,
                       prompt, tolerance_for(static_cast<double>(golden_tensor(golden, "distance").values[0])));
  }
  EXPECT_EQ(refused, (std::vector<std::string>{"classic_post_gelu_halves_tied",
                                               "classic_post_gelu_tanh",
                                               "classic_pre_gelu_unscaled",
                                               "classic_pre_relu_halves",
                                               "ernie4_5_biases",
                                               "falcon_biases",
                                               "falcon_h1_ungated_norm",
                                               "gemma2_layer_types",
                                               "gemma2_no_window_no_caps",
                                               "glm_published",
                                               "gpt2_by_layer_relu",
                                               "gpt2_gelu_bare_names",
                                               "gpt2_unscaled_silu",
                                               "gpt_neo_inverted",
                                               "gpt_neox_sequential",
                                               "gpt_oss_default_rope",
                                               "gptj_bare_names",
                                               "lfm2_biases",
                                               "llama4_layer_types",
                                               "llama_mha_gelu",
                                               "mamba2_one_group",
                                               "nemotron_h_every_kind",
                                               "olmoe_stacked",
                                               "opt_no_biases",
                                               "phi_grouped",
                                               "qwen2_layer_types",
                                               "qwen2_moe",
                                               "qwen2_window_layers",
                                               "qwen3_moe_dense_layers",
                                               "qwen3_moe_stacked",
                                               "starcoder2_no_biases"}));
}

TEST(ToGgufRope, DivisorsOfLlama3AreATensor) {
  const Scratch scratch;
  const Gguf made = open_gguf(written_gguf(std::string(VITRINE_GOLDEN) + "/variants/llama_rope_llama3", scratch));
  const Gguf want = open_gguf(std::string(VITRINE_GOLDEN) + "/gguf/rope_llama3.gguf");  // its divisors are the converter's
  const StoredTensor *const a = made.checkpoint.find("rope_freqs.weight"), *const b = want.checkpoint.find("rope_freqs.weight");
  ASSERT_NE(a, nullptr);
  ASSERT_EQ(a->shape, b->shape);
  EXPECT_CLOSE(as_floats(*a).values, as_floats(*b).values, (Tolerance{.abs = 0, .rel = 2e-7}));
}

TEST(ToGgufAdapter, IsMergedAsIntoTheDirectory) {
  for (const std::string name : {"llama", "gpt2_a", "gemma2"}) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    const std::string adapter = std::string(VITRINE_GOLDEN) + "/lora/" + name + "/adapter";
    OpenedModel golden = open_model(Golden::open(name).model());
    open_adapter(golden, adapter);
    write(golden, scratch / "merged.gguf", "f32");
    OpenedModel stored = open_model(written_gguf(Golden::open(name).model(), scratch));
    open_adapter(stored, adapter);
    write(stored, scratch / "again.gguf", "f32");
    write_huggingface(golden, {}, scratch / "merged", DType::f32);
    const std::string directory = written_gguf(scratch / "merged", scratch, "f32", "directory.gguf");
    const Gguf a = open_gguf(scratch / "merged.gguf"), b = open_gguf(scratch / "again.gguf"), c = open_gguf(directory);
    for (const auto& [tensor, values] : a.checkpoint.tensors()) {
      EXPECT_EQ(as_floats(values).values, as_floats(*b.checkpoint.find(tensor)).values) << tensor;
      EXPECT_CLOSE(as_floats(values).values, as_floats(*c.checkpoint.find(tensor)).values, (Tolerance{.abs = 1e-7, .rel = 1e-6}));
    }
  }
}

// A file of DeepSeek holds keys and values as two tensors, which would be passed on without it.
TEST(ToGgufAdapter, OfKeysAndValuesApartIsRefused) {
  const Scratch scratch;
  const std::string file = std::string(VITRINE_GOLDEN) + "/gguf/deepseek_v3.gguf";
  const auto adapted = [](OpenedModel opened, const char* target) {
    AdapterOptions options;
    options.targets = {target};
    add_fresh_adapter(opened, options, 1);
    return opened;
  };
  const OpenedModel both = adapted(open_model(file), "kv_b_proj"), other = adapted(open_model(file), "o_proj");
  const std::string said = "the adapter changes blocks.0.attn.W_UKV, whose keys and values " + file + " holds as two tensors";
  EXPECT_CONTAINS(message_of<InputError>([&] { write(both, scratch / "merged.gguf", "f32"); }), said);
  EXPECT_CONTAINS(message_of<InputError>([&] { write_gguf_adapter(both, *both.adapter, scratch / "adapter.gguf"); }), said);
  write(other, scratch / "merged.gguf", "f32");
  write_gguf_adapter(other, *other.adapter, scratch / "adapter.gguf");
  OpenedModel directory = adapted(as_huggingface(open_model(file)), "kv_b_proj");  // which has one matrix
  EXPECT_NO_THROW(write_huggingface(directory, {}, scratch / "out", DType::f32));
}

// A copy of a golden directory with one number changed.
std::string changed_directory(const Scratch& scratch, const std::string& model, const std::string& tensor, float value) {
  namespace fs = std::filesystem;
  fs::copy(Golden::open(model).model(), scratch / "changed", fs::copy_options::recursive);
  const Checkpoint source = open_safetensors(Golden::open(model).model());
  std::vector<TensorPlan> plans;
  for (const auto& [name, held] : source.tensors()) plans.push_back({name, held.dtype, held.shape});
  SafetensorsWriter writer(scratch / "changed/model.safetensors", plans, {{"format", "pt"}});
  size_t i = 0;
  for (const auto& [name, held] : source.tensors()) {
    std::vector<std::byte> bytes(held.data, held.data + held.bytes);
    if (name == tensor) std::memcpy(bytes.data() + 5 * sizeof(float), &value, sizeof value);
    writer.write(i++, bytes);
  }
  writer.finish();
  return scratch / "changed";
}

TEST(ToGgufRefusals, NumbersThatAreNoneAreNamedAndNothingIsLeft) {
  const auto message = [](float value, const std::string& tensor, const std::string& type) {
    const Scratch scratch;
    const std::string model = changed_directory(scratch, "llama", tensor, value);
    std::string said = message_of<RunError>([&] { written_gguf(model, scratch, type); });
    int left = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) left += entry.path().filename() != "changed";
    EXPECT_EQ(left, 0);
    return said;
  };
  const std::string matrix = "model.layers.1.mlp.up_proj.weight";
  EXPECT_CONTAINS(message(std::nanf(""), matrix, "f32"), "blk.1.ffn_up.weight: number 5 is nan");
  EXPECT_CONTAINS(message(INFINITY, matrix, "q8_0"), "blk.1.ffn_up.weight: number 5 is inf");
  EXPECT_CONTAINS(message(70000, matrix, "f16"), "number 5 is 70000.000000, beyond what f16 holds; use bf16 or f32");
  EXPECT_CONTAINS(message(1e7f, matrix, "q8_0"), "beyond what q8_0 holds");
  EXPECT_CONTAINS(message(std::nanf(""), "model.norm.weight", "f16"), "output_norm.weight: number 5 is nan");
}

TEST(ToGgufRefusals, SayWhatTheFormHasNoWordsFor) {
  const auto message = [](const std::string& model, const std::string& key, const Json& value) {
    ModelFiles files = resolve_model(Golden::open(model).model());
    if (!key.empty()) files.config[key] = value;
    const OpenedModel opened = open_model(files);
    return message_of<FileError>([&] { plan_gguf(opened, {}, mixture_encoding(opened, *find_mixture("f16"))); });
  };
  EXPECT_CONTAINS(message("classic_pre", "", {}),
                  "is of the family classic_decoder, which has no GGUF form; name a directory as OUT");
  EXPECT_CONTAINS(message("gpt2_a", "activation_function", "relu"),
                  "gives the activation in layer 0 as \"relu\", and GGUF's metadata can only say \"gelu_pytorch_tanh\"");
  EXPECT_CONTAINS(message("gpt2_a", "scale_attn_by_inverse_layer_idx", true), "gives the scale of scores in layer 1 as");
  EXPECT_CONTAINS(message("llama", "vitrine_residual", false), "vitrine_residual");
}

TEST(ToGgufRefusals, SayWhatExpertsHaveNoWordsFor) {
  const auto message = [](const std::string& variant) {
    const OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/variants/" + variant);
    return message_of<FileError>([&] { plan_gguf(opened, {}, mixture_encoding(opened, *find_mixture("f16"))); });
  };
  EXPECT_CONTAINS(message("qwen3_moe_stacked"), "gives the window in layer 0 as 5.0, and GGUF's metadata can only say");
  EXPECT_CONTAINS(message("qwen3_moe_dense_layers"),
                  "gives the number of experts in layer 0 as 0.0, and GGUF's metadata can only say 6.0");
  EXPECT_CONTAINS(message("gpt_oss_default_rope"),
                  "gives the largest gate of an expert in layer 0 as 0.5, and GGUF's metadata can only say 7.0");
}

TEST(ToGgufEncoding, MayChooseATypeForEachMatrix) {
  const Scratch scratch;
  ThreadPool pool(2);
  const OpenedModel opened = open_model(Golden::open("llama").model());
  GgufEncoding encoding = mixture_encoding(opened, *find_mixture("f16"));
  std::vector<std::string> asked;
  encoding.type_of = [&](const GgufTensor& tensor) {
    EXPECT_EQ(tensor.shape.size(), 2u);
    EXPECT_EQ(tensor.stored, DType::f32);
    asked.push_back(tensor.name);
    return tensor.name.ends_with("ffn_down.weight") ? DType::q8_0 : DType::f16;
  };
  std::vector<float> importance(96, 2.0f);
  encoding.importance = [&](const std::string& name, int64_t) {
    return name == "blk.0.ffn_down.weight" ? importance.data() : nullptr;
  };
  std::atomic<int> weighed{0};
  const auto plain = encoding.encode;
  encoding.encode = [&](DType type, const float* rows, size_t n, size_t row, const float* weights, std::byte* out) {
    if (weights != nullptr) weighed += weights == importance.data() && row == 96 && type == DType::q8_0 ? 1 : 1000;
    plain(type, rows, n, row, weights, out);
  };
  const GgufPlan plan = plan_gguf(opened, {}, encoding);
  EXPECT_EQ(asked.size(), 3u * 7 + 2);
  write_gguf(opened, plan, encoding, scratch / "mixed.gguf", pool);
  EXPECT_TRUE(weighed > 0 && weighed < 1000);
  const Gguf made = open_gguf(scratch / "mixed.gguf");
  EXPECT_EQ(made.checkpoint.find("blk.2.ffn_down.weight")->dtype, DType::q8_0);
  EXPECT_EQ(made.checkpoint.find("blk.2.ffn_up.weight")->dtype, DType::f16);
  EXPECT_EQ(made.checkpoint.find("blk.2.ffn_norm.weight")->dtype, DType::f32);
  const auto size = static_cast<double>(std::filesystem::file_size(scratch / "mixed.gguf"));
  EXPECT_NEAR(static_cast<double>(plan.bytes), size, 0.01 * size);
}

// llama.cpp's Gemma has no tensor for the divisors that llama3 scaling becomes, and would not open the file.
TEST(WrittenModels, AreRefusedWhereTheArchitectureHasNoTensorForTheirRope) {
  for (const char* model : {"gemma", "gemma2", "gemma3", "qwen3_5"}) {
    ModelFiles files = resolve_model(Golden::open(model).model());
    Json& parameters = files.config["rope_parameters"];
    for (const char* key : {"rope_theta", "rope_scaling"}) files.config.erase(key);
    const Json llama3 = {{"rope_type", "llama3"},  {"rope_theta", 1e4},       {"factor", 8.0},
                         {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 16}};
    parameters = std::string(model) == "gemma3" ? Json{{"full_attention", llama3}} : llama3;
    const OpenedModel opened = open_model(files);
    EXPECT_CONTAINS(
        message_of([&] { plan_gguf(opened, {}, mixture_encoding(opened, *find_mixture("f32"))); }),
        "config.json: scales RoPE in a way that a GGUF file stores in the tensor rope_freqs.weight, which the architecture")
        << model;
  }
}

// Whatever a mistake of ours may be: what cannot be opened again never gets the name.
TEST(WrittenModels, AreOpenedBeforeTheyGetTheirNames) {
  const Scratch scratch;
  const std::string gguf = scratch / "out.gguf", directory = scratch / "out";
  OpenedModel opened = open_model(Golden::open("llama").model());
  const GgufEncoding encoding = mixture_encoding(opened, *find_mixture("f32"));
  GgufPlan plan = plan_gguf(opened, {}, encoding);
  std::erase_if(plan.keys, [](const auto& key) { return key.first == "llama.block_count"; });
  ThreadPool pool(1);
  const std::string message =
      message_of<RunError>([&] { write_gguf(opened, plan, encoding, gguf, pool, {.made_from = "a test"}); });
  EXPECT_CONTAINS(message, gguf + " is not put in place, since vitrine could not open it again");
  EXPECT_CONTAINS(message, "lacks \"num_hidden_layers\" (or \"block_count\")");
  opened.files.config["alibi"] = true;
  EXPECT_CONTAINS(message_of<RunError>([&] { write_huggingface(opened, {}, directory, DType::f32); }),
                  directory + " is not put in place, since vitrine could not open it again");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

// The kernel of llama.cpp's state spaces has one activation, for which there is no key.
TEST(ToGguf, TheActivationOfAConvolutionIsNotLost) {
  const Scratch scratch;
  const std::string source = Golden::open("nemotron_h").model();
  Json config = read_json(source + "/config.json");
  config["mamba_hidden_act"] = "gelu";
  scratch.write("changed/config.json", config.dump());
  std::filesystem::copy_file(source + "/model.safetensors", scratch / "changed/model.safetensors");
  EXPECT_CONTAINS(message_of<InputError>([&] { written_gguf(scratch / "changed", scratch); }),
                  "the activation of the convolution");
}

}  // namespace
}  // namespace vitrine
