#include "base/nearest.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace vitrine {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a[0, i) to every beginning of b
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  size_t least = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    best = &candidate;
  }
  return best == nullptr ? std::string() : *best;
}

std::string meant_by(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kBeginning = 3;
  const auto longer = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const std::string& c) { return word.size() >= kBeginning && c.starts_with(word); });
  if (longer != candidates.end()) return *longer;
  std::string closest = nearest(word, candidates);
  const size_t distance = edit_distance(word, closest);
  return distance < word.size() && distance <= 1 + closest.size() / 3 ? closest : std::string();
}

}  // namespace vitrine
