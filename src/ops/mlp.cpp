#include "ops/mlp.h"

#include "ops/linear.h"

namespace vitrine {

Tensor gated_linear(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_gate, const Weight& W_in,
                    Activation f) {
  const auto scope = ctx.scope(name);
  auto [gate, up] = linear(ctx, x, {W_gate, W_in});
  gate = ctx.hook("hook_pre", gate);
  up = ctx.hook("hook_pre_linear", up);
  return ctx.hook("hook_post", gated(ctx, gate, up, f));
}

Tensor hidden_linear(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_in, Activation f) {
  const auto scope = ctx.scope(name);
  const Tensor pre = ctx.hook("hook_pre", linear(ctx, x, W_in));
  return ctx.hook("hook_post", activation(ctx, pre, f));
}

}  // namespace vitrine
