#pragma once
// Attention, with the cache.
#include <algorithm>

#include "ops/context.h"
#include "ops/step.h"
#include "ops/weight.h"

namespace vitrine {

struct AttentionSpec {
  double scale = 1;               // of q·k
  double softcap = 0;             // 0: none
  int64_t window = kNoWindow;     // position i sees j when i - window < j <= i
  bool chunked = false;           // with a window: it is a chunk, and position i sees j when i - i mod window <= j <= i
  bool causal = true;             // false: every position sees every other (no cache; to show what the mask does)
  const Vector* sinks = nullptr;  // [n_heads] a score that each query's softmax has besides those of its keys; no cap then
  bool alibi = false;             // adds alibi_slope(head) · (j - i) to the score of query i and key j; no cap then
  double dropout = 0;             // of the pattern, in training
  uint32_t dropout_site = 0;      // each sequence of the step draws its own
};

/// The first position that the query at `position` sees where attention is causal.
inline int64_t first_seen(const AttentionSpec& spec, int64_t position) {
  if (spec.window == kNoWindow) return 0;
  return spec.chunked ? position - position % spec.window : std::max<int64_t>(0, position - spec.window + 1);
}

/// ALiBi's slope of a head: 2^(-8 (head + 1) / n_heads) for powers of two; for other counts the slopes of the power of two below,
/// and then those of every other head of the one above. Press et al., arXiv:2108.12409 section 3 and its code.
double alibi_slope(int64_t head, int64_t n_heads);

/// Attention of each query over the keys it may see:  softmax(cap(q kᵀ · scale) + mask) v,
/// where cap(s) = softcap · tanh(s / softcap), or s if softcap is 0. With sinks a row of the pattern adds up to less than 1: what
/// its head's sink takes goes nowhere (arXiv:2309.17453 section 3.3, "learnable sink").
///
/// q        [rows, n_heads, head_dim]      sums are f32
/// k, v     [rows, n_kv_heads, head_dim]   n_heads must be a multiple of n_kv_heads; v's head size may differ
/// step     where each sequence's rows begin, their positions, and its cached keys and values of `layer`, which k and v
///          extend (they count once step.commit is called); without a cache only k and v are seen
/// returns  z [rows, n_heads, v's head size]
///
/// Keys are reduced in blocks of kKeyBlock positions, aligned to position 0, and the partial results joined in order: a
/// row's bits depend neither on the cache, the chunking nor the other rows.
/// Hook points under `name`: hook_attn_scores [head, query, key] of the listener's sequence, scaled, capped and masked
/// (-inf); hook_pattern [head, query, key] over all keys, zeros where masked; hook_z. Listening to the first two runs the
/// stepwise form, which agrees with the fused one to 1e-5 in f32 (tests/engine/ops/attention_test.cpp).
/// Backward: q, k, v, sinks. Keeps z and one log-sum-exp per row and head, never the pattern. Not defined with a cache.
/// Errors: ShapeError naming the two sizes that disagree; UsageError for a tape or f64 together with a cache.
/// Sources: arXiv:1706.03762 section 3.2.1, 2305.13245 (grouped queries), 2408.00118 section 2 (caps, windows),
///          2205.14135 (the fused form).
Tensor attention(Context& ctx, std::string_view name, const Tensor& q, const Tensor& k, const Tensor& v, const Step& step,
                 int layer, const AttentionSpec& spec);

/// The heads' output projection: z [rows, n_heads, v_dim] through W_O [d_model, n_heads · v_dim] plus its bias.
/// Hook points under `name`: hook_result [rows, n_heads, d_model], what each head adds on its own, computed only if
/// somebody listens (then their sum plus the bias is what flows on); hook_out [rows, d_model].
Tensor attention_output(Context& ctx, std::string_view name, const Tensor& z, const Weight& W_O);

}  // namespace vitrine
