#pragma once
// The recurrence of a state over rows, as kernels/table.h (ScanBlockOf) says it: its definition.
#include "kernels/table.h"

namespace vitrine {

template <class T>
void scan_reference(const ScanBlockOf<T>& b) {
  for (size_t r = 0; r < b.rows; ++r) {
    const T *q = b.q + r * b.key_stride, *k = b.k + r * b.key_stride, *v = b.v + r * b.v_stride;
    const T decay = b.decay[r * b.gate_stride], beta = b.beta[r * b.gate_stride];
    for (size_t j = 0; j < b.columns; ++j) {
      T held = 0, z = 0;
      for (size_t i = 0; i < b.d_key && b.corrects; ++i) held += k[i] * b.state[i * kScanColumns + j];
      const T change = beta * (v[j] - decay * held);
      for (size_t i = 0; i < b.d_key; ++i) {
        T& s = b.state[i * kScanColumns + j];
        s = decay * s + k[i] * change;
        z += q[i] * s;
      }
      b.z[r * b.z_stride + j] = z;
    }
  }
}

}  // namespace vitrine
