#pragma once
// The parts of a model as lines of its list of tensors, under the names that most files use.
#include <utility>

#include "model/parts.h"
#include "model/tensor_list.h"

namespace vitrine {

struct ModelShape;

/// The sizes of a decoder's tensors, as messages about files show them: "n_kv_heads * head_dim".
struct TensorSizes {
  explicit TensorSizes(const ModelShape& s);
  Dim D, F, V;    // d_model, d_ff, vocab_size
  Dim H, NH, GH;  // head_dim; that of all heads; of all key and value heads
};

/// What the parts of a list have alike.
struct PartSpec {
  NormSpec norm;
  Activation activation = Activation::none;                 // of MLPs
  bool qkv_bias = false, o_bias = false, mlp_bias = false;  // of matrices
  StoredLayout norms = {};                                  // how files store the weights of norms
  StoredLayout qk = {};                                     // and W_Q and W_K with their biases
};

/// Adds the tensors of parts, in the order of the forward pass, and gives each part what it needs to be called.
class PartList : public TensorList {
 public:
  PartList(const ModelShape& shape, PartSpec alike) : size(shape), spec(std::move(alike)) {}

  TensorSizes size;  // of parts that are added from now on
  PartSpec spec;

  using TensorList::add;
  void add(RmsNorm& norm) { add(norm, size.D); }
  void add(RmsNorm& norm, Dim width);
  void add(LayerNorm& norm);
  void add_without_bias(LayerNorm& norm);
  /// Without a bias, and with weights [heads, head_dim] of their own for each head.
  void add_of_heads(LayerNorm& norm, int64_t heads);
  /// "self_attn.q_proj" and so on, or GGUF's "attn_q". The two halves are for families that have a part between them.
  void add(Attention& attention) { add_qkv(attention), add_out(attention); }
  void add(NormedAttention& attention);
  void add_qkv(Attention& attention);
  void add_out(Attention& attention, std::string_view huggingface = "self_attn.o_proj");
  struct FileNames {
    std::string_view huggingface, gguf;
  };
  /// W_Q, W_K and W_V of one size, which the files stack to one matrix, and then their biases: as in GPT-2.
  void add_stacked_qkv(Attention& attention, FileNames matrix, FileNames bias, bool by_columns);
  struct GatedMlpNames {
    std::string_view gate = "mlp.gate_proj", in = "mlp.up_proj", out = "mlp.down_proj";
  };
  void add(GatedMlp& mlp) { add(mlp, GatedMlpNames{}); }
  void add(GatedMlp& mlp, const GatedMlpNames& huggingface);
  /// W_gate and W_in stacked to one matrix, in GGUF, too, unless `gguf_apart`; no biases.
  void add_stacked(GatedMlp& mlp, std::string_view gate_in, std::string_view out, bool gguf_apart);
  /// Its two matrices with their biases, named without ".weight" and ".bias".
  void add(Mlp& mlp, FileNames in, FileNames out, const StoredLayout& layout = {});

  /// What follows belongs to the next layer.
  void begin_layer(std::string_view huggingface = "model.layers.") { layer(next_layer_++, huggingface); }
  /// The next layer, where all of its parts have their usual sizes and names.
  template <class... Parts>
  void add_layer(Parts&... parts) {
    begin_layer();
    (add(parts), ...);
  }

 private:
  int64_t next_layer_ = 0;
};

}  // namespace vitrine
