#pragma once
// A model with its norms moved, or without some of its parts (norms, residual connections, MLPs, positions, mask): what
// docs/trainability.md compares.
#include "model/model.h"

namespace vitrine {

/// The weights of `model` in blocks of another form, for every family but those that have a key of their own for it. Norms, MLPs
/// and positions that the form leaves out are no tensors of it. Without `affine` weights of norms are constants: 1 and 0.
class Rearranged final : public Model {
 public:
  /// A view: `model` stays its owner's and outlives this.
  Rearranged(const Model& model, Form form);
  Rearranged(std::unique_ptr<Model> model, Form form);

  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override;
  Head head() const override { return model_.head(); }
  Json config(ConfigFormat format) const override { return model_.config(format); }
  Form form() const override { return form_; }
  Tensor first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const override {
    return model_.first_sublayer(ctx, step, layer, x);
  }
  std::span<const Expert> experts(int64_t layer) const override {
    return form_.mlp ? model_.experts(layer) : std::span<const Expert>();
  }

 private:
  struct Norm {
    const Vector *w = nullptr, *b = nullptr;
  };
  struct Block {
    const LayerRecord* own = nullptr;  // what the family's own block has
    Norm ln1, ln1_post, ln2, ln2_post, q_norm, k_norm;
    const Weight *W_Q = nullptr, *W_K = nullptr, *W_V = nullptr, *W_O = nullptr;
    const Weight *W_gate = nullptr, *W_in = nullptr, *W_out = nullptr;
    const Weight* router = nullptr;
  };
  Tensor block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const;
  Tensor attend(Context& ctx, const Step& step, int layer, const Tensor& x) const;
  Tensor head_norm(Context& ctx, std::string_view name, const Tensor& x, const Norm& of) const;
  Tensor with_mlp(Context& ctx, int64_t layer, const Tensor& resid_mid) const;
  Tensor feed_forward(Context& ctx, int64_t layer, const Tensor& y) const;
  Tensor norm(Context& ctx, std::string_view name, const Tensor& x, const Norm& of) const;

  std::unique_ptr<Model> owned_;
  const Model& model_;
  const ModelRecord own_;  // of model_, whose weights need not be there yet
  Form form_;
  std::vector<Block> blocks_;
  Norm ln_final_;
  const Weight* W_E_ = nullptr;
  NormSpec norm_;
  bool rms_ = true;
};

}  // namespace vitrine
