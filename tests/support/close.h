#pragma once
// EXPECT_CLOSE: numbers against a golden answer, with the worst element named when they disagree.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace vitrine {

/// Allowed: |actual - expected| <= abs + rel * |expected|.
struct Tolerance {
  double abs = 2e-5;
  double rel = 1e-4;
};

/// "[3, 7] of [4, 16]" for a flat index; the flat index alone where the shape does not fit the count.
inline std::string index_text(size_t flat, const std::vector<int64_t>& shape) {
  std::string at, of;
  size_t rest = flat;
  for (size_t d = shape.size(); d-- > 0;) {
    const size_t n = static_cast<size_t>(shape[d]);
    if (n == 0) return std::to_string(flat);
    at = std::to_string(rest % n) + (at.empty() ? "" : ", ") + at;
    of = std::to_string(n) + (of.empty() ? "" : ", ") + of;
    rest /= n;
  }
  return rest != 0 || shape.empty() ? std::to_string(flat) : "[" + at + "] of [" + of + "]";
}

/// Compares element by element; infinities must be equal, a NaN fits nothing. `shape` only serves the message.
template <class Actual, class Expected>
testing::AssertionResult close_to(std::span<const Actual> actual, std::span<const Expected> expected, Tolerance tolerance,
                                  const std::vector<int64_t>& shape = {}) {
  if (actual.size() != expected.size())
    return testing::AssertionFailure() << "has " << actual.size() << " elements; expected " << expected.size();
  size_t worst = 0, wrong = 0;
  double worst_excess = -1;  // difference over what is allowed there
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = static_cast<double>(actual[i]), e = static_cast<double>(expected[i]);
    if (a == e) continue;
    const double allowed = tolerance.abs + tolerance.rel * std::fabs(e), difference = std::fabs(a - e);
    if (std::isfinite(a) && std::isfinite(e) && difference <= allowed) continue;
    ++wrong;
    const double excess = std::isfinite(difference) ? difference / allowed : INFINITY;
    if (excess > worst_excess) worst = i, worst_excess = excess;
  }
  if (wrong == 0) return testing::AssertionSuccess();
  const double a = static_cast<double>(actual[worst]), e = static_cast<double>(expected[worst]);
  std::ostringstream text;
  text.precision(9);
  text << wrong << " of " << actual.size() << " elements differ; the worst, " << index_text(worst, shape) << ", is " << a
       << "; expected " << e << ": differs by " << std::fabs(a - e) << ", allowed "
       << tolerance.abs + tolerance.rel * std::fabs(e);
  return testing::AssertionFailure() << text.str();
}

template <class A, class E>
testing::AssertionResult close_ranges(const A& actual, const E& expected, Tolerance tolerance) {
  std::vector<int64_t> shape;
  if constexpr (requires { expected.shape; }) shape.assign(expected.shape.begin(), expected.shape.end());
  return close_to(std::span<const typename A::value_type>(std::data(actual), std::size(actual)),
                  std::span<const typename E::value_type>(std::data(expected), std::size(expected)), tolerance, shape);
}
template <class T, size_t N, class E>
testing::AssertionResult close_ranges(const std::span<T, N>& actual, const E& expected, Tolerance tolerance) {
  using Value = std::remove_const_t<T>;
  return close_ranges(std::vector<Value>(actual.begin(), actual.end()), expected, tolerance);
}

}  // namespace vitrine

/// EXPECT_CLOSE(actual, expected, Tolerance{.abs = 2e-5, .rel = 1e-4}); both are contiguous ranges of numbers (vector,
/// span, GoldenTensor, whose shape then shows in the message).
#define EXPECT_CLOSE(actual, ...) EXPECT_TRUE(::vitrine::close_ranges(actual, __VA_ARGS__)) << "  in " #actual
#define ASSERT_CLOSE(actual, ...) ASSERT_TRUE(::vitrine::close_ranges(actual, __VA_ARGS__)) << "  in " #actual
