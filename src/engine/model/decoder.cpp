#include "model/decoder.h"

#include <cmath>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/tape.h"

namespace vitrine {

Tensor Decoder::embedded(Context& ctx, const Step& step) const {
  Tensor x = embed(ctx, step.tokens(), W_E);  // [T, D] #embed
  // Gemma's factor is rounded to bf16 where the original runs in bf16; in f32 it is the square root itself.
  if (const double factor = shape().embedding_scale; factor != 1) x = scale(ctx, x, factor);  // #embedding-scale
  return ctx.hook("hook_embed", x);                                                           // [T, D] #embed
}

Tensor Decoder::residual(Context& ctx, const Step& step) const {
  ctx.enter(step);
  Tensor x = embedded(ctx, step);                                                                                     // [T, D]
  for (int layer = 0; layer < shape().n_layers; ++layer) x = ctx.checkpoint(&Decoder::block, *this, step, layer, x);  // #layers
  return final_norm(ctx, x);  // [T, D] #final-norm
}

// Tied: the same rows look tokens up and score them. logits() and cross_entropy() read this, for the rows they need.
Head Decoder::head() const { return {.weight = unembedding()}; }  // #head

Tensor Decoder::block(Context&, const Step&, int, Tensor) const {
  VITRINE_CHECK(false, "a family overrides block(), or residual(), which calls it");
}

RopeDecoder::RopeDecoder(const DecoderConfig& config) : Decoder(config), common_(config) {}

AttentionSpec RopeDecoder::attention_spec(int64_t layer) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(common_.head_dim)),                                // #scale
          .window = common_.windows.empty() ? kNoWindow : common_.windows[static_cast<size_t>(layer)],  // #window
          .dropout = common_.attn_dropout,
          .dropout_site = static_cast<uint32_t>(layer)};
}

PartList RopeDecoder::begin_tensors(const StoredLayout& norms, const StoredLayout& qk) {
  PartList list(shape(), {.norm = common_.norm,
                          .activation = common_.activation,
                          .qkv_bias = common_.qkv_bias,
                          .o_bias = common_.o_bias,
                          .mlp_bias = common_.mlp_bias,
                          .norms = norms,
                          .qk = qk});
  list.add(W_E, "W_E", "model.embed_tokens.weight", "token_embd.weight", list.size.V, list.size.D);
  return list;
}

void RopeDecoder::end_tensors(PartList& list) {
  list.end_layers();
  list.size = TensorSizes(shape());
  list.add(ln_final);
  if (!shape().tied) list.add(W_U, "W_U", "lm_head.weight", "output.weight", list.size.V, list.size.D);
  set_tensors(list.take());
}

}  // namespace vitrine
