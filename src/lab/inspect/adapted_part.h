#pragma once
// Products for those who read a model's matrices directly: with what its adapters add.
#include "ops/head.h"
#include "ops/linear.h"
#include "ops/low_rank.h"

namespace vitrine {

/// linear_part, of a weight of the model, and what its adapter and those of all rows add. y [rows, n]; no bias. Errors: as
/// require_present.
inline void adapted_part(Context& ctx, const Tensor& x, const Weight& w, int64_t first, int64_t n, float* y) {
  require_present(w);
  linear_part(ctx, x, w, first, n, y, n);
  if (w.adapter != nullptr) low_rank_part(ctx, x, w, *w.adapter, first, n, y, n);
  add_row_adapters(ctx, x, w, 0, first, n, y, n);
}

}  // namespace vitrine
