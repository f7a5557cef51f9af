#include "model/stacked_attention.h"

#include <utility>

#include "model/layer_name.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/low_rank.h"

namespace vitrine {

Attention::Heads StackedAttention::qkv(Context& ctx, const Tensor& x) const {
  const Tensor all = linear(ctx, x, W_QKV);                                                // [T, (N + 2 G)·H] #heads
  const Tensor rows = by_head ? split_heads(ctx, all, W_QKV.out / n_kv_heads) : all;       // [T, G, (N / G + 2)·H], or as it is
  const int64_t groups = by_head ? n_kv_heads : 1;                                         // in each the same rows of all parts
  const auto part = [&](int which, int64_t heads) {                                        // [T, heads, H] #heads
    const int64_t first = which == 0 ? 0 : (n_heads + (which - 1) * n_kv_heads) / groups;  // heads before them
    return take_columns(ctx, rows, first * head_dim, heads / groups * head_dim).view({x.rows(), heads, head_dim});
  };
  const Tensor q = ctx.hook("attn.hook_q", part(0, n_heads));     // [T, N, H] #heads
  const Tensor k = ctx.hook("attn.hook_k", part(1, n_kv_heads));  // [T, G, H] #heads
  return {.q = q, .k = k, .v = ctx.hook("attn.hook_v", part(2, n_kv_heads))};
}

void add_stacked(PartList& list, StackedAttention& attention, PartList::FileNames qkv, PartList::FileNames out,
                 const ModelShape& shape, bool by_head, bool biases) {
  attention.n_heads = shape.n_heads;
  attention.n_kv_heads = shape.n_kv_heads;
  attention.head_dim = shape.head_dim;
  attention.by_head = by_head;
  const Dim all{"(n_heads + 2 * n_kv_heads) * head_dim", (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim};
  const StoredLayout rows{
      .tiles = {.groups = shape.n_kv_heads, .each = 3, .size = shape.head_dim, .together = shape.n_heads / shape.n_kv_heads}};
  const auto with = [](std::string_view name, const char* suffix) { return name.empty() ? "" : std::string(name) + suffix; };
  list.add(attention.W_QKV, "attn.W_QKV", with(qkv.huggingface, ".weight"), with(qkv.gguf, ".weight"), all, list.size.D, rows);
  if (biases) list.add(attention.W_QKV.bias, "attn.b_QKV", with(qkv.huggingface, ".bias"), with(qkv.gguf, ".bias"), all, rows);
  list.add(attention.W_O, "attn.W_O", with(out.huggingface, ".weight"), with(out.gguf, ".weight"), list.size.D, list.size.NH);
  if (biases) list.add(attention.W_O.bias, "attn.b_O", with(out.huggingface, ".bias"), with(out.gguf, ".bias"), list.size.D);
}

const Weight* SplitHeads::find(std::string_view name) const {
  if (stacks_ == nullptr) return nullptr;
  if (const auto made = copies_.find(name); made != copies_.end()) return &made->second->weight;
  const auto [layer, rest] = split_layer(name);
  const int part = rest == "attn.W_Q" ? 0 : rest == "attn.W_K" ? 1 : rest == "attn.W_V" ? 2 : -1;
  if (layer < 0 || layer >= layers_ || part < 0) return nullptr;
  const StackedAttention& from = stacks_->stacked_attention(layer);
  const Weight& stacked = from.W_QKV;
  auto copy = std::make_unique<Copy>();
  Weight& w = copy->weight;
  w.name = stacked.name;
  w.out = from.rows_of(part);
  w.in = stacked.in;
  w.stride = static_cast<size_t>(w.in) * sizeof(float);
  copy->rows.resize(static_cast<size_t>(w.out * w.in));
  for (int64_t j = 0; j < w.out && stacked; ++j) {
    const int64_t row = from.row_of(part, j);
    float* const to = copy->rows.data() + j * w.in;
    for (int64_t i = 0; i < w.in; ++i) to[i] = stacked.at<float>(row, i);
    if (stacked.adapter != nullptr) add_merged(*stacked.adapter, row, to);
  }
  if (stacked) w.data = reinterpret_cast<const std::byte*>(copy->rows.data());
  if (stacked.bias) {
    for (int64_t j = 0; j < w.out; ++j) copy->bias.push_back(stacked.bias.at<float>(from.row_of(part, j)));
    w.bias.name = stacked.bias.name;
    w.bias.data = copy->bias.data();
    w.bias.size = w.out;
  }
  return &copies_.emplace(name, std::move(copy)).first->second->weight;
}

}  // namespace vitrine
