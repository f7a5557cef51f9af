#pragma once
// What every family gives: the residual stream, a head that reads predictions off it, and the table of its tensors.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/attention.h"
#include "ops/context.h"
#include "ops/head.h"
#include "ops/kv_cache.h"
#include "ops/norm.h"
#include "ops/step.h"
#include "ops/weight.h"

namespace vitrine {

/// One size of a tensor and where it comes from, for messages: {"n_kv_heads * head_dim", 1024}.
struct Dim {
  std::string_view formula;
  int64_t size = 0;
};

/// One line of a family's weight table.
struct TensorLine {
  std::string ours, huggingface, gguf;
  Dim out;                  // of a vector: its size
  Dim in = {};              // size 0: a vector
  bool by_columns = false;  // the Hugging Face file stores [in, out]
  int part = 0, parts = 1;  // this is one of `parts` equal pieces of the outputs of a stacked tensor
};

/// Somebody who walks a family's tensors: a loader, a counter, a trainer's buffers.
class TensorTable {
 public:
  virtual ~TensorTable() = default;
  virtual void matrix(Weight& weight, const TensorLine& line) = 0;
  virtual void vector(Vector& vector, const TensorLine& line) = 0;
};

/// A model's sizes under the field's names.
struct ModelShape {
  std::string family;
  int64_t d_model = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0, vocab_size = 0;
  int64_t context_length = 0;  // 0: any length (sinusoidal positions)
  bool tied = false;           // the embedding is the head
  double embedding_scale = 1;  // what a stored embedding is multiplied by: sqrt(d_model) or nothing
};

/// What one layer computes with that no tensor holds: constants of the configuration.
struct BlockSpec {
  AttentionSpec attention;                   // scale, cap, window
  std::optional<RopeSpec> rope;              // none: positions are added to the embeddings
  NormSpec norm;                             // of every norm of the model
  bool rms = true;                           // RMSNorm; false: LayerNorm, which also takes the mean away
  bool norms_after = false;                  // ln1 and ln2 act on the stream itself, after each sub-layer was added to it
  Activation activation = Activation::none;  // of the MLP, or of its gate
};

class Model {
 public:
  virtual ~Model() = default;
  /// The residual stream after the final norm, [step.rows(), d_model].
  virtual Tensor residual(Context& ctx, const Step& step) const = 0;
  virtual Head head() const = 0;
  /// Calls the table for every parameter, once each, in the order of the forward pass.
  virtual void tensors(TensorTable& table) = 0;
  virtual std::vector<CacheLayer> cache_layers() const = 0;
  virtual ModelShape shape() const = 0;
  virtual BlockSpec block_spec(int64_t layer) const = 0;
  /// Every hook name this family shows, a layer's with its index, in the order of the run.
  virtual std::vector<std::string> hook_names() const = 0;
};

}  // namespace vitrine
