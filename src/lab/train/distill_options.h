#pragma once
// The section `distill` of a training configuration (docs/distillation.md).
#include <cstdint>
#include <string>

#include "ops/divergence.h"

namespace vitrine {

struct DistillOptions {
  std::string teacher;       // any model there is
  DivergenceSpec spec = {};  // with its temperature
  double alpha = 0.5;        // the cross-entropy's share; the divergence has 1 - alpha, times temperature²

  // Sequences that the student continues itself (GKD, arXiv:2306.13649).
  double on_policy = 0;           // share of the batches
  double prompt = 0.5;            // share of a sequence that stays as it is in the data
  double sample_temperature = 1;  // 0: greedy

  std::string cache;   // folder for the teacher's most likely tokens; empty: the teacher runs every time
  int64_t top_k = 64;  // of each row
};

}  // namespace vitrine
