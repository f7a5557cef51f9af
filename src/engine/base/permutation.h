#pragma once
// A shuffle of 0 … n-1 that is computed, not stored: any place of it is known at once, whatever n is.
#include <bit>
#include <cstdint>

#include "base/philox.h"

namespace vitrine {

/// A bijection of [0, n) onto itself, drawn by `key`. Two halves of the bits are mixed into each other in turn, which any
/// function may do and which can be undone (Luby and Rackoff 1988); a result of n or more is mixed again until it is below
/// n ("cycle walking", Black and Rogaway 2002), fewer than two times on the average.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key) : n_(n), key_(key) {
    const int bits = n < 3 ? 2 : std::bit_width(n - 1);
    low_bits_ = bits / 2;
    low_mask_ = (uint64_t{1} << low_bits_) - 1;
    high_mask_ = (uint64_t{1} << (bits - low_bits_)) - 1;
  }

  uint64_t operator()(uint64_t i) const {
    do i = mixed(i);
    while (i >= n_);
    return i;
  }

 private:
  uint64_t mixed(uint64_t i) const {
    uint64_t low = i & low_mask_, high = i >> low_bits_;
    for (uint64_t round = 0; round < 6; round += 2) {
      high ^= noise(low, round) & high_mask_;
      low ^= noise(high, round + 1) & low_mask_;
    }
    return high << low_bits_ | low;
  }
  uint64_t noise(uint64_t x, uint64_t round) const {
    const auto words = philox(key_, x, round);
    return uint64_t{words[0]} << 32 | words[1];
  }

  uint64_t n_, key_, low_mask_, high_mask_;
  int low_bits_;
};

}  // namespace vitrine
