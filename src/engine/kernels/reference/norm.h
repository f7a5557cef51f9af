#pragma once
// RMSNorm (arXiv:1910.07467) and LayerNorm (arXiv:1607.06450) of one row of d values, and their gradients.
// The definition in plain loops, over the scalar: the kernels are tested against it, gradient checks run it in double.
#include <cmath>
#include <cstddef>

namespace vitrine {

/// y[i] = x[i] * r * (offset + w[i]),  r = 1 / sqrt(mean(x^2) + eps).  w null: the factor (offset + w) is 1.
/// inv_rms, if not null, receives r. y may be x.
template <class T>
void rms_norm_reference(const T* x, const T* w, T offset, T eps, size_t d, T* y, T* inv_rms) {
  T sum_sq = 0;
  for (size_t i = 0; i < d; ++i) sum_sq += x[i] * x[i];
  const T r = 1 / std::sqrt(sum_sq / T(d) + eps);
  for (size_t i = 0; i < d; ++i) y[i] = x[i] * r * (w ? offset + w[i] : T(1));
  if (inv_rms) *inv_rms = r;
}

/// y[i] = (x[i] - mean) * s * w[i] + b[i],  s = 1 / sqrt(mean((x - mean)^2) + eps).  w null: 1; b null: 0.
/// mean and inv_std, if not null, receive mean and s. y may be x.
template <class T>
void layer_norm_reference(const T* x, const T* w, const T* b, T eps, size_t d, T* y, T* mean, T* inv_std) {
  T sum = 0;
  for (size_t i = 0; i < d; ++i) sum += x[i];
  const T m = sum / T(d);
  T sum_sq = 0;  // of the differences: E[x^2] - mean^2 would cancel
  for (size_t i = 0; i < d; ++i) sum_sq += (x[i] - m) * (x[i] - m);
  const T s = 1 / std::sqrt(sum_sq / T(d) + eps);
  for (size_t i = 0; i < d; ++i) y[i] = (x[i] - m) * s * (w ? w[i] : T(1)) + (b ? b[i] : T(0));
  if (mean) *mean = m;
  if (inv_std) *inv_std = s;
}

/// With g = dy * (offset + w):  dx += r * (g - x * r^2 * mean(g x)),  dw += dy * x * r.  r = inv_rms of the forward.
/// w null as in the forward; dx or dw null: not wanted.
template <class T>
void rms_norm_backward(const T* x, const T* w, T offset, T inv_rms, const T* dy, size_t d, T* dx, T* dw) {
  T dot = 0;
  for (size_t i = 0; i < d; ++i) dot += dy[i] * (w ? offset + w[i] : T(1)) * x[i];
  const T pull = dot / T(d) * inv_rms * inv_rms;
  for (size_t i = 0; i < d; ++i) {
    if (dx) dx[i] += inv_rms * (dy[i] * (w ? offset + w[i] : T(1)) - x[i] * pull);
    if (dw) dw[i] += dy[i] * x[i] * inv_rms;
  }
}

/// With h = (x - mean) * s and g = dy * w:  dx += s * (g - mean(g) - h * mean(g h)),  dw += dy * h,  db += dy.
/// w null as in the forward; dx, dw or db null: not wanted.
template <class T>
void layer_norm_backward(const T* x, const T* w, T mean, T inv_std, const T* dy, size_t d, T* dx, T* dw, T* db) {
  T sum_g = 0, sum_gh = 0;
  for (size_t i = 0; i < d; ++i) {
    const T g = dy[i] * (w ? w[i] : T(1));
    sum_g += g;
    sum_gh += g * (x[i] - mean) * inv_std;
  }
  const T mean_g = sum_g / T(d), mean_gh = sum_gh / T(d);
  for (size_t i = 0; i < d; ++i) {
    const T h = (x[i] - mean) * inv_std;
    if (dx) dx[i] += inv_std * (dy[i] * (w ? w[i] : T(1)) - mean_g - h * mean_gh);
    if (dw) dw[i] += dy[i] * h;
    if (db) db[i] += dy[i];
  }
}

}  // namespace vitrine
