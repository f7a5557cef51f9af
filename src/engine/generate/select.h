#pragma once
// Selection without sorting, with the same answer on every run: the k-th largest, and where, in ascending order, a running sum of
// masses crosses a limit. Top-p and typical-p are this question with different keys and masses. A radix walk from the highest
// bits down: two passes over the data, whatever it holds, and two over what shares the highest bits with the answer.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/row_math.h"

namespace vitrine {

/// An unsigned number that orders as the float does; -0 and +0 are one key. NaN has no place.
inline uint32_t ordered_key(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

struct Crossing {
  bool found = false;  // false: the sum of all never crosses
  uint32_t key = 0;    // of the element that crosses
  size_t index = 0;    // that element
};

/// The first element, in ascending order of keys[i] and by index among equal keys, at which crosses(sum of mass(i) up to and
/// with it) holds. `crosses` must stay true once it is. Sums are kept in double; of each bucket four, for additions in turn do
/// not wait for one another. `members` is scratch.
template <class Mass, class Crosses>
Crossing first_crossing(std::span<const float> keys, Mass mass, Crosses crosses, std::vector<uint32_t>& members) {
  constexpr std::array<int, 3> kShift = {21, 10, 0}, kBits = {11, 11, 10};
  constexpr size_t kSums = 4;
  double before = 0;
  uint32_t prefix = 0;  // the bits above kShift[pass] + kBits[pass] that lead to the element
  for (size_t pass = 0; pass < 3; ++pass) {
    const int shift = kShift[pass];
    const uint32_t mask = (1u << kBits[pass]) - 1;
    std::array<std::array<double, 2048>, kSums> sums{};
    std::array<bool, 2048> used{};
    const auto add = [&](size_t turn, size_t i) {
      const uint32_t b = (ordered_key(keys[i]) >> shift) & mask;
      sums[turn % kSums][b] += mass(i);
      used[b] = true;
    };
    if (pass == 0) {
      for (size_t i = 0; i < keys.size(); ++i) add(i, i);
    } else {  // those that the passes before led to
      for (size_t m = 0; m < members.size(); ++m) add(m, members[m]);
    }
    const auto sum_of = [&](uint32_t b) { return (sums[0][b] + sums[1][b]) + (sums[2][b] + sums[3][b]); };
    uint32_t b = 0, last = 0;
    bool crossed = false;
    for (; b <= mask; ++b) {
      if (!used[b]) continue;
      if (crosses(before + sum_of(b))) {
        crossed = true;
        break;
      }
      before += sum_of(b);
      last = b;
    }
    if (!crossed) {
      // In the first pass nothing crosses at all. Later the bucket above did, and only the order of additions differs: the
      // last element it holds is the one.
      if (pass == 0) return {};
      before -= sum_of(last);
      b = last;
    }
    prefix = (prefix << kBits[pass]) | b;
    // By rising index, as the sums among equal keys go. Written always and kept where it belongs: no branch to guess.
    size_t kept = 0;
    if (pass == 0) {
      members.resize(keys.size());
      for (size_t i = 0; i < keys.size(); ++i) {
        members[kept] = static_cast<uint32_t>(i);
        kept += (ordered_key(keys[i]) >> shift) == prefix;
      }
    } else {
      for (const uint32_t i : members) {
        members[kept] = i;
        kept += (ordered_key(keys[i]) >> shift) == prefix;
      }
    }
    members.resize(kept);
  }
  Crossing crossing{.found = true, .key = prefix};
  for (const uint32_t i : members) {
    crossing.index = i;
    if (crosses(before += mass(i))) break;
  }
  return crossing;
}

/// The k-th largest of a row without NaN, 1 <= k <= its size. If k blocks have a largest value of at least L, k elements do: only
/// what reaches the k-th largest of these values is looked at. `work` is scratch.
inline float kth_largest(std::span<const float> row, size_t k, std::vector<float>& work) {
  constexpr size_t kStretch = 64;
  const auto block = [&](size_t begin) { return row.subspan(begin, std::min(kStretch, row.size() - begin)); };
  const auto kth = [&] {
    const auto at = work.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(work.begin(), at, work.end(), std::greater<>());
    return *at;
  };
  float least = -INFINITY;
  if ((row.size() + kStretch - 1) / kStretch >= k) {
    work.clear();
    for (size_t begin = 0; begin < row.size(); begin += kStretch) work.push_back(largest(block(begin)));
    least = kth();
  }
  work.clear();
  for (size_t begin = 0; begin < row.size(); begin += kStretch)
    if (largest(block(begin)) >= least)
      for (const float x : block(begin))
        if (x >= least) work.push_back(x);
  return kth();
}

}  // namespace vitrine
