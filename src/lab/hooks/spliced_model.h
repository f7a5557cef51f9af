#pragma once
// A model with sparse autoencoders and transcoders at its hooks: their features are hooks as the model's own are.
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "sae/autoencoder.h"

namespace vitrine {

struct SplicedSae {
  std::shared_ptr<const SparseAutoencoder> sae;
  /// What the autoencoder does not explain is added to what the features make: without changes a run gives the same result.
  /// false: the value is what the features make.
  bool keep_error = true;
};

/// The hooks of an autoencoder, in the order in which they are reached, with SAELens's names. They lie under the hook where it
/// writes: "blocks.3.hook_resid_post.hook_sae_acts_post".
///
/// hook_sae_input      what it reads [rows, d_in]
/// hook_sae_acts_pre   before the activation function [rows, d_sae]; of gated ones the magnitudes
/// hook_sae_acts_post  the features [rows, d_sae]
/// hook_sae_recons     what they make [rows, d_out]
/// hook_sae_error      the value - what the features of the unchanged input make; of the value's shape. Only if the error is kept
/// hook_sae_output     what flows on; of the value's shape
inline constexpr std::array<std::string_view, 6> kSaeHooks = {"hook_sae_input",  "hook_sae_acts_pre", "hook_sae_acts_post",
                                                              "hook_sae_recons", "hook_sae_error",    "hook_sae_output"};

/// Whether this is the name of such a hook.
inline bool of_autoencoder(std::string_view hook) { return hook.find(".hook_sae_") != std::string_view::npos; }

/// What a listener puts at one of these hooks flows on. Where the error is kept and nobody listens, nothing is computed. At the
/// hook itself a listener sees what the autoencoder gives, and a transcoder reads what listeners leave at its input.
///
/// On a tape gradients flow through decoder and encoder, and features that are zero pass none to the encoder; the error is a
/// constant, as in SAELens. The model must outlive the tape, and so must `base`.
class SplicedModel final : public Model {
 public:
  /// Hook names may be aliases. Errors: InputError for an autoencoder whose hooks the model does not have or whose sizes are
  /// others, and for two that write at one hook. Runs: as encode(); UsageError for f64, and for a tape with an InputNorm.
  SplicedModel(const Model& base, const std::vector<SplicedSae>& saes);

  Tensor residual(Context& ctx, const Step& step) const override;
  Tensor embedded(Context& ctx, const Step& step) const override { return base_.embedded(ctx, step); }
  Head head() const override { return base_.head(); }
  Tensor first_sublayer(Context& ctx, const Step& step, int layer, const Tensor& x) const override {
    return base_.first_sublayer(ctx, step, layer, x);
  }
  std::span<const Expert> experts(int64_t layer) const override { return base_.experts(layer); }
  Json config(ConfigFormat format) const override { return base_.config(format); }
  Form form() const override { return base_.form(); }
  const Model& base() const override { return base_; }

  /// An autoencoder with the full names of its hooks.
  struct Place {
    std::shared_ptr<const SparseAutoencoder> sae;
    bool keep_error;
    std::string reads, writes;
  };
  const std::vector<Place>& places() const { return places_; }

 private:
  const Model& base_;
  std::vector<Place> places_;
};

/// An autoencoder in files (sae/sae_file.h). hook: where it reads and writes, instead of what the files say; empty: that.
struct SaeFile {
  std::string path, hook;
  bool keep_error = true;
};

/// Errors: as read_sae.
std::vector<SplicedSae> read_saes(const std::vector<SaeFile>& files);
/// For EngineOptions::through; empty for no files. Errors: as read_sae; when called as SplicedModel's constructor.
std::function<std::shared_ptr<const Model>(const Model&)> through_saes(const std::vector<SaeFile>& files);

}  // namespace vitrine
