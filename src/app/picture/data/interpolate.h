#pragma once
// Points between two vectors, on the straight line and on the arc, as weights of the two.
#include <cmath>

namespace vitrine {

/// first · a + second · b for two vectors a and b.
struct Mix {
  double first = 1, second = 0;
  bool straight = true;  // on the straight line between a and b
};

/// (1 − t) a + t b.
inline Mix straight_mix(double t) { return {1 - t, t, true}; }

/// Beyond this |cosine| two vectors have no arc that rounding leaves alone, and mergekit's slerp goes straight.
constexpr double kStraightCosine = 0.9995;

/// SLERP as mergekit computes it: sin((1 − t) Ω) / sin Ω · a + sin(t Ω) / sin Ω · b, where Ω is the angle between a and b and
/// `cosine` its cosine. The angle is that of the directions, the mix is of the vectors with their lengths. Straight where the
/// two are nearly parallel or opposite. Shoemake 1985; mergekit 0.1.5, merge_methods/slerp.py.
inline Mix slerp_mix(double t, double cosine) {
  if (std::abs(cosine) > kStraightCosine) return straight_mix(t);
  const double angle = std::acos(cosine), sine = std::sin(angle);
  return {std::sin((1 - t) * angle) / sine, std::sin(t * angle) / sine, false};
}

/// The length of a mix of two vectors of these lengths.
inline double mixed_length(const Mix& mix, double a, double b, double cosine) {
  const double x = mix.first * a, y = mix.second * b;
  return std::sqrt(std::fmax(0, x * x + y * y + 2 * x * y * cosine));
}

}  // namespace vitrine
