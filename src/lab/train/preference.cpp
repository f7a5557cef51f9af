#include "train/preference.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "ops/tape.h"
#include "train/scored_rows.h"

namespace vitrine {
namespace {

// The mean loss over a sequence's scored rows, which alone go through the head, and their number.
struct SequenceLoss {
  Tensor mean;  // empty: no row is scored
  double rows = 0;
  double logprob() const { return mean ? -rows * static_cast<double>(*mean.data<float>()) : 0; }
};

std::vector<SequenceLoss> sequence_losses(Context& ctx, const Tensor& x, const Head& head, const Batch& batch) {
  std::vector<SequenceLoss> losses;
  int64_t first = 0;
  for (const int64_t length : batch.lengths) {
    const ScoredRows scored = scored_rows(batch.labels, first, length);
    first += length;
    SequenceLoss& loss = losses.emplace_back();
    if (scored.rows.empty()) continue;
    loss.mean = cross_entropy(ctx, take_rows(ctx, x, scored.rows), head, scored.labels);
    loss.rows = static_cast<double>(scored.rows.size());
  }
  return losses;
}

// value, whose slope by each part is known.
struct SlopesNode {
  Tensor value;
  const Tensor* parts;
  const float* slopes;
  size_t n;
};

void slopes_backward(Context&, Tape& tape, const SlopesNode& node) {
  const Tensor dvalue = tape.gradient(node.value);
  if (!dvalue) return;
  for (size_t i = 0; i < node.n; ++i)
    if (const Tensor dpart = tape.accumulate(node.parts[i])) *dpart.data<float>() += *dvalue.data<float>() * node.slopes[i];
}

// log(1 + e^-z), without overflow.
double soft_loss(double z) { return std::max(-z, 0.0) + std::log1p(std::exp(-std::abs(z))); }

}  // namespace

std::vector<double> sequence_logprobs(Context& ctx, const Tensor& x, const Head& head, const Batch& batch) {
  std::vector<double> logprobs;
  for (const SequenceLoss& loss : sequence_losses(ctx, x, head, batch)) logprobs.push_back(loss.logprob());
  return logprobs;
}

Tensor preference_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PreferenceOptions& options,
                       PreferenceReport& report) {
  const size_t pairs = batch.pairs.size();
  VITRINE_CHECK(batch.lengths.size() == 2 * pairs && batch.reference.size() == 2 * pairs, "a pair has two sequences");
  const std::vector<SequenceLoss> losses = sequence_losses(ctx, x, head, batch);
  double sum = 0;
  std::vector<Tensor> parts;
  std::vector<float> slopes;
  for (size_t i = 0; i < pairs; ++i) {
    const SequenceLoss &chosen = losses[2 * i], &rejected = losses[2 * i + 1];
    const double of_chosen = options.beta * (chosen.logprob() - batch.reference[2 * i]),
                 of_rejected = options.beta * (rejected.logprob() - batch.reference[2 * i + 1]), z = of_chosen - of_rejected;
    sum += soft_loss(z);
    report.chosen_reward += of_chosen;
    report.rejected_reward += of_rejected;
    report.accuracy += z > 0 ? 1 : 0;
    // By z: -sigmoid(-z). By the mean loss of n rows: log p is -n times it.
    const double slope = options.beta / (1 + std::exp(z)) / static_cast<double>(pairs);
    for (const auto& [loss, sign] : {std::pair(&chosen, 1.0), {&rejected, -1.0}}) {
      if (!loss->mean) continue;
      parts.push_back(loss->mean);
      slopes.push_back(static_cast<float>(sign * slope * loss->rows));
    }
  }
  const Tensor value = ctx.empty({1});
  *value.data<float>() = static_cast<float>(sum / static_cast<double>(pairs));
  if (Tape* const tape = ctx.tape(); tape != nullptr && !parts.empty())
    tape->record(&slopes_backward, SlopesNode{value, tape->keep<Tensor>(parts), tape->keep<float>(slopes), parts.size()});
  return value;
}

}  // namespace vitrine
