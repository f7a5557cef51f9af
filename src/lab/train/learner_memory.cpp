// What a step takes of memory: estimated before the first one, and measured.
#include <algorithm>

#include "train/learner.h"

namespace vitrine {

double Learner::activation_bytes(int64_t rows, int64_t length, int64_t batches) {
  Context& ctx = engine_.context();
  constexpr int64_t kFirst = 32, kSecond = 64;
  const auto taken = [&](int64_t n, int64_t longest, size_t room = 0) {
    Batch batch{.tokens = std::vector<int32_t>(static_cast<size_t>(n)),
                .labels = std::vector<int32_t>(static_cast<size_t>(n)),
                .lengths = {}};
    for (int64_t row = 0; row < n; row += longest) batch.lengths.push_back(std::min(longest, n - row));
    const Step step = step_of(batch);
    Tape tape(options_.recompute, room);
    const auto frame = ctx.frame();
    LossParts parts;
    tape.backward(ctx, loss_of({engine_.model(), ctx, tape}, step, batch, parts));
    ctx.record_on(nullptr);
    return static_cast<double>(tape.peak() + ctx.arena().peak());
  };
  const int64_t brief = length < kSecond ? length : kFirst;
  const double first = taken(kFirst, brief), second = taken(kSecond, brief);
  // Attention patterns that exist as tables (with dropout on them) take a row's part by each key as well.
  const double by_row = (second - first) / static_cast<double>(kSecond - kFirst);
  const auto linear = [&](int64_t n) { return first + by_row * static_cast<double>(n - kFirst); };
  double by_key = 0;
  if (const int64_t far = std::min<int64_t>(length, 256); far >= kSecond && taken(kSecond, kSecond) > second)
    by_key = (taken(far, far) - linear(far)) / static_cast<double>(far * (far - brief));
  clear_gradients();
  const auto estimate = [&](int64_t n) {
    return linear(n) + std::max(0.0, by_key) * static_cast<double>(n) * static_cast<double>(length - brief);
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
    const double many = taken(kMany, length, tape_.saved_budget()), more = taken(kMore, length, tape_.saved_budget());
    clear_gradients();
    return of_step(many + (more - many) / static_cast<double>(kMore - kMany) * static_cast<double>(all - kMany));
  }
  // The logits that a tape keeps have a bound and do not grow with the batch.
  const double logits = static_cast<double>(all) * static_cast<double>(engine_.shape().vocab_size) * sizeof(float);
  return of_step(estimate(all) + std::min(logits, static_cast<double>(tape_.saved_budget())));
}

double Learner::peak_bytes() {
  const auto peak = [](Context& ctx, const Tape& tape) { return static_cast<double>(tape.peak() + ctx.arena().peak()); };
  const double first = peak(engine_.context(), tape_);
  if (second_replica_ == nullptr) return first;
  return first + peak(second_replica_->ctx, second_replica_->tape) +
         static_cast<double>(second_replica_->gradients.size() * sizeof(float));
}

}  // namespace vitrine
