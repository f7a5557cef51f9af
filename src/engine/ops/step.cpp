#include "ops/step.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace vitrine {

namespace {

// Llama 3.1: long wavelengths are stretched by factor, short ones stay, those between are blended.
// The reference divides a number by a tensor as number * (1 / tensor), and so do we, to the last bit.
float llama3_frequency(const RopeSpec& spec, float f) {
  const auto factor = static_cast<float>(spec.factor), context = static_cast<float>(spec.original_context);
  const auto wavelength = (1 / f) * static_cast<float>(2 * std::numbers::pi);
  if (wavelength > static_cast<float>(spec.original_context / spec.low_freq_factor)) return f / factor;
  if (wavelength < static_cast<float>(spec.original_context / spec.high_freq_factor)) return f;
  const float smooth = ((1 / wavelength) * context - static_cast<float>(spec.low_freq_factor)) /
                       static_cast<float>(spec.high_freq_factor - spec.low_freq_factor);
  return (1 - smooth) * f / factor + smooth * f;
}

// The pair that turns so many times within the original context, as a real number.
double yarn_pair(const RopeSpec& spec, double turns) {
  return static_cast<double>(spec.rotary_dim) * std::log(spec.original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(spec.theta));
}

// YaRN: pairs below `low` stay, those above `high` are divided by factor, those between are blended.
float yarn_frequency(const RopeSpec& spec, float power, size_t i) {
  double low = yarn_pair(spec, spec.beta_fast), high = yarn_pair(spec, spec.beta_slow);
  if (spec.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(spec.rotary_dim - 1));
  if (low == high) high += 0.001;
  const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
  const float kept = 1 - std::clamp(ramp, 0.0f, 1.0f);
  return 1 / (static_cast<float>(spec.factor) * power) * (1 - kept) + 1 / power * kept;
}

bool is_long(const RopeSpec& spec, int64_t begun) { return static_cast<double>(begun) > spec.original_context; }

}  // namespace

std::vector<float> rope_frequencies(const RopeSpec& spec, int64_t begun) {
  std::vector<float> freq(static_cast<size_t>(spec.rotary_dim / 2));
  for (size_t i = 0; i < freq.size(); ++i) {
    // f32 throughout, as the reference does: at position 8000 one unit in the last place is 5e-4 of an angle.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.rotary_dim);
    const float power = std::pow(static_cast<float>(spec.theta), exponent);
    if (spec.scaling == RopeSpec::Scaling::longrope) {
      freq[i] = 1 / ((is_long(spec, begun) ? spec.long_divisors : spec.divisors)[i] * power);
      continue;
    }
    float f = 1.0f / power;
    if (spec.scaling == RopeSpec::Scaling::linear) f /= static_cast<float>(spec.factor);
    if (spec.scaling == RopeSpec::Scaling::llama3) f = llama3_frequency(spec, f);
    if (spec.scaling == RopeSpec::Scaling::proportional)
      f = static_cast<int64_t>(i) < spec.turning ? f / static_cast<float>(spec.factor) : 0;
    if (spec.scaling == RopeSpec::Scaling::yarn) f = yarn_frequency(spec, power, i);
    freq[i] = spec.divisors != nullptr ? f / spec.divisors[i] : f;
  }
  return freq;
}

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
