#pragma once
// A step without its numbers: ops are called as in any run, and instead of computing they record what they are. As
// jax.eval_shape and the meta tensors of PyTorch do it; it needs no weights, only their sizes.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ops/attention.h"
#include "ops/attention_temperature.h"
#include "ops/context.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/norm.h"
#include "ops/weight.h"

namespace vitrine {

struct ScaleSpec {
  double factor = 1;
};
struct DropoutSpec {
  double p = 0;
  uint64_t site = 0;
};
/// A causal convolution: each channel's sum over the last `taps` positions.
struct ConvSpec {
  int64_t taps = 0, channels = 0;
  Activation activation = Activation::none;  // of the sum
};
/// The gated delta rule (ops/gated_delta.h), or a state space (ops/state_space.h) with its groups as key heads.
struct DeltaSpec {
  int64_t n_heads = 0, n_key_heads = 0, d_key = 0, d_value = 0;
  int64_t taps = 0;      // of the convolution over queries, keys and values
  bool tiled = false;    // head h reads key head h % n_key_heads, as GGUF files order them, instead of neighbors sharing one
  bool A_is_log = true;  // the files hold log(-A)
  /// Numbers of all heads' states, behind which the convolution's inputs are.
  int64_t states() const { return n_heads * d_key * d_value; }
  int64_t channels() const { return 2 * n_key_heads * d_key + n_heads * d_value; }
};
/// What decay_log() (ops/gated_delta.h) or scale_heads() (ops/state_space.h) takes.
struct DecaySpec {
  bool is_log = true;
};
/// Softcap of scores over the vocabulary.
struct SoftcapSpec {
  double cap = 0;
};

/// What an op was called with besides tensors and weights.
using OpSpec = std::variant<std::monostate, NormSpec, RopeSpec, AttentionSpec, ExpertSpec, Activation, SinusoidLayout, ScaleSpec,
                            DropoutSpec, ConvSpec, DeltaSpec, DecaySpec, SoftcapSpec, TemperatureSpec>;

/// A tensor of a dry run. Views share the number of what they show.
struct ValueRecord {
  int number = 0;
  Shape shape;
};

/// One op of a step.
struct OpRecord {
  std::string op;    // "rms_norm"
  std::string name;  // under which its hooks are, in full ("blocks.3.ln1"); of an op without hooks: its scope ("blocks.3")
  int layer = -1;    // the block it is in; -1: outside of the blocks
  std::vector<ValueRecord> inputs, outputs;
  std::vector<const Weight*> weights;  // in the order of the products
  std::vector<const Vector*> vectors;  // weights of norms, sinks, kernels, biases of matrices
  OpSpec spec;
  int cache_layer = -1;       // of attention, convolutions and recurrences: whose cache they read and extend
  int64_t multiply_adds = 0;  // of matrix products and of scores with values
  int64_t rows_read = -1;     // of a table that is looked up by row; below 0: weights are read whole
  int64_t bytes_read = 0;     // of weights, once each
  int64_t bytes_made = 0;     // of its outputs
  int64_t bytes_kept = 0;     // by the tape, for backward; 0 without one
  int64_t bytes_peak =
      0;  // activations in memory at most while it ran, those from before it among them; with a tape scratch alone

  std::vector<RegionRecord> regions;  // in their order, if they are recorded

  template <class T>
  const T* spec_as() const {
    return std::get_if<T>(&spec);
  }
};

struct HookRecord {
  std::string name;  // in full
  Shape shape;
  int value = 0;   // the number of the value it showed
  size_t ops = 0;  // recorded before it
};

/// What an op records: as OpRecord, before scopes and numbers are known.
struct OpCall {
  const char* op;
  std::string_view name = {};
  std::vector<Tensor> inputs = {}, outputs = {};
  std::vector<const Weight*> weights = {};
  std::vector<const Vector*> vectors = {};
  OpSpec spec = {};
  int cache_layer = -1;
  int64_t multiply_adds = 0;
  int64_t rows_read = -1;     // of each weight that is looked up by row; below 0: all
  int64_t weights_read = -1;  // how many of the weights are read; below 0: all
};

class DryRun final : public Listener {
 public:
  /// inside: hooks inside fused ops are called too, as for a listener that wants everything; otherwise ops take the form, and so
  /// the memory, that they have when nobody listens.
  /// regions: parallel regions are recorded too.
  explicit DryRun(bool inside, bool regions = false) : inside_(inside), regions_(regions) {}

  // For ops --------------------------------------------------------------------------------------------------------
  /// `if (DryRun* dry = ctx.dry()) dry->add(ctx, {"add", {}, {a, b}, {y}});` Every op ends so.
  void add(Context& ctx, const OpCall& call);
  /// Of an op that is made of others: where they begin, and one op in the place of all that were recorded since.
  size_t begin() const { return ops_.size(); }
  void fold(Context& ctx, size_t begin, const OpCall& call);
  /// A parallel region of the op that is recorded next (Context::run).
  void add_region(int64_t tasks, bool share, const std::function<TaskCost(int64_t)>& cost);
  /// The tensor's elements are elsewhere now.
  void move(const Tensor& from, const Tensor& to);
  bool looks_inside() const { return inside_; }

  // As a listener --------------------------------------------------------------------------------------------------
  bool wants(std::string_view) const override { return true; }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;

  std::vector<OpRecord> take_ops() &&;
  std::vector<HookRecord> take_hooks() && { return std::move(hooks_); }

 private:
  ValueRecord value_of(const Tensor& t);
  ValueRecord new_value(const Tensor& t);

  bool inside_, regions_;
  std::vector<RegionRecord> regions_of_next_;
  int values_ = 0;
  size_t tape_mark_ = 0;
  std::map<const void*, int> number_at_;  // of the value whose elements begin there
  std::vector<OpRecord> ops_;
  std::vector<HookRecord> hooks_;
};

}  // namespace vitrine
