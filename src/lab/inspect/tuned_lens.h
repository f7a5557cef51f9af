#pragma once
// The tuned lens: for each layer an affine map of the residual stream that enters it, after which the model's own final norm and
// head read a prediction. The logit lens is the same without the maps.
// Source: Belrose et al., "Eliciting Latent Predictions from Transformers with the Tuned Lens", 2023, arXiv:2303.08112.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ops/weight.h"
#include "runtime/engine.h"
#include "vitrine/float_vector.h"

namespace vitrine {

struct TunedLens {
  struct Translator {
    FloatVector A;  // [d_model, d_model], a row for each output
    FloatVector b;  // [d_model]
  };
  int64_t d_model = 0;
  std::vector<Translator> translators = {};  // [l]: of blocks.<l>.hook_resid_pre, which is hook_resid_post of the layer before
  std::string model = {};                    // the one it was trained on, as it was named; empty: not known
  std::string fingerprint = {};  // of that model's numbers (model/fingerprint.h), as hexadecimal digits; empty: not known

  /// h + A h + b of the stream that enters a layer, [rows, d_model].
  Tensor translated(Context& ctx, size_t layer, const Tensor& h) const;
};

/// Where a lens of the model lies that is found without being named: in the folder of the model's files.
inline constexpr char kTunedLensFile[] = "tuned_lens.safetensors";

/// A safetensors file with "0.weight" [d_model, d_model] and "0.bias" [d_model] of the first layer's translator, and so on: the
/// names of the Python package tuned-lens (layer_translators.state_dict()). 16-bit numbers are widened.
/// Metadata: "base_model_name_or_path", "fingerprint"; both may be missing.
/// Errors: FileError for another file.
TunedLens read_tuned_lens(const std::string& path);

/// type: f32, f16 or bf16 of the numbers in the file, which has its name when it is whole.
/// Errors: RunError from the disk, and for a number that f16 cannot hold.
void write_tuned_lens(const std::string& path, const TunedLens& lens, DType type, const Checkpoint::Metadata& more = {});

/// Reads a lens that is to be used with the engine's model. Errors: as read_tuned_lens; InputError for one of models of another
/// width or number of layers, with both.
std::shared_ptr<const TunedLens> open_tuned_lens(const std::string& path, const Engine& engine);
/// Whether it was trained on these very numbers, as far as its file says. Reads all weights.
bool trained_on(const TunedLens& lens, const Engine& engine);

}  // namespace vitrine
