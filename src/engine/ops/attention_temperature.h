#pragma once
// Queries that grow with their position, so that attention over many keys stays as sharp as over few.
#include "ops/context.h"
#include "ops/step.h"

namespace vitrine {

struct TemperatureSpec {
  int64_t floor_scale = 1;  // positions between two steps of the factor
  double scale = 0;         // of the logarithm
  bool operator==(const TemperatureSpec&) const = default;
};

/// The factor of a position:  1 + scale · log(1 + floor((position + 1) / floor_scale)). Nakanishi, arXiv:2501.19399, section 3;
/// the steps are Llama 4's.
float temperature_factor(const TemperatureSpec& spec, int64_t position);

/// Each query times the factor of its position, which is f32 whatever else is.
///
/// q [rows, n_heads, head_dim]; returns the same shape.
/// Hook point under `name`: hook_temperature [rows, 1], the factors, which do not depend on the text.
/// Backward: q. Errors: ShapeError if q has other rows than the step.
Tensor attention_temperature(Context& ctx, std::string_view name, const Tensor& q, const Step& step, const TemperatureSpec& spec);

}  // namespace vitrine
