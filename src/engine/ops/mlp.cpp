#include "ops/mlp.h"

#include "ops/dry_run.h"
#include "ops/linear.h"
#include "ops/mlp_packed.h"

namespace vitrine {

namespace {

// Tells nobody of the hidden layer.
bool runs_packed(Context& ctx, std::string_view name, const Tensor& x, const Mlp& mlp) {
  if (!packs_mlp(ctx, x, mlp)) return false;
  const auto scope = ctx.scope(name);
  return !ctx.listens("hook_pre") && !ctx.listens("hook_pre_linear") && !ctx.listens("hook_post");
}

}  // namespace

Tensor gated_linear(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_gate, const Weight& W_in, Activation f,
                    double gate_scale) {
  const auto scope = ctx.scope(name);
  auto [gate, up] = linear(ctx, x, {W_gate, W_in});
  gate = ctx.hook("hook_pre", gate_scale == 1 ? gate : scale(ctx, gate, gate_scale));
  up = ctx.hook("hook_pre_linear", up);
  return ctx.hook("hook_post", gated(ctx, gate, up, f));
}

Tensor hidden_linear(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_in, Activation f) {
  const auto scope = ctx.scope(name);
  const Tensor pre = ctx.hook("hook_pre", linear(ctx, x, W_in));
  return ctx.hook("hook_post", activation(ctx, pre, f));
}

Tensor gated_mlp(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_gate, const Weight& W_in,
                 const Weight& W_out, Activation f, double gate_scale) {
  const Mlp all{&W_gate, &W_in, &W_out, f};
  DryRun* const dry = ctx.dry();
  const size_t begin = dry != nullptr ? dry->begin() : 0;
  const Tensor y = gate_scale == 1 && runs_packed(ctx, name, x, all)
                       ? mlp_packed(ctx, x, all)
                       : linear(ctx, gated_linear(ctx, name, x, W_gate, W_in, f, gate_scale), W_out);
  if (dry != nullptr) dry->fold(ctx, begin, {.op = "gated_mlp", .name = name, .inputs = {x}, .outputs = {y}, .spec = f});
  return y;
}

Tensor mlp(Context& ctx, std::string_view name, const Tensor& x, const Weight& W_in, const Weight& W_out, Activation f) {
  const Mlp all{nullptr, &W_in, &W_out, f};
  DryRun* const dry = ctx.dry();
  const size_t begin = dry != nullptr ? dry->begin() : 0;
  const Tensor y =
      runs_packed(ctx, name, x, all) ? mlp_packed(ctx, x, all) : linear(ctx, hidden_linear(ctx, name, x, W_in, f), W_out);
  if (dry != nullptr) dry->fold(ctx, begin, {.op = "mlp", .name = name, .inputs = {x}, .outputs = {y}, .spec = f});
  return y;
}

}  // namespace vitrine
