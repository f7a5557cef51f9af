#pragma once
// The recurrence of a state over rows; the definition is kernels/reference/scan.h. Lanes are columns, summed over d_key in order:
// a number's bits depend on its own column alone.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

// So many vectors of columns together have one state in the first cache and enough sums that none waits for itself.
constexpr int kScanVectors = kManyRegisters && kLanes < 16 ? 4 : 2;
static_assert(kScanColumns % (kScanVectors * kLanes) == 0);

/// Columns from j on. The sums that a row's correction needs are made while the row before it passes over the state.
template <bool kCorrects>
HWY_INLINE void scan_columns(const ScanBlock& b, size_t j) {
  constexpr int kV = kScanVectors;
  const auto left = [&](int v) HWY_ATTR { return b.columns - min_of(b.columns, j + size_t(v) * kLanes); };
  float* const state = b.state + j;
  Vec held[kV], z[kV], change[kV];
  for (int v = 0; v < kV; ++v) held[v] = hn::Zero(Tag());
  for (size_t i = 0; i < b.d_key && kCorrects; ++i)
    for (int v = 0; v < kV; ++v)
      held[v] = hn::MulAdd(broadcast(b.k[i]), load(state + i * kScanColumns + size_t(v) * kLanes), held[v]);
  for (size_t r = 0; r < b.rows; ++r) {
    const float *q = b.q + r * b.key_stride, *k = b.k + r * b.key_stride, *next_k = r + 1 < b.rows ? k + b.key_stride : k;
    const float* value = b.v + r * b.v_stride + j;
    const Vec decay = broadcast(b.decay[r * b.gate_stride]), beta = broadcast(b.beta[r * b.gate_stride]);
    for (int v = 0; v < kV; ++v) {
      const Vec wanted = load_up_to(value + size_t(v) * kLanes, left(v));
      change[v] = hn::Mul(beta, kCorrects ? hn::NegMulAdd(decay, held[v], wanted) : wanted);
      held[v] = z[v] = hn::Zero(Tag());
    }
    for (size_t i = 0; i < b.d_key; ++i) {
      const Vec key = broadcast(k[i]), query = broadcast(q[i]), next_key = broadcast(next_k[i]);
      for (int v = 0; v < kV; ++v) {
        float* const at = state + i * kScanColumns + size_t(v) * kLanes;
        const Vec s = hn::MulAdd(key, change[v], hn::Mul(decay, load(at)));
        store(s, at);
        z[v] = hn::MulAdd(query, s, z[v]);
        if constexpr (kCorrects) held[v] = hn::MulAdd(next_key, s, held[v]);
      }
    }
    for (int v = 0; v < kV; ++v) store_up_to(z[v], b.z + r * b.z_stride + j + size_t(v) * kLanes, left(v));
  }
}

void scan(const ScanBlock& b) {
  for (size_t j = 0; j < b.columns; j += kScanVectors * kLanes) b.corrects ? scan_columns<true>(b, j) : scan_columns<false>(b, j);
}

}  // namespace
}  // namespace vitrine
