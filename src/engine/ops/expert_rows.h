#pragma once
// The rows of a step sorted by the expert they go to.
#include <cstdint>

#include "ops/context.h"

namespace vitrine {

/// A choice is one (row, expert): row r's k-th is number r · per_row + k. Sorted, those of expert e are [first[e], first[e + 1]).
/// Lives as long as tensors of the context do.
struct ExpertRows {
  int64_t rows = 0, per_row = 0, experts = 0;
  const int32_t* expert = nullptr;  // [choices] of each choice
  const int32_t* first = nullptr;   // [experts + 1]
  const int32_t* choice = nullptr;  // [choices] at each sorted place
  const int32_t* place = nullptr;   // [choices] the sorted place of each choice

  int64_t choices() const { return rows * per_row; }
};

/// Memory that lives as long as a tensor made now: the tape's, or until the frame ends.
int32_t* room_for_numbers(Context& ctx, int64_t n);

ExpertRows sort_by_expert(Context& ctx, const int32_t* expert, int64_t rows, int64_t per_row, int64_t experts);

/// x [rows, d] at the sorted places: [choices, d]. Backward: x, the choices of a row in order.
Tensor sorted_rows(Context& ctx, const Tensor& x, const ExpertRows& rows);
/// Sorted [choices, d] in the order of the rows: [rows, per_row, d], and back.
Tensor by_rows(Context& ctx, const Tensor& sorted, const ExpertRows& rows);
Tensor by_experts(Context& ctx, const Tensor& of_rows, const ExpertRows& rows);

/// y[r] = sum over k of weights[r][k] · sorted[place of (r, k)]: [rows, d]. Backward: both.
Tensor weighted_sum(Context& ctx, const Tensor& sorted, const Tensor& weights, const ExpertRows& rows);

}  // namespace vitrine
