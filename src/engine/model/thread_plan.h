#pragma once
// How a step's work falls to threads, read off a dry run: nothing is computed, and no weights are needed.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/record.h"

namespace vitrine {

/// A parallel region of a step that enters the pool; it ends with a barrier.
struct PlannedRegion {
  std::string op, name;  // of the op that asks for it, as OpRecord has them
  int layer = -1;
  int64_t rows = 0;                  // of the op's input
  std::vector<std::string> weights;  // of the op, the last words of their names, each once
  int64_t chunks = 0;
  TaskCost total;
  TaskCost largest;  // of the thread with most: each number by itself
};

/// What threads get of one step by their own shares (ThreadPool::share). Threads that are done early take chunks of others, so
/// that a region lasts at most as long as its largest share.
struct ThreadPlan {
  int threads = 1;
  std::vector<PlannedRegion> regions;
  int64_t serial_sections = 0;      // done by the caller alone
  TaskCost serial;                  // in all of them
  std::vector<TaskCost> by_thread;  // sums over the regions
  int64_t ops = 0;

  /// Of the regions.
  TaskCost total() const;
  /// The sum of the largest shares of all regions over what each thread would get of an even split: 1 is even. The regions wait
  /// for one another, so this is the factor by which uneven shares lengthen a step. 1 where there is nothing to share.
  double byte_imbalance() const { return imbalance(&TaskCost::bytes); }
  double multiply_add_imbalance() const { return imbalance(&TaskCost::multiply_adds); }

 private:
  double imbalance(int64_t TaskCost::* number) const;
};

/// The plan of the step on size.threads threads. Errors: as record_step.
ThreadPlan plan_threads(const Model& model, StepSize size);

/// Errors: UsageError that names `setting` and what was found.
DType weight_type_named(std::string_view name, std::string_view setting);
/// Counts the matrices as if they were of that type, which block types are where rows are whole blocks. The model can no longer
/// run.
void set_weight_types(Model& model, DType type);

/// Bytes of weights in memory that a thread reads first.
struct ReadPiece {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  int thread = 0;
};
/// Which thread reads which weights in a step of one token on so many threads, by address. Left out are matrices stored [in,
/// out], whose shares are not in one piece, tables that are looked up by row, and experts, which other threads read in every
/// step.
std::vector<ReadPiece> read_pieces(const Model& model, const Numerics& numerics, int threads);

}  // namespace vitrine
