#include "model/stacked_attention.h"

#include <utility>

#include "model/layer_name.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/low_rank.h"

namespace vitrine {

Attention::Heads StackedAttention::qkv(Context& ctx, const Tensor& x) const {
  const Tensor all = linear(ctx, x, W_QKV);                                 // [T, 3·N·H] #heads
  const int64_t each = by_head ? head_dim : W_QKV.out / 3;                  // of one head, or of all
  const Tensor rows = by_head ? split_heads(ctx, all, 3 * head_dim) : all;  // [T, N, 3·H] or [T, 3·N·H] #heads
  const auto part = [&](int64_t i) {                                        // [T, N, H] #heads
    return take_columns(ctx, rows, i * each, each).view({x.rows(), W_QKV.out / (3 * head_dim), head_dim});
  };
  const Tensor q = ctx.hook("attn.hook_q", part(0));  // [T, N, H] #heads
  const Tensor k = ctx.hook("attn.hook_k", part(1));  // [T, N, H] #heads
  return {.q = q, .k = k, .v = ctx.hook("attn.hook_v", part(2))};
}

void add_stacked(PartList& list, StackedAttention& attention, PartList::FileNames qkv, PartList::FileNames out, int64_t n_heads,
                 bool by_head, bool biases) {
  attention.head_dim = list.size.H.size;
  attention.by_head = by_head;
  const Dim all{"3 * n_heads * head_dim", 3 * list.size.NH.size};
  const StoredLayout rows{.tiles = {.groups = n_heads, .each = 3, .size = attention.head_dim}};
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
  w.out = stacked.out / 3;
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
