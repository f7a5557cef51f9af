#pragma once
// What recurrences have in common: the gated delta rule and state spaces.
#include <cmath>

#include "kernels/reference/activation.h"
#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/rows.h"

namespace vitrine {

template <class T>
T inner(const T* a, const T* b, size_t n) {
  return of_type<T>(kernels().dot, dot_reference<double>)(a, b, n);
}
template <class T>
void scale_into(const T* x, T factor, size_t n, T* y) {
  of_type<T>(kernels().scale, scale_reference<double>)(x, factor, n, y);
}

template <class T>
T softplus(T x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

/// A head's number of a vector that may hold log(-A).
template <class T>
T decay_factor(const Vector& A, int64_t head, bool is_log) {
  return is_log ? -std::exp(A.at<T>(head)) : A.at<T>(head);
}

/// Adds to the gradient of a vector, where it is wanted.
template <class T>
void add_to(const Vector& v, int64_t i, T value) {
  if (v.grad.data != nullptr) static_cast<T*>(v.grad.data)[i] += value;
}

}  // namespace vitrine
