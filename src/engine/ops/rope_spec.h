#pragma once
// What a configuration says of rotary positions.
#include <cstdint>
#include <vector>

#include "kernels/types.h"

namespace vitrine {

/// RoPE as the configuration states it. inv_freq[i] = theta^(-2i / rotary_dim), changed by `scaling`:
/// linear (every frequency divided by factor), Llama 3.1's rule, YaRN (arXiv:2309.00071 section 3.3), LongRoPE (2402.13753: a
/// divisor for each frequency, others in sequences that began longer than original_context), Gemma 4's proportional rule (the
/// first `turning` pairs rotate, with frequencies of the whole width divided by factor; the others do not).
struct RopeSpec {
  enum class Scaling : uint8_t { none, linear, llama3, yarn, longrope, proportional };
  double theta = 10000;
  int64_t rotary_dim = 0;  // components that rotate; the rest of a head stays
  int64_t first = 0;       // the component that they begin with
  RopeLayout layout = RopeLayout::halves;
  Scaling scaling = Scaling::none;
  double factor = 1;                                 // linear, llama3, yarn, proportional
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double original_context = 8192;                    // llama3, yarn, longrope
  double beta_fast = 32, beta_slow = 1;  // yarn: rotations in original_context above and below which a pair is unchanged
  bool truncate = true;                  // yarn: the pairs between them counted outwards to whole ones
  int64_t turning = 0;                   // proportional
  double attention_factor = 1;           // cosines and sines are multiplied by it (yarn, longrope)
  const float* divisors = nullptr;       // [rotary_dim / 2] of each frequency (rope_freqs.weight, LongRoPE's short ones), or null
  const float* long_divisors = nullptr;  // longrope: of longer sequences
  bool operator==(const RopeSpec&) const = default;
};

/// Whether LongRoPE gives a sequence that began with so many tokens its long divisors.
bool is_long(const RopeSpec& spec, int64_t begun);

/// The frequencies [rotary_dim / 2], f32 as the reference implementations compute them. begun: StepSequence's.
std::vector<float> rope_frequencies(const RopeSpec& spec, int64_t begun = 0);

}  // namespace vitrine
