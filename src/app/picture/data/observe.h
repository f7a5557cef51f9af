#pragma once
// One run of a prompt, reduced while it happens to the numbers that pictures need: patterns become tiles and largest weights,
// the stream becomes sums. What is kept grows with tokens × layers × heads at most, never with all intermediates.
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "picture/data/facts.h"
#include "runtime/engine.h"

namespace vitrine {

/// Sums over numbers that give their mean, standard deviation (the population's) and root mean square. In double.
struct Moments {
  double count = 0, sum = 0, squares = 0;
  void add(const float* x, int64_t n);
  void add(const Moments& other);
  double mean() const { return count > 0 ? sum / count : 0; }
  double rms() const { return count > 0 ? std::sqrt(squares / count) : 0; }
  double sigma() const;
};

/// Attention weights of one layer, as data.ts' Attention holds them.
struct LayerPatterns {
  std::vector<uint16_t> full;         // [head, causal cells], or empty
  std::vector<uint8_t> tiles;         // [head, causal cells of the bins], or empty
  std::vector<uint16_t> top_sources;  // [head, target, k], or empty
  std::vector<uint16_t> top_weights;
  std::vector<double> entropy_share, seen_rows;        // [head]: sum over targets of entropy / ln n, and how many targets
  std::vector<double> on_first, on_previous, on_self;  // [head]: sums over targets from 1 on
};

/// Where the router of one layer sent the tokens. Empty in a layer without experts.
struct LayerExperts {
  std::vector<uint16_t> chosen;      // [token, per_row]: numbers of experts, the heaviest first
  std::vector<float> weights;        // [token, per_row]
  std::vector<float> probabilities;  // [token, expert]: softmax of the router's scores, or shares of their sigmoids; up to
                                     // kTokensEach tokens, else empty
  std::vector<double> choices, probability;  // [expert]: tokens that chose it, the sum of its probabilities
};

/// How much of the patterns is kept, from the prompt's length and the model's heads.
struct PatternLevel {
  bool full = true;
  int64_t bins = 0, tokens_per_bin = 0, top = 0;  // top 0: none
  size_t bytes = 0;                               // kept in memory
};
PatternLevel pattern_level(int64_t tokens, int64_t layers, int64_t heads);

/// What the soft cap does to the scores of one head.
struct CapCount {
  double scores = 0, changed = 0, beyond_half = 0, largest_capped = 0;
};

/// Which parts of the run are looked at; the others cost nothing.
enum ObserveNeed : uint32_t {
  kNeedStream = 1,        // scales of the stream and of what is added to it
  kNeedNorms = 2,         // statistics of each norm
  kNeedPatterns = 4,      // attention grids
  kNeedScores = 8,        // soft cap, one row of scores
  kNeedQueries = 16,      // query lengths
  kNeedHidden = 32,       // share of active hidden units
  kNeedLogits = 64,       // next tokens
  kNeedEmbeddings = 128,  // embedding and position rows of chosen positions
  kNeedExperts = 256,     // where routers send the tokens
  kNeedAll = 511,
};

struct ObserveOptions {
  uint32_t needs = kNeedAll;
  int64_t row_layer = 0, row_head = 0, row_target = -1;  // the row of scores; target -1: the last
  int64_t top = 10;                                      // next tokens kept for each position
  size_t memory = 0;                                     // bytes that may be kept; 0: what the system has left
  Listener* edits = nullptr;                             // changes the run before it is looked at
};

struct Observation {
  int64_t tokens = 0;

  struct Sublayer {
    Moments skip, update;                           // over [token, component]
    std::vector<Moments> skip_token, update_token;  // by token, up to kTokensEach of them; else empty
  };
  std::vector<Sublayer> sublayers;  // attention and MLP of layer 0, of layer 1, …
  std::vector<Moments> stream;      // before each sub-layer, and at the end: 2 · layers + 1

  struct Norm {
    std::string name;  // "blocks.0.ln1"
    Moments in, out;
    std::vector<float> in_rms, out_rms;  // by token
  };
  std::vector<Norm> norms;  // in the order of the run

  PatternLevel level;
  std::vector<LayerPatterns> patterns;      // by layer
  std::vector<std::vector<CapCount>> caps;  // [layer][head]
  int64_t row_layer = 0, row_head = 0, row_target = 0;
  std::vector<float> row_scores, row_weights;  // over sources 0 … target; -inf where masked
  std::vector<float> row_values;  // of that row's head: [source, component], sources 0 … target; empty where a layer borrows them
  std::vector<float> row_mixture;                 // [component]: what the head read there
  std::vector<std::vector<double>> query_length;  // [layer][head · pair]: sums over tokens
  std::vector<double> active;                     // [layer]: share of hidden units above zero
  std::vector<LayerExperts> experts;              // by layer

  Moments embedding;                             // of hook_embed
  std::vector<int64_t> positions;                // chosen ones, at most 64
  std::vector<float> embed_rows, position_rows;  // [chosen, d_model]

  std::vector<std::vector<TokenLogprob>> next;  // by position
  std::vector<double> next_logprob;             // of the token that really follows, by position but the last
  std::vector<int64_t> next_rank;
  CapCount final_cap;
};

inline constexpr int64_t kTokensEach = 256;  // beyond, numbers by token are left out

/// Runs `ids` once and keeps what options.needs says.
/// Errors: as Engine::check_ids; InputError for a row of scores that is not there and for more than memory holds, with both
/// numbers; RunError for NaN in the logits.
Observation observe(Engine& engine, std::span<const int32_t> ids, const ModelFacts& facts, const ObserveOptions& options = {});

/// σ of the stream where each sub-layer reads it and at the end (2 · layers + 1 numbers, not finite once f32 overflows), in a
/// run in which every norm is the identity.
std::vector<double> stream_without_norms(Engine& engine, std::span<const int32_t> ids, const ModelFacts& facts);

/// Update scales of the first attention and MLP in a run whose embeddings are divided by `factor`, and σ of those embeddings.
struct Unscaled {
  double sigma = 0, attention = 0, mlp = 0;
};
Unscaled without_embedding_scale(Engine& engine, std::span<const int32_t> ids, double factor);

/// sqrt(σr² / (σr² + σs²)); 0 where both are 0.
double update_scale(double sigma_update, double sigma_skip);

}  // namespace vitrine
