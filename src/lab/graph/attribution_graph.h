#pragma once
// Attribution graphs: which features of transcoders, tokens and unexplained parts of MLPs act directly on which, and on the
// logits, for one prompt. Ameisen et al. 2025, transformer-circuits.pub/2025/attribution-graphs/methods.html; definitions and
// values are those of circuit-tracer 0.5.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "sae/transcoder_set.h"
#include "vitrine/float_vector.h"

namespace vitrine {

struct GraphFeature {
  int32_t layer = 0, position = 0, feature = 0;
  float value = 0;
};
struct GraphLogit {
  int32_t token = 0;
  std::string text;
  double probability = 0;
};

/// Nodes are numbered: selected features in the order of `active`; errors, layer by layer, a number for each position; tokens;
/// logits.
struct AttributionGraph {
  std::vector<int32_t> tokens;
  std::vector<std::string> token_texts;
  std::string prompt;  // the text of all tokens
  std::string scan;    // the transcoders' name
  int64_t n_layers = 0;

  std::vector<GraphFeature> active;  // all active features, by layer, position and number
  std::vector<int64_t> selected;     // those that are nodes: places in `active`, ascending
  std::vector<GraphLogit> logits;    // most likely first
  /// Rows of the targets that something acts on, features and behind them logits: [features + logits, nodes]. An element is what
  /// the column's node adds to the target: to a feature's value before its activation, or to a logit less the mean of all logits.
  FloatVector effects;

  int64_t positions() const { return static_cast<int64_t>(tokens.size()); }
  int64_t features() const { return static_cast<int64_t>(selected.size()); }
  int64_t first_error() const { return features(); }
  int64_t first_token() const { return features() + n_layers * positions(); }
  int64_t first_logit() const { return first_token() + positions(); }
  int64_t nodes() const { return first_logit() + static_cast<int64_t>(logits.size()); }
  int64_t rows() const { return features() + static_cast<int64_t>(logits.size()); }
  /// The row of `effects` of a target, or -1 for errors and tokens.
  int64_t row_of(int64_t node) const {
    return node < features() ? node : node < first_logit() ? -1 : node - first_logit() + features();
  }
  int64_t node_of_row(int64_t row) const { return row < features() ? row : row - features() + first_logit(); }
  std::span<const float> row(int64_t row) const { return {effects.data() + row * nodes(), static_cast<size_t>(nodes())}; }
};

struct GraphOptions {
  int64_t max_features = 7500;  // nodes; of more active ones those with the largest influence on the logits
  int64_t max_logits = 10;
  double logit_share = 0.95;               // the most likely tokens until their probabilities add up to it
  std::vector<int32_t> targets = {};       // these tokens' logits instead
  int64_t ignored_positions = 1;           // at the beginning (BOS), whose features and errors are left out
  int64_t ranked_together = 2048;          // features that are taken between two rankings, where max_features limits them
  size_t pass_memory = size_t{512} << 20;  // what is recorded for gradients
  size_t memory = 0;                       // of effects; 0: what the system has left
};

/// A text's ids with a control token in front, for what stands first is no feature's place: `ids` themselves if they begin with
/// one, else behind the tokenizer's BOS, padding or EOS token, the first that it has.
std::vector<int32_t> graph_ids(const Engine& engine, std::vector<int32_t> ids);

/// Runs the prompt, and then copies of it side by side, backwards once for some features at a time.
/// Errors: as check_replaceable and Engine::check_ids; InputError for effects that take more than `memory`, targets outside the
/// vocabulary and options out of range; RunError for NaN or infinity.
AttributionGraph attribution_graph(Engine& engine, const TranscoderSet& set, std::span<const int32_t> ids,
                                   const GraphOptions& options = {});

}  // namespace vitrine
