#pragma once
// What this machine can do at most: what a model's speed is measured against.
#include "base/thread_pool.h"
#include "io/stored_tensor.h"

namespace vitrine::cli {

/// Bytes per second at which all threads together read a model's files with the widest loads of the kernels in use, and nothing
/// else: where they are mapped, and up to 512 MiB of them copied to huge pages (0 without memory for it). Of `rounds` passes of
/// each kind of loop the best.
struct ReadLimit {
  double mapped = 0, huge = 0;
};
ReadLimit read_limit(ThreadPool& pool, const Checkpoint& checkpoint, int rounds = 3);

/// Floating-point operations per second of f32 fused multiply-adds in registers on all threads, in the widest vectors of the
/// kernels in use: the limit of matrix products in f32. The best of a few runs.
double f32_operations_per_s(ThreadPool& pool);

}  // namespace vitrine::cli
