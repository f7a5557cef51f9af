#include "runtime/row_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

// A copy for each instruction set, of which the loader takes the best: the same operations on longer vectors, so the same bits
// (the build keeps multiplications and additions apart).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define VITRINE_FOR_EVERY_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VITRINE_FOR_EVERY_CPU
#endif

namespace vitrine {
namespace {

constexpr size_t kLanes = 16;

/// exp(x) for x <= 0. With n = round(x / ln 2) and r = x - n ln 2, |r| <= 0.35: exp(x) = 2^n exp(r). ln 2 is taken in two
/// parts, the first short enough that n times it is exact; exp(r) is its Taylor polynomial to degree 7 (error 1e-8).
inline float exp_below_zero(float x) {
  const float clamped = std::max(x, -87.0f);
  const float shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the fraction bits now hold the integer n
  const int32_t n = std::bit_cast<int32_t>(shifted) - 0x4B400000;
  const float whole = shifted - 12582912.0f;
  const float r = clamped - whole * 0.693359375f - whole * -2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const float scaled = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (static_cast<uint32_t>(n) << 23));
  return x < -87.0f ? 0.0f : scaled;
}

}  // namespace

VITRINE_FOR_EVERY_CPU
float largest(std::span<const float> row) {
  std::array<float, kLanes> top;
  top.fill(-INFINITY);
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) top[l] = row[i + l] > top[l] ? row[i + l] : top[l];
  for (; i < row.size(); ++i) top[0] = std::max(top[0], row[i]);
  return *std::max_element(top.begin(), top.end());
}

size_t argmax(std::span<const float> row) {
  constexpr size_t kBlock = 1024;
  float top = -INFINITY;
  size_t begin = 0;  // of the block with the first of the largest
  for (size_t i = 0; i < row.size(); i += kBlock) {
    const float here = largest(row.subspan(i, std::min(kBlock, row.size() - i)));
    if (here > top) top = here, begin = i;
  }
  if (row.empty()) return 0;
  const auto at = std::find(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end(), top);
  return at == row.end() ? 0 : static_cast<size_t>(at - row.begin());
}

VITRINE_FOR_EVERY_CPU
bool all_finite(std::span<const float> row) {
  int32_t worst = 0;  // the largest magnitude, compared as bits: infinity and NaN lie above every number
  for (const float x : row) worst = std::max(worst, std::bit_cast<int32_t>(x) & 0x7FFFFFFF);
  return worst < 0x7F800000;
}

VITRINE_FOR_EVERY_CPU
double row_sum(std::span<const float> row) {
  std::array<double, kLanes> lanes{};
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) lanes[l] += row[i + l];
  for (; i < row.size(); ++i) lanes[0] += row[i];
  double total = 0;
  for (const double s : lanes) total += s;
  return total;
}

VITRINE_FOR_EVERY_CPU
double exponentials(std::span<const float> row, float top, float* out) {
  for (size_t i = 0; i < row.size(); ++i) out[i] = exp_below_zero(row[i] - top);
  return row_sum({out, row.size()});
}

double sum_of_exponentials(std::span<const float> row, float top) {
  std::array<float, 1024> terms;
  double total = 0;
  for (size_t i = 0; i < row.size(); i += terms.size())
    total += exponentials(row.subspan(i, std::min(terms.size(), row.size() - i)), top, terms.data());
  return total;
}

}  // namespace vitrine
