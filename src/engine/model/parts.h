#pragma once
// The parts of a block: each holds its weights, their names in both file formats and what its op needs besides. Calling a part
// calls its op, and nothing else happens then.
// T rows of the step, N n_heads, G n_kv_heads, H head_dim, D d_model, F d_ff.
#include <string_view>
#include <vector>

#include "ops/attention.h"
#include "ops/experts.h"
#include "ops/mlp.h"
#include "ops/norm.h"

namespace vitrine {

/// What a part is called: by us, which is what its hooks begin with ("ln1"), and in the files ("input_layernorm"; ".weight" and
/// ".bias" follow). An empty name: that format has no such part.
struct PartName {
  std::string_view ours, huggingface = {}, gguf = {};
};

/// RMSNorm of x [T, size], or of each head of x [T, N, size].
struct RmsNorm {
  PartName name;
  Vector w = {};  // [size]
  NormSpec spec = {};
  Tensor operator()(Context& ctx, const Tensor& x) const { return rms_norm(ctx, name.ours, x, w, spec); }
};

/// LayerNorm of x [T, D], or of each head of x [T, N, H].
struct LayerNorm {
  PartName name;
  Vector w = {}, b = {};  // [D], or [N, H]
  NormSpec spec = {};
  Tensor operator()(Context& ctx, const Tensor& x) const { return layer_norm(ctx, name.ours, x, w, b, spec); }
};

/// The matrices around attention, "attn.W_Q" to "attn.W_O", each with a bias or without.
struct Attention {
  Weight W_Q;       // [N·H, D]
  Weight W_K, W_V;  // [G·H, D]
  Weight W_O;       // [D, N·H]
  int64_t head_dim = 0;

  struct Heads {
    Tensor q, k, v;  // [T, N, H], [T, G, H], [T, G, H]
  };
  /// Queries, keys and values of x [T, D], which is read once. Hook points: attn.hook_q, attn.hook_k, attn.hook_v.
  Heads qkv(Context& ctx, const Tensor& x) const;
  /// What the heads read, z [T, N, H], as an update of the stream [T, D]. Hook points: attn.hook_result, attn.hook_out.
  Tensor out(Context& ctx, const Tensor& z) const { return attention_output(ctx, "attn", z, W_O); }
};

/// Attention with an RMSNorm on each head's query and key.
struct NormedAttention : Attention {
  RmsNorm q_norm{{"attn.q_norm", "self_attn.q_norm", "attn_q_norm"}};  // [H]
  RmsNorm k_norm{{"attn.k_norm", "self_attn.k_norm", "attn_k_norm"}};  // [H]
};

/// (f(gate_scale x W_gateᵀ) ⊙ x W_inᵀ) W_outᵀ of x [T, D]: GeGLU or SwiGLU. Hook points: mlp.hook_pre, mlp.hook_pre_linear,
/// mlp.hook_post.
struct GatedMlp {
  Weight W_gate, W_in;  // [F, D]
  Weight W_out;         // [D, F]
  Activation f = Activation::none;
  double gate_scale = 1;
  Tensor operator()(Context& ctx, const Tensor& x) const { return gated_mlp(ctx, "mlp", x, W_gate, W_in, W_out, f, gate_scale); }
};

/// f(x W_inᵀ + b_in) W_outᵀ + b_out of x [T, D]. Hook points: mlp.hook_pre, mlp.hook_post.
struct Mlp {
  Weight W_in;   // [F, D] + bias [F]
  Weight W_out;  // [D, F] + bias [D]
  Activation f = Activation::none;
  Tensor operator()(Context& ctx, const Tensor& x) const { return mlp(ctx, "mlp", x, W_in, W_out, f); }
};

/// A mixture of E experts in the place of an MLP (ops/experts.h).
struct ExpertMlp {
  Weight router;                // [E, D]
  Vector correction = {};       // [E] of scores, where the router has one; not learned by gradients
  std::vector<Expert> experts;  // of each: gate and in [F, D], out [D, F]
  ExpertSpec spec = {};
  Tensor operator()(Context& ctx, const Tensor& x) const { return expert_mlp(ctx, "mlp", x, router, experts, spec); }
};

/// A gated MLP that every row goes through, whatever its experts are: what is added to their sum. Hook points: shared.hook_pre,
/// shared.hook_pre_linear, shared.hook_post, shared.hook_gate [T, 1] where it has one, shared.hook_out.
struct SharedExpert {
  Weight gate;          // [1, D], or nothing: what it gives is multiplied by the sigmoid of this
  Weight W_gate, W_in;  // [S, D] with S hidden units
  Weight W_out;         // [D, S]
  Activation f = Activation::none;
  Tensor operator()(Context& ctx, const Tensor& x) const;
};

}  // namespace vitrine
