#pragma once
// The residual stream as the sum of what was written into it, what each part says about the next token, and what the stream
// would predict if it ended at each layer.
// Sources: Elhage et al., "A Mathematical Framework for Transformer Circuits", 2021 (the stream as a sum; direct logit
// attribution); nostalgebraist, "interpreting GPT: the logit lens", 2020.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

struct TunedLens;

/// One summand of the residual stream.
struct StreamPart {
  enum class Kind : uint8_t {
    embed,           // "embed": the token's embedding, after the family's scaling
    positions,       // "pos_embed": learned or sinusoidal positions
    head,            // "L3.H1": what head 1 of layer 3 writes
    attention_bias,  // "L3.attn_bias": the bias of the heads' output projection
    convolution,     // "L3.conv" or "L3.delta": the first sub-layer of a layer with a convolution or recurrence for attention
    mlp,             // "L3.mlp": the feed-forward sub-layer with its bias
    per_layer,       // "L3.per_layer": what a per-layer embedding adds
    norm_bias,       // "L3.ln1_bias": the bias of a norm that acts on the stream itself
  };
  Kind kind = Kind::embed;
  int64_t layer = -1, head = -1;  // -1: none
  std::string name;
};

/// Every family's stream is a sum, exactly, once the norms' scales are taken from the run:
/// - a norm between a sub-layer and the stream (Gemma 2) is then linear, and acts on each head alone;
/// - a norm on the stream itself (the classic decoder with norms after) is then linear too, and acts on all parts so far; its
///   bias becomes a part.
struct StreamParts {
  std::vector<StreamPart> parts;   // P, in the order of the run
  std::vector<int64_t> positions;  // R
  int64_t d_model = 0;
  std::vector<float> values;  // [P, R, d_model]
  std::vector<float> stream;  // [R, d_model]: the stream as the model computed it
  double gap = 0;             // largest |stream - sum of the parts|: rounding

  std::span<const float> part(size_t p, size_t position) const {
    return std::span(values).subspan((p * positions.size() + position) * static_cast<size_t>(d_model),
                                     static_cast<size_t>(d_model));
  }
  std::span<const float> stream_at(size_t position) const {
    return std::span(stream).subspan(position * static_cast<size_t>(d_model), static_cast<size_t>(d_model));
  }
};

/// The positions asked for, or the last one. Errors: InputError for one outside the prompt, naming the range.
std::vector<int64_t> positions_or_last(std::span<const int64_t> positions, size_t tokens);

struct StreamPartsOptions {
  std::vector<int64_t> positions = {};  // which rows; empty: the last one
  std::string until = {};               // hook_resid_pre, _mid or _post of a layer ("blocks.2.hook_resid_mid"); empty: the end
  size_t memory = 0;                    // bytes the parts may take; 0: what the system has left
};

/// Runs `ids` once and takes the stream apart. Errors: as Engine::check_ids; InputError for a position outside the prompt, for
/// `until` that names no point of the stream, and for parts that do not fit into memory; UsageError as attention_output's
/// hook_result; RunError for NaN.
StreamParts stream_parts(Engine& engine, std::span<const int32_t> ids, const StreamPartsOptions& options = {});

/// Direct logit attribution: with the final norm's scale frozen, the logit before the final cap is linear in the stream, so
///   before_cap = sum of parts + norm_bias + head_bias + rounding,   part = W_U[token] · gain ⊙ (x_part - mean) / scale
/// (the mean of LayerNorm only). All sums are in double.
struct LogitAttribution {
  struct Logit {
    int64_t position = 0;
    int32_t token = 0;
    std::vector<double> parts;  // [P]
    double norm_bias = 0;       // W_U[token] · bias of the final norm
    double head_bias = 0;       // bias of the output
    double rounding = 0;        // the remainder: what is left of before_cap, below 1e-4 of it where the model runs in f32
    double before_cap = 0;
    double logit = 0;  // as the model gives it: after the cap, if it has one
  };
  std::vector<StreamPart> parts;  // P
  std::vector<Logit> logits;      // position by position, the tokens in the given order
  double softcap = 0;             // 0: none
};

/// tokens      whose logits; empty: the most likely one of each position
/// positions   after which; empty: the last
/// Errors: as stream_parts; InputError for a token outside the vocabulary.
LogitAttribution attribute_logits(Engine& engine, std::span<const int32_t> ids, std::span<const int32_t> tokens,
                                  std::span<const int64_t> positions, size_t memory = 0);

/// What the final norm and the head read off the stream at a point of the run.
struct LensReading {
  std::vector<TokenLogprob> top;  // most likely first
  double kl = 0;                  // KL(model's own prediction || this one), in nats
  int64_t rank = 1;               // here, of the token that the model finds most likely; 1: the most likely here too
  double logprob = 0;             // here, of that token
  double length = 0;              // of the residual stream here: the root of the sum of its squares

  VITRINE_MEMBERS(top, kl, rank, logprob, length);
};
struct LogitLens {
  std::vector<std::string> points;    // "blocks.0.hook_resid_pre", then every layer's hook_resid_post
  std::vector<int64_t> positions;     // R
  std::vector<LensReading> readings;  // [point, R]

  const LensReading& at(size_t point, size_t position) const { return readings[point * positions.size() + position]; }
};

/// The logit lens: the model's own final norm (with the scale of the stream at that point) and head on the stream before the
/// first layer and after every layer. The last point is the model's prediction.
/// positions empty: all. edits: changes the run before it is read, as Interventions do; the last point is then the prediction of
/// the changed model. tuned: translates the stream at every other point first (inspect/tuned_lens.h); it fits the model.
/// Errors: as stream_parts.
LogitLens logit_lens(Engine& engine, std::span<const int32_t> ids, std::span<const int64_t> positions, int64_t top,
                     size_t memory = 0, Listener* edits = nullptr, const TunedLens* tuned = nullptr);

}  // namespace vitrine
