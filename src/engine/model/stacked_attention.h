#pragma once
// Attention whose queries, keys and values come from one stored matrix, head by head: GPT-NeoX, BLOOM, Falcon.
// T rows of the step, N n_heads, G n_kv_heads, H head_dim, D d_model.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "model/part_list.h"

namespace vitrine {

/// "attn.W_QKV" and "attn.W_O" with their biases.
struct StackedAttention {
  Weight W_QKV;  // [(N + 2 G)·H, D] + bias [(N + 2 G)·H]
  Weight W_O;    // [D, N·H] + bias [D]
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  /// The order of W_QKV's rows. true, as in Hugging Face files: of each key head the queries that read it, its keys and its
  /// values. false, as in GGUF: the queries of all heads, then their keys, then their values.
  bool by_head = true;

  /// As Attention::qkv. Hook points: attn.hook_q, attn.hook_k, attn.hook_v.
  Attention::Heads qkv(Context& ctx, const Tensor& x) const;
  Tensor out(Context& ctx, const Tensor& z) const { return attention_output(ctx, "attn", z, W_O); }
  /// Rows of W_Q (part 0), W_K (1) or W_V (2).
  int64_t rows_of(int part) const { return (part == 0 ? n_heads : n_kv_heads) * head_dim; }
  /// The row of W_QKV, and the number of its bias, that is row `row` of one of them.
  int64_t row_of(int part, int64_t row) const {
    if (!by_head) return (part == 0 ? 0 : n_heads + (part - 1) * n_kv_heads) * head_dim + row;
    const int64_t queries = n_heads / n_kv_heads, head = row / head_dim;  // of a key head
    const int64_t stored =
        part == 0 ? head / queries * (queries + 2) + head % queries : head * (queries + 2) + queries + part - 1;
    return stored * head_dim + row % head_dim;
  }
};

/// Adds both matrices; the names lack ".weight" and ".bias". by_head: the model's values are those of a Hugging Face file.
void add_stacked(PartList& list, StackedAttention& attention, PartList::FileNames qkv, PartList::FileNames out,
                 const ModelShape& shape, bool by_head, bool biases = true);

/// A model with such attention, for those who read W_Q, W_K and W_V.
class StacksHeads {
 public:
  virtual ~StacksHeads() = default;
  virtual const StackedAttention& stacked_attention(int64_t layer) const = 0;
};

/// W_Q, W_K and W_V of a model that stacks them, for those who read weights: copies in f32 with what an adapter adds, each made
/// when it is first asked for. Not for several threads at once.
class SplitHeads {
 public:
  explicit SplitHeads(const Model& model)
      : stacks_(dynamic_cast<const StacksHeads*>(&model.base())), layers_(model.shape().n_layers) {}
  /// "blocks.3.attn.W_Q"; null for other names, and of other models.
  const Weight* find(std::string_view name) const;

 private:
  struct Copy {
    Weight weight;
    std::vector<float> rows, bias;
  };
  const StacksHeads* stacks_;
  int64_t layers_;
  mutable std::map<std::string, std::unique_ptr<Copy>, std::less<>> copies_;
};

}  // namespace vitrine
