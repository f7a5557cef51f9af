// The parts of WARP as merge methods: EMA, LITI and SLERP of task vectors against float64
// (tests/golden/formulas/make_merging.py).
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "merge/run.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const char* const kNames[] = {"w", "v"};

class MergingFormulas : public testing::Test {
 protected:
  GoldenTensor gold(const std::string& name) const { return golden_tensor(file_, name); }

  // A model of one layer with the two tensors of a golden checkpoint.
  std::string model(const std::string& name) const {
    scratch_.write(name + "/config.json", R"({"model_type": "two_tensors"})");
    std::vector<GoldenTensor> values;
    for (const char* tensor : kNames) values.push_back(gold(name + "/" + tensor));
    std::vector<TensorToWrite> tensors;
    for (size_t i = 0; i < 2; ++i)
      tensors.push_back({std::string("layers.0.") + kNames[i], DType::f32, values[i].shape, values[i].data()});
    write_safetensors(scratch_ / name + "/model.safetensors", tensors);
    return scratch_ / name;
  }

  // Merges by the method and compares.
  void expect(const std::string& method, const std::string& base, const std::vector<std::string>& models,
              const std::string& parameters, const std::string& expected) const {
    SCOPED_TRACE(expected);
    std::string text = "merge_method: " + method + "\n";
    if (!base.empty()) text += "base_model: " + model(base) + "\n";
    text += "models:\n";
    for (const std::string& name : models) text += "  - model: " + model(name) + "\n";
    const MergePlan plan = plan_merge(parse_merge_recipes(text + "parameters: " + parameters + "\n", "recipe.yml").front(), {});
    ThreadPool pool(2);
    const std::string out = scratch_ / "merged-" + expected;
    write_merge(plan, {}, out, pool, {});
    const Checkpoint merged = open_safetensors(out + "/model.safetensors");
    for (const char* tensor : kNames)
      EXPECT_CLOSE(golden_tensor(merged, std::string("layers.0.") + tensor), gold(expected + "/" + tensor),
                   (Tolerance{.abs = 1e-6, .rel = 1e-6}));
  }

 private:
  Checkpoint file_ = open_safetensors(std::string(VITRINE_GOLDEN) + "/formulas/merging.safetensors");
  Scratch scratch_;
};

TEST_F(MergingFormulas, AnAverageMovesTowardsEachCheckpoint) {
  expect("ema", "", {"init", "a", "b", "c"}, "{mu: 0.2}", "ema_0.2");
}

TEST_F(MergingFormulas, InterpolationGoesFromTheBaseAndBeyondTheModel) {
  for (const char* eta : {"0.0", "0.3", "1.0", "1.2"})
    expect("liti", "init", {"c"}, std::string("{eta: ") + eta + "}", std::string("liti_") + eta);
}

TEST_F(MergingFormulas, TaskVectorsAreInterpolatedByTensorOrByLayer) {
  for (const char* t : {"0.25", "0.5"}) {
    expect("slerp_task_vectors", "init", {"a", "b"}, std::string("{layer_wise: false, t: ") + t + "}", std::string("slerp_") + t);
    expect("slerp_task_vectors", "init", {"a", "b"}, std::string("{t: ") + t + "}", std::string("slerp_layer_") + t);
  }
}

TEST_F(MergingFormulas, ParallelTaskVectorsAreInterpolatedLinearly) {
  expect("slerp_task_vectors", "init", {"a", "near"}, "{t: 0.25}", "slerp_near_0.25");
}

TEST_F(MergingFormulas, ThreeTaskVectorsCountAlike) {
  expect("slerp_task_vectors", "init", {"a", "b", "c"}, "{}", "slerp_three");
}

}  // namespace
}  // namespace vitrine
