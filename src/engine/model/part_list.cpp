#include "model/part_list.h"

#include <string>

#include "model/model.h"

namespace vitrine {
namespace {

// "ln_f.weight"; nothing where a format has no such tensor.
std::string with(std::string_view name, const char* suffix) { return name.empty() ? "" : std::string(name) + suffix; }

}  // namespace

TensorSizes::TensorSizes(const ModelShape& s)
    : D{"d_model", s.d_model},
      F{"d_ff", s.d_ff},
      V{"vocab_size", s.vocab_size},
      H{"head_dim", s.head_dim},
      NH{"n_heads * head_dim", s.n_heads * s.head_dim},
      GH{"n_kv_heads * head_dim", s.n_kv_heads * s.head_dim} {}

void PartList::add(RmsNorm& norm, Dim width) {
  norm.spec = spec.norm;
  add(norm.w, with(norm.name.ours, ".w"), with(norm.name.huggingface, ".weight"), with(norm.name.gguf, ".weight"), width,
      spec.norms);
}

void PartList::add_without_bias(LayerNorm& norm) {
  norm.spec = spec.norm;
  const auto [ours, huggingface, gguf] = norm.name;
  add(norm.w, with(ours, ".w"), with(huggingface, ".weight"), with(gguf, ".weight"), size.D);
}

void PartList::add_of_heads(LayerNorm& norm, int64_t heads) {
  norm.spec = spec.norm;
  const auto [ours, huggingface, gguf] = norm.name;
  add(norm.w, with(ours, ".w"), with(huggingface, ".weight"), with(gguf, ".weight"), {"heads * head_dim", heads * size.H.size},
      {.rows = heads});
}

void PartList::add(LayerNorm& norm) {
  add_without_bias(norm);
  const auto [ours, huggingface, gguf] = norm.name;
  add(norm.b, with(ours, ".b"), with(huggingface, ".bias"), with(gguf, ".bias"), size.D);
}

void PartList::add(NormedAttention& attention) {
  add_qkv(attention);
  add(attention.q_norm, size.H);
  add(attention.k_norm, size.H);
  add_out(attention);
}

void PartList::add_qkv(Attention& attention) {
  attention.head_dim = size.H.size;
  auto& [W_Q, W_K, W_V, W_O, head_dim] = attention;
  add(W_Q, "attn.W_Q", "self_attn.q_proj.weight", "attn_q.weight", size.NH, size.D, spec.qk);
  add(W_K, "attn.W_K", "self_attn.k_proj.weight", "attn_k.weight", size.GH, size.D, spec.qk);
  add(W_V, "attn.W_V", "self_attn.v_proj.weight", "attn_v.weight", size.GH, size.D);
  if (!spec.qkv_bias) return;
  add(W_Q.bias, "attn.b_Q", "self_attn.q_proj.bias", "attn_q.bias", size.NH, spec.qk);
  add(W_K.bias, "attn.b_K", "self_attn.k_proj.bias", "attn_k.bias", size.GH, spec.qk);
  add(W_V.bias, "attn.b_V", "self_attn.v_proj.bias", "attn_v.bias", size.GH);
}

void PartList::add_out(Attention& attention, std::string_view huggingface) {
  add(attention.W_O, "attn.W_O", with(huggingface, ".weight"), "attn_output.weight", size.D, size.NH);
  if (spec.o_bias) add(attention.W_O.bias, "attn.b_O", with(huggingface, ".bias"), "attn_output.bias", size.D);
}

void PartList::add_stacked_qkv(Attention& attention, FileNames matrix, FileNames bias, bool by_columns) {
  attention.head_dim = size.H.size;
  Weight* const all[] = {&attention.W_Q, &attention.W_K, &attention.W_V};
  static constexpr const char* kNames[] = {"attn.W_Q", "attn.W_K", "attn.W_V"};
  for (int i = 0; i < 3; ++i)
    add(*all[i], kNames[i], matrix.huggingface, matrix.gguf, size.D, size.D, {.by_columns = by_columns, .part = i, .parts = 3});
  for (int i = 0; i < 3; ++i)
    add(all[i]->bias, kNames[i], bias.huggingface, bias.gguf, size.D, {.by_columns = by_columns, .part = i, .parts = 3});
}

void PartList::add(Mlp& mlp, FileNames in, FileNames out, const StoredLayout& layout) {
  mlp.f = spec.activation;
  add_with_bias(mlp.W_in, "mlp.in", in.huggingface, in.gguf, size.F, size.D, layout);
  add_with_bias(mlp.W_out, "mlp.out", out.huggingface, out.gguf, size.D, size.F, layout);
}

void PartList::add_stacked(GatedMlp& mlp, std::string_view gate_in, std::string_view out, bool gguf_apart) {
  mlp.f = spec.activation;
  const StoredLayout gate{.part = 0, .parts = 2, .gguf_apart = gguf_apart}, in{.part = 1, .parts = 2, .gguf_apart = gguf_apart};
  const std::string stacked = with(gate_in, ".weight");
  add(mlp.W_gate, "mlp.W_gate", stacked, gguf_apart ? "ffn_gate.weight" : "ffn_up.weight", size.F, size.D, gate);
  add(mlp.W_in, "mlp.W_in", stacked, "ffn_up.weight", size.F, size.D, in);
  add(mlp.W_out, "mlp.W_out", with(out, ".weight"), "ffn_down.weight", size.D, size.F);
}

void PartList::add(GatedMlp& mlp, const GatedMlpNames& huggingface) {
  mlp.f = spec.activation;
  const auto [gate, in, out] = huggingface;
  add(mlp.W_gate, "mlp.W_gate", with(gate, ".weight"), "ffn_gate.weight", size.F, size.D);
  add(mlp.W_in, "mlp.W_in", with(in, ".weight"), "ffn_up.weight", size.F, size.D);
  add(mlp.W_out, "mlp.W_out", with(out, ".weight"), "ffn_down.weight", size.D, size.F);
  if (!spec.mlp_bias) return;
  add(mlp.W_gate.bias, "mlp.b_gate", with(gate, ".bias"), "ffn_gate.bias", size.F);
  add(mlp.W_in.bias, "mlp.b_in", with(in, ".bias"), "ffn_up.bias", size.F);
  add(mlp.W_out.bias, "mlp.b_out", with(out, ".bias"), "ffn_down.bias", size.D);
}

}  // namespace vitrine
