#pragma once
// What enters the residual stream: token embeddings and positions that are added to them.
#include <span>

#include "ops/context.h"
#include "ops/step.h"
#include "ops/weight.h"

namespace vitrine {

/// Row t of the result is the embedding of token t: W_E's stored row, widened exactly, and what its adapter and those of the rows
/// (Context::row_adapters) change in it.
/// tokens [rows]; W_E [vocab_size, d_model]; returns [rows, d_model].
/// Backward: W_E, its adapter. Errors: InputError naming a token outside the vocabulary and its place.
Tensor embed(Context& ctx, std::span<const int32_t> tokens, const Weight& W_E);

/// Learned positions: row t is W_pos's row of t's position. Errors: InputError if the position has no row.
Tensor embed_positions(Context& ctx, const Step& step, const Weight& W_pos);

enum class SinusoidLayout : uint8_t {
  pairs,   // component 2i is the sine, 2i + 1 the cosine of position / 10000^(2i/d)   (arXiv:1706.03762 section 3.5)
  halves,  // component i is the sine, i + d/2 the cosine of the same angle
};

/// Sinusoidal positions [rows, d], for any position. A fixed linear map takes position k to k + 1. Backward: none.
Tensor sinusoidal_positions(Context& ctx, const Step& step, int64_t d, SinusoidLayout layout);

/// Rows `rows` of x, in that order: [n, d]. Backward: x.
Tensor take_rows(Context& ctx, const Tensor& x, std::span<const int64_t> rows);

/// x[..., first .. first + n) of the last axis: x [rows, d] or [rows, m, d]. Backward: x.
Tensor take_columns(Context& ctx, const Tensor& x, int64_t first, int64_t n);

/// Each head's components with those of `more` behind them: x [rows, heads, a] and more [rows, heads or 1, b] to [rows, heads, a
/// + b]; one head of `more` goes to every head. Backward: both.
Tensor join_heads(Context& ctx, const Tensor& x, const Tensor& more);

}  // namespace vitrine
