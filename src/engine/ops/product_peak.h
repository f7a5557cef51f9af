#pragma once
// What matrix products reach at most on this machine: the limit that a training step's speed is a share of.
#include "ops/packed_product.h"

namespace vitrine {

/// FLOP per second of all threads of the context's pool on products whose operands lie in their caches, by the kernels that
/// its numerics choose: the best of a few short runs, some tens of milliseconds in all.
double product_flops_per_s(Context& ctx);

}  // namespace vitrine
