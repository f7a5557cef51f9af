#include "train/step_cost.h"

namespace vitrine {

double step_flop(const Parameters& learned, const Model& model, std::span<const int64_t> lengths, double frozen) {
  const ModelShape& shape = model.shape();
  int64_t layers = 0;
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) layers += model.layer(layer).has_attention() ? 1 : 0;
  double weights = 0, tokens = 0, pairs = 0;
  for (const Parameter& p : learned.list())
    if (p.matrix && p.ours != "W_pos" && p.ours != "W_E_per_layer" && (shape.tied || p.ours != "W_E"))
      weights += static_cast<double>(p.count);
  for (const int64_t length : lengths) {
    tokens += static_cast<double>(length);
    pairs += static_cast<double>(length) * static_cast<double>(length);
  }
  return (6 * weights + 4 * frozen) * tokens + 12 * static_cast<double>(layers * shape.n_heads * shape.head_dim) * pairs;
}

}  // namespace vitrine
