#include "ops/step.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace vitrine {

std::vector<float> rope_frequencies(const RopeSpec& spec) {
  std::vector<float> freq(static_cast<size_t>(spec.rotary_dim / 2));
  for (size_t i = 0; i < freq.size(); ++i) {
    // f32 throughout, as the reference does: at position 8000 one unit in the last place is 5e-4 of an angle.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.rotary_dim);
    float f = 1.0f / std::pow(static_cast<float>(spec.theta), exponent);
    if (spec.scaling == RopeSpec::Scaling::linear) f /= static_cast<float>(spec.factor);
    if (spec.scaling == RopeSpec::Scaling::llama3) {
      // Llama 3.1: long wavelengths are stretched by factor, short ones stay, those between are blended.
      // The reference divides a number by a tensor as number * (1 / tensor), and so do we, to the last bit.
      const auto factor = static_cast<float>(spec.factor), context = static_cast<float>(spec.original_context);
      const auto wavelength = (1 / f) * static_cast<float>(2 * std::numbers::pi);
      if (wavelength > static_cast<float>(spec.original_context / spec.low_freq_factor)) {
        f /= factor;
      } else if (wavelength >= static_cast<float>(spec.original_context / spec.high_freq_factor)) {
        const float smooth = ((1 / wavelength) * context - static_cast<float>(spec.low_freq_factor)) /
                             static_cast<float>(spec.high_freq_factor - spec.low_freq_factor);
        f = (1 - smooth) * f / factor + smooth * f;
      }
    }
    freq[i] = spec.divisors != nullptr ? f / spec.divisors[i] : f;
  }
  return freq;
}

void Step::add(std::span<const int32_t> tokens, CacheSequence* cache) {
  if (tokens.empty()) throw InputError("a sequence without tokens cannot be run; give at least one token");
  const auto n = static_cast<int64_t>(tokens.size());
  if (cache != nullptr) cache->reserve(n);
  const int64_t position = cache != nullptr ? cache->length() : 0;
  sequences_.push_back({rows(), n, position, cache});
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
  const std::vector<float> freq = rope_frequencies(spec);
  const size_t half = freq.size();
  made.cos.resize(positions_.size() * half);
  made.sin.resize(positions_.size() * half);
  for (size_t row = 0; row < positions_.size(); ++row)
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(positions_[row]) * freq[i];
      made.cos[row * half + i] = std::cos(angle);
      made.sin[row * half + i] = std::sin(angle);
    }
  angles_.push_back(std::move(made));
  return angles_.back();
}

}  // namespace vitrine
