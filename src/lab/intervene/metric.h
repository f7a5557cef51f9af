#pragma once
// What a run of a recipe is measured by.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "intervene/intervene.h"
#include "intervene/plan.h"
#include "intervene/recipe.h"
#include "runtime/engine.h"

namespace vitrine {

class Metric {
 public:
  /// Errors: InputError naming the recipe's line for prompts that the metric cannot be taken of.
  Metric(Engine& engine, const Recipe& recipe, const RecipePrompts& prompts);

  int64_t position() const { return position_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }

  /// most_likely: if it is given, receives the `top` most likely tokens at the metric's position.
  double of(std::span<const int32_t> ids, Interventions edits = {}, int64_t top = 0,
            std::vector<TokenLogprob>* most_likely = nullptr) const;

 private:
  using Kind = MetricSpec::Kind;
  Engine& engine_;
  Kind kind_;
  std::vector<int32_t> labels_, tokens_;
  std::vector<float> clean_;
  int64_t position_ = 0, relative_ = -1;
  std::string where_;
};

}  // namespace vitrine
