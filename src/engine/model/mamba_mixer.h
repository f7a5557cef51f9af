#pragma once
// Mamba 2's mixer, which takes attention's place in whole models and in some layers of others.
// T rows of the step, D d_model; M heads of P numbers, S d_state, U groups, K taps of the convolution; I = M·P, C = I + 2U·S.
#include <array>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/part_list.h"
#include "ops/dry_run.h"
#include "ops/state_space.h"

namespace vitrine {

/// Where an RMSNorm stands: after the product of the gate and what the heads read, on what they read alone, or nowhere.
enum class MambaNorm : uint8_t { gated, ungated, none };

struct MambaSpec {
  DeltaSpec sizes;                                        // n_heads M, n_key_heads U, d_key S, d_value P, taps K
  bool bias = false, out_bias = false, conv_bias = true;  // of the matrices that read, of the one that writes
  Activation activation = Activation::silu;
  TimeStepLimits limits = {};
  MambaNorm norm_place = MambaNorm::gated;
  NormSpec norm;
  int64_t norm_groups = 1;                              // each of which is normalized by itself
  std::array<double, 5> multipliers = {1, 1, 1, 1, 1};  // of gates, inputs, B, C and steps of time, before all else
  double in_scale = 1, out_scale = 1;                   // what the family multiplies x and the result by, for GGUF's weights
  int64_t inner() const { return sizes.n_heads * sizes.d_value; }
};

struct Mamba {
  Weight W_Z, W_xBC, W_dt;     // [I, D], [C, D], [M, D]: gates, what the convolution reads, steps of time
  Vector kernel, conv_bias;    // [C, K], [C]
  Vector dt_bias, A, skip;     // [M]
  Vector norm;                 // [I]
  Vector no_weight;            // RMSNorm's own
  std::vector<float> factors;  // [C], of inputs, B and C; empty: 1
  Vector xBC_factors;          // the same
  Weight W_O;                  // [D, I]
  MambaSpec spec = {};

  /// Of x [T, D], an update of the stream [T, D]. Hook points under "ssm": hook_pre (the convolution before its activation),
  /// hook_x, hook_B, hook_C, hook_time_step, hook_log_decay, hook_state_z, hook_z, hook_gate, hook_gated_z, norm's three,
  /// hook_normed_z, hook_result, hook_out.
  Tensor operator()(Context& ctx, const Tensor& x, const Step& step, int layer) const;
};

/// Its tensors; `files` begins their names in a Hugging Face file ("mixer").
void add_mamba(PartList& list, Mamba& mamba, const std::string& files);

/// What a config.json calls its sizes, and what they are where it leaves them out.
struct MambaKeys {
  struct Size {
    const char* key;
    int64_t absent;
  };
  Size n_heads, n_groups, d_state, d_head, taps;
  bool d_head_may_be_auto = false;  // "auto": what it is where it is left out
};
/// Sizes and limits of the steps, from a config.json, or from GGUF's ssm.* keys. Errors: FileError naming the key of a size that
/// is absurd, or no multiple where it must be.
MambaSpec read_mamba(const ModelConfig& config, const MambaKeys& names);
void write_mamba(Json& keys, const MambaSpec& spec, const MambaKeys& names, ConfigFormat format);

/// The same with norm, activation and biases, of a model that also attends (Granite 4, Falcon-H1), whose keys begin with
/// "mamba_". units: what a config.json calls inner(); without a key, or where that is null, it is mamba_expand * hidden_size.
MambaSpec read_hybrid_mamba(const ModelConfig& config, const DecoderConfig& model, const MambaKeys::Size& units = {nullptr, 0});
void write_hybrid_mamba(Json& keys, const MambaSpec& spec, ConfigFormat format);

}  // namespace vitrine
