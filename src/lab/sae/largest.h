#pragma once
// The k largest of many numbers, without sorting them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace vitrine {

/// Finds the k largest of rows of n numbers; one for each thread. Of equal numbers at the border the first are taken.
class Largest {
 public:
  /// Their places in x, ascending: min(k, n) of them, valid until the next call. NaN is not to be among x.
  const std::vector<int32_t>& of(const float* x, size_t n, size_t k) {
    places_.clear();
    if (k >= n) {
      for (size_t i = 0; i < n; ++i) places_.push_back(static_cast<int32_t>(i));
      return places_;
    }
    if (k == 0) return places_;
    const float border = at_most_kth(x, n, k);
    for (size_t group = 0; group < groups_; ++group) {
      if (largest_[group] < border) continue;
      const size_t end = std::min(n, (group + 1) * kGroup);
      for (size_t i = group * kGroup; i < end; ++i)
        if (x[i] >= border) places_.push_back(static_cast<int32_t>(i));
    }
    if (places_.size() == k) return places_;
    const auto before = [x](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; };
    std::nth_element(places_.begin(), places_.begin() + static_cast<ptrdiff_t>(k) - 1, places_.end(), before);
    places_.resize(k);
    std::sort(places_.begin(), places_.end());
    return places_;
  }

 private:
  static constexpr size_t kGroup = 16;

  // A number that k of x or more reach, and few more than that: the k-th largest of the groups' largest.
  float at_most_kth(const float* x, size_t n, size_t k) {
    groups_ = (n + kGroup - 1) / kGroup;
    largest_.resize(groups_);
    for (size_t group = 0; group + 1 < groups_; ++group) {
      const float* g = x + group * kGroup;
      float most = g[0];
      for (size_t i = 1; i < kGroup; ++i) most = g[i] > most ? g[i] : most;
      largest_[group] = most;
    }
    largest_[groups_ - 1] = *std::max_element(x + (groups_ - 1) * kGroup, x + n);
    if (groups_ < k) return *std::min_element(x, x + n);  // rare: nearly all are wanted
    sorted_ = largest_;
    std::nth_element(sorted_.begin(), sorted_.begin() + static_cast<ptrdiff_t>(k) - 1, sorted_.end(), std::greater<>());
    return sorted_[k - 1];
  }

  size_t groups_ = 0;
  std::vector<float> largest_, sorted_;  // of each group
  std::vector<int32_t> places_;
};

}  // namespace vitrine
