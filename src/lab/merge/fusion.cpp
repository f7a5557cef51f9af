// Methods that take single elements of the other model: NearSwap, Arcee Fusion, reinforced agent merging.
#include <algorithm>
#include <cmath>

#include "merge/methods.h"
#include "merge/selection.h"

namespace vitrine {
namespace {

// |x - b| of a row's elements times the divergence of the rows' softmaxes, KL(softmax x | softmax b).
void importance(const TensorInputs& in, const Piece& piece, size_t other, float* to) {
  constexpr double kLeast = 1e-8;
  const auto width = static_cast<size_t>(in.width);
  const float *const x = piece.x[other], *const b = piece.x[static_cast<size_t>(in.base)];
  for (size_t row = 0; row < piece.size; row += width) {
    const auto log_total = [&](const float* v) {
      const double largest = static_cast<double>(*std::max_element(v + row, v + row + width));
      double sum = 0;
      for (size_t e = row; e < row + width; ++e) sum += std::exp(static_cast<double>(v[e]) - largest);
      return largest + std::log(sum);
    };
    const double total_x = log_total(x), total_b = log_total(b);
    double divergence = 0;
    for (size_t e = row; e < row + width; ++e) {
      const double px = std::exp(static_cast<double>(x[e]) - total_x) + kLeast;
      const double pb = std::exp(static_cast<double>(b[e]) - total_b) + kLeast;
      divergence += px * std::log(px / pb);
    }
    for (size_t e = row; e < row + width; ++e) to[e] = std::abs(x[e] - b[e]) * static_cast<float>(divergence);
  }
}

void merge_agents(TensorInputs& in, const std::vector<float>& unique_factor, float epsilon) {
  const std::vector<size_t> others = in.others();
  in.write([&](const Piece& piece) {
    const float* const b = piece.x[static_cast<size_t>(in.base)];
    for (size_t e = 0; e < piece.size; ++e) {
      int changed = 0;
      size_t last = 0;
      float sum = 0;
      for (size_t k = 0; k < others.size(); ++k) {
        const float d = piece.x[others[k]][e] - b[e];
        if (!(std::abs(d) > epsilon)) continue;
        ++changed;
        last = k;
        sum += d;
      }
      if (changed == 1) sum *= unique_factor[last];
      if (changed > 1) sum /= static_cast<float>(changed);
      piece.out[e] = b[e] + sum;
    }
  });
}

}  // namespace

void merge_nearswap(TensorInputs& in, const MethodParameters& p) {
  const size_t other = in.others().front();
  const auto t = static_cast<float>(p.number("t"));
  in.write([&](const Piece& piece) {
    const float *const b = piece.x[static_cast<size_t>(in.base)], *const x = piece.x[other];
    for (size_t e = 0; e < piece.size; ++e) {
      const float weight = std::clamp(t / std::max(std::abs(b[e] - x[e]), 1e-6f), 0.0f, 1.0f);
      piece.out[e] = weight * x[e] + (1 - weight) * b[e];
    }
  });
}

// Takes the other model's element where its importance is at least median + 1.5 times the distance between the quartiles.
void merge_arcee_fusion(TensorInputs& in, const MethodParameters&) {
  const size_t other = in.others().front();
  const auto last = static_cast<float>(in.elements() - 1);
  std::vector<RankRequest> requests;
  for (const float quantile : {0.25f, 0.5f, 0.75f}) requests.push_back({0, static_cast<int64_t>(quantile * last)});
  const auto found = scores_at(in, requests, true, [&](const Piece& piece, size_t, uint32_t* keys, float* spare) {
    importance(in, piece, other, spare);
    for (size_t e = 0; e < piece.size; ++e) keys[e] = order_key(spare[e]);
  });
  const float first = from_order_key(found[0].key), median = from_order_key(found[1].key), third = from_order_key(found[2].key);
  const float threshold = median + 1.5f * (third - first);
  in.write(
      [&](const Piece& piece) {
        const float *const b = piece.x[static_cast<size_t>(in.base)], *const x = piece.x[other];
        float* const scores = piece.scratch(piece.size);
        importance(in, piece, other, scores);
        for (size_t e = 0; e < piece.size; ++e) piece.out[e] = scores[e] >= threshold ? x[e] : b[e];
      },
      true);
}

void merge_ram(TensorInputs& in, const MethodParameters& p) {
  merge_agents(in, std::vector<float>(in.count, 1.0f), static_cast<float>(p.number("epsilon")));
}

void merge_ramplus_tl(TensorInputs& in, const MethodParameters& p) {
  const std::vector<size_t> others = in.others();
  const auto epsilon = static_cast<float>(p.number("epsilon"));
  // Of each model: how many of its changed elements others change too, and how many it alone changes.
  const std::vector<double> counts = in.sum(2 * others.size(), [&](const Piece& piece) {
    const float* const b = piece.x[static_cast<size_t>(in.base)];
    for (size_t e = 0; e < piece.size; ++e) {
      int changed = 0;
      for (const size_t i : others) changed += std::abs(piece.x[i][e] - b[e]) > epsilon;
      if (changed == 0) continue;
      for (size_t k = 0; k < others.size(); ++k)
        if (std::abs(piece.x[others[k]][e] - b[e]) > epsilon) ++piece.sums[2 * k + (changed == 1 ? 1 : 0)];
    }
  });
  std::vector<float> factor;
  for (size_t k = 0; k < others.size(); ++k) {
    const double ratio = counts[2 * k] / std::max(counts[2 * k + 1], p.number("epsilon"));
    factor.push_back(static_cast<float>(1 + p.number("r") * std::min(std::max(ratio, 0.0), p.number("alpha"))));
  }
  merge_agents(in, factor, epsilon);
}

}  // namespace vitrine
