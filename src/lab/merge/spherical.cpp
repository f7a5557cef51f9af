// Interpolation and means on the sphere. What a method needs of whole tensors is the Gram matrix of its inputs: every step lies
// in their span, so it is worked out in coefficients, exactly, and the tensors are read twice in all.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "merge/methods.h"
#include "merge/numbers.h"

namespace vitrine {
namespace {

// Factors of two vectors at place t, from their cosine; linear where `parallel`.
std::pair<double, double> slerp_factors(double cosine, double t, bool parallel) {
  if (parallel) return {1 - t, t};
  const double angle = std::acos(cosine), sine = std::sin(angle);
  return {std::sin((1 - t) * angle) / sine, std::sin(t * angle) / sine};
}

double cosine_of(double dot, double norm_a, double norm_b) { return std::clamp(dot / (norm_a * norm_b), -1.0, 1.0); }

// A combination of vectors with the given products, as coefficients.
struct Span {
  const Gram& g;
  double dot(const std::vector<double>& a, const std::vector<double>& b) const {
    double sum = 0;
    for (size_t i = 0; i < g.n; ++i)
      for (size_t j = 0; j < g.n; ++j) sum += a[i] * b[j] * g(i, j);
    return sum;
  }
  double norm(const std::vector<double>& a) const { return std::sqrt(std::max(0.0, dot(a, a))); }
  std::vector<double> unit(size_t i, double factor) const {
    std::vector<double> made(g.n, 0.0);
    made[i] = factor;
    return made;
  }
};

void add_scaled(std::vector<double>& to, const std::vector<double>& x, double factor) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += factor * x[i];
}

// nuslerp of rows, or of vectors along the first dimension.
void nuslerp_rows(TensorInputs& in, const std::vector<size_t>& pair, double t, bool along_first) {
  constexpr float kLeast = 1e-7f;  // of a norm
  const int base = in.base;
  const auto value = [&](const Piece& piece, size_t which, size_t e) {
    const float x = piece.x[pair[which]][e];
    return base < 0 ? x : x - piece.x[static_cast<size_t>(base)][e];
  };
  const auto factors_of = [&](double aa, double bb, double ab) {
    const double cosine =
        std::clamp(ab / (std::max<double>(std::sqrt(aa), kLeast) * std::max<double>(std::sqrt(bb), kLeast)), -1.0, 1.0);
    return slerp_factors(cosine, t, 1 - cosine * cosine <= 1e-16);
  };
  const auto put = [&](const Piece& piece, size_t e, const std::pair<double, double>& f) {
    const double made = f.first * static_cast<double>(value(piece, 0, e)) + f.second * static_cast<double>(value(piece, 1, e));
    piece.out[e] = static_cast<float>(made + (base < 0 ? 0.0 : static_cast<double>(piece.x[static_cast<size_t>(base)][e])));
  };
  if (!along_first || in.rows == 1) {
    in.write(
        [&](const Piece& piece) {
          const auto width = static_cast<size_t>(in.width);
          for (size_t row = 0; row < piece.size; row += width) {
            double aa = 0, bb = 0, ab = 0;
            for (size_t e = row; e < row + width; ++e) {
              const double a = static_cast<double>(value(piece, 0, e)), b = static_cast<double>(value(piece, 1, e));
              aa += a * a, bb += b * b, ab += a * b;
            }
            const auto factors = factors_of(aa, bb, ab);
            for (size_t e = row; e < row + width; ++e) put(piece, e, factors);
          }
        },
        true);
    return;
  }
  // Vector c: the elements c, c + n, c + 2 n, … of the tensor.
  const auto n = static_cast<size_t>(in.elements() / in.first_dim);
  const std::vector<double> sums = in.sum(3 * n, [&](const Piece& piece) {
    size_t c = static_cast<size_t>(piece.first) % n;
    for (size_t e = 0; e < piece.size; ++e, c = c + 1 == n ? 0 : c + 1) {
      const double a = static_cast<double>(value(piece, 0, e)), b = static_cast<double>(value(piece, 1, e));
      piece.sums[3 * c] += a * a, piece.sums[3 * c + 1] += b * b, piece.sums[3 * c + 2] += a * b;
    }
  });
  std::vector<std::pair<double, double>> factors(n);
  for (size_t c = 0; c < n; ++c) factors[c] = factors_of(sums[3 * c], sums[3 * c + 1], sums[3 * c + 2]);
  in.write([&](const Piece& piece) {
    size_t c = static_cast<size_t>(piece.first) % n;
    for (size_t e = 0; e < piece.size; ++e, c = c + 1 == n ? 0 : c + 1) put(piece, e, factors[c]);
  });
}

}  // namespace

// Wikipedia's formula; norms are not restored. Nearly parallel tensors (|cos| > 0.9995) are interpolated linearly.
void merge_slerp(TensorInputs& in, const MethodParameters& p) {
  const std::vector<size_t> pair = {static_cast<size_t>(in.base), in.others().front()};
  const Gram g = gram(in, pair, -1);
  constexpr double kLeast = 1e-8;  // of a norm: a vector of zeros has no direction
  const auto norm = [&](size_t i) { return g.norm(i) > kLeast ? g.norm(i) : 1.0; };
  const double cosine = cosine_of(g(0, 1), norm(0), norm(1));
  const auto [a, b] = slerp_factors(cosine, p.number("t"), std::abs(cosine) > 0.9995);
  write_combination(in, pair, {a, b}, -1);
}

void merge_nuslerp(TensorInputs& in, const MethodParameters& p) {
  const std::vector<size_t> pair = in.others();
  const std::vector<double>& weight = p.each("weight");
  const double total = weight[pair[0]] + weight[pair[1]];
  const double t = std::abs(total) < 1e-6 ? 0.5 : weight[pair[1]] / total;
  if (!p.flag("nuslerp_flatten")) return nuslerp_rows(in, pair, t, p.flag("nuslerp_row_wise"));
  const Gram g = gram(in, pair, in.base);
  constexpr double kLeast = 1e-7;
  const double cosine = cosine_of(g(0, 1), std::max(g.norm(0), kLeast), std::max(g.norm(1), kLeast));
  const auto [a, b] = slerp_factors(cosine, t, 1 - cosine * cosine <= 1e-16);
  write_combination(in, pair, {a, b}, in.base);
}

void merge_multislerp(TensorInputs& in, const MethodParameters& p) {
  const std::vector<size_t> of = in.others();
  if (of.size() == 1) return write_combination(in, of, {1.0}, -1);
  const double eps = p.number("eps");
  std::vector<double> weights;
  for (const size_t i : of) weights.push_back(p.each("weight")[i]);
  if (p.flag("normalize_weights")) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (total == 0) throw UsageError(in.name + ": the weights sum to 0 and cannot be normalized; change them");
    for (double& w : weights) w /= total;
  }
  const Gram g = gram(in, of, in.base);
  const Span span{g};
  std::vector<std::vector<double>> units;
  for (size_t i = 0; i < of.size(); ++i) units.push_back(span.unit(i, 1 / (g.norm(i) + eps)));
  std::vector<double> mean(of.size(), 0.0);
  for (size_t i = 0; i < of.size(); ++i) add_scaled(mean, units[i], weights[i]);
  const double length = span.norm(mean);
  if (length < eps) {
    if (of.size() == 2) return write_combination(in, of, weights, in.base);
    throw UsageError(in.name + ": the weighted directions of its models cancel each other out; change the weights");
  }
  for (double& m : mean) m /= length;
  std::vector<double> tangent(of.size(), 0.0);
  for (size_t i = 0; i < of.size(); ++i) {
    add_scaled(tangent, units[i], weights[i]);
    add_scaled(tangent, mean, -weights[i] * span.dot(units[i], mean));
  }
  const double angle = span.norm(tangent) + eps;
  std::vector<double> result(of.size(), 0.0);
  add_scaled(result, mean, std::cos(angle));
  add_scaled(result, tangent, std::sin(angle) / angle);
  double mean_norm = 0;
  for (size_t i = 0; i < of.size(); ++i) mean_norm += g.norm(i) * weights[i];
  for (double& r : result) r *= mean_norm;
  write_combination(in, of, result, in.base);
}

void merge_karcher(TensorInputs& in, const MethodParameters& p) {
  std::vector<size_t> all(in.count);
  std::iota(all.begin(), all.end(), size_t{0});
  if (all.size() == 1) return write_combination(in, all, {1.0}, -1);
  constexpr int kMostIterations = 1'000'000;
  const double most = p.number("max_iter");
  if (!(most >= 0 && most <= kMostIterations))
    throw UsageError(in.name + ": max_iter is " + std::to_string(most) + "; expected 0 to " + std::to_string(kMostIterations));
  const double tolerance = p.number("tol"), share = 1.0 / static_cast<double>(all.size());
  const Gram g = gram(in, all, -1);
  const Span span{g};
  std::vector<std::vector<double>> units;
  double scale = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    scale += share * g.norm(i);
    if (g.norm(i) > tolerance) units.push_back(span.unit(i, 1 / g.norm(i)));
  }
  std::vector<double> mean(all.size(), 0.0);
  if (units.empty()) return write_combination(in, all, mean, -1);
  const double each = 1.0 / static_cast<double>(units.size());
  for (const auto& unit : units) add_scaled(mean, unit, each);
  const auto normalize = [&](double least) {
    const double length = span.norm(mean);
    if (length > least)
      for (double& m : mean) m /= length;
    return length;
  };
  if (normalize(tolerance) < tolerance) mean = units.front();
  for (int iteration = 0; iteration < static_cast<int>(most); ++iteration) {
    std::vector<double> tangent(all.size(), 0.0);
    for (const auto& unit : units) {
      const double dot = std::clamp(span.dot(mean, unit), -1.0, 1.0), angle = std::acos(dot);
      if (angle < tolerance || angle == 0) continue;
      const double factor = each * angle / std::sin(angle);
      add_scaled(tangent, unit, factor);
      add_scaled(tangent, mean, -factor * dot);
    }
    const double length = span.norm(tangent);
    if (length < tolerance || length == 0) break;
    for (double& m : mean) m *= std::cos(length);
    add_scaled(mean, tangent, std::sin(length) / length);
    normalize(tolerance);
  }
  for (double& m : mean) m *= scale;
  write_combination(in, all, mean, -1);
}

// WARP's second stage (arXiv:2406.16768, equation 3): the task vectors' directions are interpolated on the sphere. More than two
// go one after the other, each new one with the weight that makes all count alike.
void merge_slerp_task_vectors(TensorInputs& in, const MethodParameters& p) {
  const std::vector<size_t> of = in.others();
  const Gram g = gram(in, of, in.base, p.flag("layer_wise"));
  const Span span{g};
  std::vector<double> result = span.unit(0, 1.0);
  for (size_t i = 1; i < of.size(); ++i) {
    const double t = of.size() == 2 ? p.number("t") : 1.0 / static_cast<double>(i + 1);
    const std::vector<double> next = span.unit(i, 1.0);
    const double norms = span.norm(result) * span.norm(next);
    const double cosine = norms > 0 ? std::clamp(span.dot(result, next) / norms, -1.0, 1.0) : 1.0;
    const auto [a, b] = slerp_factors(cosine, t, std::abs(cosine) > 0.9995);
    for (double& r : result) r *= a;
    add_scaled(result, next, b);
  }
  write_combination(in, of, result, in.base);
}

}  // namespace vitrine
