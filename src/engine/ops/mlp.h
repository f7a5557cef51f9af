#pragma once
// The two kinds of feed-forward sub-layer, whole and up to their last matrix.
#include "ops/context.h"
#include "ops/elementwise.h"
#include "ops/weight.h"

namespace vitrine {

/// f(gate_scale · x W_gateᵀ) · (x W_inᵀ): the gated hidden layer of GeGLU and SwiGLU. arXiv:2002.05202.
/// x [rows, d_model]; W_gate, W_in [d_ff, d_model]; returns [rows, d_ff].
/// Hook points under `name`: hook_pre (the gate before f), hook_pre_linear (what it gates), hook_post. Backward: x, W_gate, W_in.
Tensor gated_linear(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_gate, const Weight& W_in, Activation f,
                    double gate_scale = 1);

/// f(x W_inᵀ + bias): the hidden layer of GPT-2's MLP. Hook points under `name`: hook_pre, hook_post.
Tensor hidden_linear(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_in, Activation f);

/// The sub-layer with its last matrix: W_out [d_model, d_ff], returns [rows, d_model]. While nobody watches the hidden layer,
/// training in bf16 goes through it strip by strip (mlp_packed.h).
Tensor gated_mlp(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_gate, const Weight& W_in,
                 const Weight& W_out, Activation f, double gate_scale = 1);
Tensor mlp(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_in, const Weight& W_out, Activation f);

}  // namespace vitrine
