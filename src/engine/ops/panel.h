#pragma once
// Which of the panels multiplies.
#include <cstdint>

#include "kernels/table.h"
#include "ops/context.h"

namespace vitrine {

/// The fastest panel that the numerics allow for the product of `rows` rows, more than kFewRows, with weights of a type. With
/// Numerics::exact it is the same for any number of rows. The reference is into `k`.
inline const PanelKernels& panel_for(const KernelTable& k, const Numerics& numerics, DType type, int64_t rows) {
  if (numerics.f32 || type == DType::f32) return k.panel_f32;
  const size_t counted = numerics.exact ? SIZE_MAX : static_cast<size_t>(rows);
  if (k.dot_rows_int8[static_cast<size_t>(type)] != nullptr && k.panel_int8.outputs > 0 && counted <= k.panel_int8_rows)
    return k.panel_int8;
  return k.panel_bf16.outputs > 0 ? k.panel_bf16 : k.panel_f32;
}

}  // namespace vitrine
