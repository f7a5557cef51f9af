// What a step takes of memory: estimated before the first one, and measured.
#include <algorithm>
#include <array>
#include <numeric>

#include "train/learner.h"

namespace vitrine {

double Learner::activation_bytes(int64_t rows, int64_t length, int64_t batches) {
  Context& ctx = engine_.context();
  constexpr int64_t kFirst = 64, kSecond = 128;  // fewer go through other kernels, with scratch of their own
  // Apart, since each grows by rows of its own: what does not grow hides the others where rows are few.
  enum : size_t { tape_bytes, scratch, first_pass };  // first_pass: the scratch of blocks that run again later
  using Taken = std::array<double, 3>;
  const auto taken = [&](int64_t n, int64_t longest, size_t room = 0) {
    Batch batch{.tokens = std::vector<int32_t>(static_cast<size_t>(n)),
                .labels = std::vector<int32_t>(static_cast<size_t>(n)),
                .lengths = {}};
    for (int64_t row = 0; row < n; row += longest) batch.lengths.push_back(std::min(longest, n - row));
    const Step step = step_of(batch);
    Taken bytes = {};
    ctx.arena().forget_peak();
    if (options_.recomputed_layers > 0) {
      Tape tape(Tape::kAllBlocks);
      const auto frame = ctx.frame();
      ctx.record_on(&tape, options_.dropout);
      engine_.model().residual(ctx, step);
      ctx.record_on(nullptr);
      bytes[first_pass] = static_cast<double>(ctx.arena().peak());
    }
    Tape tape(options_.recomputed_layers, room);
    const auto frame = ctx.frame();
    LossParts parts;
    tape.backward(ctx, loss_of({engine_.model(), ctx, tape}, step, batch, parts));
    ctx.record_on(nullptr);
    bytes[tape_bytes] = static_cast<double>(tape.peak());
    bytes[scratch] = static_cast<double>(ctx.arena().peak());
    return bytes;
  };
  const auto sum = [](const Taken& bytes) { return bytes[tape_bytes] + std::max(bytes[scratch], bytes[first_pass]); };
  const int64_t brief = length < kSecond ? length : kFirst;
  const Taken first = taken(kFirst, brief), second = taken(kSecond, brief);
  // Attention patterns that exist as tables (with dropout on them) take a row's part by each key as well.
  Taken by_row, by_key = {};
  for (size_t i = 0; i < first.size(); ++i)
    by_row[i] = std::max(0.0, second[i] - first[i]) / static_cast<double>(kSecond - kFirst);
  if (const int64_t far = std::min<int64_t>(length, 256);
      far >= kSecond && taken(kSecond, kSecond)[tape_bytes] > second[tape_bytes]) {
    const Taken longer = taken(far, far);
    for (size_t i = 0; i < first.size(); ++i)
      by_key[i] = std::max(0.0, longer[i] - first[i] - by_row[i] * static_cast<double>(far - kFirst)) /
                  static_cast<double>(far * (far - brief));
  }
  clear_gradients();
  const auto estimate = [&](int64_t n) {
    Taken bytes;
    for (size_t i = 0; i < first.size(); ++i)
      bytes[i] = first[i] + by_row[i] * static_cast<double>(n - kFirst) +
                 by_key[i] * static_cast<double>(n) * static_cast<double>(length - brief);
    return sum(bytes);
  };
  // In halves, two passes run at once, and each weight has a second gradient.
  const bool halved = may_use_two_replicas(batches * rows);
  const auto of_step = [&](double pass) {
    if (!halved) return pass;
    return (runs_side_by_side() ? 2 : 1) * pass + static_cast<double>(parameters_.size() * sizeof(float));
  };
  const int64_t all = std::max(kFirst, rows_of_part(rows, length, halved ? replica_pass_rows(batches * rows) : pass_rows()));
  // In bf16 a small model goes through many rows in another way (ops/mlp_packed.h), which is soon tried.
  constexpr int64_t kMany = 2048, kMore = 2560;
  constexpr double kSoon = 1 << 30;
  if (all >= kMany && ctx.numerics.bf16 && estimate(kMore) < kSoon) {
    const double many = sum(taken(kMany, length, tape_.saved_budget())), more = sum(taken(kMore, length, tape_.saved_budget()));
    clear_gradients();
    return of_step(many + (more - many) / static_cast<double>(kMore - kMany) * static_cast<double>(all - kMany));
  }
  // The logits that a tape keeps have a bound and do not grow with the batch.
  const double logits = static_cast<double>(all) * static_cast<double>(engine_.shape().vocab_size) * sizeof(float);
  return of_step(estimate(all) + std::min(logits, static_cast<double>(tape_.saved_budget())));
}

void Learner::recompute(int64_t layers) {
  options_.recomputed_layers = layers < engine_.shape().n_layers ? layers : Tape::kAllBlocks;
  tape_.recompute(options_.recomputed_layers);
}

double Learner::recompute_within(double most, int64_t rows, int64_t length, int64_t batches) {
  const auto bytes_with = [&](int64_t layers) {
    recompute(layers);
    return activation_bytes(rows, length, batches);
  };
  if (const double bytes = bytes_with(0); bytes <= most) return bytes;
  int64_t too_few = 0, enough = engine_.shape().n_layers;
  double least = bytes_with(enough);
  while (least <= most && enough - too_few > 1) {
    const int64_t layers = std::midpoint(too_few, enough);
    const double bytes = bytes_with(layers);
    (bytes <= most ? enough : too_few) = layers;
    if (bytes <= most) least = bytes;
  }
  recompute(enough);
  return least;
}

double Learner::peak_bytes() {
  const auto peak = [](Context& ctx, const Tape& tape) { return static_cast<double>(tape.peak() + ctx.arena().peak()); };
  const double first = peak(engine_.context(), tape_);
  if (second_replica_ == nullptr) return first;
  return first + peak(second_replica_->ctx, second_replica_->tape) +
         static_cast<double>(second_replica_->gradients.size() * sizeof(float));
}

}  // namespace vitrine
