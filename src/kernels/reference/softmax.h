#pragma once
// Softmax and log-sum-exp of one row. Definition in plain loops, over the scalar.
#include <cmath>
#include <cstddef>
#include <limits>

namespace vitrine {

template <class T>
T largest_of(const T* x, size_t n) {
  T largest = -std::numeric_limits<T>::infinity();
  for (size_t i = 0; i < n; ++i)
    if (x[i] > largest || x[i] != x[i]) largest = x[i];  // a NaN wins until the next number; the sum keeps it
  return largest;
}

/// y[i] = exp(x[i] - m) / sum of exp(x - m),  m the largest. -inf gives 0, a row of only -inf gives zeros. y may be x.
template <class T>
void softmax_reference(const T* x, size_t n, T* y) {
  const T m = largest_of(x, n);
  if (m == -std::numeric_limits<T>::infinity()) {
    for (size_t i = 0; i < n; ++i) y[i] = 0;
    return;
  }
  T sum = 0;
  for (size_t i = 0; i < n; ++i) sum += y[i] = std::exp(x[i] - m);
  for (size_t i = 0; i < n; ++i) y[i] /= sum;
}

/// dx += y (dy - sum of dy y);  y is the softmax.
template <class T>
void softmax_backward(const T* y, const T* dy, size_t n, T* dx) {
  T dot = 0;
  for (size_t i = 0; i < n; ++i) dot += dy[i] * y[i];
  for (size_t i = 0; i < n; ++i) dx[i] += y[i] * (dy[i] - dot);
}

/// log of the sum of exp(x); -inf for no or only -inf.
template <class T>
T log_sum_exp_reference(const T* x, size_t n) {
  const T m = largest_of(x, n);
  if (m == -std::numeric_limits<T>::infinity()) return m;
  T sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(x[i] - m);
  return m + std::log(sum);
}

}  // namespace vitrine
