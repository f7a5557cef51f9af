#pragma once
// The hidden units of an MLP: which are most active after a token, and what each of them writes into the vocabulary.
// Source: Geva et al., arXiv:2203.14680 (what an MLP writes, unit by unit, read as tokens).
#include <cstdint>
#include <span>
#include <vector>

#include "inspect/features.h"
#include "runtime/engine.h"

namespace vitrine {

struct UnitsOptions {
  int64_t layer = -1;     // -1: the one before the last, or the only one
  int64_t position = -1;  // of the prompt; negative: from the end
  int64_t units = 8;      // so many of the largest |value|
  int64_t tokens = 5;     // so many at either end of what a unit writes
};

/// What units add to the logits after one token, before the final cap, on the direct path: through the norms between the unit and
/// the output, whose scales are those of this run, and past all later layers.
///
///   logits(unit) = s · W_U · N_final(… N_post(r · value · W_out[:, unit]))
///
/// N_post is a norm between the MLP and the stream (Gemma 2) or on the stream itself (the classic decoder with norms after, for
/// this and every later sub-layer); N(x) = gain ⊙ (x - mean) / scale, the mean of LayerNorm only, without its bias. r and s are
/// the model's factors on the stream and on the logits. Over all units these sum to what attribute_logits gives for the MLP, less
/// its output's bias.
struct UnitWrites {
  int64_t layer = 0, position = 0;
  int64_t d_ff = 0;
  struct Unit {
    int64_t unit = 0;
    double value = 0;                              // its activation: hook_post
    std::vector<TokenLogit> promoted, suppressed;  // the most first

    VITRINE_MEMBERS(unit, value, promoted, suppressed);
  };
  std::vector<Unit> units;  // the most active first

  VITRINE_MEMBERS(layer, position, d_ff, units);
};

/// Runs `ids` once. Errors: as Engine::check_ids; InputError for a layer or a position that is not there; UsageError for a layer
/// without one MLP for all tokens (a mixture of experts) and for models whose sub-layers replace the stream;
/// RunError for NaN.
UnitWrites unit_writes(Engine& engine, std::span<const int32_t> ids, const UnitsOptions& options = {});

}  // namespace vitrine
