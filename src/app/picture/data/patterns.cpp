// How much of the attention patterns a page keeps.
#include <algorithm>

#include "base/base64.h"
#include "picture/data/observe.h"

namespace vitrine {
namespace {
// A page of 2,000 tokens may have 30 MB, of which the patterns take at most 20; short prompts keep every cell.
constexpr size_t kFullBytes = size_t{3} << 20, kTileBytes = size_t{7} << 20, kTopBytes = size_t{12} << 20;
constexpr int64_t kMostBins = 256, kMostTop = 8, kMostSources = 65536;  // sources are written in 16 bits
}  // namespace

PatternLevel pattern_level(int64_t tokens, int64_t layers, int64_t heads) {
  const auto grids = static_cast<size_t>(layers * heads);
  const auto t = static_cast<size_t>(tokens);
  PatternLevel level;
  const size_t full = grids * causal_cells(t) * sizeof(uint16_t);
  if (base64_size(full) <= kFullBytes) {
    level.bytes = full;
    return level;
  }
  level.full = false;
  int64_t bins = std::min(tokens, kMostBins);
  while (bins > 8 && base64_size(grids * causal_cells(static_cast<size_t>(bins))) > kTileBytes) bins -= 8;
  level.tokens_per_bin = (tokens + bins - 1) / bins;
  level.bins = (tokens + level.tokens_per_bin - 1) / level.tokens_per_bin;
  level.top = tokens <= kMostSources ? kMostTop : 0;
  const auto top_bytes = [&](int64_t k) { return grids * t * static_cast<size_t>(k) * 2 * sizeof(uint16_t); };
  while (level.top > 0 && base64_size(top_bytes(level.top)) > kTopBytes) --level.top;
  level.bytes = grids * causal_cells(static_cast<size_t>(level.bins)) + top_bytes(level.top);
  return level;
}

}  // namespace vitrine
