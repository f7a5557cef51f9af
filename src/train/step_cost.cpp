#include "train/step_cost.h"

namespace vitrine {

double step_flop(const Parameters& learned, const ModelShape& shape, std::span<const int64_t> lengths, double frozen) {
  double weights = 0, tokens = 0, pairs = 0;
  for (const Parameter& p : learned.list())
    if (p.matrix && p.ours != "W_pos" && p.ours != "W_E_per_layer" && (shape.tied || p.ours != "W_E"))
      weights += static_cast<double>(p.count);
  for (const int64_t length : lengths) {
    tokens += static_cast<double>(length);
    pairs += static_cast<double>(length) * static_cast<double>(length);
  }
  return (6 * weights + 4 * frozen) * tokens + 12 * static_cast<double>(shape.n_layers * shape.n_heads * shape.head_dim) * pairs;
}

}  // namespace vitrine
