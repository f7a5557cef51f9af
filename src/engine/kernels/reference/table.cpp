// The reference table: every routine by its definition in f32. Slow; the yardstick of the others.
#include <algorithm>
#include <cstring>

#include "kernels/reference/activation.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/backward.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/optimizer.h"
#include "kernels/reference/packed.h"
#include "kernels/reference/rope.h"
#include "kernels/reference/scan.h"
#include "kernels/reference/softmax.h"
#include "kernels/targets.h"

namespace vitrine {
namespace {

template <DType kType>
void dot_rows(const void* w, size_t stride, size_t n, size_t k, const float* x, size_t x_stride, size_t rows, float* y,
              size_t y_stride) {
  dot_rows_reference<float>(kType, w, stride, n, k, x, x_stride, rows, y, y_stride);
}
template <DType kType>
void dot_rows_int8(const void* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, size_t rows,
                   float* y, size_t y_stride) {
  dot_rows_int8_reference<float>(kType, w, stride, n, k, x, x_stride, rows, y, y_stride);
}
template <DType kType>
void dot_columns(const void* w, size_t stride, size_t n, size_t k, const float* x, size_t x_stride, size_t rows, float* y,
                 size_t y_stride) {
  dot_columns_reference<float>(kType, w, stride, n, k, x, x_stride, rows, y, y_stride);
}
template <DType kType>
void widen(const void* row, size_t n, float* y) {
  widen_reference<float>(kType, row, 0, n, y);
}

// A panel is [kPanelOutputs, kPanelDepth] of weights, f32 or rounded to bf16; packed x (bf16 only) is [rows, k].
constexpr size_t kPanelOutputs = 16, kPanelDepth = 256;

/// Elements [k0, k0 + depth) of output j.
void panel_row(DType type, const void* w, size_t stride, bool by_columns, size_t j, size_t k0, size_t depth, float* y) {
  const char* bytes = static_cast<const char*>(w);
  if (!by_columns) return widen_reference(type, bytes + j * stride, k0, depth, y);
  for (size_t i = 0; i < depth; ++i) y[i] = element_at(type, bytes + (k0 + i) * stride, j);
}

void expand_f32(DType type, const void* w, size_t stride, bool by_columns, size_t n, size_t k0, size_t depth, void* panel) {
  float* p = static_cast<float*>(panel);
  for (size_t j = 0; j < n; ++j) panel_row(type, w, stride, by_columns, j, k0, depth, p + j * kPanelDepth);
}
void multiply_f32(const void* panel, const float* x, size_t x_stride, const void*, size_t, size_t row0, size_t n_rows, size_t,
                  size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext&) {
  const float* p = static_cast<const float*>(panel);
  for (size_t r = row0; r < row0 + n_rows; ++r)
    for (size_t j = 0; j < n; ++j) {
      float sum = 0;
      for (size_t i = 0; i < depth; ++i) sum += x[r * x_stride + k0 + i] * p[j * kPanelDepth + i];
      y[r * y_stride + j] = add ? y[r * y_stride + j] + sum : sum;
    }
}
size_t no_bytes(size_t, size_t) { return 0; }

size_t x_bytes_bf16(size_t rows, size_t k) { return rows * k * sizeof(uint16_t); }
void pack_x_bf16(const float* x, size_t x_stride, size_t row0, size_t n, size_t, size_t k, void* packed) {
  uint16_t* p = static_cast<uint16_t*>(packed);
  for (size_t r = row0; r < row0 + n; ++r)
    for (size_t i = 0; i < k; ++i) p[r * k + i] = f32_to_bf16(x[r * x_stride + i]);
}
void expand_bf16(DType type, const void* w, size_t stride, bool by_columns, size_t n, size_t k0, size_t depth, void* panel) {
  uint16_t* p = static_cast<uint16_t*>(panel);
  for (size_t j = 0; j < n; ++j) {
    float row[kPanelDepth];
    panel_row(type, w, stride, by_columns, j, k0, depth, row);
    std::transform(row, row + depth, p + j * kPanelDepth, f32_to_bf16);
  }
}
void multiply_bf16(const void* panel, const float*, size_t, const void* packed, size_t, size_t row0, size_t n_rows, size_t k,
                   size_t k0, size_t depth, bool, size_t n, float* y, size_t y_stride, bool add, const ReadNext&) {
  const uint16_t* p = static_cast<const uint16_t*>(panel);
  const uint16_t* x = static_cast<const uint16_t*>(packed);
  for (size_t r = row0; r < row0 + n_rows; ++r)
    for (size_t j = 0; j < n; ++j) {
      float sum = 0;
      for (size_t i = 0; i < depth; ++i) sum += bf16_to_f32(x[r * k + k0 + i]) * bf16_to_f32(p[j * kPanelDepth + i]);
      y[r * y_stride + j] = add ? y[r * y_stride + j] + sum : sum;
    }
}

constexpr size_t kPackedBlock = 4;  // the depth is the panels': the same bits
size_t packed_a_bytes(size_t rows, size_t depth) { return rows * depth * sizeof(float); }
size_t packed_b_bytes(size_t depth, size_t columns) { return columns * depth * sizeof(float); }
template <bool kRound>
constexpr PackedKernels packed_reference() {
  return {.rows = kPackedBlock,
          .columns = kPackedBlock,
          .depth = kPanelDepth,
          .a_bytes = packed_a_bytes,
          .b_bytes = packed_b_bytes,
          .pack_a = pack_a_reference<kRound>,
          .pack_b = pack_b_reference<kRound>,
          .multiply = packed_multiply_reference};
}

}  // namespace

// The entries of the types that are decoded, one after the other.
#define VITRINE_DOT_ROWS(name, elements, bytes, number) dot_rows<DType::name>,
#define VITRINE_DOT_INT8(name, elements, bytes, number) dot_rows_int8<DType::name>,
#define VITRINE_WIDEN(name, elements, bytes, number) widen<DType::name>,

const KernelTable kReferenceTable = {
    .name = "reference",
    .dot_rows = {dot_rows<DType::f32>, dot_rows<DType::f16>, dot_rows<DType::bf16>, dot_rows<DType::q8_0>, dot_rows<DType::q4_0>,
                 VITRINE_DECODED_TYPES(VITRINE_DOT_ROWS) dot_rows<DType::f8_e4m3>},
    .dot_rows_int8 = {nullptr, nullptr, nullptr, dot_rows_int8<DType::q8_0>, dot_rows_int8<DType::q4_0>,
                      VITRINE_DECODED_TYPES(VITRINE_DOT_INT8)},
    .dot_columns = {dot_columns<DType::f32>, dot_columns<DType::f16>, dot_columns<DType::bf16>},
    .panel_f32 = {.outputs = kPanelOutputs,
                  .depth = kPanelDepth,
                  .panel_bytes = kPanelOutputs * kPanelDepth * sizeof(float),
                  .x_bytes = no_bytes,
                  .pack_x = nullptr,
                  .expand = expand_f32,
                  .multiply = multiply_f32},
    .panel_bf16 = {.outputs = kPanelOutputs,
                   .depth = kPanelDepth,
                   .panel_bytes = kPanelOutputs * kPanelDepth * sizeof(uint16_t),
                   .x_bytes = x_bytes_bf16,
                   .pack_x = pack_x_bf16,
                   .expand = expand_bf16,
                   .multiply = multiply_bf16},
    .panel_int8 = {},
    .packed_f32 = packed_reference<false>(),
    .packed_bf16 = packed_reference<true>(),
    .widen = {widen<DType::f32>, widen<DType::f16>, widen<DType::bf16>, widen<DType::q8_0>, widen<DType::q4_0>,
              VITRINE_DECODED_TYPES(VITRINE_WIDEN) widen<DType::f8_e4m3>},
    .narrow = [](const float* x, size_t n, uint16_t* y) { std::transform(x, x + n, y, f32_to_bf16); },
    .quantize_int8 = quantize_int8_reference,
    .rms_norm = rms_norm_reference<float>,
    .layer_norm = layer_norm_reference<float>,
    .rope = rope_reference<float>,
    .activate = activate_reference<float>,
    .gate = gate_reference<float>,
    .softmax = softmax_reference<float>,
    .pattern = pattern_reference<float>,
    .softcap = softcap_reference<float>,
    .add = add_reference<float>,
    .scale = scale_reference<float>,
    .log_sum_exp = log_sum_exp_reference<float>,
    .attention = attention_reference<float>,
    .set_products = set_products_reference<float>,
    .add_products = add_products_reference<float>,
    .scan = scan_reference<float>,
    .rms_norm_gradient = rms_norm_gradient<float>,
    .layer_norm_gradient = layer_norm_gradient<float>,
    .rope_gradient = rope_gradient<float>,
    .activate_gradient = activate_gradient<float>,
    .gate_gradient = gate_gradient<float>,
    .softcap_gradient = softcap_gradient<float>,
    .add_scaled = add_scaled_reference<float>,
    .dot = dot_reference<float>,
    .loss_gradient = loss_gradient_reference<float>,
    .pattern_gradient = pattern_gradient_reference<float>,
    .adamw = adamw_reference<float>,
    .adamw_bf16 = adamw_bf16_reference,
    .sgd = sgd_reference<float>,
    .sum_of_squares = sum_of_squares_reference<float>,
};

}  // namespace vitrine
