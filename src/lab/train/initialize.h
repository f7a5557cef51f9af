#pragma once
// Where learning starts: random weights from a seed.
#include <cstdint>

#include "model/load.h"
#include "train/parameters.h"

namespace vitrine {

/// How fresh weights are drawn.
struct InitRule {
  enum class Kind : uint8_t {
    family,            // as the family's reference implementation does
    scale_preserving,  // standard deviation 1 / sqrt(inputs) for every matrix, 1 / sqrt(d_model) for embeddings
  };
  Kind kind = Kind::family;
  double std = 0.02;          // of the family rule: config.json's initializer_range
  bool random_norms = false;  // norm weights from N(1, std), biases from N(0, std), instead of exactly 1 and 0
};

/// Fills the weights.
///
/// family            matrices and embeddings from N(0, std). GPT-2: those that write to the residual stream (W_O, W_out) from
///                   N(0, std / sqrt(2 n_layers)), since 2 n_layers of them add up (Radford et al. 2019, section 2.3)
/// scale_preserving  from N(0, 1 / inputs), so that a product of inputs of scale 1 has scale 1
/// both              norms are the identity (a stored weight of 0 where the family adds 1 to it), biases 0
///
/// A number depends on the seed, its parameter's name and its place alone: the same on any number of threads.
void initialize(const Parameters& parameters, const Model& model, const InitRule& rule, uint64_t seed);

/// The score of a reward model whose files hold none yet, as transformers draws it: N(0, initializer_range).
void initialize_score(OpenedModel& opened, uint64_t seed);

}  // namespace vitrine
