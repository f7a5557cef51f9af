#pragma once
// Two files of one model on one prompt: how far apart they are after each layer, where they look, and what they predict.
// For weights in two types (f32 beside bf16, Q8_0 or Q4_0), two checkpoints of a training, or two ways to compute.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

/// The residual stream at one point, over all positions.
struct StreamDifference {
  std::string point;             // "embedding", then "layer 0", …
  std::optional<int64_t> layer;  // none: the embedding
  double cosine = 1;             // of the two streams, mean over the positions
  double distance = 0;           // 1 - cosine at the position where it is largest
  int64_t worst_position = 0;    // that position
  double relative = 0;           // |b - a| / |a| over all positions
  // Of a layer's patterns, the share of a query's attention that moved, sum |a - b| / 2 over its keys: mean over heads and
  // queries, and the largest with its head and query. 0 for the embedding.
  double attention_mean = 0, attention_most = 0;
  int64_t attention_head = 0, attention_query = 0;

  VITRINE_MEMBERS(point, layer, cosine, distance, worst_position, relative, attention_mean, attention_most, attention_head,
                  attention_query);
};

/// The predictions after one position.
struct PredictionDifference {
  int64_t position = 0;
  double kl = 0;          // KL(a || b), in nats
  TokenLogprob a{}, b{};  // the most likely of each

  VITRINE_MEMBERS(position, kl, a, b);
};

struct ComparedModel {
  std::string model;                // its name
  std::vector<std::string> dtypes;  // of the matrices, in alphabetical order

  VITRINE_MEMBERS(model, dtypes);
};

struct ModelComparison {
  ComparedModel a, b;
  std::vector<StreamDifference> layers;  // the embedding first
  std::vector<PredictionDifference> predictions;
  double kl_mean = 0, kl_most = 0;
  double same_top = 1;                      // share of positions at which both find the same token most likely
  double threshold = 0;                     // as asked for
  std::optional<std::string> first_beyond;  // the first point whose distance exceeds the threshold

  VITRINE_MEMBERS(a, b, threshold, first_beyond, kl_mean, kl_most, same_top, layers, predictions);
};

/// Element types of the model's matrices, in alphabetical order.
std::vector<std::string> weight_dtypes(const Engine& engine);

/// Errors: InputError naming the two sizes if these cannot be two files of one model.
void check_same_sizes(const Engine& a, const Engine& b);

/// Runs `ids` through both. Errors: InputError where the models' sizes differ (both are named), as Engine::check_ids of each,
/// and for a prompt whose patterns do not fit into memory; RunError for NaN.
ModelComparison compare_models(Engine& a, Engine& b, std::span<const int32_t> ids, double threshold, size_t memory = 0);

}  // namespace vitrine
