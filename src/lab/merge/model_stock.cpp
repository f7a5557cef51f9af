// Model Stock (arXiv:2403.19522): how far from the base towards the mean of the models, from the angles between their changes.
#include <algorithm>
#include <cmath>

#include "merge/methods.h"
#include "merge/numbers.h"

namespace vitrine {
namespace {

// The place between the base (0) and the mean (1), from the products of the changes.
double stock_place(const Gram& g) {
  double sum = 0;
  for (size_t i = 0; i < g.n; ++i)
    for (size_t j = i + 1; j < g.n; ++j) sum += std::clamp(g(i, j) / std::max(g.norm(i) * g.norm(j), 1e-6), -1.0, 1.0);
  const auto n = static_cast<double>(g.n);
  const double cosine = sum / (n * (n - 1) / 2), denominator = 1 + (n - 1) * cosine;
  return std::abs(denominator) < 1e-6 ? 0 : n * cosine / denominator;  // opposing changes have no estimate: the base stays
}

}  // namespace

void merge_model_stock(TensorInputs& in, const MethodParameters& p) {
  const std::vector<size_t> others = in.others();
  const auto each = 1.0 / static_cast<double>(others.size());
  if (!p.flag("filter_wise")) {
    const double t = stock_place(gram(in, others, in.base));
    return write_combination(in, others, std::vector<double>(others.size(), t * each), in.base);
  }
  in.write(
      [&](const Piece& piece) {
        const auto width = static_cast<size_t>(in.width);
        const float* const b = piece.x[static_cast<size_t>(in.base)];
        Gram g;
        g.n = others.size();
        for (size_t row = 0; row < piece.size; row += width) {
          g.products.assign(g.n * g.n, 0.0);
          for (size_t i = 0; i < g.n; ++i)
            for (size_t j = i; j < g.n; ++j) {
              const float *const x = piece.x[others[i]], *const y = piece.x[others[j]];
              double sum = 0;
              for (size_t e = row; e < row + width; ++e)
                sum += static_cast<double>(x[e] - b[e]) * static_cast<double>(y[e] - b[e]);
              g.products[i * g.n + j] = g.products[j * g.n + i] = sum;
            }
          const auto t = static_cast<float>(stock_place(g) * each);
          for (size_t e = row; e < row + width; ++e) {
            float sum = 0;
            for (const size_t i : others) sum += piece.x[i][e] - b[e];
            piece.out[e] = b[e] + t * sum;
          }
        }
      },
      true);
}

}  // namespace vitrine
