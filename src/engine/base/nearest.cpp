#include "base/nearest.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace vitrine {

namespace {

constexpr size_t kLongest = 256;  // bytes that are compared: a request may hold megabytes

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  // Distances of a[0, i) to every beginning of b, and of the two beginnings of a before it.
  std::vector<size_t> row(b.size() + 1), last, before_last;
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before_last[j - 2] + 1);
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
  if (word.size() > kLongest) return {};
  std::string closest = nearest(word, candidates);
  const size_t distance = edit_distance(word, closest);
  return distance < word.size() && distance <= std::max<size_t>(1, (closest.size() + 2) / 4) ? closest : std::string();
}

}  // namespace vitrine
