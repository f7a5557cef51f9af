#pragma once
// Random numbers of toys: the same for every model, on every machine.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace vitrine {

/// n normal numbers of mean 0 and standard deviation 1.
inline std::vector<double> normals(uint64_t seed, size_t n) {
  std::vector<double> values;
  for (uint64_t block = 0; values.size() < n; ++block)
    for (const double x : normals_from(philox(seed, block, 0))) values.push_back(x);
  values.resize(n);
  return values;
}

}  // namespace vitrine
