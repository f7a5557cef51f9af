// The block of every family in one text, so that its norms and sums can stand elsewhere and parts can be left out. In the
// family's own form it computes the bits of the family's block (tests/engine/model/family_test.cpp).
#include "model/rearranged.h"

#include <algorithm>
#include <map>

#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/mlp.h"
#include "ops/rope.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

ModelShape shape_in(const Model& model, const Form& form) {
  ModelShape shape = model.shape();
  if (!form.mlp) shape.d_ff = 0;
  return shape;
}

}  // namespace

Rearranged::Rearranged(std::unique_ptr<Model> model, Form form) : Rearranged(*model, form) { owned_ = std::move(model); }

Rearranged::Rearranged(const Model& model, Form form) : Model(shape_in(model, form)), model_(model), own_(model), form_(form) {
  const bool own = form.norms == Form::Norms::own, off = form.norms == Form::Norms::off;
  const auto has = [&](std::string_view name) {
    return std::any_of(model.tensors().begin(), model.tensors().end(), [&](const TensorLine& line) { return line.ours == name; });
  };
  const bool moved = !own && !off && !has("blocks.0.ln1.w");  // a family that normalizes what sub-layers write alone
  std::map<std::string, const TensorLine*, std::less<>> lines;
  std::vector<TensorLine> kept;
  for (const TensorLine& line : model.tensors()) {
    const bool first = line.ours.find(".ln1.") != std::string::npos || line.ours.find(".ln2.") != std::string::npos;
    const bool second = line.ours.find("_post.") != std::string::npos, last = line.ours.starts_with("ln_final.");
    if ((off && (first || last)) || (!own && !moved && second)) continue;
    const bool of_mlp = line.ours.find(".mlp.") != std::string::npos || line.ours.find(".ln2") != std::string::npos;
    if ((!form.mlp && of_mlp) || (!form.positions && line.ours.starts_with("W_pos"))) continue;
    kept.push_back(line);
    if (!form.affine && (first || second || last)) kept.back().layout.constant = true;
    std::string& name = kept.back().ours;
    if (moved && second) name.erase(name.find("_post"), 5);  // the one norm of the sub-layer stands elsewhere
    lines.emplace(name, &line);                              // a matrix comes before the bias that goes by its name
  }
  const auto weight = [&](const std::string& name) {
    const auto found = lines.find(name);
    return found == lines.end() ? nullptr : found->second->weight;
  };
  const auto norm = [&](const std::string& name) {
    const auto w = lines.find(name + ".w"), b = lines.find(name + ".b");
    return Norm{w == lines.end() ? nullptr : w->second->vector, b == lines.end() ? nullptr : b->second->vector};
  };
  W_E_ = weight("W_E");
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer) {
    const std::string at = "blocks." + std::to_string(layer) + ".";
    Block& w = blocks_.emplace_back();
    w.own = &own_.layers[static_cast<size_t>(layer)];
    w.ln1 = norm(at + "ln1");
    w.ln2 = norm(at + "ln2");
    w.ln1_post = norm(at + "ln1_post");
    w.ln2_post = norm(at + "ln2_post");
    w.q_norm = norm(at + "attn.q_norm");
    w.k_norm = norm(at + "attn.k_norm");
    w.W_Q = weight(at + "attn.W_Q");
    w.W_K = weight(at + "attn.W_K");
    w.W_V = weight(at + "attn.W_V");
    w.W_O = weight(at + "attn.W_O");
    w.W_gate = weight(at + "mlp.W_gate");
    w.W_in = weight(at + "mlp.W_in");
    w.W_out = weight(at + "mlp.W_out");
    w.router = weight(at + "mlp.W_router");
    norm_ = w.own->norm;
    rms_ = w.own->rms;
  }
  ln_final_ = norm("ln_final");
  set_tensors(std::move(kept));
}

// x itself where the form has no such norm.
Tensor Rearranged::norm(Context& ctx, std::string_view name, const Tensor& x, const Norm& of) const {
  if (of.w == nullptr) return x;
  return rms_ ? rms_norm(ctx, name, x, *of.w, norm_) : layer_norm(ctx, name, x, *of.w, *of.b, norm_);
}

// Of each head's query or key, or of all heads at once where the weight is that wide.
Tensor Rearranged::head_norm(Context& ctx, std::string_view name, const Tensor& x, const Norm& of) const {
  const int64_t head_dim = shape().head_dim;
  if (of.w == nullptr || of.w->size == head_dim) return norm(ctx, name, x, of);
  return split_heads(ctx, norm(ctx, name, merge_heads(ctx, x), of), head_dim);
}

Tensor Rearranged::feed_forward(Context& ctx, int64_t layer, const Tensor& y) const {
  const Block& w = blocks_[static_cast<size_t>(layer)];
  const LayerRecord& s = *w.own;
  if (s.experts) return expert_mlp(ctx, "mlp", y, *w.router, model_.experts(layer), *s.experts);
  if (w.W_gate != nullptr) return gated_mlp(ctx, "mlp", y, *w.W_gate, *w.W_in, *w.W_out, s.activation);
  return mlp(ctx, "mlp", y, *w.W_in, *w.W_out, s.activation);
}

Tensor Rearranged::attend(Context& ctx, const Step& step, int layer, const Tensor& x) const {
  const Block& w = blocks_[static_cast<size_t>(layer)];
  const LayerRecord& s = *w.own;
  const int64_t head_dim = shape().head_dim;
  auto [q, k, v] = linear(ctx, x, {*w.W_Q, *w.W_K, *w.W_V});
  q = ctx.hook("attn.hook_q", split_heads(ctx, q, head_dim));  // [T, N, H]
  k = ctx.hook("attn.hook_k", split_heads(ctx, k, head_dim));  // [T, G, H]
  v = ctx.hook("attn.hook_v", split_heads(ctx, v, head_dim));  // [T, G, H]
  q = head_norm(ctx, "attn.q_norm", q, w.q_norm);
  k = head_norm(ctx, "attn.k_norm", k, w.k_norm);
  if (s.rope && form_.positions) {
    q = ctx.hook("attn.hook_rot_q", rope(ctx, q, step, *s.rope));
    k = ctx.hook("attn.hook_rot_k", rope(ctx, k, step, *s.rope));
    if (form_.rotary_value) v = ctx.hook("attn.hook_rot_v", rope(ctx, v, step, *s.rope));
  }
  AttentionSpec spec = s.attention;
  spec.causal = spec.causal && form_.causal;
  const Tensor z = attention(ctx, "attn", q, k, v, step, layer, spec);  // [T, N, H]
  return attention_output(ctx, "attn", z, *w.W_O);                      // [T, D]
}

Tensor Rearranged::block(Context& ctx, const Step& step, int layer, Tensor resid_pre) const {
  const Block& w = blocks_[static_cast<size_t>(layer)];
  const LayerRecord& s = *w.own;
  const bool after = form_.norms == Form::Norms::post;
  const auto scope = ctx.scope("blocks", layer);
  auto frame = ctx.frame(resid_pre);
  resid_pre = ctx.hook("hook_resid_pre", resid_pre);  // [T, D]

  const Tensor x = after ? resid_pre : norm(ctx, "ln1", resid_pre, w.ln1);  // [T, D]
  const bool own = !s.has_attention() || s.gated_heads;
  const Tensor update = own ? model_.first_sublayer(ctx, step, layer, x) : attend(ctx, step, layer, x);  // [T, D]
  Tensor attn_out = norm(ctx, "ln1_post", update, w.ln1_post);
  if (s.residual_scale != 1) attn_out = scale(ctx, attn_out, s.residual_scale);
  attn_out = dropout(ctx, attn_out, s.attention_dropout.p, s.attention_dropout.site);
  attn_out = ctx.hook("hook_attn_out", attn_out);
  Tensor resid_mid = form_.residual ? add(ctx, resid_pre, attn_out) : attn_out;  // [T, D]
  if (after) resid_mid = norm(ctx, "ln1", resid_mid, w.ln1);
  if (!form_.mlp) return frame.keep(ctx.hook("hook_resid_post", resid_mid));
  return frame.keep(with_mlp(ctx, layer, ctx.hook("hook_resid_mid", resid_mid)));
}

Tensor Rearranged::with_mlp(Context& ctx, int64_t layer, const Tensor& resid_mid) const {
  const Block& w = blocks_[static_cast<size_t>(layer)];
  const LayerRecord& s = *w.own;
  const bool after = form_.norms == Form::Norms::post;
  const Tensor y = after ? resid_mid : norm(ctx, "ln2", resid_mid, w.ln2);  // [T, D]
  Tensor mlp_out = feed_forward(ctx, layer, y);
  mlp_out = norm(ctx, "ln2_post", mlp_out, w.ln2_post);
  if (s.mlp_scale != 1) mlp_out = scale(ctx, mlp_out, s.mlp_scale);
  mlp_out = dropout(ctx, mlp_out, s.mlp_dropout.p, s.mlp_dropout.site);
  mlp_out = ctx.hook("hook_mlp_out", mlp_out);
  Tensor resid_post = form_.residual ? add(ctx, resid_mid, mlp_out) : mlp_out;  // [T, D]
  if (after) resid_post = norm(ctx, "ln2", resid_post, w.ln2);
  return ctx.hook("hook_resid_post", resid_post);
}

// Learned positions are no part of the sum without them; RoPE's are in attend().
Tensor Rearranged::embedded(Context& ctx, const Step& step) const {
  if (form_.positions || own_.positions == AddedPositions::none) return model_.embedded(ctx, step);
  const Tensor tokens = ctx.hook("hook_embed", embed(ctx, step.tokens(), *W_E_));  // [T, D]
  return dropout(ctx, tokens, own_.embedding_dropout.p, own_.embedding_dropout.site);
}

Tensor Rearranged::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);  // [T, D]
  for (int layer = 0; layer < shape().n_layers; ++layer) x = ctx.checkpoint(&Rearranged::block, *this, step, layer, x);
  return norm(ctx, "ln_final", x, ln_final_);
}

}  // namespace vitrine
