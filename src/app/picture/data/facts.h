#pragma once
// What kind of model it is, in the words the pictures and texts need.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "picture/data/values.h"
#include "runtime/engine.h"

namespace vitrine {

enum class NormPlace : uint8_t { before, after, both, written };  // written: of what a sub-layer writes, and not what it reads
enum class Positions : uint8_t { rotary, learned, sinusoidal, none, alibi };

/// A model's parameters by our names ("W_E", "blocks.0.ln1.w"), where they lie.
struct NamedParameters {
  std::map<std::string, const Weight*, std::less<>> matrices;
  std::map<std::string, const Vector*, std::less<>> vectors;
  const Weight* matrix(std::string_view name) const;  // null if the model has none of that name
  const Vector* vector(std::string_view name) const;
};
NamedParameters parameters_of(const Model& model);

struct ModelFacts {
  ModelShape shape;
  NamedParameters parameters;
  std::string family_title;          // "Gemma 2"
  std::vector<int64_t> windows;      // of each layer; kNoWindow: global; of a convolution: its taps
  bool chunked = false;              // windows are chunks: a position sees those of its own chunk
  std::vector<int64_t> conv_layers;  // those with a convolution, or a recurrence, in the place of attention
  bool recurrent = false;            // it is a recurrence
  int64_t attention_layer = 0;       // the first of the others
  int64_t mlp_layer = 0;             // the first with experts, or if there are none, with an MLP
  NormPlace norm_place = NormPlace::before;
  Positions positions = Positions::rotary;
  bool halved_sinusoids = false;  // the sines first, then the cosines, instead of in turns
  bool rms = true, final_norm = true;
  bool head_norms = false;                   // on each head's query and key
  bool joint_head_norms = false;             // they are one norm over the queries of all heads, one over the keys
  double norm_offset = 0;                    // added to an RMSNorm's weight: 1 in Gemma's files
  std::optional<RopeSpec> rope, other_rope;  // the first turning layer's; that of other layers, where it is another
  std::vector<int64_t> still_layers;         // in which nothing turns although it does in others
  std::optional<ExpertSpec> experts;         // of the first layer that has them
  std::vector<int64_t> dense_layers;         // which have an MLP instead
  bool sinks = false;                        // each head has a score that takes a share of its softmax
  double attention_softcap = 0, final_softcap = 0, logit_scale = 1, residual_scale = 1;
  int64_t parameter_count = 0;
  std::vector<std::string> dtypes;  // of the matrices; empty without weights
  bool gated = false;               // an MLP, or an expert
  Activation activation = Activation::none;

  bool attends(int64_t layer) const;
  /// The first position that one sees in a layer with such a window.
  int64_t first_seen(int64_t window, int64_t position) const {
    return vitrine::first_seen({.window = window, .chunked = chunked}, position);
  }
  /// "layers 0 and 2": those with a convolution.
  std::string conv_layers_text() const;
  bool norms_writes() const { return norm_place == NormPlace::both || norm_place == NormPlace::written; }
  std::string heads_title() const;  // "MHA", "GQA", "MQA"
  std::string mlp_title() const;
  /// Whether a bias is added to what a matrix of the layers ("attn.W_Q") gives.
  bool has_bias(std::string_view matrix) const;
};

/// Of a model that may have no weights: from its configuration alone.
ModelFacts facts_of(const Model& model);
inline ModelFacts facts_of(const Engine& engine) { return facts_of(engine.model()); }

/// Bytes that the cache of decoding keeps of one position, in so many layers with these heads.
int64_t cached_bytes(const Engine& engine, int64_t layers, int64_t kv_heads, int64_t head_dim);

/// "relu", "gelu_tanh", "gelu_exact", "silu".
std::string activation_name(Activation f);
/// "GeGLU", "SwiGLU", "ReGLU", "GELU", "ReLU", "SiLU".
std::string mlp_title(Activation f, bool gated);
/// f(x) in double.
double activation_value(Activation f, double x);

/// data.ts' Model. name, adapter: as they were given.
PictureJson to_json(const ModelFacts& facts, const std::string& name, const std::string& adapter);

}  // namespace vitrine
