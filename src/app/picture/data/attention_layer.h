#pragma once
// One attention layer from its sizes, with random weights on random numbers: no model is needed.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace vitrine {

/// Without positions and without a mask. n_heads is a multiple of n_kv_heads and divides d_model.
struct AttentionLayerSizes {
  int64_t batch = 2, length = 32, d_model = 4096, n_heads = 32, n_kv_heads = 8;
  int64_t head_dim() const { return d_model / n_heads; }
};

/// The input x [batch, length, d_model], count numbers: from the normal distribution.
std::vector<float> attention_layer_input(size_t count);
/// Numbers of a matrix W_Q, W_K, W_V, W_O (0 to 3) [out, in] from number `first` on: evenly from -1/sqrt(in) to 1/sqrt(in), as
/// torch's nn.Linear begins.
void attention_layer_weights(int matrix, int64_t in, uint64_t first, std::span<float> numbers);

struct AttentionLayerRun {
  struct Value {
    std::string name;
    std::vector<int64_t> shape;
    double deviation = 0;  // standard deviation of all of its numbers
  };
  std::vector<Value> values;  // in the order of the run
  std::vector<float> out;     // [batch, length, d_model]
  double repeated = 0;        // the largest difference to the same layer whose keys and values were repeated for every query head
  int64_t parameters[4] = {};  // of W_Q, W_K, W_V, W_O
  int64_t multiply_adds = 0;   // of the whole layer
};
/// Runs the ops of every model here. One matrix is in memory at a time.
AttentionLayerRun run_attention_layer(ThreadPool& pool, const AttentionLayerSizes& sizes);

}  // namespace vitrine
