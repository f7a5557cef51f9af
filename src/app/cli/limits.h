#pragma once
// What this machine can do at most: what a model's speed is measured against.
#include "base/thread_pool.h"
#include "io/stored_tensor.h"

namespace vitrine::cli {

/// Bytes per second at which all threads together read the tensors where they lie in memory, the best of `rounds` passes.
double read_bytes_per_s(ThreadPool& pool, const Checkpoint& checkpoint, int rounds = 3);

/// Floating-point operations per second of f32 fused multiply-adds in registers on all threads, in the widest vectors of the
/// kernels in use: the limit of matrix products in f32. The best of a few runs.
double f32_operations_per_s(ThreadPool& pool);

}  // namespace vitrine::cli
