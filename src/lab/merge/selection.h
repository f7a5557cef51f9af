#pragma once
// Elements of a tensor by the rank of a score, without sorting it: two passes count the scores by their bits.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "merge/tensor_inputs.h"

namespace vitrine {

/// The order of floats as the order of unsigned numbers.
inline uint32_t order_key(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
inline float from_order_key(uint32_t key) { return std::bit_cast<float>((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key); }

/// The score at a rank (0: the smallest), and how many scores are smaller.
struct RankedScore {
  uint32_t key = 0;
  int64_t below = 0, equal = 0;
};

struct RankRequest {
  size_t score;  // which of several scores
  int64_t rank;  // in [0, elements)
};

/// Calls scores(piece, which, keys) to get order_key of each element of the piece, for `which` of several scores.
template <class Scores>
std::vector<RankedScore> scores_at(TensorInputs& in, const std::vector<RankRequest>& requests, bool whole_rows, Scores&& scores) {
  constexpr size_t kBins = 1 << 16;
  struct Count {
    size_t request;
    std::vector<std::vector<uint64_t>> bins;  // of each thread
  };
  const auto threads = static_cast<size_t>(in.threads());
  std::vector<RankedScore> found(requests.size());
  std::vector<int64_t> rest(requests.size());  // rank within what has the same upper half
  std::vector<size_t> kinds;                   // one request for each score
  for (size_t r = 0; r < requests.size(); ++r) {
    bool first = true;
    for (size_t k : kinds) first = first && requests[k].score != requests[r].score;
    if (first) kinds.push_back(r);
  }
  const auto keys_of = [&](const Piece& piece, size_t score) {
    auto* const keys = reinterpret_cast<uint32_t*>(piece.scratch(2 * piece.size));
    scores(piece, score, keys, reinterpret_cast<float*>(keys + piece.size));
    return keys;
  };
  std::vector<std::vector<std::vector<uint64_t>>> upper(kinds.size(), std::vector<std::vector<uint64_t>>(threads));
  in.read(
      [&](const Piece& piece) {
        for (size_t k = 0; k < kinds.size(); ++k) {
          std::vector<uint64_t>& bins = upper[k][static_cast<size_t>(piece.thread)];
          bins.resize(kBins);
          const uint32_t* const keys = keys_of(piece, requests[kinds[k]].score);
          for (size_t e = 0; e < piece.size; ++e) ++bins[keys[e] >> 16];
        }
      },
      whole_rows);
  // The bin that holds a rank; takes the elements before it off the rank.
  const auto find_bin = [&](const std::vector<std::vector<uint64_t>>& bins, int64_t& rank, int64_t& before) {
    for (size_t bin = 0; bin < kBins; ++bin) {
      uint64_t count = 0;
      for (const auto& own : bins) count += own.empty() ? 0 : own[bin];
      if (rank < static_cast<int64_t>(count)) return std::pair(static_cast<uint32_t>(bin), static_cast<int64_t>(count));
      rank -= static_cast<int64_t>(count);
      before += static_cast<int64_t>(count);
    }
    return std::pair(uint32_t{0}, int64_t{0});
  };
  for (size_t r = 0; r < requests.size(); ++r) {
    rest[r] = requests[r].rank;
    size_t k = 0;
    while (requests[kinds[k]].score != requests[r].score) ++k;
    found[r].key = find_bin(upper[k], rest[r], found[r].below).first << 16;
  }
  upper.clear();
  std::vector<std::vector<std::vector<uint64_t>>> lower(requests.size(), std::vector<std::vector<uint64_t>>(threads));
  in.read(
      [&](const Piece& piece) {
        for (const size_t kind : kinds) {
          const uint32_t* const keys = keys_of(piece, requests[kind].score);
          for (size_t r = 0; r < requests.size(); ++r) {
            if (requests[r].score != requests[kind].score) continue;
            std::vector<uint64_t>& bins = lower[r][static_cast<size_t>(piece.thread)];
            bins.resize(kBins);
            const uint32_t high = found[r].key >> 16;
            for (size_t e = 0; e < piece.size; ++e)
              if (keys[e] >> 16 == high) ++bins[keys[e] & 0xffffu];
          }
        }
      },
      whole_rows);
  for (size_t r = 0; r < requests.size(); ++r) {
    const auto [bin, count] = find_bin(lower[r], rest[r], found[r].below);
    found[r].key |= bin;
    found[r].equal = count;
  }
  return found;
}

/// The elements whose rank lies in [low, high). Among equal scores the earlier element has the smaller rank, or, if
/// `descending`, the larger.
class Selection {
 public:
  bool all = false, none = false;

  /// Makes zeros of the elements of a piece that are not kept; keys: of all of them.
  void prune(const Piece& piece, const uint32_t* keys, float* values) const {
    if (all) return;
    if (none) {
      std::fill(values, values + piece.size, 0.0f);
      return;
    }
    // Signed comparisons, which every instruction set has for vectors.
    const auto as_signed = [](uint32_t key) { return static_cast<int32_t>(key ^ 0x80000000u); };
    const int32_t low = as_signed(low_key_), high = as_signed(high_key_);
    for (size_t e = 0; e < piece.size; ++e) {
      const int32_t key = as_signed(keys[e]);
      const int32_t inside = static_cast<int32_t>(key >= low) & static_cast<int32_t>(key <= high);
      values[e] = std::bit_cast<float>(std::bit_cast<int32_t>(values[e]) & -inside);
    }
    if (!splits()) return;
    const auto before = [&](const std::vector<int64_t>& counts) { return counts[static_cast<size_t>(piece.index)]; };
    int64_t at_low = before(low_before_), at_high = before(high_before_);
    for (size_t e = 0; e < piece.size; ++e) {
      const bool is_low = keys[e] == low_key_, is_high = keys[e] == high_key_;
      if (!is_low && !is_high) continue;
      if (is_low && (at_low < low_from_ || at_low >= low_to_)) values[e] = 0;
      if (is_high && at_high >= high_to_) values[e] = 0;
      at_low += is_low;
      at_high += is_high;
    }
  }

  /// What scores_at must be asked for first. Empty if all or none are kept.
  static std::vector<RankRequest> requests(size_t score, int64_t low, int64_t high, int64_t elements) {
    if (low >= high || (low == 0 && high == elements)) return {};
    return {{score, low}, {score, high - 1}};
  }
  /// From the answers to these requests.
  Selection(int64_t low, int64_t high, int64_t elements, const RankedScore* answers, bool descending) {
    none = low >= high;
    all = !none && low == 0 && high == elements;
    if (none || all) return;
    const RankedScore &first = answers[0], &last = answers[1];
    low_key_ = first.key;
    high_key_ = last.key;
    const int64_t left_out = low - first.below;  // of those equal to the lowest
    low_from_ = descending ? 0 : left_out;
    low_to_ = descending ? first.equal - left_out : first.equal;
    high_to_ = high - last.below;
    splits_low_ = left_out > 0;
    splits_high_ = high_to_ < last.equal;
  }
  bool splits() const { return splits_low_ || splits_high_; }

  /// Where equal scores are kept in part: how many of them lie before each piece. One pass for all selections.
  template <class Scores>
  static void count_equal(TensorInputs& in, const std::vector<std::pair<size_t, Selection*>>& selections, bool whole_rows,
                          Scores&& scores) {
    bool any = false;
    const auto n = static_cast<size_t>(in.pieces(whole_rows));
    for (const auto& [score, selection] : selections) {
      any = any || selection->splits();
      if (!selection->splits()) continue;
      selection->low_before_.assign(n, 0);
      selection->high_before_.assign(n, 0);
    }
    if (!any) return;
    in.read(
        [&](const Piece& piece) {
          for (const auto& [score, selection] : selections) {
            if (!selection->splits()) continue;
            auto* const keys = reinterpret_cast<uint32_t*>(piece.scratch(2 * piece.size));
            scores(piece, score, keys, reinterpret_cast<float*>(keys + piece.size));
            int64_t low = 0, high = 0;
            for (size_t e = 0; e < piece.size; ++e) {
              low += keys[e] == selection->low_key_;
              high += keys[e] == selection->high_key_;
            }
            selection->low_before_[static_cast<size_t>(piece.index)] = low;
            selection->high_before_[static_cast<size_t>(piece.index)] = high;
          }
        },
        whole_rows);
    for (const auto& [score, selection] : selections)
      for (std::vector<int64_t>* counts : {&selection->low_before_, &selection->high_before_}) {
        int64_t before = 0;
        for (int64_t& count : *counts) before += std::exchange(count, before);
      }
  }

 private:
  uint32_t low_key_ = 0, high_key_ = 0xffffffffu;
  int64_t low_from_ = 0, low_to_ = INT64_MAX, high_to_ = INT64_MAX;
  bool splits_low_ = false, splits_high_ = false;
  std::vector<int64_t> low_before_, high_before_;
};

}  // namespace vitrine
