// SCE (arXiv:2408.07990): select the elements that vary most between the models, calculate the models' weights, erase signs of
// the minority.
#include <algorithm>
#include <cmath>
#include <memory>

#include "merge/methods.h"
#include "merge/selection.h"

namespace vitrine {
namespace {

// Of the changes of all models at one element, divided by their number.
float variance(const TensorInputs& in, const std::vector<size_t>& others, const Piece& piece, size_t e) {
  const float b = piece.x[static_cast<size_t>(in.base)][e];
  double mean = 0, sum = 0;
  for (const size_t i : others) mean += static_cast<double>(piece.x[i][e] - b);
  mean /= static_cast<double>(others.size());
  for (const size_t i : others) {
    const double off = static_cast<double>(piece.x[i][e] - b) - mean;
    sum += off * off;
  }
  return static_cast<float>(sum / static_cast<double>(others.size()));
}

}  // namespace

void merge_sce(TensorInputs& in, const MethodParameters& p) {
  const std::vector<size_t> others = in.others();
  const auto base = static_cast<size_t>(in.base);
  const double share = p.number("select_topk");
  const auto scores = [&](const Piece& piece, size_t, uint32_t* keys, float*) {
    for (size_t e = 0; e < piece.size; ++e) keys[e] = order_key(variance(in, others, piece, e));
  };
  std::unique_ptr<Selection> selection;  // null: all
  if (share < 1 && !others.empty()) {
    const int64_t n = in.elements();
    int64_t kept = 0;
    if (share > 0) {
      const std::vector<double> varying = in.sum(1, [&](const Piece& piece) {
        for (size_t e = 0; e < piece.size; ++e) piece.sums[0] += variance(in, others, piece, e) != 0;
      });
      kept = static_cast<int64_t>(varying[0] * share);
    }
    const auto requests = Selection::requests(0, n - kept, n, n);
    const auto answers = requests.empty() ? std::vector<RankedScore>{} : scores_at(in, requests, false, scores);
    selection = std::make_unique<Selection>(n - kept, n, n, answers.data(), true);
    Selection::count_equal(in, {{size_t{0}, selection.get()}}, false, scores);
  }
  // The piece's changes [others, size], zero where they are not selected.
  const auto changes = [&](const Piece& piece) {
    const size_t n = piece.size;
    float* const scratch = piece.scratch((others.size() + 1) * n);
    float* const d = scratch + n;
    for (size_t k = 0; k < others.size(); ++k)
      for (size_t e = 0; e < n; ++e) d[k * n + e] = piece.x[others[k]][e] - piece.x[base][e];
    if (selection == nullptr) return d;
    auto* const keys = reinterpret_cast<uint32_t*>(scratch);
    scores(piece, 0, keys, nullptr);
    for (size_t k = 0; k < others.size(); ++k) selection->prune(piece, keys, d + k * n);
    return d;
  };
  std::vector<double> weights = in.sum(others.size(), [&](const Piece& piece) {
    const float* const d = changes(piece);
    for (size_t k = 0; k < others.size(); ++k)
      for (size_t e = 0; e < piece.size; ++e)
        piece.sums[k] += static_cast<double>(d[k * piece.size + e]) * static_cast<double>(d[k * piece.size + e]);
  });
  double total = 0;
  for (double& w : weights) total += w /= static_cast<double>(in.elements());
  for (double& w : weights) w = std::abs(total) < 1e-6 ? 1.0 / static_cast<double>(others.size()) : w / total;
  in.write([&](const Piece& piece) {
    const size_t n = piece.size;
    const float* const d = changes(piece);
    for (size_t e = 0; e < n; ++e) {
      float sum = 0;
      for (size_t k = 0; k < others.size(); ++k) sum += d[k * n + e];
      double merged = 0, counted = 0;
      for (size_t k = 0; k < others.size(); ++k) {
        const float change = d[k * n + e];
        if (sum >= 0 ? change > 0 : change < 0) {
          merged += weights[k] * static_cast<double>(change);
          counted += weights[k];
        }
      }
      piece.out[e] = static_cast<float>(static_cast<double>(piece.x[base][e]) + merged / std::max(counted, 1e-6));
    }
  });
}

}  // namespace vitrine
