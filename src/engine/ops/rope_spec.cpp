#include "ops/rope_spec.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vitrine {
namespace {

// Llama 3.1: long wavelengths are stretched by factor, short ones stay, those between are blended (Llama 4 has none between).
// The reference divides a number by a tensor as number * (1 / tensor), and so do we, to the last bit.
float llama3_frequency(const RopeSpec& spec, float f) {
  const auto factor = static_cast<float>(spec.factor), context = static_cast<float>(spec.original_context);
  const auto wavelength = (1 / f) * static_cast<float>(2 * std::numbers::pi);
  if (wavelength > static_cast<float>(spec.original_context / spec.low_freq_factor)) return f / factor;
  if (wavelength < static_cast<float>(spec.original_context / spec.high_freq_factor)) return f;
  if (spec.high_freq_factor == spec.low_freq_factor) return f;
  const float smooth = ((1 / wavelength) * context - static_cast<float>(spec.low_freq_factor)) /
                       static_cast<float>(spec.high_freq_factor - spec.low_freq_factor);
  return (1 - smooth) * f / factor + smooth * f;
}

// The pair that rotates so many times within the original context, as a real number.
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

}  // namespace

bool is_long(const RopeSpec& spec, int64_t begun) { return static_cast<double>(begun) > spec.original_context; }

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

}  // namespace vitrine
