#pragma once
// What every family gives: the residual stream, a head that reads predictions off it, and the list of its tensors.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/form.h"
#include "model/tensor_list.h"
#include "ops/attention.h"
#include "ops/context.h"
#include "ops/experts.h"
#include "ops/head.h"
#include "ops/kv_cache.h"
#include "ops/norm.h"
#include "ops/step.h"

namespace vitrine {

/// A model's sizes under the field's names.
struct ModelShape {
  std::string family;
  int64_t d_model = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0, vocab_size = 0;
  int64_t context_length = 0;  // 0: any length (sinusoidal positions)
  bool tied = false;           // the embedding is the head
  double router_loss = 0;      // in training: coefficient of the load-balancing loss; 0: none
  double embedding_scale = 1;  // what a stored embedding is multiplied by: sqrt(d_model), Granite's factor or nothing

  /// Every query head has a key and value head of its own, all of one size.
  void set_heads(int64_t heads, int64_t size) {
    n_heads = n_kv_heads = heads;
    head_dim = size;
  }
};

/// A causal convolution in the place of attention: each channel's sum over the last `taps` positions.
struct ConvSpec {
  int64_t taps = 0, channels = 0;
};

/// A gated delta net in the place of attention: the recurrence of ops/gated_delta.h behind a causal convolution.
struct DeltaSpec {
  int64_t n_heads = 0, n_key_heads = 0, d_key = 0, d_value = 0;
  int64_t taps = 0;      // of the convolution over queries, keys and values
  bool tiled = false;    // head h reads key head h % n_key_heads, as GGUF files order them, instead of neighbours sharing one
  bool A_is_log = true;  // the files hold log(-A)
  /// Numbers of all heads' states, behind which the convolution's inputs are.
  int64_t states() const { return n_heads * d_key * d_value; }
  int64_t channels() const { return 2 * n_key_heads * d_key + n_heads * d_value; }
};

/// What sizes and keys one layer has, where they are not those of the whole model.
struct LayerShape {
  int64_t n_kv_heads = 0, head_dim = 0, d_ff = 0;
  int64_t keys_of = -1;  // the earlier layer whose keys and values its queries meet; -1: it has its own
};

/// What one layer computes with that no tensor holds: constants of the configuration.
struct BlockSpec {
  AttentionSpec attention;                   // scale, cap, window
  std::optional<RopeSpec> rope;              // none: this layer turns nothing
  bool added_positions = false;              // the model adds positions to its embeddings
  NormSpec norm;                             // of every norm of the model
  bool rms = true;                           // RMSNorm; false: LayerNorm, which also takes the mean away
  bool norms_after = false;                  // ln1 and ln2 act on the stream itself, after each sub-layer was added to it
  Activation activation = Activation::none;  // of the MLP, or of its gate
  std::optional<ExpertSpec> experts = {};    // the MLP is a mixture of these
  std::optional<ConvSpec> conv = {};         // the first sub-layer is no attention, but this; `attention` and `rope` say nothing
  std::optional<DeltaSpec> delta = {};       // nor this
  bool gated_heads = false;                  // what the heads read is multiplied by the sigmoid of a gate
  bool experts_beside = false;               // or they stand beside the MLP, and both are added
  bool halved_sinusoids = false;             // without rope: sines in the first half of the added vector, cosines in the other
  double residual_scale = 1;                 // what each sub-layer adds is multiplied by it
  double dropout = 0;                        // of what each sub-layer adds, in training
  std::optional<LayerShape> shape = {};      // none: the model's
  bool value_norm = false;                   // values are divided by their root mean square, head by head
  int64_t per_layer_dim = 0;                 // above 0: a third sub-layer reads that many numbers of a per-layer embedding
  double stream_scale = 1;                   // the whole stream is multiplied by it at the layer's end
  uint32_t attention_dropout_site = 0, mlp_dropout_site = 0;

  bool has_attention() const { return !conv && !delta; }
  /// What a layer without attention has, for messages.
  const char* instead_of_attention() const { return delta ? "a recurrence" : "a convolution"; }
};

/// The two kinds of file that hold a configuration.
enum class ConfigFormat : uint8_t { huggingface, gguf };

class Model {
 public:
  explicit Model(ModelShape shape) : shape_(std::move(shape)) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// The residual stream after the final norm, [step.rows(), d_model].
  virtual Tensor residual(Context& ctx, const Step& step) const = 0;
  /// The stream that enters the first block, [step.rows(), d_model]: with positions, where they are added to it.
  virtual Tensor embedded(Context& ctx, const Step& step) const = 0;
  virtual Head head() const = 0;
  virtual BlockSpec block_spec(int64_t layer) const = 0;
  /// What the layer's first sub-layer makes of what it reads, x [step.rows(), d_model], in families where that is more than
  /// attention as BlockSpec describes it.
  virtual Tensor first_sublayer(Context&, const Step&, int, const Tensor&) const { return {}; }
  /// Those of a layer whose MLP is a mixture of them.
  virtual std::span<const Expert> experts(int64_t) const { return {}; }
  /// The configuration in the words of config.json, or of GGUF's metadata without the architecture's prefix. Reading it gives the
  /// same model, as far as the format can say it: GGUF has no key for dropout, for instance.
  virtual Json config(ConfigFormat format) const = 0;
  /// Where the norms stand and what a sub-layer does to the stream (docs/trainability.md).
  virtual Form form() const { return {}; }

  const ModelShape& shape() const { return shape_; }
  /// Every parameter, once each, in the order of the forward pass.
  const std::vector<TensorLine>& tensors() const { return tensors_; }
  LayerShape layer_shape(int64_t layer) const;
  /// The cache of each layer, with keys and values in these types.
  std::vector<CacheLayer> cache_layers(CacheTypes types = {}) const;
  /// Every hook name this model shows, a layer's with its index, in the order of the run.
  std::vector<std::string> hook_names() const;

 protected:
  /// To be called once by the family's constructor. The lines point into the model, which therefore never moves.
  void set_tensors(std::vector<TensorLine> lines) { tensors_ = std::move(lines); }

 private:
  ModelShape shape_;
  std::vector<TensorLine> tensors_;
};

}  // namespace vitrine
