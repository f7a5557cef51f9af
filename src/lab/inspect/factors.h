#pragma once
// The factors of every head of one layer, with what is linear in the norms folded in (see circuits.h).
#include <Eigen/Core>

#include "inspect/weights.h"
#include "runtime/engine.h"

namespace vitrine {

using RowsF = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Rows [head · d_head, (head + 1) · d_head) belong to one head: N query heads, G key/value heads.
struct LayerFactors {
  RowsF q;                                    // [N·d_head, d_model], turned by the offset
  RowsF k;                                    // [G·d_head, d_model]
  RowsF v;                                    // [G·v_head, d_model]
  RowsF o;                                    // [N·v_head, d_model]: W_O transposed
  int64_t d_head = 0, v_head = 0, group = 1;  // group: query heads that share a key/value head
  bool query_bias = false, key_bias = false, value_bias = false;
};
LayerFactors layer_factors(Engine& engine, const NamedWeights& weights, int64_t layer, int64_t offset);

/// Outputs [first, first + n) of the weights, with their adapter, as f32 [n, in].
RowsF dense(const Weight& w, int64_t first, int64_t n);
/// All of them.
inline RowsF dense(const Weight& w) { return dense(w, 0, w.out); }

/// x · wᵀ in the engine's own f32 products and threads. x [m, k], w [n, k]; returns [m, n].
RowsF product(Context& ctx, const RowsF& x, const RowsF& w);
/// x · w. x [m, k], w [k, n]; returns [m, n].
RowsF product_by_columns(Context& ctx, const RowsF& x, const RowsF& w);

}  // namespace vitrine
