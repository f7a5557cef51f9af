#pragma once
// One forward pass's input: rows of tokens, grouped by sequence. A prompt, a training batch, 64 streams in decode and a
// chunk of prefill are the same thing; there is no padding, so padding cannot change a logit.
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/types.h"
#include "ops/kv_cache.h"

namespace vitrine {

struct StepSequence {
  int64_t first_row = 0, rows = 0;
  int64_t position = 0;            // of its first row
  int64_t begun = 0;               // tokens of the prompt that the sequence began with: what LongRoPE goes by
  CacheSequence* cache = nullptr;  // none: only this step's rows are seen
};

/// RoPE as the configuration states it. inv_freq[i] = theta^(-2i / rotary_dim), changed by `scaling`:
/// linear (every frequency divided by factor), Llama 3.1's rule, YaRN (arXiv:2309.00071 section 3.3), LongRoPE (2402.13753: a
/// divisor for each frequency, others in sequences that began longer than original_context), Gemma 4's proportional rule (the
/// first `turning` pairs turn, with frequencies of the whole width divided by factor; the others stand still).
struct RopeSpec {
  enum class Scaling : uint8_t { none, linear, llama3, yarn, longrope, proportional };
  double theta = 10000;
  int64_t rotary_dim = 0;  // components that turn; the rest of a head stays
  RopeLayout layout = RopeLayout::halves;
  Scaling scaling = Scaling::none;
  double factor = 1;                                 // linear, llama3, yarn, proportional
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double original_context = 8192;                    // llama3, yarn, longrope
  double beta_fast = 32, beta_slow = 1;              // yarn: turns in original_context above and below which a pair is left alone
  bool truncate = true;                              // yarn: the pairs between them counted outwards to whole ones
  int64_t turning = 0;                               // proportional
  double attention_factor = 1;                       // cosines and sines are multiplied by it (yarn, longrope)
  const float* divisors = nullptr;       // [rotary_dim / 2] of each frequency (rope_freqs.weight, LongRoPE's short ones), or null
  const float* long_divisors = nullptr;  // longrope: of longer sequences
  bool operator==(const RopeSpec&) const = default;
};

/// The frequencies [rotary_dim / 2], f32 as the reference implementations compute them. begun: StepSequence's.
std::vector<float> rope_frequencies(const RopeSpec& spec, int64_t begun = 0);

class Step {
 public:
  Step() = default;
  /// One sequence from position 0, no cache.
  static Step of(std::span<const int32_t> tokens) {
    Step step;
    step.add(tokens);
    return step;
  }
  /// Appends a sequence's rows. With a cache they follow its positions; its pages are made ready. prompt: how many tokens the
  /// sequence begins with, where these are but the first of them.
  /// Errors: InputError for no tokens or a context that is too short.
  void add(std::span<const int32_t> tokens, CacheSequence* cache = nullptr, int64_t prompt = 0);

  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const int32_t> positions() const { return positions_; }
  std::span<const StepSequence> sequences() const { return sequences_; }
  int64_t rows() const { return static_cast<int64_t>(tokens_.size()); }

  /// The rows count from now on: the first `rows` of the given sequence, or all rows of all sequences.
  /// What is not committed is forgotten: a rejected draft, a cancelled request, an error.
  void commit(size_t sequence, int64_t rows);
  void commit();

  /// Cosines and sines of every row's angles [rows, rotary_dim / 2], computed at the first call for a spec.
  struct Angles {
    RopeSpec spec;
    std::vector<float> cos, sin;
  };
  const Angles& angles(const RopeSpec& spec) const;

 private:
  std::vector<int32_t> tokens_, positions_;
  std::vector<StepSequence> sequences_;
  mutable std::vector<Angles> angles_;
};

}  // namespace vitrine
