#pragma once
// What every family gives: the residual stream, a head that reads predictions off it, and the list of its tensors.
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/members.h"
#include "model/form.h"
#include "model/record.h"
#include "model/tensor_list.h"
#include "ops/context.h"
#include "ops/experts.h"
#include "ops/head.h"
#include "ops/kv_cache.h"
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

  VITRINE_MEMBERS(family, n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, vocab_size, context_length, tied);

  /// Every query head has a key and value head of its own, all of one size.
  void set_heads(int64_t heads, int64_t size) {
    n_heads = n_kv_heads = heads;
    head_dim = size;
  }
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
  /// What the layer's first sub-layer makes of what it reads, x [step.rows(), d_model], in families where that is more than
  /// attention as LayerRecord describes it.
  virtual Tensor first_sublayer(Context&, const Step&, int, const Tensor&) const { return {}; }
  /// Those of a layer whose MLP is a mixture of them.
  virtual std::span<const Expert> experts(int64_t) const { return {}; }
  /// The configuration in the words of config.json, or of GGUF's metadata without the architecture's prefix. Reading it gives the
  /// same model, as far as the format can say it: GGUF has no key for dropout, for instance.
  virtual Json config(ConfigFormat format) const = 0;
  /// Where the norms stand and what a sub-layer does to the stream (docs/trainability.md).
  virtual Form form() const { return {}; }

  /// The model whose weights these are: another one where this wraps it.
  virtual const Model& base() const { return *this; }

  const ModelShape& shape() const { return shape_; }
  /// Every parameter, once each, in the order of the forward pass.
  const std::vector<TensorLine>& tensors() const { return tensors_; }
  /// What a dry run shows: made at the first call, for which the weights must be there if a number of them is part of it (the
  /// factor at the end of Gemma 4's layers).
  const ModelRecord& record() const;
  const LayerRecord& layer(int64_t layer) const { return record().layers.at(static_cast<size_t>(layer)); }
  /// The cache of each layer, with keys and values in these types.
  std::vector<CacheLayer> cache_layers(CacheTypes types = {}) const { return record().cache_layers(types); }
  /// Every hook name this model shows, a layer's with its index, in the order of the run.
  std::vector<std::string> hook_names() const;

 protected:
  /// To be called once by the family's constructor. The lines point into the model, which therefore never moves.
  void set_tensors(std::vector<TensorLine> lines) { tensors_ = std::move(lines); }

 private:
  ModelShape shape_;
  std::vector<TensorLine> tensors_;
  mutable std::once_flag recorded_;
  mutable std::unique_ptr<ModelRecord> record_;
};

}  // namespace vitrine
