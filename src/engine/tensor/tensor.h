#pragma once
// Tensor: a small value that says where elements lie and what shape they have. It owns nothing: arenas do.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/error.h"

namespace vitrine {

/// Up to four sizes, outermost first. An activation's first size is its rows (tokens of the step).
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    VITRINE_CHECK(dims.size() <= 4, "a shape has at most four sizes");
    for (const int64_t dim : dims) dims_[static_cast<size_t>(rank_++)] = dim;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;
  std::string text() const {
    std::string s = "[";
    for (int i = 0; i < rank_; ++i) s += (i > 0 ? ", " : "") + std::to_string(dims_[static_cast<size_t>(i)]);
    return s + "]";
  }

 private:
  std::array<int64_t, 4> dims_{};
  int rank_ = 0;
};

/// Where an activation's gradient goes while a tape records; shared by all views of the activation.
/// data is null until the first contribution; then elements of the activation's own type, count and order.
struct GradSlot {
  void* data = nullptr;
};

/// Contiguous elements in row-major order: f32 in every run, f64 when gradients are checked.
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, const Shape& shape, GradSlot* grad = nullptr)
      : data_(data), grad_(grad), shape_(shape), dtype_(dtype) {}

  explicit operator bool() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t rows() const { return shape_[0]; }
  int64_t count() const { return shape_.count(); }
  int64_t row_size() const { return shape_[0] == 0 ? 0 : count() / shape_[0]; }
  size_t bytes() const { return row_bytes(dtype_, static_cast<size_t>(count())); }
  void* raw() const { return data_; }
  GradSlot* grad() const { return grad_; }

  template <class T>
  T* data() const {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
    VITRINE_CHECK(dtype_ == (std::is_same_v<T, float> ? DType::f32 : DType::f64), "a tensor is read as the type it has");
    return static_cast<T*>(data_);
  }
  template <class T>
  T* row(int64_t i) const {
    return data<T>() + i * row_size();
  }

  /// The same elements under another shape of equal count; the gradient is shared.
  Tensor view(const Shape& shape) const {
    if (shape.count() != count()) throw ShapeError("a tensor of shape " + shape_.text() + " cannot be seen as " + shape.text());
    return {data_, dtype_, shape, grad_};
  }
  /// Rows [first, first + n) of the same elements, without a gradient slot (for listeners and readers).
  Tensor rows_view(int64_t first, int64_t n) const {
    Shape shape = shape_;
    switch (shape_.rank()) {
      case 1: shape = {n}; break;
      case 2: shape = {n, dim(1)}; break;
      case 3: shape = {n, dim(1), dim(2)}; break;
      default: shape = {n, dim(1), dim(2), dim(3)};
    }
    const size_t offset = row_bytes(dtype_, static_cast<size_t>(first * row_size()));
    return {static_cast<std::byte*>(data_) + offset, dtype_, shape};
  }
  Tensor without_grad() const { return {data_, dtype_, shape_}; }

 private:
  void* data_ = nullptr;
  GradSlot* grad_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// Calls f with a value of the tensor's scalar type: visit_scalar(t, [&](auto zero) { using T = decltype(zero); … }).
template <class F>
decltype(auto) visit_scalar(const Tensor& t, F&& f) {
  return t.dtype() == DType::f64 ? f(double{}) : f(float{});
}

}  // namespace vitrine
