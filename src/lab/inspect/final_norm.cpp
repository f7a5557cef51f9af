#include "inspect/final_norm.h"

#include "inspect/weights.h"
#include "ops/norm.h"

namespace vitrine {

FinalNorm::FinalNorm(const Model& model) : spec_(model.layer(0).norm) {
  const NamedWeights weights(model);
  w_ = weights.find_vector("ln_final.w");
  b_ = weights.find_vector("ln_final.b");
  static const Vector kNone;
  if (b_ == nullptr && !model.layer(0).rms) b_ = &kNone;  // a LayerNorm without a bias
}

Tensor FinalNorm::operator()(Context& ctx, const Tensor& x) const {
  if (w_ == nullptr) return x;
  return b_ != nullptr ? layer_norm(ctx, "ln_final", x, *w_, *b_, spec_) : rms_norm(ctx, "ln_final", x, *w_, spec_);
}

}  // namespace vitrine
