#pragma once
// What passes through the layers in one training pass: activations in front of and behind each norm, and gradients of the
// stream. Reads only; the step's values are those of a step that nobody watches.
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"

namespace vitrine {

/// Of the rows of one sequence: the mean over rows of each row's mean, and of its (population's) variance.
struct ActivationMoments {
  double mean = 0, variance = 0;
};

class LayerWatch final : public Listener {
 public:
  struct Norm {
    std::string name;                         // "blocks.3.ln1"
    std::optional<ActivationMoments> before;  // nothing: no hook shows it (Gemma 2's norm behind the MLP)
    ActivationMoments after;
  };
  explicit LayerWatch(const Model& model);

  /// Every norm in the order of the run.
  const std::vector<Norm>& norms() const { return norms_; }
  /// |gradient of the loss with respect to the stream that enters layer i|, and at the end to the one that leaves the last;
  /// over the rows of the sequence. Empty where blocks are recomputed in backward.
  const std::vector<double>& stream_gradients() const { return gradients_; }

  bool wants(std::string_view name) const override;
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;
  bool wants_gradient(std::string_view name) const override;
  void see_gradient(std::string_view name, const Tensor& gradient) override;

 private:
  bool after_, residual_;
  std::string last_;  // "blocks.<last layer>.hook_resid_post"
  size_t layers_;
  std::vector<float> stream_, input_;  // input_: of the norm to come, where that is not the stream
  bool has_input_ = false;
  int64_t width_ = 0;
  std::vector<Norm> norms_;
  std::vector<double> gradients_;
};

}  // namespace vitrine
