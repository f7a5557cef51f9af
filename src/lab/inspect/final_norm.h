#pragma once
// The norm between the last block and the head.
#include "model/model.h"

namespace vitrine {

class FinalNorm {
 public:
  /// `model` outlives it.
  explicit FinalNorm(const Model& model);
  /// x [rows, d_model] as the head reads it; x itself in a model without such a norm. Backward: x.
  Tensor operator()(Context& ctx, const Tensor& x) const;

 private:
  const Vector *w_, *b_;
  NormSpec spec_;
};

}  // namespace vitrine
