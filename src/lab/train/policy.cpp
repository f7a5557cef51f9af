#include "train/policy.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "ops/tape.h"
#include "train/scored_rows.h"

namespace vitrine {
namespace {

constexpr double kLeastDeviation = 1e-4;

// value, whose slope by each row of `rows` is known.
struct RowSlopesNode {
  Tensor value, rows;
  const float* slopes;
};

void row_slopes_backward(Context&, Tape& tape, const RowSlopesNode& node) {
  const Tensor dvalue = tape.gradient(node.value);
  if (!dvalue) return;
  const Tensor drows = tape.accumulate(node.rows);
  if (!drows) return;
  for (int64_t i = 0; i < node.rows.count(); ++i) drows.data<float>()[i] += *dvalue.data<float>() * node.slopes[i];
}

// -min(r A, clip(r) A), and its slope by log r.
struct Clipped {
  double value, slope;
  bool cut;
};
Clipped clipped(double log_ratio, double advantage, const PolicyOptions& o) {
  const double ratio = std::exp(log_ratio), near = std::clamp(ratio, 1 - o.low, 1 + o.high);
  const bool cut = near * advantage < ratio * advantage;
  return {-std::min(ratio * advantage, near * advantage), cut ? 0 : -ratio * advantage, cut};
}

}  // namespace

std::string policy_text(const PolicyOptions& o) {
  constexpr const char *kLosses[] = {"grpo", "dapo", "dr_grpo", "rloo"}, *kScales[] = {"group", "batch", "none"};
  const auto number = [](double x) { return Json(x).dump(); };
  return std::string(kLosses[static_cast<size_t>(o.loss)]) + ", group " + std::to_string(o.group) + ", max_tokens " +
         std::to_string(o.max_tokens) + ", temperature " + number(o.temperature) + (o.drop_cut ? ", without those cut" : "") +
         ", scaled by " + kScales[static_cast<size_t>(o.scale)] + ", beta " + number(o.beta) + ", clip " + number(o.low) +
         " and " + number(o.high) + ", iterations " + std::to_string(o.iterations);
}

double deviation_of(double sum, double sum_of_squares, double n) {
  if (n < 2) return 0;
  return std::sqrt(std::max(0.0, (sum_of_squares - sum * sum / n) / (n - 1)));
}

std::vector<double> advantages_of(std::span<const double> rewards, const PolicyOptions& options, double deviation_of_all) {
  const auto group = static_cast<size_t>(options.group);
  const auto n = static_cast<double>(group);
  std::vector<double> advantages;
  for (size_t first = 0; first + group <= rewards.size(); first += group) {
    double sum = 0, squares = 0;
    for (const double reward : rewards.subspan(first, group)) sum += reward;
    for (const double reward : rewards.subspan(first, group)) squares += (reward - sum / n) * (reward - sum / n);
    for (const double reward : rewards.subspan(first, group)) {
      if (options.loss == PolicyOptions::Loss::rloo) {
        advantages.push_back(reward - (sum - reward) / (n - 1));
        continue;
      }
      const double deviation = options.scale == PolicyOptions::Scale::batch ? deviation_of_all : deviation_of(0, squares, n);
      advantages.push_back((reward - sum / n) / (options.scale == PolicyOptions::Scale::none ? 1 : deviation + kLeastDeviation));
    }
  }
  return advantages;
}

Tensor policy_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PolicyOptions& options,
                   PolicyReport& report) {
  const PolicyTargets& targets = batch.policy;
  const ScoredRows scored = scored_rows(batch.labels, 0, static_cast<int64_t>(batch.labels.size()));
  const size_t sequences = batch.lengths.size();
  VITRINE_CHECK(targets.advantages.size() == sequences && targets.token_weights.size() == sequences,
                "each sequence has a reward");
  const Tensor value = ctx.empty({1});
  *value.data<float>() = 0;
  if (scored.rows.empty()) return value;
  Tensor entropies;
  const Tensor logprobs =
      label_logprobs(ctx, take_rows(ctx, x, scored.rows), head, scored.labels, options.temperature, &entropies);
  const float* const now = logprobs.data<float>();
  const bool whole = options.loss == PolicyOptions::Loss::rloo;
  // log p of a scored row when it was sampled; as it is now where sampled_by is empty.
  const auto then = [&](size_t i) {
    return static_cast<double>(targets.sampled_by.empty() ? now[i] : targets.sampled_by[static_cast<size_t>(scored.rows[i])]);
  };
  std::vector<float> slopes(scored.rows.size());
  double sum = 0;
  int64_t end = 0;
  for (size_t s = 0, i = 0; s < sequences; ++s) {
    end += batch.lengths[s];
    const size_t first = i;
    double log_ratio = 0;
    for (; i < scored.rows.size() && scored.rows[i] < end; ++i) log_ratio += static_cast<double>(now[i]) - then(i);
    const double advantage = targets.advantages[s], weight = targets.token_weights[s] / static_cast<double>(sequences);
    Clipped term = clipped(log_ratio, advantage, options);  // of the whole sequence, or below of each row
    if (whole && i > first) sum += weight * term.value;
    for (size_t t = first; t < i; ++t) {
      const double logprob = now[t];
      if (!whole) {
        term = clipped(logprob - then(t), advantage, options);
        sum += weight * term.value;
      }
      double slope = term.slope;
      if (!targets.reference.empty()) {
        const double d = static_cast<double>(targets.reference[static_cast<size_t>(scored.rows[t])]) - logprob;
        report.kl += std::expm1(d) - d;
        if (!whole) {
          // Times the ratio, which makes its gradient that of the divergence: arXiv:2512.02556.
          const double ratio = std::exp(logprob - then(t));
          sum += weight * options.beta * ratio * (std::expm1(d) - d);
          slope -= options.beta * ratio * d;
        }
      }
      slopes[t] = static_cast<float>(weight * slope);
      report.entropy += static_cast<double>(entropies.data<float>()[t]);
      report.clipped += term.cut ? 1 : 0;
      report.tokens += 1;
    }
  }
  *value.data<float>() = static_cast<float>(sum);
  if (Tape* const tape = ctx.tape())
    tape->record(&row_slopes_backward, RowSlopesNode{value, logprobs, tape->keep<float>(slopes)});
  return value;
}

}  // namespace vitrine
