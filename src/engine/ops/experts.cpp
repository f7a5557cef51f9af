#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "ops/dry_run.h"
#include "ops/expert_products.h"
#include "ops/expert_rows.h"
#include "ops/linear.h"
#include "ops/router.h"
#include "ops/rows.h"

namespace vitrine {
namespace {

void check(const Tensor& x, const Weight& router, std::span<const Expert> experts, const ExpertSpec& spec) {
  const auto n = static_cast<int64_t>(experts.size());
  if (spec.scales != nullptr && spec.scales->size != spec.count)
    throw ShapeError("expert_mlp: " + spec.scales->name + " holds " + std::to_string(spec.scales->size) + " scales; expected " +
                     std::to_string(spec.count) + ", one for each expert");
  if (n != spec.count || router.out != spec.count || spec.per_row < 1 || spec.per_row > spec.count)
    throw ShapeError("expert_mlp: " + router.name + " chooses " + std::to_string(spec.per_row) + " of " +
                     std::to_string(router.out) + " experts; found " + std::to_string(n) + " experts, expected " +
                     std::to_string(spec.count));
  if (spec.correction != nullptr && spec.correction->size != spec.count)
    throw ShapeError("expert_mlp: " + spec.correction->name + " holds " + std::to_string(spec.correction->size) +
                     " corrections; expected " + std::to_string(spec.count) + ", one for each expert");
  if (spec.groups < 1 || spec.count % spec.groups != 0 || spec.groups_used > spec.groups || spec.groups_used < 1 ||
      spec.per_row > spec.count / spec.groups * spec.groups_used || spec.group_best > spec.count / spec.groups)
    throw ShapeError("expert_mlp: " + router.name + " chooses " + std::to_string(spec.per_row) + " of " +
                     std::to_string(spec.count) + " experts from " + std::to_string(spec.groups_used) + " of " +
                     std::to_string(spec.groups) + " groups, which cannot be");
  if (x.shape().rank() != 2) throw ShapeError("expert_mlp: x has shape " + x.shape().text() + "; expected [rows, d_model]");
}

// In f32 whatever the weights: rounding of operands would send rows to other experts.
Tensor router_logits(Context& ctx, const Tensor& x, const Weight& router) {
  struct Back {  // also behind an error
    Context& ctx;
    const Numerics numerics = ctx.numerics;
    ~Back() { ctx.numerics = numerics; }
  } const back{ctx};
  ctx.numerics.f32 = true;
  ctx.numerics.bf16 = false;
  return linear(ctx, x, router);
}

// The numbers of the experts that each row chose, as a listener sees them and may replace them.
const int32_t* chosen_experts(Context& ctx, const Tensor& logits, const ExpertSpec& spec) {
  const int64_t n = logits.rows() * spec.per_row;
  int32_t* const expert = room_for_numbers(ctx, n);
  choose_experts(ctx, logits, spec, expert);
  if (!ctx.listens("hook_expert_indices")) return expert;
  const Tensor shown = ctx.empty({logits.rows(), spec.per_row});
  visit_scalar(shown, [&](auto zero) {
    using T = decltype(zero);
    ctx.run(n, false, [&](int64_t i, int) { shown.data<T>()[i] = static_cast<T>(expert[i]); });
    const Tensor used = ctx.hook("hook_expert_indices", shown);
    for (int64_t i = 0; i < n && ctx.dry() == nullptr; ++i) {
      const T index = used.data<T>()[i];
      if (!(index >= 0 && index < static_cast<T>(spec.count)) || index != std::floor(index))
        throw InputError("hook_expert_indices was replaced by " + std::to_string(index) +
                         "; expected the number of an expert, 0 to " + std::to_string(spec.count - 1));
      expert[i] = static_cast<int32_t>(index);
    }
  });
  return expert;
}

// The factors of a plain sum.
Tensor ones(Context& ctx, const Shape& shape) {
  const Tensor all = ctx.empty(shape);
  visit_scalar(all, [&](auto zero) {
    using T = decltype(zero);
    ctx.run(1, false, [&](int64_t, int) { std::fill_n(all.data<T>(), all.count(), T{1}); });
  });
  return all;
}

// A value of each chosen expert, as the rows have them; it goes on as the experts have them.
Tensor hook_choices(Context& ctx, std::string_view name, const Tensor& sorted, const ExpertRows& rows) {
  if (!ctx.listens(name)) return sorted;
  return by_experts(ctx, ctx.hook(name, by_rows(ctx, sorted, rows)), rows);
}

// x [T K, D], sorted by expert -> [T K, F]
Tensor hidden_units(Context& ctx, const Tensor& x, const ExpertRows& rows, std::span<const Expert> experts,
                    const ExpertSpec& spec) {
  if (!spec.gated) {
    const Tensor pre = hook_choices(ctx, "hook_pre", expert_products(ctx, x, rows, experts, {&Expert::in})[0], rows);
    return activation(ctx, pre, spec.activation);
  }
  Tensor up, gate;
  if (experts[0].gate.out > 0) {
    std::tie(up, gate) = std::tuple_cat(expert_products(ctx, x, rows, experts, {&Expert::in, &Expert::gate}));
  } else {
    std::tie(gate, up) = split_pairs(ctx, expert_products(ctx, x, rows, experts, {&Expert::in})[0]);
  }
  gate = hook_choices(ctx, "hook_pre", gate, rows);     // [T K, F]
  up = hook_choices(ctx, "hook_pre_linear", up, rows);  // [T K, F]
  return spec.limit > 0 ? clamped_gated(ctx, gate, up, spec.limit, spec.slope) : gated(ctx, gate, up, spec.activation);
}

}  // namespace

Tensor expert_mlp(Context& ctx, std::string_view name, const Tensor& x, const Weight& router, std::span<const Expert> experts,
                  const ExpertSpec& spec, const Tensor& routed) {
  check(x, router, experts, spec);
  DryRun* const dry = ctx.dry();
  const size_t begin = dry != nullptr ? dry->begin() : 0;
  const auto scope = ctx.scope(name);
  const Tensor logits = ctx.hook("hook_router_logits", router_logits(ctx, routed ? routed : x, router));  // [T, E]
  const int32_t* const expert = chosen_experts(ctx, logits, spec);
  const Tensor weights = ctx.hook("hook_expert_weights", expert_weights(ctx, logits, expert, spec));  // [T, K]

  const ExpertRows rows = sort_by_expert(ctx, expert, x.rows(), spec.per_row, spec.count);
  Tensor sorted = sorted_rows(ctx, x, rows);  // [T K, D]
  if (spec.weighs_inputs) sorted = scale_rows(ctx, sorted, by_experts(ctx, weights, rows));
  const Tensor post = hook_choices(ctx, "hook_post", hidden_units(ctx, sorted, rows, experts, spec), rows);  // [T K, F]
  const Tensor out =
      hook_choices(ctx, "hook_expert_out", expert_products(ctx, post, rows, experts, {&Expert::out})[0], rows);  // [T K, D]
  const Tensor y = weighted_sum(ctx, out, spec.weighs_inputs ? ones(ctx, weights.shape()) : weights, rows);      // [T, D]
  if (dry != nullptr) {
    OpCall call{.op = "expert_mlp", .inputs = {x}, .outputs = {y}, .spec = spec};
    if (routed) call.inputs.push_back(routed);
    if (spec.scales != nullptr) call.vectors.push_back(spec.scales);
    if (spec.correction != nullptr) call.vectors.push_back(spec.correction);
    dry->fold(ctx, begin, call);
  }
  return y;
}

}  // namespace vitrine
