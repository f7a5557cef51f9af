#include "ops/attention_temperature.h"

#include <cmath>

#include "base/error.h"
#include "ops/dry_run.h"
#include "ops/elementwise.h"

namespace vitrine {

float temperature_factor(const TemperatureSpec& spec, int64_t position) {
  const float steps = std::floor((static_cast<float>(position) + 1) / static_cast<float>(spec.floor_scale));
  return std::log1p(steps) * static_cast<float>(spec.scale) + 1;
}

Tensor attention_temperature(Context& ctx, std::string_view name, const Tensor& q, const Step& step,
                             const TemperatureSpec& spec) {
  if (q.shape().rank() != 3 || q.rows() != step.rows())
    throw ShapeError("attention_temperature: q " + q.shape().text() + " for " + std::to_string(step.rows()) +
                     " rows; expected [rows, heads, head_dim]");
  DryRun* const dry = ctx.dry();
  const size_t begin = dry != nullptr ? dry->begin() : 0;
  const auto scope = ctx.scope(name);
  const Tensor factors = ctx.empty({q.rows(), 1});
  visit_scalar(factors, [&](auto zero) {
    using T = decltype(zero);
    ctx.run(q.rows(), false, [&](int64_t r, int) {
      factors.data<T>()[r] = static_cast<T>(temperature_factor(spec, step.positions()[static_cast<size_t>(r)]));
    });
  });
  const Tensor scaled = scale_rows(ctx, merge_heads(ctx, q), ctx.hook("hook_temperature", factors));
  const Tensor y = split_heads(ctx, scaled, q.dim(2));
  if (dry != nullptr) dry->fold(ctx, begin, {.op = "attention_temperature", .inputs = {q}, .outputs = {y}, .spec = spec});
  return y;
}

}  // namespace vitrine
