#pragma once
// The products of an expert layer: each expert's matrix with the rows that chose it.
#include <array>
#include <span>
#include <utility>

#include "ops/expert_rows.h"
#include "ops/experts.h"

namespace vitrine {

/// y = x W_eᵀ + bias_e for the rows of each expert e, and what its adapter adds; y for each of these matrices, which read the
/// same x: the sorted rows [choices, in]. All experts share one parallel region. With more than kFewRows rows in the step every
/// expert multiplies as for many rows, however few it has. Backward: x, the matrices, their biases and adapters.
template <size_t N>
std::array<Tensor, N> expert_products(Context& ctx, const Tensor& x, const ExpertRows& rows, std::span<const Expert> experts,
                                      Weight Expert::* const (&matrices)[N]);

/// Columns 2i and 2i + 1 of x [rows, 2 n] apart: two tensors [rows, n]. Backward: x.
std::pair<Tensor, Tensor> split_pairs(Context& ctx, const Tensor& x);

/// (min(max(up, -limit), limit) + 1) · g · sigmoid(slope · g) with g = min(gate, limit). Backward: both.
Tensor clamped_gated(Context& ctx, const Tensor& gate, const Tensor& up, double limit, double slope);

// -------------------------------------------------------------------------------------------------------------------
void expert_products(Context& ctx, const Tensor& x, const ExpertRows& rows, std::span<const Expert> experts,
                     std::span<Weight Expert::* const> matrices, Tensor* results);

template <size_t N>
std::array<Tensor, N> expert_products(Context& ctx, const Tensor& x, const ExpertRows& rows, std::span<const Expert> experts,
                                      Weight Expert::* const (&matrices)[N]) {
  std::array<Tensor, N> results;
  expert_products(ctx, x, rows, experts, std::span<Weight Expert::* const>(matrices), results.data());
  return results;
}

}  // namespace vitrine
