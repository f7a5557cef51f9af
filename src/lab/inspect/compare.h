#pragma once
// Two files of one model on one prompt: how far apart they are after each layer, where they look, and what they predict.
// For weights in two types (f32 beside bf16, Q8_0 or Q4_0), two checkpoints of a training, or two ways to compute.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

/// The residual stream at one point, over all positions.
struct StreamDifference {
  std::string point;     // "embedding", then "layer 0", …
  int64_t layer = -1;    // -1: the embedding
  double cosine = 1;     // of the two streams, mean over the positions
  double distance = 0;   // 1 - cosine at the position where it is largest
  int64_t worst_at = 0;  // that position
  double relative = 0;   // |b - a| / |a| over all positions
  // Of a layer's patterns, the share of a query's attention that moved, sum |a - b| / 2 over its keys: mean over heads and
  // queries, and the largest with its head and query. 0 for the embedding.
  double attention_mean = 0, attention_most = 0;
  int64_t attention_head = 0, attention_query = 0;
};

/// The predictions after one position.
struct PredictionDifference {
  int64_t position = 0;
  double kl = 0;                  // KL(a || b), in nats
  TokenLogprob top_a{}, top_b{};  // the most likely of each
};

struct ModelComparison {
  std::vector<std::string> dtypes_a, dtypes_b;  // of the matrices, in alphabetical order
  std::vector<StreamDifference> layers;         // the embedding first
  std::vector<PredictionDifference> predictions;
  double kl_mean = 0, kl_most = 0;
  double same_top = 1;        // share of positions at which both find the same token most likely
  double threshold = 0;       // as asked for
  int64_t first_beyond = -1;  // index in `layers` of the first whose distance exceeds the threshold; -1: none does
};

/// Element types of the model's matrices, in alphabetical order.
std::vector<std::string> weight_dtypes(const Engine& engine);

/// Errors: InputError naming the two sizes if these cannot be two files of one model.
void check_same_sizes(const Engine& a, const Engine& b);

/// Runs `ids` through both. Errors: InputError where the models' sizes differ (both are named), as Engine::check_ids of each,
/// and for a prompt whose patterns do not fit into memory; RunError for NaN.
ModelComparison compare_models(Engine& a, Engine& b, std::span<const int32_t> ids, double threshold, size_t memory = 0);

}  // namespace vitrine
