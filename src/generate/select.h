#pragma once
// Selection without sorting: where, in ascending order, a running sum of masses crosses a limit. Top-k, top-p and typical-p
// are this question with different keys and masses. A radix walk from the highest bits down: three passes over the data
// whatever it holds, and the same answer on every run.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

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
/// with it) holds. `crosses` must stay true once it is. Sums are kept in double.
template <class Mass, class Crosses>
Crossing first_crossing(std::span<const float> keys, Mass mass, Crosses crosses) {
  constexpr std::array<int, 3> kShift = {21, 10, 0}, kBits = {11, 11, 10};
  double before = 0;
  uint32_t prefix = 0;  // the bits above kShift[pass] + kBits[pass] that lead to the element
  for (size_t pass = 0; pass < 3; ++pass) {
    const int shift = kShift[pass], above = shift + kBits[pass];
    const uint32_t mask = (1u << kBits[pass]) - 1;
    std::array<double, 2048> bucket{};
    std::array<bool, 2048> used{};
    for (size_t i = 0; i < keys.size(); ++i) {
      const uint32_t key = ordered_key(keys[i]);
      if (pass > 0 && (key >> above) != prefix) continue;
      bucket[(key >> shift) & mask] += mass(i);
      used[(key >> shift) & mask] = true;
    }
    uint32_t b = 0, last = 0;
    bool crossed = false;
    for (; b <= mask; ++b) {
      if (!used[b]) continue;
      if (crosses(before + bucket[b])) {
        crossed = true;
        break;
      }
      before += bucket[b];
      last = b;
    }
    if (!crossed) {
      // In the first pass nothing crosses at all. Later the bucket above did, and only the order of additions differs: the
      // last element it holds is the one.
      if (pass == 0) return {};
      before -= bucket[last];
      b = last;
    }
    prefix = (prefix << kBits[pass]) | b;
  }
  Crossing crossing{.found = true, .key = prefix};
  for (size_t i = 0; i < keys.size(); ++i) {
    if (ordered_key(keys[i]) != prefix) continue;
    crossing.index = i;
    if (crosses(before += mass(i))) break;
  }
  return crossing;
}

}  // namespace vitrine
