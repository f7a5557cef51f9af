// Sums of pruned task vectors: task arithmetic, TIES, DARE, DELLA, model breadcrumbs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "merge/methods.h"
#include "merge/selection.h"

namespace vitrine {
namespace {

// Writes |x - base| of a piece as order keys, and the differences behind them.
void magnitude_keys(const TensorInputs& in, const Piece& piece, size_t input, uint32_t* keys) {
  const float *const x = piece.x[input], *const b = piece.x[static_cast<size_t>(in.base)];
  for (size_t e = 0; e < piece.size; ++e) keys[e] = std::bit_cast<uint32_t>(std::abs(x[e] - b[e])) | 0x80000000u;
}

// What of each task vector is kept.
class Pruning {
 public:
  Pruning(TensorInputs& in, const MethodParameters& p) : in_(in), others_(in.others()) {
    for (const size_t i : others_) density_.push_back(p.each("density")[i]);
  }
  virtual ~Pruning() = default;

  virtual bool whole_rows() const { return false; }
  /// Makes zeros of what is not kept of d = x - base, of the k-th of the others. `spare`: room for as many numbers.
  virtual void prune(const Piece& piece, size_t k, float* d, uint32_t* spare) const = 0;
  /// Whether it changes nothing.
  virtual bool keeps_all(size_t k) const { return density_[k] >= 1; }

 protected:
  TensorInputs& in_;
  std::vector<size_t> others_;
  std::vector<double> density_;
};

class NoPruning final : public Pruning {
 public:
  using Pruning::Pruning;
  bool keeps_all(size_t) const override { return true; }
  void prune(const Piece&, size_t, float*, uint32_t*) const override {}
};

// By rank of the magnitude in the whole tensor.
class RankPruning final : public Pruning {
 public:
  // gamma null: the largest are kept; else a share gamma of them is dropped before.
  RankPruning(TensorInputs& in, const MethodParameters& p, const std::vector<double>* gamma) : Pruning(in, p) {
    const int64_t n = in.elements();
    std::vector<RankRequest> requests;
    std::vector<std::pair<int64_t, int64_t>> windows;
    for (size_t k = 0; k < others_.size(); ++k) {
      windows.push_back(window(n, density_[k], gamma == nullptr ? nullptr : &(*gamma)[others_[k]]));
      const auto asked = Selection::requests(others_[k], windows.back().first, windows.back().second, n);
      requests.insert(requests.end(), asked.begin(), asked.end());
    }
    const auto scores = [this](const Piece& piece, size_t input, uint32_t* keys, float*) {
      magnitude_keys(in_, piece, input, keys);
    };
    const std::vector<RankedScore> answers =
        requests.empty() ? std::vector<RankedScore>{} : scores_at(in, requests, false, scores);
    const RankedScore* answer = answers.data();
    for (const auto& [low, high] : windows) {
      selections_.emplace_back(low, high, n, answer, gamma == nullptr);
      if (!selections_.back().all && !selections_.back().none) answer += 2;
    }
    std::vector<std::pair<size_t, Selection*>> by_input;
    for (size_t k = 0; k < others_.size(); ++k) by_input.emplace_back(others_[k], &selections_[k]);
    Selection::count_equal(in, by_input, false, scores);
  }
  bool keeps_all(size_t k) const override { return selections_[k].all; }
  void prune(const Piece& piece, size_t k, float* d, uint32_t* spare) const override {
    for (size_t e = 0; e < piece.size; ++e) spare[e] = std::bit_cast<uint32_t>(d[e]) | 0x80000000u;  // as magnitude_keys
    selections_[k].prune(piece, spare, d);
  }

 private:
  static std::pair<int64_t, int64_t> window(int64_t n, double density, const double* gamma) {
    if (density >= 1) return {0, n};
    const auto share = [&](double of) {
      return static_cast<int64_t>(std::clamp(of * static_cast<double>(n), 0.0, static_cast<double>(n)));
    };
    if (gamma == nullptr) return density <= 0 ? std::pair(n, n) : std::pair(n - std::max<int64_t>(1, share(density)), n);
    const int64_t kept = share(density), low = std::max<int64_t>(0, n - kept - share(*gamma));
    return {low, std::min(n, low + kept)};
  }
  std::vector<Selection> selections_;
};

// Uniform numbers of neighboring elements, from a counter: the same whatever was asked before.
class Uniform {
 public:
  Uniform(uint64_t seed, size_t input) : seed_(seed), input_(input) {}
  float at(int64_t element) {
    const auto block = static_cast<uint64_t>(element) / 4;
    if (block != block_) {
      words_ = philox(seed_, block, input_);
      block_ = block;
    }
    return uniform_from(words_[static_cast<size_t>(element % 4)]);
  }

 private:
  uint64_t seed_, input_, block_ = ~uint64_t{0};
  std::array<uint32_t, 4> words_{};
};

class RandomPruning final : public Pruning {
 public:
  RandomPruning(TensorInputs& in, const MethodParameters& p) : Pruning(in, p) {
    for (const double density : density_)
      if (density < 0)
        throw UsageError(in.name + ": a density is " + std::to_string(density) + "; expected 0 or more, the chance to be kept");
  }
  void prune(const Piece& piece, size_t k, float* d, uint32_t*) const override {
    Uniform uniform(in_.seed, k);
    const auto chance = static_cast<float>(density_[k]);
    for (size_t e = 0; e < piece.size; ++e)
      if (uniform.at(piece.first + static_cast<int64_t>(e)) >= chance) d[e] = 0;
  }
};

// At random, the likelier the larger the magnitude is in its row.
class RowRankPruning final : public Pruning {
 public:
  RowRankPruning(TensorInputs& in, const MethodParameters& p) : Pruning(in, p) {
    for (size_t k = 0; k < others_.size(); ++k) {
      epsilon_.push_back(p.each("epsilon")[others_[k]]);
      const double density = density_[k], epsilon = epsilon_[k], reach = std::abs(epsilon);
      if (density > 0 && density < 1 && (density + reach >= 1 || density - reach <= 0))
        throw UsageError(in.name + ": density " + std::to_string(density) + " with epsilon " + std::to_string(epsilon) +
                         "; expected density - epsilon and density + epsilon between 0 and 1, as they are chances to be kept");
    }
  }
  bool whole_rows() const override { return true; }
  void prune(const Piece& piece, size_t k, float* d, uint32_t* spare) const override {
    if (density_[k] <= 0) {
      std::fill(d, d + piece.size, 0.0f);
      return;
    }
    const auto width = static_cast<size_t>(in_.width);
    Uniform uniform(in_.seed, k);
    const double low = density_[k] - epsilon_[k];
    for (size_t row = 0; row < piece.size; row += width) {
      uint32_t* const order = spare;
      for (size_t i = 0; i < width; ++i) order[i] = static_cast<uint32_t>(i);
      const float* const values = d + row;
      std::sort(order, order + width, [&](uint32_t a, uint32_t b) {
        const uint32_t x = order_key(std::abs(values[a])), y = order_key(std::abs(values[b]));  // NaN has its place, too
        return x != y ? x < y : a < b;
      });
      for (size_t rank = 0; rank < width; ++rank) {
        const double place = width == 1 ? 0.5 : static_cast<double>(rank) / static_cast<double>(width - 1);
        const size_t e = row + order[rank];
        if (uniform.at(piece.first + static_cast<int64_t>(e)) >= static_cast<float>(low + place * 2 * epsilon_[k])) d[e] = 0;
      }
    }
  }

 private:
  std::vector<double> epsilon_;
};

void difference(const TensorInputs& in, const Piece& piece, size_t input, float* d) {
  const float *const x = piece.x[input], *const b = piece.x[static_cast<size_t>(in.base)];
  for (size_t e = 0; e < piece.size; ++e) d[e] = x[e] - b[e];
}

// What each pruned task vector is multiplied by to have the L1 norm of the whole one.
std::vector<double> rescaling(TensorInputs& in, const std::vector<size_t>& others, const Pruning& pruning) {
  std::vector<double> factors(others.size(), 1.0);
  bool any = false;
  for (size_t k = 0; k < others.size(); ++k) any = any || !pruning.keeps_all(k);
  if (!any) return factors;
  const std::vector<double> sums = in.sum(
      2 * others.size(),
      [&](const Piece& piece) {
        float* const d = piece.scratch(2 * piece.size);
        for (size_t k = 0; k < others.size(); ++k) {
          if (pruning.keeps_all(k)) continue;
          difference(in, piece, others[k], d);
          const auto l1 = [&] {
            double sum = 0;
            for (size_t e = 0; e < piece.size; ++e) sum += static_cast<double>(std::abs(d[e]));
            return sum;
          };
          piece.sums[2 * k] += l1();
          pruning.prune(piece, k, d, reinterpret_cast<uint32_t*>(d + piece.size));
          piece.sums[2 * k + 1] += l1();
        }
      },
      pruning.whole_rows());
  constexpr double kLeast = 1e-7;
  for (size_t k = 0; k < others.size(); ++k)
    if (sums[2 * k] >= kLeast && sums[2 * k + 1] >= kLeast) factors[k] = sums[2 * k] / sums[2 * k + 1];
  return factors;
}

// For the report: the share of the changed elements that pruning keeps.
void measure_pruning(TensorInputs& in, const std::vector<size_t>& others, const Pruning& pruning) {
  in.kept.assign(in.count, std::numeric_limits<double>::quiet_NaN());
  const std::vector<double> counts = in.sum(
      2 * others.size(),
      [&](const Piece& piece) {
        float* const d = piece.scratch(2 * piece.size);
        for (size_t k = 0; k < others.size(); ++k) {
          difference(in, piece, others[k], d);
          const auto changed = [&] {
            return static_cast<double>(std::count_if(d, d + piece.size, [](float x) { return x != 0; }));
          };
          piece.sums[2 * k] += changed();
          if (!pruning.keeps_all(k)) pruning.prune(piece, k, d, reinterpret_cast<uint32_t*>(d + piece.size));
          piece.sums[2 * k + 1] += changed();
        }
      },
      pruning.whole_rows());
  for (size_t k = 0; k < others.size(); ++k)
    if (counts[2 * k] > 0) in.kept[others[k]] = counts[2 * k + 1] / counts[2 * k];
}

void add_task_vectors(TensorInputs& in, const MethodParameters& p, const Pruning& pruning, bool vote) {
  const std::vector<size_t> others = in.others();
  if (in.measured) measure_pruning(in, others, pruning);
  const std::vector<double> scale = p.flag("rescale") ? rescaling(in, others, pruning) : std::vector<double>(others.size(), 1.0);
  std::vector<float> weight, factor;
  double total = 0;
  for (size_t k = 0; k < others.size(); ++k) {
    const double w = p.each("weight")[others[k]];
    total += w;
    weight.push_back(static_cast<float>(w));
    factor.push_back(static_cast<float>(w * scale[k]));
  }
  const bool normalize = p.flag("normalize");
  const auto lambda = static_cast<float>(p.number("lambda"));
  const float all =
      !normalize ? lambda : static_cast<float>(std::abs(total) < 1e-8 ? p.number("lambda") : p.number("lambda") / total);
  in.write(
      [&](const Piece& piece) {
        const size_t n = piece.size;
        const float* const b = piece.x[static_cast<size_t>(in.base)];
        float* const out = piece.out;
        float* const scratch = piece.scratch((others.size() + 1) * n);
        float* const changes = scratch + n;  // of every model, for the vote
        std::fill(out, out + n, 0.0f);
        for (size_t k = 0; k < others.size(); ++k) {
          float* const d = vote ? changes + k * n : changes;
          difference(in, piece, others[k], d);
          if (!pruning.keeps_all(k)) pruning.prune(piece, k, d, reinterpret_cast<uint32_t*>(scratch));
          for (size_t e = 0; e < n; ++e) {
            d[e] *= factor[k];
            out[e] += d[e];
          }
        }
        if (!vote) {
          for (size_t e = 0; e < n; ++e) out[e] = b[e] + all * out[e];
          return;
        }
        // Who agrees with the sign of the sum counts; a sum of zero counts as positive. Masks of bits: the compiler makes vectors
        // of them, where branches would be guessed wrong half of the time.
        float* const counted = scratch;
        std::fill(counted, counted + n, 0.0f);
        auto* const minority = reinterpret_cast<int32_t*>(out);  // the sign bits that do not count, in the place of the sums
        for (size_t e = 0; e < n; ++e) {
          const int32_t negative = out[e] < 0 ? -1 : 0;
          minority[e] = ~negative;
        }
        for (size_t k = 0; k < others.size(); ++k) {
          float* const d = changes + k * n;
          const auto w = std::bit_cast<int32_t>(weight[k]);
          for (size_t e = 0; e < n; ++e) {
            const auto bits = std::bit_cast<int32_t>(d[e]);
            const int32_t agrees = ((bits >> 31) ^ minority[e]) & -static_cast<int32_t>((bits & 0x7fffffff) != 0);
            d[e] = std::bit_cast<float>(bits & agrees);
            counted[e] += std::bit_cast<float>(w & agrees);
          }
        }
        for (size_t e = 0; e < n; ++e) {
          float sum = 0;
          for (size_t k = 0; k < others.size(); ++k) sum += changes[k * n + e];
          if (normalize) sum /= counted[e] + static_cast<float>(counted[e] == 0);
          out[e] = b[e] + lambda * sum;
        }
      },
      pruning.whole_rows());
}

}  // namespace

void merge_task_arithmetic(TensorInputs& in, const MethodParameters& p) { add_task_vectors(in, p, NoPruning(in, p), false); }
void merge_ties(TensorInputs& in, const MethodParameters& p) { add_task_vectors(in, p, RankPruning(in, p, nullptr), true); }
void merge_dare_linear(TensorInputs& in, const MethodParameters& p) { add_task_vectors(in, p, RandomPruning(in, p), false); }
void merge_dare_ties(TensorInputs& in, const MethodParameters& p) { add_task_vectors(in, p, RandomPruning(in, p), true); }
void merge_della(TensorInputs& in, const MethodParameters& p) { add_task_vectors(in, p, RowRankPruning(in, p), true); }
void merge_della_linear(TensorInputs& in, const MethodParameters& p) { add_task_vectors(in, p, RowRankPruning(in, p), false); }
void merge_breadcrumbs(TensorInputs& in, const MethodParameters& p) {
  add_task_vectors(in, p, RankPruning(in, p, &p.each("gamma")), false);
}
void merge_breadcrumbs_ties(TensorInputs& in, const MethodParameters& p) {
  add_task_vectors(in, p, RankPruning(in, p, &p.each("gamma")), true);
}

}  // namespace vitrine
