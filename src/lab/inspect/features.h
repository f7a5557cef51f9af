#pragma once
// What the features of an autoencoder mean in a model: which are active on each token, where in a text one is largest, how often,
// and which tokens its direction speaks for.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "sae/autoencoder.h"
#include "sae/circuit_tracer.h"
#include "sae/transcoder_set.h"

namespace vitrine {

/// Errors: InputError for an autoencoder without a hook, a hook that the model lacks, or widths that are not the hook's.
void check_fits(const Engine& engine, const SparseAutoencoder& sae);
void check_fits(const Engine& engine, const CrossLayerTranscoder& transcoder);
void check_fits(const Engine& engine, const TranscoderSet& set);

/// The features of every token of one sequence; the run ends behind the hook.
/// Errors: as check_fits and run_partly.
SparseFeatures features_of(Engine& engine, const SparseAutoencoder& sae, std::span<const int32_t> ids);

/// Writes, for one sequence, "<hook>.hook_sae_acts_post" [tokens, d_sae], "<hook>.hook_sae_recons" and "<hook>.hook_sae_error"
/// [tokens, d_out] to the safetensors file `path`, where <hook> is where the autoencoder writes: their sum is the value there.
/// Errors: as features_of; RunError from the disk; InputError for more than `memory` bytes (0: what the system has left).
void trace_features(Engine& engine, const SparseAutoencoder& sae, std::span<const int32_t> ids, const std::string& path,
                    size_t memory = 0);

struct TokenLogit {
  int32_t token = 0;
  double logit = 0;

  VITRINE_MEMBERS(token, logit);
};
/// The tokens with the largest or the smallest logits, the most extreme first, lower ids first among equals.
std::vector<TokenLogit> extreme_logits(std::span<const float> logits, int64_t tokens, bool largest);

/// Where a feature was large: a token and what stands around it.
struct FeatureContext {
  float value = 0;
  int64_t position = 0;         // of the token among all of the text
  std::vector<int32_t> tokens;  // some before it, it, some behind it
  std::vector<float> values;    // the feature's value on each of them
  int64_t at = 0;               // which of them it is

  VITRINE_MEMBERS(value, position, at, tokens, values);
};

struct FeatureSummary {
  int64_t feature = 0;
  int64_t active = 0;  // tokens on which it is not zero
  double mean = 0;     // over these
  float largest = 0;
  std::vector<int64_t> histogram;        // of values that are not zero, in equal steps from 0 to `largest`
  std::vector<FeatureContext> contexts;  // largest first, one for each stretch of text at most

  VITRINE_MEMBERS(feature, active, mean, largest, histogram, contexts);
};

/// What a text says of an autoencoder.
struct FeatureTable {
  int64_t tokens = 0;
  std::vector<int64_t> active;  // [d_sae]: tokens on which each feature is not zero
  double l0 = 0;                // features that are active on a token, on average
  std::vector<FeatureSummary> features;
};

struct FeatureTableOptions {
  std::vector<int64_t> features;  // to be summarized
  int64_t contexts = 10;          // for each
  int64_t before = 12, behind = 4;
  int64_t bins = 24;
};

/// Runs the windows, each a sequence of its own. Errors: as features_of; InputError for a feature that is not there.
FeatureTable feature_table(Engine& engine, const SparseAutoencoder& sae, const std::vector<std::vector<int32_t>>& windows,
                           const FeatureTableOptions& options);

/// The tokens whose logits a feature's direction raises and lowers most: direction · W_U with the final norm's weight, without
/// its scale and the head's bias and cap. Largest first, smallest first.
struct FeatureLogits {
  std::vector<TokenLogit> raised, lowered;

  VITRINE_MEMBERS(raised, lowered);
};
/// Errors: InputError if it does not write into the residual stream (d_out is not d_model), or for a feature that is not there.
FeatureLogits feature_logits(Engine& engine, const SparseAutoencoder& sae, int64_t feature, int64_t top);
/// The same of any directions in the stream, [n, d_model].
std::vector<FeatureLogits> direction_logits(Engine& engine, std::span<const float> directions, int64_t top);

}  // namespace vitrine
