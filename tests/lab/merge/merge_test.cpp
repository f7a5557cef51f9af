// Merges of small models against mergekit's own results (tests/golden/merging), tensor by tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "merge/output.h"
#include "merge/run.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
const std::string kGoldenMerging = std::string(VITRINE_GOLDEN) + "/merging";

std::vector<std::string> yaml_files(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& family : fs::directory_iterator(kGoldenMerging)) {
    if (!fs::is_directory(family.path() / folder)) continue;
    for (const auto& file : fs::directory_iterator(family.path() / folder))
      if (file.path().extension() == ".yml")
        found.push_back(family.path().filename().string() + "/" + file.path().stem().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string test_name(const testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

// The words behind a flag in the first line, "# arguments: --out-shard-size 4000".
MergeOptions options_of(const std::string& yaml) {
  MergeOptions options;
  const std::string flag = "--out-shard-size ";
  const size_t at = yaml.find(flag);
  if (yaml.starts_with("# arguments:") && at < yaml.find('\n')) options.shard_bytes = std::stoll(yaml.substr(at + flag.size()));
  return options;
}

MergePlan golden_plan(const std::string& path, const MergeOptions& options) {
  const std::vector<MergeRecipe> recipes = read_merge_recipes(path);
  EXPECT_EQ(recipes.size(), 1u);
  return plan_merge(recipes.front(), options);
}

std::vector<std::string> weight_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().string().find(".safetensors") != std::string::npos) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Models are named relative to the folder of their family.
class Recipe : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { fs::current_path(kGoldenMerging + "/" + family()); }
  std::string family() const { return GetParam().substr(0, GetParam().find('/')); }
  std::string name() const { return GetParam().substr(GetParam().find('/') + 1); }
};

class MergeGolden : public Recipe {};

TEST_P(MergeGolden, EqualsMergekit) {
  const std::string yaml = "cases/" + name() + ".yml", expected = "expected/" + name();
  const Scratch scratch;
  const std::string out = scratch / "out";
  const MergePlan plan = golden_plan(yaml, options_of(read_file(yaml)));
  ThreadPool pool(2);
  write_merge(plan, merge_companions(plan, "out"), out, pool, {});

  EXPECT_EQ(weight_files(out), weight_files(expected));
  const Checkpoint got = open_safetensors(out), want = open_safetensors(expected);
  ASSERT_EQ(got.tensors().size(), want.tensors().size());
  // mergekit computes in the type of the inputs; here results are rounded once.
  const bool sixteen_bits = name().find("float16") != std::string::npos && name() != "bfloat16_ties_in_float32";
  const double tolerance = sixteen_bits ? 0x1p-6 : 1e-6;
  for (const auto& [tensor, wanted] : want.tensors()) {
    SCOPED_TRACE(tensor);
    const StoredTensor* const found = got.find(tensor);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->dtype, wanted.dtype);
    EXPECT_EQ(found->shape, wanted.shape);
    const GoldenTensor a = as_floats(*found), b = as_floats(wanted);
    double largest = 0;
    for (const float value : b) largest = std::max(largest, std::abs(static_cast<double>(value)));
    size_t apart = 0;
    for (size_t i = 0; i < a.size(); ++i)
      apart += std::abs(static_cast<double>(a.values[i]) - static_cast<double>(b.values[i])) > tolerance * largest;
    // Differences of bf16 numbers have equal magnitudes; which of these is kept is up to the sort that is used.
    EXPECT_LE(apart, name() == "bfloat16_ties_in_float32" ? a.size() / 10 : 0);
  }
  const Json made = read_json(out + "/config.json"), wanted = read_json(expected + "/config.json");
  for (const char* key :
       {"model_type", "num_hidden_layers", "n_layer", "vocab_size", "tie_word_embeddings", "hidden_size", "n_embd"}) {
    // mergekit leaves a tied base tied, although the result then has a head of its own, which is never read.
    if (name() == "tied_base" && std::string_view(key) == "tie_word_embeddings") continue;
    if (made.contains(key) && wanted.contains(key)) {
      EXPECT_EQ(made[key], wanted[key]) << key;
    }
  }
  EXPECT_EQ(read_file(out + "/mergekit_config.yml"), read_file(yaml));
}

INSTANTIATE_TEST_SUITE_P(Every, MergeGolden, testing::ValuesIn(yaml_files("cases")), test_name);

class MergeRefused : public Recipe {};

TEST_P(MergeRefused, IsRefusedAsByMergekit) {
  const std::string yaml = "refused/" + name() + ".yml";
  ThreadPool pool(1);
  const Scratch scratch;
  EXPECT_THROW(write_merge(golden_plan(yaml, {}), {}, scratch / "out", pool, {}), InputError);
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

INSTANTIATE_TEST_SUITE_P(Every, MergeRefused, testing::ValuesIn(yaml_files("refused")), test_name);

TEST(Merge, ABrokenChatTemplateIsRefusedWhenPlanned) {
  const std::string models = "merge_method: linear\nparameters: {weight: 1}\nmodels:\n- model: " + std::string(VITRINE_GOLDEN) +
                             "/merging/tiny_llama/ft1\n";
  const auto plan = [&](const std::string& chat) {
    plan_merge(parse_merge_recipes(models + "chat_template: " + chat + "\n", "r.yml").front(), {});
  };
  EXPECT_CONTAINS(message_of<InputError>([&] { plan("'{% for m in messages %}{{ m }}'"); }), "r.yml: \"chat_template\"");
  EXPECT_CONTAINS(message_of<UsageError>([&] { plan("chatlm"); }), "\"chat_template\" is \"chatlm\"");
  plan("'{% for m in messages %}{{ m.content }}{% endfor %}'");
}

// Which layers have positions or experts goes by their place, or is written in letters, where the source has no list.
TEST(Merge, SlicesKeepWhatTheConfigurationSaysOfEachLayer) {
  struct Case {
    const char* model;
    std::vector<std::array<int, 2>> ranges;  // of layers
    std::vector<const char*> absent;
    Json added, wanted;
  };
  const std::vector<Case> cases{
      {"smollm3", {{2, 4}}, {"no_rope_layers", "layer_types"}, Json::object(), {{"no_rope_layers", {1, 0}}}},
      {"llama4",
       {{2, 4}},
       {"no_rope_layers", "moe_layers", "layer_types"},
       Json::object(),
       {{"no_rope_layers", {1, 0}}, {"moe_layers", {1}}}},
      {"nemotron_h",
       {{2, 3}, {0, 1}},
       {"layers_block_type"},
       {{"hybrid_override_pattern", "M-*"}},
       {{"layers_block_type", {"full_attention", "linear_attention"}}}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.model);
    const Scratch scratch;
    const std::string source = std::string(VITRINE_GOLDEN) + "/models/" + one.model + "/model";
    Json config = read_json(source + "/config.json");
    for (const char* key : one.absent) config.erase(key);
    config.update(one.added);
    scratch.write("source/config.json", config.dump());
    fs::copy_file(source + "/model.safetensors", scratch / "source/model.safetensors");
    std::string yaml = "merge_method: passthrough\nslices:\n";
    for (const auto& [from, to] : one.ranges)
      yaml += "- sources:\n  - {model: " + scratch / "source" + ", layer_range: [" + std::to_string(from) + ", " +
              std::to_string(to) + "]}\n";
    ThreadPool pool(1);
    write_merge(plan_merge(parse_merge_recipes(yaml, "r.yml").front(), {}), {}, scratch / "out", pool, {});
    const Json made = read_json(scratch / "out/config.json");
    for (const auto& [key, list] : one.wanted.items()) EXPECT_EQ(made.value(key, Json()), list) << key;
  }
}

}  // namespace
}  // namespace vitrine
