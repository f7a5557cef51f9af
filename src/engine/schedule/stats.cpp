#include "schedule/stats.h"

#include <algorithm>

namespace vitrine {

void Histogram::add(double value) {
  ++counts[static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())];
  ++count;
  sum += value;
}

}  // namespace vitrine
