#include "model/parts.h"

#include "ops/elementwise.h"
#include "ops/linear.h"

namespace vitrine {

Attention::Heads Attention::qkv(Context& ctx, const Tensor& x) const {
  const auto [q, k, v] = linear(ctx, x, {W_Q, W_K, W_V});                // one pass over x #heads
  return {.q = ctx.hook("attn.hook_q", split_heads(ctx, q, head_dim)),   // [T, N, H] #heads
          .k = ctx.hook("attn.hook_k", split_heads(ctx, k, head_dim)),   // [T, G, H] #heads
          .v = ctx.hook("attn.hook_v", split_heads(ctx, v, head_dim))};  // [T, G, H] #heads
}

Tensor SharedExpert::operator()(Context& ctx, const Tensor& x) const {
  Tensor y = gated_mlp(ctx, "shared", x, W_gate, W_in, W_out, f);  // [T, D] #mlp
  if (gate.out > 0) {
    const Tensor open = activation(ctx, linear(ctx, x, gate), Activation::sigmoid);  // [T, 1] #mlp
    y = scale_rows(ctx, y, ctx.hook("shared.hook_gate", open));                      // [T, D] #mlp
  }
  return ctx.hook("shared.hook_out", y);
}

}  // namespace vitrine
