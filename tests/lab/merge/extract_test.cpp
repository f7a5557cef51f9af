// LoRA adapters extracted from two models, against mergekit-extract-lora's (tests/golden/merging/extract), and whole circles:
// base + adapter = model.
#include "merge/extract.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "merge/recipe.h"
#include "model/adapter.h"
#include "model/export.h"
#include "model/module_pattern.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
const std::string kMerging = std::string(VITRINE_GOLDEN) + "/merging/";
const std::string kExpected = kMerging + "extract/";

MergeInput open_input(const std::string& path) { return MergeInput(*model_reference(path)); }

ExtractResult extract(const std::string& model, const std::string& base, const std::string& out,
                      const ExtractOptions& options = {}, int threads = 2) {
  ThreadPool pool(threads);
  return extract_lora(open_input(model), open_input(base), out, options, pool);
}

Json config_in(const std::string& folder) { return parse_json(read_file(folder + "/adapter_config.json"), folder); }
Checkpoint weights_in(const std::string& folder) { return open_safetensors(folder + "/adapter_model.safetensors"); }

// B A of every module that has them, by the names of its tensors up to "lora".
std::map<std::string, GoldenTensor> products_in(const Checkpoint& weights) {
  std::map<std::string, GoldenTensor> products;
  for (const auto& [name, tensor] : weights.tensors()) {
    const size_t at = name.find("_A");
    if (name.find("lora_") == std::string::npos || at == std::string::npos) continue;
    const GoldenTensor A = as_floats(tensor), B = golden_tensor(weights, name.substr(0, at) + "_B" + name.substr(at + 2));
    const auto rank = static_cast<size_t>(A.shape[0]), in = static_cast<size_t>(A.shape[1]),
               out = static_cast<size_t>(B.shape[0]);
    GoldenTensor& product = products[name.substr(0, at)];
    product.shape = {B.shape[0], A.shape[1]};
    product.values.assign(out * in, 0.0f);
    for (size_t o = 0; o < out; ++o)
      for (size_t i = 0; i < in; ++i) {
        double sum = 0;
        for (size_t k = 0; k < rank; ++k)
          sum += static_cast<double>(B.values[o * rank + k]) * static_cast<double>(A.values[k * in + i]);
        product.values[o * in + i] = static_cast<float>(sum);
      }
  }
  return products;
}

// Against mergekit ----------------------------------------------------------------------------------------------------

struct ExtractCase {
  std::string name, model, base;
  ExtractOptions options;
};

std::vector<ExtractCase> cases() {
  std::vector<ExtractCase> found;
  const Json all = parse_json(read_file(kExpected + "cases.json"), "cases.json");
  for (const auto& [name, one] : all.items()) {
    ExtractCase made{name, kMerging + one["model"].get<std::string>(), kMerging + one["base"].get<std::string>(), {}};
    const auto words = one["options"].get<std::vector<std::string>>();
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (word == "--max-rank")
        made.options.max_rank = std::stoll(words.at(++i));
      else if (word == "--sv-epsilon")
        made.options.sv_epsilon = std::stod(words.at(++i));
      else if (word == "--save-module")
        made.options.save_modules.push_back(words.at(++i));
      else if (word == "--include-regex")
        made.options.include.push_back(words.at(++i));
      else if (word == "--exclude-regex" || word == "-e")
        made.options.exclude.push_back(words.at(++i));
      else if (word == "--no-distribute-scale")
        made.options.distribute_scale = false;
      else if (word == "--embed-lora")
        made.options.embed_lora = true;
      else if (word == "--skip-undecomposable")
        made.options.skip_undecomposable = true;
      else
        throw std::out_of_range(word);
    }
    found.push_back(made);
  }
  return found;
}

std::string extract_test_name(const testing::TestParamInfo<ExtractCase>& test) { return test.param.name; }

class ExtractGolden : public testing::TestWithParam<ExtractCase> {};

TEST_P(ExtractGolden, EqualsMergekit) {
  const ExtractCase& one = GetParam();
  const Scratch scratch;
  extract(one.model, one.base, scratch / "out", one.options);
  const std::string expected = kExpected + "expected/" + one.name;

  const Checkpoint ours = weights_in(scratch / "out"), theirs = weights_in(expected);
  const bool rounded = one.name == "bf16";  // also their difference is
  const auto products = products_in(ours);
  std::set<std::string> names, expected_names;
  for (const auto& [name, tensor] : ours.tensors()) names.insert(name);
  for (const auto& [name, tensor] : theirs.tensors())
    if (tensor.shape != std::vector<int64_t>{}) expected_names.insert(name);
  if (one.name != "same") {  // nothing that is the same is saved whole
    EXPECT_EQ(names, expected_names);
  }
  for (const auto& [name, product] : products_in(theirs)) {
    ASSERT_TRUE(products.contains(name)) << name;
    EXPECT_EQ(products.at(name).shape, product.shape) << name;
    EXPECT_CLOSE(products.at(name), product, (rounded ? Tolerance{4e-3, 2e-2} : Tolerance{2e-6, 1e-5})) << name;
  }
  for (const auto& [name, tensor] : theirs.tensors()) {
    const StoredTensor* const mine = ours.find(name);
    if (mine == nullptr) continue;
    EXPECT_EQ(mine->dtype, tensor.dtype) << name;
    EXPECT_EQ(mine->shape, tensor.shape) << name;
    if (name.find("lora_") == std::string::npos) {
      EXPECT_EQ(std::memcmp(mine->data, tensor.data, tensor.bytes), 0) << name;
    }
  }

  const Json own = config_in(scratch / "out"), its = config_in(expected);
  for (const char* key :
       {"peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "fan_in_fan_out", "inference_mode"})
    EXPECT_EQ(own.at(key), its.at(key)) << key;
  for (const char* key : {"rank_pattern", "alpha_pattern"})  // theirs have each module in full
    for (const auto& [name, product] : products) {
      constexpr size_t kBefore = std::string_view("base_model.model.").size();
      const std::string module = name.substr(kBefore, name.rfind(".lora") - kBefore);
      Json number;
      for (const auto& [pattern, value] : own.at(key).items())
        if (ModulePattern(pattern).fits(module)) number = value;
      EXPECT_EQ(number, its.at(key).value(module, Json())) << key << " " << module;
    }
  for (const char* key : {"target_modules", "modules_to_save"}) {
    std::set<std::string> lasts, theirs_lasts;
    for (const Json& name : own.at(key).is_null() ? Json::array() : own.at(key))
      lasts.insert(name.get<std::string>().substr(name.get<std::string>().rfind('.') + 1));
    for (const Json& name : its.at(key))
      theirs_lasts.insert(name.get<std::string>().substr(name.get<std::string>().rfind('.') + 1));
    if (one.name != "same" || std::string(key) == "target_modules") {
      EXPECT_EQ(lasts, theirs_lasts) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ExtractGolden, testing::ValuesIn(cases()), extract_test_name);

// Circles -------------------------------------------------------------------------------------------------------------

// Every number of `model` must be that of `base` with the adapter, whatever way it is held.
void expect_circle(const std::string& model, const std::string& base, const std::string& adapter, double tolerance) {
  const MergeInput wanted = open_input(model), from = open_input(base);
  const Checkpoint weights = weights_in(adapter);
  const auto products = products_in(weights);
  for (const auto& [name, tensor] : wanted.tensors()) {
    const auto n = static_cast<size_t>(tensor.elements());
    std::vector<float> expected(n), made(n);
    wanted.read(tensor, 0, n, expected.data());
    const std::string module = "base_model.model." + name.substr(0, name.rfind('.'));
    if (const StoredTensor* saved = weights.find("base_model.model." + name)) {
      made = as_floats(*saved).values;
    } else {
      from.read(*from.find(name), 0, n, made.data());
      if (const auto plain = products.find(module + ".lora"), embedding = products.find(module + ".lora_embedding");
          name.ends_with(".weight") && (plain != products.end() || embedding != products.end())) {
        const GoldenTensor& change = plain != products.end() ? plain->second : embedding->second;
        const auto columns = static_cast<size_t>(tensor.shape[1]);
        const bool square = tensor.shape[0] == tensor.shape[1], by_columns = config_in(adapter)["fan_in_fan_out"] == true;
        const bool turned = embedding != products.end() || change.shape != tensor.shape || (square && by_columns);
        for (size_t i = 0; i < n; ++i) made[i] += change.values[turned ? i % columns * (n / columns) + i / columns : i];
      }
      if (const StoredTensor* bias = weights.find(module + ".lora_B.bias"); bias != nullptr && name.ends_with(".bias"))
        for (size_t i = 0; i < n; ++i) made[i] += as_floats(*bias).values[i];
    }
    EXPECT_CLOSE(made, expected, (Tolerance{tolerance, 0})) << name;
  }
}

TEST(ExtractLora, FullRankGivesTheModelBack) {
  for (const std::string family : {"tiny_llama", "tiny_gpt2", "tiny_gemma2", "llama", "gpt2"})
    for (const bool embeddings : {false, true}) {
      const Scratch scratch;
      const std::string model = kMerging + family + "/ft2", base = kMerging + family + "/base";
      ExtractOptions options;
      options.embed_lora = embeddings;
      const ExtractResult result = extract(model, base, scratch / "out", options);
      expect_circle(model, base, scratch / "out", 1e-5);
      for (const ExtractedModule& module : result.modules) EXPECT_NEAR(module.kept, 1, 1e-6) << module.name;
    }
}

TEST(ExtractLora, Gpt2IsTakenApartAsWell) {
  const Scratch scratch;
  extract(kMerging + "tiny_gpt2/ft1", kMerging + "tiny_gpt2/base", scratch / "out", {.max_rank = 2});
  const Checkpoint weights = weights_in(scratch / "out");
  const std::string module = "base_model.model.transformer.h.0.attn.c_attn.lora_";
  ASSERT_NE(weights.find(module + "A.weight"), nullptr);
  EXPECT_EQ(weights.find(module + "A.weight")->shape, (std::vector<int64_t>{2, 9}));
  EXPECT_EQ(weights.find(module + "B.weight")->shape, (std::vector<int64_t>{27, 2}));
  EXPECT_EQ(weights.find(module + "B.bias")->shape, (std::vector<int64_t>{27}));
  const Json config = config_in(scratch / "out");
  EXPECT_EQ(config["fan_in_fan_out"], true);
  EXPECT_EQ(config["lora_bias"], true);
}

// The model with an adapter of known rank is given back by an adapter of that rank, which vitrine opens.
TEST(ExtractLora, AnAdapterIsFoundAgain) {
  const std::string base = std::string(VITRINE_GOLDEN) + "/models/gpt2_a/model";
  const std::string adapter = std::string(VITRINE_GOLDEN) + "/lora/gpt2_a/adapter";
  const Scratch scratch;
  const ExtractResult result = extract(base + "+" + adapter, base, scratch / "out", {.max_rank = 8, .sv_epsilon = 1e-5});
  for (const ExtractedModule& module : result.modules) EXPECT_NE(module.kind, ExtractedModule::Kind::saved) << module.name;
  OpenedModel once = open_model(base), again = open_model(base);
  open_adapter(once, adapter);
  open_adapter(again, scratch / "out");
  const auto tensors = file_tensors(*once.model, false), others = file_tensors(*again.model, false);
  ASSERT_EQ(once.adapter->modules().size(), again.adapter->modules().size());
  for (size_t t = 0; t < tensors.size(); ++t) {
    const int64_t rows = tensors[t].shape.front(), width = tensors[t].shape.size() > 1 ? tensors[t].shape[1] : 1;
    std::vector<float> a(static_cast<size_t>(rows * width)), b(a.size());
    read_rows(tensors[t], 0, rows, a.data());
    read_rows(others[t], 0, rows, b.data());
    EXPECT_CLOSE(b, a, (Tolerance{1e-5, 0})) << tensors[t].name;
  }
}

TEST(ExtractLora, DoesNotDependOnThreads) {
  const Scratch scratch;
  extract(kMerging + "llama/ft1", kMerging + "llama/base", scratch / "one", {.max_rank = 4}, 1);
  extract(kMerging + "llama/ft1", kMerging + "llama/base", scratch / "three", {.max_rank = 4}, 3);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "README.md"})
    EXPECT_EQ(read_file(scratch / "one" + "/" + name), read_file(scratch / "three" + "/" + name)) << name;
}

TEST(ExtractLora, WhatIsTheSameIsNotSavedWhole) {
  const Scratch scratch;
  const std::string base = kMerging + "tiny_llama/base";
  extract(base, base, scratch / "out", {.max_rank = 2});
  EXPECT_EQ(config_in(scratch / "out")["modules_to_save"], nullptr);
  extract(base, base, scratch / "saved", {.max_rank = 2, .save_modules = {"norm"}});
  EXPECT_EQ(config_in(scratch / "saved")["modules_to_save"], Json({"model.norm"}));  // "norm" ends the names of others too
  EXPECT_NE(weights_in(scratch / "saved").find("base_model.model.model.norm.weight"), nullptr);
}

TEST(ExtractLora, NamesThatMeanTooMuchAreWrittenOut) {
  const Scratch scratch;
  extract(kMerging + "tiny_llama/ft1", kMerging + "tiny_llama/base", scratch / "out",
          {.max_rank = 2, .include = {"layers.0.*q_proj", "o_proj"}, .exclude = {"embed", "lm_head"}});
  EXPECT_EQ(config_in(scratch / "out")["target_modules"], Json({"model.layers.0.self_attn.q_proj", "o_proj"}));
}

// Models of the same tensors as a tiny one, some of them changed.
std::string changed_copy(const Scratch& scratch, const std::string& name, const std::string& source,
                         const std::function<void(std::map<std::string, GoldenTensor>&)>& change) {
  std::map<std::string, GoldenTensor> tensors;
  const Checkpoint file = open_safetensors(source);
  for (const auto& [tensor, stored] : file.tensors()) tensors[tensor] = as_floats(stored);
  change(tensors);
  const std::string folder = scratch / name;
  fs::create_directories(folder);
  fs::copy_file(source + "/config.json", folder + "/config.json");
  std::vector<TensorToWrite> list;
  for (const auto& [tensor, values] : tensors) list.push_back({tensor, DType::f32, values.shape, values.data()});
  write_safetensors(folder + "/model.safetensors", list);
  return folder;
}

// Tensors of a family that nobody knows: the biases tell which matrices lie [in, out], and neighbors of square ones.
TEST(ExtractLora, OfAnUnknownFamily) {
  const Scratch scratch;
  const auto family = [&](const std::string& name, float factor, bool more = false) {
    const std::string folder = scratch / name;
    scratch.write(name + "/config.json", R"({"model_type": "novel", "architectures": ["NovelForCausalLM"]})");
    std::map<std::string, GoldenTensor> tensors;
    uint32_t state = 7;
    const auto add = [&](const std::string& tensor, const std::vector<int64_t>& shape) {
      GoldenTensor& made = tensors[tensor];
      made.shape = shape;
      int64_t n = 1;
      for (const int64_t size : shape) n *= size;
      for (int64_t i = 0; i < n; ++i)
        made.values.push_back(factor * (static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f));
    };
    add("h.0.attn.c_attn.weight", {4, 12});
    add("h.0.attn.c_attn.bias", {12});
    add("h.0.attn.c_proj.weight", {4, 4});
    add("h.0.attn.c_proj.bias", {4});
    add("h.0.other.up.weight", {6, 4});
    add("h.0.experts.gates", {2, 3, 4});
    add("h.0.norm.weight", {4});
    if (more) add("h.0.offset", {4});  // of a module that holds others
    std::vector<TensorToWrite> list;
    for (const auto& [tensor, values] : tensors) list.push_back({tensor, DType::f32, values.shape, values.data()});
    write_safetensors(folder + "/model.safetensors", list);
    return folder;
  };
  const std::string model = family("model", 1.0f), base = family("base", 0.5f);
  extract(model, base, scratch / "out");
  expect_circle(model, base, scratch / "out", 1e-6);
  const Checkpoint weights = weights_in(scratch / "out");
  const StoredTensor* const bias = weights.find("base_model.model.h.0.other.up.lora_B.bias");
  ASSERT_NE(bias, nullptr);  // PEFT has biases for all matrices or for none
  EXPECT_EQ(as_floats(*bias).values, (std::vector<float>(6, 0.0f)));
  EXPECT_NE(weights.find("base_model.model.h.0.experts.gates"), nullptr);
  const ExtractResult result = extract(family("model2", 1.0f, true), family("base2", 0.5f, true), scratch / "out2");
  EXPECT_EQ(result.notes, std::vector<std::string>{"h.0.offset differs and is left out: h.0 holds other modules"});
}

TEST(ExtractLora, OfAGgufFile) {
  const Scratch scratch;
  const std::string quantized = std::string(VITRINE_GOLDEN) + "/gguf/llama_q8_0.gguf";
  const std::string base = std::string(VITRINE_GOLDEN) + "/models/llama/model";
  const ExtractResult result = extract(quantized, base, scratch / "out", {.max_rank = 4});
  EXPECT_EQ(result.rank, 4);
  EXPECT_NE(weights_in(scratch / "out").find("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"), nullptr);
}

// Of the shipped model, whose matrices are larger than those of the tests.
TEST(ExtractLora, OfTheShippedModel) {
  const Scratch scratch;
  const std::string base = std::string(VITRINE_SOURCE) + "/models/tales9m";
  const std::string widened = changed_copy(scratch, "base", base, [](auto&) {});
  uint32_t state = 1;
  const auto random = [&] { return static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f; };
  const std::string model = changed_copy(scratch, "model", base, [&](auto& tensors) {
    for (auto& [name, tensor] : tensors)
      if (tensor.shape.size() == 2 && name.find("layers.") != std::string::npos) {
        const size_t columns = static_cast<size_t>(tensor.shape[1]), rows = static_cast<size_t>(tensor.shape[0]);
        for (int k = 0; k < 3; ++k) {
          std::vector<float> a(rows), b(columns);
          for (float& x : a) x = random() * 0.1f;
          for (float& x : b) x = random();
          for (size_t r = 0; r < rows; ++r)
            for (size_t c = 0; c < columns; ++c) tensor.values[r * columns + c] += a[r] * b[c];
        }
      }
  });
  const ExtractResult result = extract(model, widened, scratch / "out", {.max_rank = 3});
  EXPECT_EQ(result.rank, 3);
  expect_circle(model, widened, scratch / "out", 1e-5);
  OpenedModel opened = open_model(widened);
  EXPECT_NO_THROW(open_adapter(opened, scratch / "out"));
}

// What is refused -----------------------------------------------------------------------------------------------------

const std::string kLlamaBase = kMerging + "tiny_llama/base", kTuned = kMerging + "tiny_llama/ft1";

std::string refusal(const std::string& model, const std::string& base, const ExtractOptions& options = {.max_rank = 2}) {
  const Scratch scratch;
  const std::string message = message_of<Error>([&] { extract(model, base, scratch / "out", options); });
  EXPECT_TRUE(fs::is_empty(scratch.path())) << "something is left behind";
  return message;
}

TEST(ExtractRefused, Options) {
  EXPECT_NE(refusal(kTuned, kLlamaBase, {.max_rank = 0}).find("--max-rank is 0; expected a rank of at least 1"),
            std::string::npos);
  EXPECT_NE(refusal(kTuned, kLlamaBase, {.sv_epsilon = -1}).find("--sv-epsilon is -1"), std::string::npos);
  EXPECT_NE(refusal(kTuned, kLlamaBase, {.sv_epsilon = 1e9}).find("Lower --sv-epsilon"), std::string::npos);
  EXPECT_NE(refusal(kTuned, kLlamaBase, {.include = {"a("}}).find("--include-regex a( is no regular expression"),
            std::string::npos);
  EXPECT_NE(refusal(kTuned, kLlamaBase, {.exclude = {"."}}).find("is left to extract"), std::string::npos);
  EXPECT_NE(refusal(kTuned, kLlamaBase, {.save_modules = {"q_prj"}}).find("did you mean q_proj?"), std::string::npos);
}

TEST(ExtractRefused, ModelsThatDoNotFit) {
  const std::string other = refusal(kMerging + "tiny_gpt2/ft1", kLlamaBase);
  EXPECT_NE(other.find("expected both models to have the same tensors"), std::string::npos) << other;
  const Scratch scratch;
  const std::string wide = changed_copy(scratch, "wide", kTuned, [](auto& tensors) {
    GoldenTensor& t = tensors["model.layers.1.mlp.up_proj.weight"];
    t.shape[0] -= 1;
    t.values.resize(t.values.size() - static_cast<size_t>(t.shape[1]));
  });
  const std::string shape = refusal(wide, kLlamaBase);
  EXPECT_NE(shape.find("model.safetensors: tensor \"model.layers.1.mlp.up_proj.weight\" is [10, 9]; expected [11, 9] as in"),
            std::string::npos)
      << shape;
  const std::string gap =
      changed_copy(scratch, "gap", kTuned, [](auto& tensors) { tensors.erase("model.layers.1.mlp.up_proj.weight"); });
  const std::string missing = refusal(gap, kLlamaBase);
  EXPECT_NE(missing.find("gap has no tensor \"model.layers.1.mlp.up_proj.weight\", which"), std::string::npos) << missing;
  EXPECT_NE(refusal(kLlamaBase, gap).find("gap has no tensor"), std::string::npos);
  const Scratch out;  // left out, it is no obstacle
  EXPECT_NO_THROW(extract(gap, kLlamaBase, out / "out", {.max_rank = 2, .exclude = {"layers.1.mlp.up_proj"}}));
}

TEST(ExtractRefused, NaN) {
  const Scratch scratch;
  for (const char* name : {"model.layers.2.mlp.up_proj.weight", "model.norm.weight", "model.embed_tokens.weight"}) {
    const std::string bad = changed_copy(scratch, std::string("bad-") + name, kTuned, [&](auto& tensors) {
      tensors[name].values[5] = std::numeric_limits<float>::quiet_NaN();
    });
    const std::string message = refusal(bad, kLlamaBase);
    EXPECT_NE(message.find(std::string(name) + " of " + bad + ": element 5 is nan"), std::string::npos) << message;
  }
}

TEST(ExtractRefused, ADirectoryThatIsThere) {
  const Scratch scratch;
  const std::string file = scratch.write("out/mine", "kept");
  const std::string message = message_of<Error>([&] { extract(kTuned, kLlamaBase, scratch / "out", {.max_rank = 2}); });
  EXPECT_NE(message.find("is there already; name a new directory"), std::string::npos) << message;
  EXPECT_EQ(read_file(file), "kept");
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1);
  fs::create_directories(scratch / "empty");
  EXPECT_NO_THROW(extract(kTuned, kLlamaBase, scratch / "empty", {.max_rank = 2}));
}

TEST(ExtractRefused, AFullDiskLeavesNothingBehind) {
  const Scratch scratch;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  for (const rlim_t limit : {rlim_t{1000}, rlim_t{9000}}) {
    const rlimit small{limit, old.rlim_max};  // stands for a full disk: no file may grow beyond it
    const auto before = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    try {
      extract(kTuned, kLlamaBase, scratch / "out", {.max_rank = 2});
    } catch (const RunError& error) {
      message = error.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, before);
    EXPECT_NE(message.find("cannot be written"), std::string::npos) << message;
    EXPECT_TRUE(fs::is_empty(scratch.path()));
  }
}

}  // namespace
}  // namespace vitrine
