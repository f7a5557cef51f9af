// Experts that a file holds stacked, one tensor for all of them.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/safetensors.h"
#include "merge/run.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kStackedModel = std::string(VITRINE_GOLDEN) + "/variants/qwen3_moe_stacked";

// As a file of the bare model holds it: without "model." before the names.
std::string bare(const Scratch& scratch) {
  const std::string folder = scratch / "bare";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(kStackedModel + "/config.json", folder + "/config.json");
  const Checkpoint whole = open_safetensors(kStackedModel + "/model.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : whole.tensors())
    tensors.push_back({name.starts_with("model.") ? name.substr(6) : name, tensor.dtype, tensor.shape, tensor.data});
  write_safetensors(folder + "/model.safetensors", tensors);
  return folder;
}

TEST(StackedExperts, OfABareModelAreMergedWithThoseOfAWholeOne) {
  const Scratch scratch;
  const std::string yaml = "merge_method: linear\nmodels:\n- model: " + bare(scratch) +
                           "\n  parameters: {weight: 1}\n- model: " + kStackedModel + "\n  parameters: {weight: 1}\n";
  ThreadPool pool(2);
  const MergePlan plan = plan_merge(parse_merge_recipes(yaml, "r.yml").front(), {});
  write_merge(plan, {}, scratch / "out", pool, {});
  const Checkpoint got = open_safetensors(scratch / "out"), want = open_safetensors(kStackedModel + "/model.safetensors");
  ASSERT_EQ(got.tensors().size(), want.tensors().size());
  for (const auto& [name, tensor] : want.tensors()) {
    const StoredTensor* const merged = got.find(name);
    ASSERT_NE(merged, nullptr) << name;
    EXPECT_EQ(as_floats(*merged).values, as_floats(tensor).values) << name;
  }
}

}  // namespace
}  // namespace vitrine
