#pragma once
// 256 values in groups that have whole multiples of one scale (and one minimum) each, as the K types, IQ4_XS and the like hold
// them. Each group's own best scale first; then, in turns, each group's multiple among its neighbors and the shared scale.
#include "quantize/search.h"

namespace vitrine {

/// y = (d s) q - (dmin m): q in 0..kTop, s and m in 0..kMost for each of 256 / kSize groups.
template <int kSize, int kTop, int kMost>
struct AffineGroups {
  static constexpr int kGroups = 256 / kSize, kRounds = 3;
  float d = 0, dmin = 0;  // f16 numbers
  uint8_t s[kGroups] = {}, m[kGroups] = {}, q[256] = {};

  AffineGroups(const float* x, const float* w) {
    ScaleAndMinimum own[kGroups];
    float largest_scale = 0, largest_minimum = 0;
    for (int g = 0; g < kGroups; ++g) {
      own[g] = best_scale_and_minimum(x + g * kSize, w + g * kSize, kSize, kTop, true);
      largest_scale = std::max(largest_scale, own[g].scale);
      largest_minimum = std::max(largest_minimum, own[g].minimum);
    }
    set(largest_scale / kMost, largest_minimum / kMost);
    for (int g = 0; g < kGroups; ++g) {
      s[g] = multiple(own[g].scale * inverse_of(d));
      m[g] = multiple(own[g].minimum * inverse_of(dmin));
    }
    AffineGroups best = *this;
    float best_error = std::numeric_limits<float>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      float error = 0;
      for (int g = 0; g < kGroups; ++g) error += choose(x + g * kSize, w + g * kSize, g);
      if (!(error < best_error)) break;
      best = *this;
      best_error = error;
      if (!refit(x, w)) break;
    }
    *this = best;
  }

 private:
  static uint8_t multiple(float ratio) { return static_cast<uint8_t>(std::min(std::max(whole(ratio), 0.0f), float(kMost))); }
  void set(float scale, float minimum) {
    d = as_f16(scale);
    dmin = as_f16(minimum);
  }

  // The best of the neighboring multiples of group g, and its q. Returns the error.
  float choose(const float* x, const float* w, int g) {
    float scale[kTries], minimum[kTries], inverse[kTries], error[kTries] = {};
    uint8_t ss[kTries], ms[kTries];
    for (int t = 0; t < kTries; ++t) {  // scales -1..1 by minima -1..1, then scales two off and minima two off
      static constexpr int8_t kScale[kTries] = {0, -1, 1, 0, 0, -1, -1, 1, 1, 2, -2, 0, 0, 2, -2, 2},
                              kMinimum[kTries] = {0, 0, 0, -1, 1, -1, 1, -1, 1, 0, 0, 2, -2, 1, -1, 2};
      ss[t] = static_cast<uint8_t>(std::clamp(s[g] + kScale[t], 0, kMost));
      ms[t] = static_cast<uint8_t>(std::clamp(m[g] + kMinimum[t], 0, kMost));
      scale[t] = d * float(ss[t]);
      minimum[t] = dmin * float(ms[t]);
      inverse[t] = inverse_of(scale[t]);
    }
    for (int i = 0; i < kSize; ++i)
      for (int t = 0; t < kTries; ++t) {
        const float level = std::min(std::max(whole((x[i] + minimum[t]) * inverse[t]), 0.0f), float(kTop));
        const float off = scale[t] * level - minimum[t] - x[i];
        error[t] += w[i] * off * off;
      }
    int best = 0;
    for (int t = 1; t < kTries; ++t)
      if (error[t] < error[best]) best = t;
    s[g] = ss[best];
    m[g] = ms[best];
    for (int i = 0; i < kSize; ++i)
      q[g * kSize + i] =
          static_cast<uint8_t>(std::min(std::max(whole((x[i] + minimum[best]) * inverse[best]), 0.0f), float(kTop)));
    return error[best];
  }

  // d and dmin that fit the chosen integers best.
  bool refit(const float* x, const float* w) {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < 256; ++i) {
      const double a = double(s[i / kSize]) * q[i], b = -double(m[i / kSize]), weight = w[i];
      aa += weight * a * a;
      ab += weight * a * b;
      bb += weight * b * b;
      ax += weight * a * double(x[i]);
      bx += weight * b * double(x[i]);
    }
    const double determinant = aa * bb - ab * ab;
    if (determinant > 1e-9 * aa * bb) {
      const double scale = (ax * bb - bx * ab) / determinant, minimum = (bx * aa - ax * ab) / determinant;
      if (!(scale > 0) || !(minimum >= 0)) return false;
      set(float(scale), float(minimum));
      return true;
    }
    if (!(aa > 0) || !(ax > 0) || bb > 0) return false;
    set(float(ax / aa), 0);
    return true;
  }
};

/// y = (d s) v: v one of Levels, s a whole number in kLeast..kMost for each of 256 / kSize groups.
template <int kSize, class Levels, int kLeast, int kMost>
struct ScaledGroups {
  static constexpr int kGroups = 256 / kSize, kRounds = 3;
  float d = 0;  // an f16 number
  int s[kGroups] = {};
  float v[256] = {};

  ScaledGroups(const float* x, const float* w) {
    float own[kGroups];
    for (int g = 0; g < kGroups; ++g) own[g] = best_scale<Levels>(x + g * kSize, w + g * kSize, kSize);
    d = as_f16(extreme_of(own, kGroups) / kLeast);
    for (int g = 0; g < kGroups; ++g) s[g] = clamp(int(whole(own[g] * inverse_of(d))));
    ScaledGroups best = *this;
    float best_error = std::numeric_limits<float>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      float error = 0;
      for (int g = 0; g < kGroups; ++g) error += choose(x + g * kSize, w + g * kSize, g);
      if (!(error < best_error)) break;
      best = *this;
      best_error = error;
      double aa = 0, ax = 0;
      for (int i = 0; i < 256; ++i) {
        const double a = double(s[i / kSize]) * double(v[i]);
        aa += double(w[i]) * a * a;
        ax += double(w[i]) * a * double(x[i]);
      }
      if (!(aa > 0)) break;
      d = as_f16(float(ax / aa));
    }
    *this = best;
  }

 private:
  static constexpr int kNear = 8;
  static int clamp(int multiple) { return std::clamp(multiple, kLeast, kMost); }

  float choose(const float* x, const float* w, int g) {
    float scale[kNear], inverse[kNear], error[kNear] = {};
    int ss[kNear];
    for (int t = 0; t < kNear; ++t) {
      static constexpr int8_t kOff[kNear] = {0, -1, 1, -2, 2, -3, 3, 4};
      ss[t] = clamp(s[g] + kOff[t]);
      scale[t] = d * float(ss[t]);
      inverse[t] = inverse_of(scale[t]);
    }
    for (int i = 0; i < kSize; ++i)
      for (int t = 0; t < kNear; ++t) {
        const float off = scale[t] * Levels::nearest(x[i] * inverse[t]) - x[i];
        error[t] += w[i] * off * off;
      }
    int best = 0;
    for (int t = 1; t < kNear; ++t)
      if (error[t] < error[best]) best = t;
    s[g] = ss[best];
    for (int i = 0; i < kSize; ++i) v[g * kSize + i] = Levels::nearest(x[i] * inverse[best]);
    return error[best];
  }
};

}  // namespace vitrine
