#pragma once
// A model's tensors by our names ("blocks.3.attn.W_Q", "ln_final.w"), for those who read weights and not only activations.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "model/stacked_attention.h"

namespace vitrine {

/// Pointers into the model; valid as long as it is.
class NamedWeights {
 public:
  explicit NamedWeights(const Model& model);

  /// Errors: UsageError naming what the model lacks.
  /// Where a family stacks W_Q, W_K and W_V of a layer, a copy of the one that is asked for, which lives as long as this.
  const Weight& matrix(std::string_view name) const;
  /// Null: the model lacks it.
  const Weight* find_matrix(std::string_view name) const;
  /// A norm's weight or bias ("blocks.0.ln1.w", "ln_final.b"); null if the family has none. A matrix's bias: Weight::bias.
  const Vector* find_vector(std::string_view name) const;

 private:
  std::map<std::string, const Weight*, std::less<>> matrices_;
  std::map<std::string, const Vector*, std::less<>> vectors_;
  SplitHeads split_;
};

/// What a norm does to a vector once its scale is frozen: y = (x - mean) / scale · gain + bias, the mean of LayerNorm only.
struct FrozenNorm {
  std::vector<double> gain;  // [d_model]: offset + w
  std::vector<double> bias;  // [d_model], or empty
  bool rms = true;

  /// Replaces x [d_model] by its image without the bias.
  void apply(double* x, double scale) const;
};

/// The norm of this name ("ln_final", "blocks.0.ln1_post"); no gain if the model has no such norm.
FrozenNorm frozen_norm(const NamedWeights& weights, const LayerRecord& spec, const std::string& name);

}  // namespace vitrine
