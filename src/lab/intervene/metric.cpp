#include "intervene/metric.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "intervene/edited_logits.h"

namespace vitrine {

Metric::Metric(Engine& engine, const Recipe& recipe, const RecipePrompts& prompts)
    : engine_(engine), kind_(recipe.metric.kind), labels_(prompts.clean) {
  for (const TokenSpec& token : recipe.metric.tokens) tokens_.push_back(id_of(engine, token));
  const auto rows = static_cast<int64_t>(prompts.run().size());
  position_ = position_of(recipe.metric.position, rows, recipe.metric.where);
  if (kind_ == Kind::none) return;
  if (kind_ == Kind::loss && labels_.size() < 2)
    throw InputError(recipe.metric.where + ": the loss scores token t + 1 after token t, which takes two tokens or more");
  if (!prompts.corrupt.empty() && prompts.corrupt.size() != prompts.clean.size() && kind_ == Kind::loss)
    throw InputError(recipe.metric.where + ": the loss is that of the clean prompt's tokens (" +
                     std::to_string(prompts.clean.size()) + "), and the corrupt prompt has " +
                     std::to_string(prompts.corrupt.size()) + "; both must have as many");
  if (kind_ == Kind::kl) {
    const int64_t at = position_of(recipe.metric.position, static_cast<int64_t>(labels_.size()), recipe.metric.where);
    Interventions none;
    clean_ = logits_of(engine, labels_, none, std::span(&at, 1))[0];
  }
  relative_ = recipe.metric.position;
  where_ = recipe.metric.where;
}

double Metric::of(std::span<const int32_t> ids, Interventions edits, int64_t top, std::vector<TokenLogprob>* most_likely) const {
  const auto length = static_cast<int64_t>(ids.size());
  const int64_t at = kind_ == Kind::loss ? position_ : position_of(relative_, length, where_);
  const auto kept = static_cast<size_t>(std::min(top, engine_.shape().vocab_size));
  if (kind_ == Kind::loss) {
    if (most_likely != nullptr) *most_likely = top_logprobs(logits_of(engine_, ids, edits, std::span(&at, 1))[0], kept);
    std::vector<int64_t> rows(ids.size() - 1);
    std::iota(rows.begin(), rows.end(), 0);
    double sum = 0;
    run_rows(engine_, ids, edits, rows, [&](size_t i, std::span<const float> z) {
      sum += log_sum_exp(z) - static_cast<double>(z[static_cast<size_t>(labels_[i + 1])]);
    });
    return sum / static_cast<double>(rows.size());
  }
  const std::vector<float> z = logits_of(engine_, ids, edits, std::span(&at, 1))[0];
  if (most_likely != nullptr) *most_likely = top_logprobs(z, kept);
  const auto logit = [&](size_t i) { return static_cast<double>(z[static_cast<size_t>(tokens_[i])]); };
  if (kind_ == Kind::logit_difference) return logit(0) - logit(1);
  if (kind_ == Kind::logprob) return logit(0) - log_sum_exp(z);
  return kl_divergence(clean_, z);
}

}  // namespace vitrine
