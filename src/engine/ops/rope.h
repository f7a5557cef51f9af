#pragma once
// Rotary positions.
#include "ops/context.h"
#include "ops/rope_spec.h"
#include "ops/step.h"

namespace vitrine {

/// Rotates each pair of components of each head by position · frequency; the layout says which components pair up.
/// arXiv:2104.09864. Angles are f32 whatever else is. Scores of rotated queries and keys depend on the offset alone.
///
/// x [rows, n, head_dim]; returns the same shape. Components other than spec.first … spec.first + spec.rotary_dim - 1 stay.
/// Backward: x. Errors: ShapeError if rotary_dim is odd or they exceed head_dim.
Tensor rope(Context& ctx, const Tensor& x, const Step& step, const RopeSpec& spec);

}  // namespace vitrine
