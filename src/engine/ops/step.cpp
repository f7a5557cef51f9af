#include "ops/step.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace vitrine {

void Step::add(std::span<const int32_t> tokens, CacheSequence* cache, int64_t prompt) {
  if (tokens.empty()) throw InputError("a sequence without tokens cannot be run; give at least one token");
  const auto n = static_cast<int64_t>(tokens.size());
  if (cache != nullptr) cache->reserve(n);
  if (cache != nullptr && cache->length() == 0) cache->begin(std::max(n, prompt));
  const int64_t position = cache != nullptr ? cache->length() : 0,
                begun = cache != nullptr ? cache->begun() : std::max(n, prompt);
  sequences_.push_back({rows(), n, position, begun, cache});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (int64_t i = 0; i < n; ++i) positions_.push_back(static_cast<int32_t>(position + i));
  angles_.clear();
}

void Step::commit(size_t sequence, int64_t rows) {
  const StepSequence& s = sequences_[sequence];
  VITRINE_CHECK(rows >= 0 && rows <= s.rows, "a step commits at most the rows it ran");
  if (s.cache != nullptr) s.cache->commit(rows);
}

void Step::commit() {
  for (size_t i = 0; i < sequences_.size(); ++i) commit(i, sequences_[i].rows);
}

const Step::Angles& Step::angles(const RopeSpec& spec) const {
  for (const Angles& known : angles_)
    if (known.spec == spec) return known;
  Angles made{spec, {}, {}};
  const auto half = static_cast<size_t>(spec.rotary_dim / 2);
  const auto stretch = static_cast<float>(spec.attention_factor);
  made.cos.resize(positions_.size() * half);
  made.sin.resize(positions_.size() * half);
  std::vector<float> freq;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const StepSequence& sequence = sequences_[s];
    if (s == 0 ||
        (spec.scaling == RopeSpec::Scaling::longrope && is_long(spec, sequence.begun) != is_long(spec, sequences_[s - 1].begun)))
      freq = rope_frequencies(spec, sequence.begun);
    for (auto row = static_cast<size_t>(sequence.first_row); row < static_cast<size_t>(sequence.first_row + sequence.rows); ++row)
      for (size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions_[row]) * freq[i];
        made.cos[row * half + i] = std::cos(angle) * stretch;
        made.sin[row * half + i] = std::sin(angle) * stretch;
      }
  }
  angles_.push_back(std::move(made));
  return angles_.back();
}

}  // namespace vitrine
