#pragma once
// Products of a few rows of int8 activations with the block types of 256 whose weights come out of a block in a few vector
// operations: they go from the block to the byte product without a way through memory. Sums as in dot_integers.h.
#include <type_traits>

#include "kernels/simd/dot_int8.h"
#include "kernels/simd/dot_integers.h"
#include "kernels/simd/dot_nibbles.h"
#if HWY_ARCH_ARM
#include "kernels/neon/add_blocks.h"
#elif HWY_TARGET <= HWY_AVX3
#include "kernels/avx512/add_blocks.h"
#else
#include "kernels/avx2/add_blocks.h"
#endif

namespace vitrine {
namespace {

/// n <= J outputs of R rows.
template <class W, int R, int J>
HWY_NOINLINE void dot_registers_block(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride,
                                      float* y, size_t y_stride) {
  IntegerSum sum[R][J];
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < J; ++j) sum[r][j] = no_sum();
  const uint8_t* block[J];  // outputs that there are not are the last one again
  for (int j = 0; j < J; ++j) block[j] = reinterpret_cast<const uint8_t*>(w) + min_of(size_t(j), n - 1) * stride;
  const char* ahead = ahead_of_rows(w, J * stride);
  for (size_t i = 0; i < k; i += kLargestBlock, ++x) {
    ask_for(ahead, J * W::kBytes);
    ahead += J * W::kBytes;
    add_blocks<W, R, J>(block, x, x_stride, sum);
    for (int j = 0; j < J; ++j) block[j] += W::kBytes;
  }
  for (int r = 0; r < R; ++r)
    for (size_t j = 0; j < min_of(size_t(J), n); ++j) y[size_t(r) * y_stride + j] = sum_of(Vec{sum[r][j]});
}

template <class W, int R>
void dot_registers_fixed(const char* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, float* y,
                         size_t y_stride) {
  constexpr int kJ = R == 1 || (kManyRegisters && R == 2) ? 4 : 2;
  for (size_t j = 0; j < n; j += kJ)
    dot_registers_block<W, R, kJ>(w + j * stride, stride, min_of(size_t(kJ), n - j), k, x, x_stride, y + j, y_stride);
}

template <class W>
void dot_registers(const void* weights, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride, size_t rows,
                   float* y, size_t y_stride) {
  const char* w = static_cast<const char*>(weights);
  with_rows(rows,
            [&](auto r) HWY_ATTR { dot_registers_fixed<W, decltype(r)::value>(w, stride, n, k, x, x_stride, y, y_stride); });
}

/// How the weights of a type of 256 come into registers; void: they do not.
template <DType kType>
struct RegisterForm {
  using Type = void;
};
#define VITRINE_REGISTERS(name, form) \
  template <>                         \
  struct RegisterForm<DType::name> {  \
    using Type = form;                \
  };
VITRINE_REGISTERS(q2_k, RegistersQ2_K)
VITRINE_REGISTERS(q3_k, RegistersQ3_K)
VITRINE_REGISTERS(q4_k, RegistersQ4_K)
VITRINE_REGISTERS(q5_k, RegistersQ5_K)
VITRINE_REGISTERS(q6_k, RegistersQ6_K)
VITRINE_REGISTERS(iq4_xs, RegistersIQ4_XS)
#undef VITRINE_REGISTERS

/// The fastest product of a type.
template <DType kType>
constexpr auto int8_product() {
  using Form = typename RegisterForm<kType>::Type;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (pack_form<kType>().nibbles != 0) return dot_rows_nibbles<kType>;
#endif
  if constexpr (pack_form<kType>().bytes != 0) {
    return dot_rows_int8<Pack<kType>>;
  } else if constexpr (!std::is_void_v<Form>) {
    return dot_registers<Form>;
  } else {
    return dot_integers<kType>;
  }
}

}  // namespace
}  // namespace vitrine
