#pragma once
// What a model is, read off a dry run of its text (ops/dry_run.h): its ops, its hooks, what each layer has, the memory of a step.
// Whatever asks about a model without running it asks here.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "ops/dry_run.h"
#include "ops/kv_cache.h"

namespace vitrine {

class Model;
struct ModelShape;

/// A step to record: one sequence of `rows` tokens whose first stands at `position`.
struct StepSize {
  int64_t rows = 1, position = 0;
  bool cached = false;    // keys and values go to a cache, which holds those before `position`
  CacheTypes types = {};  // of that cache
  Numerics numerics = {};
  int threads = 1;           // ops take scratch memory for each
  bool every_logit = false;  // logits of all rows; false: of the last one
  bool tape = false;         // the step is recorded for backward
  bool regions = false;      // parallel regions are recorded (OpRecord::regions)
};

struct StepRecord {
  std::vector<OpRecord> ops;  // in the form they take when nobody listens
  int64_t peak_bytes = 0;     // activations in memory at most
  int64_t kept_bytes = 0;     // by the tape until backward
  int64_t multiply_adds() const;
};

/// Runs one step dry. Errors: InputError if the positions are more than the model has.
StepRecord record_step(const Model& model, const StepSize& size);

/// What one layer computes with, as its ops were called.
struct LayerRecord {
  bool attends = false;                           // it has attention
  AttentionSpec attention;                        // scale, cap, window; of a layer without attention nothing
  std::optional<RopeSpec> rope;                   // none: queries and keys are not rotated
  std::optional<TemperatureSpec> temperature;     // queries are multiplied by a factor of their position
  NormSpec norm;                                  // of the first norm
  bool rms = true;                                // RMSNorm; false: LayerNorm, which also subtracts the mean
  bool norms_after = false;                       // ln1 and ln2 act on the stream itself, after each sub-layer was added to it
  Activation activation = Activation::none;       // of the MLP, or of its gate
  std::optional<ExpertSpec> experts;              // a mixture of experts
  bool experts_beside = false;                    // it stands beside an MLP, and both are added
  std::optional<ConvSpec> conv;                   // the first sub-layer is a convolution in the place of attention
  Activation conv_activation = Activation::none;  // of that convolution, or of the one before a recurrence
  std::optional<DeltaSpec> delta;                 // or a recurrence, which may also stand beside attention
  int64_t shared_d_ff = 0;                        // above 0: and an MLP of so many hidden units that every row goes through
  bool latent_keys = false;                       // keys and values are made of a latent vector behind a norm
  bool gated_heads = false;                       // what the heads read is multiplied by the sigmoid of a gate
  bool value_norm = false;                        // values are divided by their root mean square, head by head
  double residual_scale = 1;                      // what attention (or what stands in its place) adds is multiplied by it
  double mlp_scale = 1;                           // and what the MLP adds by this
  double stream_scale = 1;                        // the whole stream is multiplied by it at the layer's end
  DropoutSpec attention_dropout, mlp_dropout;     // of what each sub-layer adds, in training
  int64_t per_layer_dim = 0;                      // above 0: a third sub-layer reads that many numbers of a per-layer embedding
  int64_t n_kv_heads = 0, head_dim = 0, d_ff = 0;
  int64_t keys_of = -1;  // the earlier layer whose keys and values its queries meet; -1: it has its own

  bool has_attention() const { return attends; }
  /// What a layer without attention has, for messages.
  const char* instead_of_attention() const { return delta ? "a recurrence" : conv ? "a convolution" : "an MLP"; }
};

/// A hook and the shape of what it shows for a sequence of any length.
struct HookShape {
  std::string name;
  std::vector<int64_t> sizes;  // kRows where a size is the number of rows
  static constexpr int64_t kRows = -1;
  std::vector<int64_t> of(int64_t rows) const;
};

/// Positions that the model adds to its embeddings.
enum class AddedPositions : uint8_t { none, learned, sinusoids_in_pairs, sinusoids_in_halves };

struct ModelRecord {
  explicit ModelRecord(const Model& model);

  std::vector<LayerRecord> layers;
  std::vector<HookShape> hooks;  // in the order of the run
  AddedPositions positions = AddedPositions::none;
  DropoutSpec embedding_dropout;  // of what enters the first layer, in training

  /// Null if the model has no hook of that name.
  const HookShape* hook(std::string_view name) const;
  std::vector<CacheLayer> cache_layers(CacheTypes types) const;

 private:
  std::vector<CacheLayer> cache_;
  std::map<std::string, size_t, std::less<>> by_name_;  // the place of each hook
};

}  // namespace vitrine
