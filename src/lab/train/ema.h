#pragma once
// The exponential moving average of the weights over the steps: a smoother model than any single step's, and an anchor that
// learning may be held to.
#include <memory>

#include "base/thread_pool.h"
#include "train/parameters.h"

namespace vitrine {

class Ema {
 public:
  /// Begins at the learner's weights as they are now. `model`: an unbound one of the same configuration.
  Ema(std::unique_ptr<Model> model, const Parameters& learned, double decay);

  /// ema = ema + (1 - decay) (weights - ema), number by number: the same bits on any number of threads.
  void update(ThreadPool& pool);

  /// The model with the averaged weights.
  const Model& model() const { return *model_; }
  /// As the learner's list(), in the same order and places.
  float* weights(const Parameter& p) const { return averaged_.weights(p); }

 private:
  std::unique_ptr<Model> model_;
  const Parameters& learned_;
  Parameters averaged_;
  double decay_;
};

}  // namespace vitrine
