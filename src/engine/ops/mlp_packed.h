#pragma once
// A whole MLP, strip by strip of its rows: what lies between its matrices stays in a core's cache.
#include "ops/context.h"
#include "ops/elementwise.h"
#include "ops/weight.h"

namespace vitrine {

/// An MLP's matrices: W_in [d_ff, d_model] and W_out [d_model, d_ff], and the gate's [d_ff, d_model] where there is one.
struct Mlp {
  const Weight* gate;  // null: none
  const Weight *in, *out;
  Activation f;
};

/// Whether mlp_packed() takes this: products of f32 weights rounded to bf16, a hidden layer that is far larger than the near
/// caches, matrices that are not, and no adapter that adds to what they give.
bool packs_mlp(const Context& ctx, const Tensor& x, const Mlp& mlp);

/// f(x W_gateᵀ) · (x W_inᵀ) W_outᵀ, or f(x W_inᵀ) W_outᵀ, each product with its bias.
///
/// x        [rows, d_model]
/// returns  [rows, d_model]
///
/// Backward: x, all weights, all biases. On a tape the hidden layer, before and after f, is kept in bf16, as products round it
/// anyway; f's slope is taken at the rounded elements.
Tensor mlp_packed(Context& ctx, const Tensor& x, const Mlp& mlp);

}  // namespace vitrine
