#pragma once
// Searches for the scale of a group of values, or its scale and minimum. Several are tried side by side, so that the compiler
// makes vectors of them: the sums of one try are added in the order of the values, whatever the machine.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/blocks/parts.h"
#include "base/dtype.h"

namespace vitrine {

/// Values below are zero to every type here, whose scales are f16 numbers.
inline constexpr float kSmallest = 1e-12f;

/// Scales that are tried at once.
inline constexpr int kTries = 16;

/// The nearest whole number, ties to even, of a number below 2^22.
inline float whole(float x) { return (x + 12582912.0f) - 12582912.0f; }
inline float as_f16(float x) { return f16_to_f32(f32_to_f16(x)); }
inline float inverse_of(float scale) { return std::abs(scale) < 1e-30f ? 0.0f : 1.0f / scale; }
inline void store_f16(float x, uint8_t* to) {
  const uint16_t bits = f32_to_f16(x);
  std::memcpy(to, &bits, 2);
}

/// The whole numbers from kLowest to kHighest.
template <int kLow, int kHigh>
struct WholeLevels {
  static constexpr float kLowest = kLow, kHighest = kHigh;
  static float nearest(float v) { return std::min(std::max(whole(v), kLowest), kHighest); }
};

/// The 16 levels of IQ4_NL and IQ4_XS.
struct NonLinearLevels {
  static constexpr float kLowest = kNonLinear[0], kHighest = kNonLinear[15];
  static int index(float v) {  // every border between two levels is a multiple of a half, which floor(2 v) does not cross
    static const Table kTable;
    return kTable.index[static_cast<int>(std::floor(2 * std::min(std::max(v, kLowest), kHighest))) + 256];
  }
  static float nearest(float v) { return kNonLinear[index(v)]; }

 private:
  struct Table {
    uint8_t index[512];
    Table() {
      for (int i = 0; i < 512; ++i) {
        const float middle = (static_cast<float>(i - 256) + 0.5f) / 2;
        int best = 0;
        for (int level = 1; level < 16; ++level)
          if (std::abs(middle - kNonLinear[level]) < std::abs(middle - kNonLinear[best])) best = level;
        index[i] = static_cast<uint8_t>(best);
      }
    }
  };
};

/// The value farthest from zero.
inline float extreme_of(const float* x, int n) {
  float extreme = 0;
  for (int i = 0; i < n; ++i)
    if (std::abs(x[i]) > std::abs(extreme)) extreme = x[i];
  return extreme;
}

/// The scale, of either sign, with the least weighted squared error of scale * nearest level. 0 if all values are.
template <class Levels>
float best_scale(const float* x, const float* w, int n) {
  const float extreme = extreme_of(x, n);
  if (std::abs(extreme) < kSmallest) return 0;
  float best = 0, best_gain = 0;
  const auto consider = [&](float products,
                            float squares) {  // the gain over a scale of 0, of the scale that fits these levels best
    if (squares <= 0) return;
    const float gain = products * products / squares;
    if (gain <= best_gain) return;
    best_gain = gain;
    best = products / squares;
  };
  for (const float end : {Levels::kLowest, Levels::kHighest}) {  // the level that the extreme falls on, or near
    float inverse[kTries], products[kTries] = {}, squares[kTries] = {};
    for (int t = 0; t < kTries; ++t) {
      const float reach = std::abs(end) <= 1 ? 0.55f + 0.09f * static_cast<float>(t)  // of few levels many values lie beyond
                                             : 1 + (static_cast<float>(t) - 9) * 0.13f / std::sqrt(std::abs(end));
      inverse[t] = end * reach / extreme;
    }
    for (int i = 0; i < n; ++i)
      for (int t = 0; t < kTries; ++t) {
        const float q = Levels::nearest(x[i] * inverse[t]), wq = w[i] * q;
        products[t] += wq * x[i];
        squares[t] += wq * q;
      }
    for (int t = 0; t < kTries; ++t) consider(products[t], squares[t]);
  }
  for (int again = 0; again < 3; ++again) {  // the best scale's own levels, and their best scale
    const float inverse = inverse_of(best);
    float products = 0, squares = 0;
    for (int i = 0; i < n; ++i) {
      const float q = Levels::nearest(x[i] * inverse), wq = w[i] * q;
      products += wq * x[i];
      squares += wq * q;
    }
    const float before = best;
    consider(products, squares);
    if (best == before) break;
  }
  return best;
}

/// y = scale * q - minimum.
struct ScaleAndMinimum {
  float scale = 0, minimum = 0;
};

/// The pair with the least weighted squared error for q in 0..top; `positive`: the minimum must not be negative.
inline ScaleAndMinimum best_scale_and_minimum(const float* x, const float* w, int n, float top, bool positive) {
  float low = x[0], high = x[0], sum_w = 0, sum_x = 0, sum_xx = 0;
  for (int i = 0; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    sum_w += w[i];
    sum_x += w[i] * x[i];
    sum_xx += w[i] * x[i] * x[i];
  }
  if (positive && low > 0) low = 0;
  if (!(high - low >= kSmallest)) return {0, -low};
  ScaleAndMinimum best = {(high - low) / top, -low};
  float best_error = std::numeric_limits<float>::infinity();
  for (int batch = 0; batch < 3; ++batch) {
    float scale[kTries], minimum[kTries];
    for (int t = 0; t < kTries; ++t) {
      if (batch < 2) {  // from the lowest value, with the highest near the top level
        scale[t] = (high - low) / (top - 0.95f + 0.06f * static_cast<float>(t + batch * kTries));
        minimum[t] = -low;
      } else {  // both ends drawn in
        const float in = (high - low) / top * 0.08f * static_cast<float>(t);
        scale[t] = (high - low - in) / top;
        minimum[t] = positive ? std::max(-low - in / 2, 0.0f) : -low - in / 2;
      }
    }
    for (int round = 0; round < (batch < 2 ? 2 : 4); ++round) {
      float inverse[kTries], q1[kTries] = {}, q2[kTries] = {}, qx[kTries] = {};
      for (int t = 0; t < kTries; ++t) inverse[t] = inverse_of(scale[t]);
      for (int i = 0; i < n; ++i)
        for (int t = 0; t < kTries; ++t) {
          const float q = std::min(std::max(whole((x[i] + minimum[t]) * inverse[t]), 0.0f), top), wq = w[i] * q;
          q1[t] += wq;
          q2[t] += wq * q;
          qx[t] += wq * x[i];
        }
      for (int t = 0; t < kTries; ++t) {  // the pair that fits these q best
        const float determinant = sum_w * q2[t] - q1[t] * q1[t];
        if (!(determinant > 1e-6f * sum_w * q2[t])) continue;
        float a = (sum_w * qx[t] - sum_x * q1[t]) / determinant, b = (sum_x * q2[t] - q1[t] * qx[t]) / determinant;
        if (positive && b > 0) a = qx[t] / q2[t], b = 0;
        if (!(a > 0)) continue;
        const float error = sum_xx + a * a * q2[t] + b * b * sum_w - 2 * a * qx[t] - 2 * b * sum_x + 2 * a * b * q1[t];
        if (error < best_error) best_error = error, best = {a, -b};
        scale[t] = a;
        minimum[t] = -b;
      }
    }
  }
  return best;
}

}  // namespace vitrine
