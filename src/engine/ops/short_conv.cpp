#include "ops/short_conv.h"

#include "ops/dry_run.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace vitrine {

Tensor short_conv(Context& ctx, std::string_view name, const Tensor& in, const ShortConv& w, const Step& step, int layer) {
  const auto hook = [&](const char* point, const Tensor& t) {
    const auto scope = ctx.scope(name);
    return ctx.hook(point, t);
  };
  const auto product = [&](const Tensor& a, const Tensor& b) { return gated(ctx, a, b, Activation::none); };
  auto [B, C, x] = linear(ctx, in, {w.W_B, w.W_C, w.W_x});
  B = hook("hook_B", B);
  C = hook("hook_C", C);
  x = hook("hook_x", x);
  const Tensor gated_in = hook("hook_in", product(B, x));
  const Tensor y = hook("hook_conv", causal_conv(ctx, name, gated_in, w.kernel, w.bias, step, layer));
  return hook("hook_out", linear(ctx, hook("hook_post", product(C, y)), w.W_out));
}

}  // namespace vitrine
