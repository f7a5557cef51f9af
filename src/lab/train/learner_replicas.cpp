// A step on two replicas of the model, each with its own threads from the tokens to the gradients.
#include <algorithm>
#include <exception>
#include <utility>

#include "ops/layout.h"
#include "train/learner.h"

namespace vitrine {

// Threads that share each op read what the others wrote and meet at its end. Where one half of them takes one half of the rows
// from the tokens to the gradients of all weights, the halves share nothing but the weights, and do not wait for each other.
// They are cut by shape and their gradients are added in order, whoever computes them: the same bits for any number of threads.
// That takes a second gradient of each weight, and packs each weight twice, so it is for many rows and not too many weights.
bool Learner::may_use_two_replicas(int64_t rows) {
  constexpr int64_t kFewest = 512;
  constexpr size_t kMostNumbers = size_t{1} << 25;
  return rows >= kFewest && parameters_.size() <= kMostNumbers && comm().size() == 1 && engine_.opened().adapter == nullptr;
}

// Rows of a pass through a half of so many rows: as many passes through each half.
int64_t Learner::replica_pass_rows(int64_t rows) const {
  const int64_t half = ceil_div<int64_t>(rows, 2);
  return ceil_div(half, ceil_div(half, pass_rows()));
}

Learner::SecondReplica::SecondReplica(std::unique_ptr<Model> m, const Parameters& parameters, int threads, int64_t recomputed)
    : model(std::move(m)),
      gradients(parameters.bind(*model)),
      teams{ThreadPool(ThreadPool::Guests{threads}), ThreadPool(ThreadPool::Guests{threads})},
      ctx(teams[1]),
      tape(recomputed) {}

// The parts of each batch in which anything counts.
std::vector<Learner::Pass> Learner::passes_of(std::span<const Batch> batches, int64_t most) const {
  std::vector<Pass> passes;
  for (size_t i = 0; i < batches.size(); ++i)
    for (Batch& part : parts_of(batches[i], most))
      if (counted_in(part) > 0) passes.push_back({std::move(part), static_cast<uint64_t>(steps_done_) * batches.size() + i});
  return passes;
}

// first_half: so many of them are one half, if that is about as long as the other one; else all.
std::vector<Learner::Pass> Learner::passes_of(std::span<const Batch> batches, size_t& first_half) {
  int64_t rows = 0;
  for (const Batch& batch : batches) rows += static_cast<int64_t>(batch.tokens.size());
  if (may_use_two_replicas(rows)) {
    std::vector<Pass> passes = passes_of(batches, replica_pass_rows(rows));
    int64_t whole = 0, before = 0;
    for (const Pass& pass : passes) whole += static_cast<int64_t>(pass.batch.tokens.size());
    for (first_half = 0; first_half < passes.size() && 2 * before < whole; ++first_half)
      before += static_cast<int64_t>(passes[first_half].batch.tokens.size());
    if (16 * std::max(before, whole - before) <= 9 * whole) return passes;
  }
  std::vector<Pass> passes = passes_of(batches, pass_rows());
  first_half = passes.size();
  return passes;
}

void Learner::run_in_two_replicas(std::span<Pass> first, std::span<Pass> second, double counted, Listener* watch) {
  Context& ctx = engine_.context();
  ThreadPool& pool = ctx.pool();
  const int per_replica = std::max(1, pool.threads() / 2);
  if (second_replica_ == nullptr)
    second_replica_ = std::make_unique<SecondReplica>(model_from_config(engine_.opened().files), parameters_, per_replica,
                                                      options_.recomputed_layers);
  if (!runs_side_by_side()) {  // one after the other, each with all threads
    run(first, whole(), counted, watch);
    return run(second, {*second_replica_->model, ctx, tape_}, counted, nullptr);
  }
  second_replica_->ctx.numerics = ctx.numerics;
  second_replica_->ctx.step_of_training.seed = ctx.step_of_training.seed;
  std::exception_ptr failed[2];
  for (ThreadPool& team : second_replica_->teams) team.admit();
  ctx.run_on(second_replica_->teams[0]);
  pool.run(pool.threads(), [&](int64_t chunk, int) {
    const auto place = static_cast<int>(chunk) % per_replica, half = static_cast<int>(chunk) / per_replica;
    ThreadPool& team = second_replica_->teams[half];
    if (place > 0) return team.help(place);
    try {
      if (half == 0)
        run(first, whole(), counted, watch);
      else
        run(second, {*second_replica_->model, second_replica_->ctx, second_replica_->tape}, counted, nullptr);
    } catch (...) {
      failed[half] = std::current_exception();
    }
    team.dismiss();
  });
  ctx.run_on(pool);
  for (const std::exception_ptr& failure : failed)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace vitrine
