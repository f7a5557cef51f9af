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

/// A row of attention's scores in place: softmax of cap(scale s) over the keys first <= j < last, zeros elsewhere.
/// cap(s) = cap tanh(s / cap), or s if cap is 0.
template <class T>
void pattern_reference(T* s, size_t first, size_t last, size_t n, T scale, T cap) {
  if (first > last) last = first;
  for (size_t j = first; j < last; ++j) s[j] = cap != 0 ? cap * std::tanh(scale * s[j] / cap) : scale * s[j];
  softmax_reference(s + first, last - first, s + first);
  for (size_t j = 0; j < n; ++j)
    if (j < first || j >= last) s[j] = 0;
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
