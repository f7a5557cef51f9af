#pragma once
// The sub-layer of a short convolution between two gates.
#include "ops/causal_conv.h"
#include "ops/context.h"
#include "ops/step.h"
#include "ops/weight.h"

namespace vitrine {

/// Its parameters, for D channels and K taps.
struct ShortConv {
  Weight W_B, W_C, W_x;  // [D, d_model], with biases or without
  Vector kernel;         // [D, K]
  Vector bias;           // [D], or empty
  Weight W_out;          // [d_model, D]
};

/// (C ⊙ conv(B ⊙ x)) W_outᵀ, where B, C and x are what W_B, W_C and W_x make of `in` [rows, d_model], and conv is causal_conv:
/// B gates what a position tells itself and those after it, C what a position takes of that. Returns [rows, d_model].
///
/// Hook points under `name`, all [rows, D] but the last: hook_B, hook_C, hook_x; hook_in (B ⊙ x); hook_conv (the convolution);
/// hook_post (C ⊙ it); hook_out [rows, d_model]. Backward: `in` and the parameters.
/// Source: arXiv:2511.23404 section 2.
Tensor short_conv(Context& ctx, std::string_view name, const Tensor& in, const ShortConv& w, const Step& step, int layer);

}  // namespace vitrine
