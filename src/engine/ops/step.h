#pragma once
// One forward pass's input: rows of tokens, grouped by sequence. A prompt, a training batch, 64 streams in decode and a
// chunk of prefill are the same thing; there is no padding, so padding cannot change a logit.
#include <cstdint>
#include <span>
#include <vector>

#include "ops/kv_cache.h"
#include "ops/rope_spec.h"

namespace vitrine {

struct StepSequence {
  int64_t first_row = 0, rows = 0;
  int64_t position = 0;            // of its first row
  int64_t begun = 0;               // tokens of the prompt that the sequence began with: what LongRoPE goes by
  CacheSequence* cache = nullptr;  // none: only this step's rows are seen
};

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
  /// What is not committed is forgotten: a rejected draft, a canceled request, an error.
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
