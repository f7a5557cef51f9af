#include "train/preference.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "model/reward_model.h"
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

// The labels of a sequence's rows, or of its prompt's too: each is the token that follows.
std::vector<int32_t> labels_of(const Batch& batch, int64_t first, int64_t length, bool prompt) {
  const auto begin = batch.labels.begin() + first;
  std::vector<int32_t> labels(begin, begin + length);
  if (prompt) std::copy_n(batch.tokens.begin() + first + 1, length - 1, labels.begin());
  return labels;
}

// Of rows [first, first + labels.size()).
SequenceLoss loss_of_rows(Context& ctx, const Tensor& x, const Head& head, std::span<const int32_t> labels, int64_t first) {
  ScoredRows scored = scored_rows(labels, 0, static_cast<int64_t>(labels.size()));
  if (scored.rows.empty()) return {};
  for (int64_t& row : scored.rows) row += first;
  return {cross_entropy(ctx, take_rows(ctx, x, scored.rows), head, scored.labels), static_cast<double>(scored.rows.size())};
}

std::vector<SequenceLoss> sequence_losses(Context& ctx, const Tensor& x, const Head& head, const Batch& batch) {
  std::vector<SequenceLoss> losses;
  int64_t first = 0;
  for (const int64_t length : batch.lengths) {
    const auto labels = std::span(batch.labels).subspan(static_cast<size_t>(first), static_cast<size_t>(length));
    losses.push_back(loss_of_rows(ctx, x, head, labels, first));
    first += length;
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

// log(1 + e^-z), without overflow; by z.
struct Curve {
  double value, slope;
};
Curve soft_loss(double z) { return {std::max(-z, 0.0) + std::log1p(std::exp(-std::abs(z))), -1 / (1 + std::exp(z))}; }

Curve loss_by(double z, const PreferenceOptions& o) {
  using Loss = PreferenceOptions::Loss;
  switch (o.loss) {
    case Loss::hinge: return {std::max(0.0, 1 - o.beta * z), o.beta * z < 1 ? -o.beta : 0.0};
    case Loss::ipo: return {std::pow(z - 1 / (2 * o.beta), 2), 2 * (z - 1 / (2 * o.beta))};
    case Loss::odds: {
      const Curve soft = soft_loss(z);
      return {o.beta * soft.value, o.beta * soft.slope};
    }
    case Loss::kto:
    case Loss::apo_zero:
    case Loss::reward:
    case Loss::sigmoid:
    case Loss::simpo: break;
  }
  const Curve soft = soft_loss(o.beta * z - o.gamma);
  return {soft.value, o.beta * soft.slope};
}

// What an answer adds to z, and its slope by the mean loss of the answer's rows.
struct Score {
  double value = 0, slope = 0, reward = 0;
};
Score score_of(const SequenceLoss& loss, double reference, const PreferenceOptions& o) {
  const double parts = o.averaged() ? std::max(loss.rows, 1.0) : 1;
  Score score{(loss.logprob() - reference) / parts, -loss.rows / parts};
  // A reward is beta log p beyond the reference; of losses without one, of the log p that they compare.
  score.reward = o.beta * (o.reference ? loss.logprob() - reference : score.value);
  if (o.loss != PreferenceOptions::Loss::odds) return score;
  const double rest = -std::expm1(std::min(score.value, -1e-7));  // 1 - p
  score.slope /= rest;
  score.value -= std::log(rest);
  return score;
}

// A loss that grows with the mean losses of sequences, each with its slope.
class WeightedLosses {
 public:
  void add(double value) { sum_ += value; }
  void add_part(const Tensor& part, double slope) {
    if (!part) return;
    parts_.push_back(part);
    slopes_.push_back(static_cast<float>(slope));
  }
  Tensor recorded(Context& ctx) const {
    const Tensor value = ctx.empty({1});
    *value.data<float>() = static_cast<float>(sum_);
    if (Tape* const tape = ctx.tape(); tape != nullptr && !parts_.empty())
      tape->record(&slopes_backward, SlopesNode{value, tape->keep<Tensor>(parts_), tape->keep<float>(slopes_), parts_.size()});
    return value;
  }

 private:
  double sum_ = 0;
  std::vector<Tensor> parts_;
  std::vector<float> slopes_;
};

// value, whose slope by each reward is known.
struct RewardsNode {
  Tensor value, rewards;
  const float* slopes;
};

void rewards_backward(Context&, Tape& tape, const RewardsNode& node) {
  const Tensor dvalue = tape.gradient(node.value);
  if (!dvalue) return;
  if (const Tensor drewards = tape.accumulate(node.rewards))
    for (int64_t i = 0; i < drewards.count(); ++i) drewards.data<float>()[i] += *dvalue.data<float>() * node.slopes[i];
}

Tensor reward_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PreferenceOptions& o,
                   PreferenceReport& report) {
  const Tensor rewards = logits(ctx, x, head, reward_rows(batch.tokens, batch.lengths, o.padding));  // [2 pairs, 1]
  VITRINE_CHECK(rewards.count() == static_cast<int64_t>(2 * batch.pairs.size()),
                "a pair has two sequences, each with one reward");
  const auto by_pair = 1 / static_cast<double>(batch.pairs.size());
  double sum = 0;
  std::vector<float> slopes;
  for (size_t i = 0; i < batch.pairs.size(); ++i) {
    const auto chosen = static_cast<double>(rewards.data<float>()[2 * i]),
               rejected = static_cast<double>(rewards.data<float>()[2 * i + 1]), both = chosen + rejected;
    const Curve loss = soft_loss(chosen - rejected);
    sum += (loss.value + o.center * both * both) * by_pair;
    slopes.push_back(static_cast<float>((loss.slope + 2 * o.center * both) * by_pair));
    slopes.push_back(static_cast<float>((-loss.slope + 2 * o.center * both) * by_pair));
    report.chosen_reward += chosen;
    report.rejected_reward += rejected;
    report.accuracy += chosen > rejected ? 1 : 0;
    report.chosen += 1;
    report.rejected += 1;
  }
  const Tensor value = ctx.empty({1});
  *value.data<float>() = static_cast<float>(sum);
  if (Tape* const tape = ctx.tape()) tape->record(&rewards_backward, RewardsNode{value, rewards, tape->keep<float>(slopes)});
  return value;
}

Tensor unpaired_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PreferenceOptions& o, double kl,
                     PreferenceReport& report) {
  const size_t examples = batch.pairs.size();
  VITRINE_CHECK(batch.lengths.size() == examples && batch.desirable.size() == examples && batch.reference.size() == examples,
                "an example has one sequence, a label and a reference");
  const std::vector<SequenceLoss> losses = sequence_losses(ctx, x, head, batch);
  WeightedLosses sum;
  for (size_t i = 0; i < examples; ++i) {
    const bool desirable = batch.desirable[i] != 0;
    const Score score = score_of(losses[i], batch.reference[i], o);
    const double towards = desirable ? -o.beta : o.beta, weight = (desirable ? o.desirable : o.undesirable) / double(examples);
    const double unwanted = 1 / (1 + std::exp(-towards * (score.value - kl)));
    sum.add(weight * unwanted);
    sum.add_part(losses[i].mean, weight * towards * unwanted * (1 - unwanted) * score.slope);
    (desirable ? report.chosen_reward : report.rejected_reward) += score.reward;
    (desirable ? report.chosen : report.rejected) += 1;
  }
  return sum.recorded(ctx);
}

}  // namespace

std::string preference_text(const PreferenceOptions& o) {
  constexpr const char* kNames[] = {"sigmoid", "hinge", "ipo", "simpo", "odds", "kto", "apo_zero_unpaired", "reward"};
  if (o.loss == PreferenceOptions::Loss::reward) return "center_rewards_coefficient " + Json(o.center).dump();
  std::string text = "beta " + Json(o.beta).dump();
  if (o.loss != PreferenceOptions::Loss::sigmoid) text += std::string(", ") + kNames[static_cast<size_t>(o.loss)];
  if (o.gamma > 0) text += ", gamma " + Json(o.gamma).dump();
  if (o.nll > 0) text += ", cross-entropy times " + Json(o.nll).dump();
  if (o.unpaired()) text += ", weights " + Json(o.desirable).dump() + " and " + Json(o.undesirable).dump();
  return text;
}

PreferenceReport means_of(PreferenceReport sums) {
  sums.chosen_reward /= std::max(1.0, sums.chosen);
  sums.rejected_reward /= std::max(1.0, sums.rejected);
  sums.accuracy /= std::max(1.0, sums.chosen);
  return sums;
}

std::vector<double> sequence_logprobs(Context& ctx, const Tensor& x, const Head& head, const Batch& batch) {
  std::vector<double> logprobs;
  for (const SequenceLoss& loss : sequence_losses(ctx, x, head, batch)) logprobs.push_back(loss.logprob());
  return logprobs;
}

int64_t nll_rows(const Batch& batch, const PreferenceOptions& options) {
  int64_t rows = 0, first = 0;
  if (options.nll == 0) return 0;
  for (size_t i = 0; i < batch.lengths.size(); first += batch.lengths[i++])
    if (i % 2 == 0) rows += scored_in(labels_of(batch, first, batch.lengths[i], options.nll_prompt));
  return rows;
}

Tensor preference_loss(Context& ctx, const Tensor& x, const Head& head, const Batch& batch, const PreferenceOptions& options,
                       const PreferenceTotals& totals, PreferenceReport& report) {
  if (options.loss == PreferenceOptions::Loss::reward) return reward_loss(ctx, x, head, batch, options, report);
  if (options.unpaired())
    return unpaired_loss(ctx, x, head, batch, options, options.loss == PreferenceOptions::Loss::kto ? totals.kl() : 0, report);
  const size_t pairs = batch.pairs.size();
  VITRINE_CHECK(batch.lengths.size() == 2 * pairs, "a pair has two sequences");
  VITRINE_CHECK(batch.reference.size() == (options.reference ? 2 * pairs : 0), "each sequence has a reference");
  const std::vector<SequenceLoss> losses = sequence_losses(ctx, x, head, batch);
  const double by_pair = 1 / static_cast<double>(pairs), rows_by_pair = totals.rows_by_pair();
  WeightedLosses sum;
  int64_t first = 0;
  for (size_t i = 0; i < pairs; ++i) {
    const auto reference = [&](size_t which) { return options.reference ? batch.reference[2 * i + which] : 0.0; };
    const SequenceLoss &chosen = losses[2 * i], &rejected = losses[2 * i + 1];
    const Score better = score_of(chosen, reference(0), options), worse = score_of(rejected, reference(1), options);
    const Curve loss = loss_by(better.value - worse.value, options);
    sum.add(loss.value * by_pair);
    report.chosen_reward += better.reward;
    report.rejected_reward += worse.reward;
    report.accuracy += better.reward > worse.reward ? 1 : 0;
    report.chosen += 1;
    report.rejected += 1;
    sum.add_part(chosen.mean, loss.slope * better.slope * by_pair);
    sum.add_part(rejected.mean, -loss.slope * worse.slope * by_pair);
    if (options.nll > 0 && rows_by_pair > 0) {
      const SequenceLoss text =
          options.nll_prompt ? loss_of_rows(ctx, x, head, labels_of(batch, first, batch.lengths[2 * i], true), first) : chosen;
      const double weight = options.nll * by_pair / rows_by_pair * text.rows;
      if (text.mean) sum.add(weight * static_cast<double>(*text.mean.data<float>()));
      sum.add_part(text.mean, weight);
    }
    first += batch.lengths[2 * i] + batch.lengths[2 * i + 1];
  }
  return sum.recorded(ctx);
}

}  // namespace vitrine
