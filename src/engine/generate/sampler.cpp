#include "generate/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "generate/select.h"
#include "runtime/logits.h"
#include "runtime/row_math.h"

namespace vitrine {
namespace {

constexpr float kInfinity = INFINITY;

/// Uniform in [0, 1) with 53 bits.
double uniform53(uint64_t seed, uint64_t index, uint64_t stream) {
  const auto words = philox(seed, index, stream);
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

Sampler::Sampler(SamplingOptions options, int64_t vocab_size, std::shared_ptr<const SequenceBreakers> breakers)
    : options_(std::move(options)), vocab_size_(vocab_size), breakers_(std::move(breakers)), mu_(2 * options_.mirostat_tau) {
  check_sampling_options(options_, vocab_size);
}

Pick Sampler::pick(std::span<const float> logits, std::span<const int32_t> prompt, std::span<const int32_t> generated,
                   uint64_t stream, std::span<const uint32_t> allowed) {
  if (!options_.draws() && !options_.changes_scores() && allowed.empty()) {
    check(logits);
    const auto token = static_cast<int32_t>(argmax(logits));
    const auto logprob = static_cast<float>(logits[static_cast<size_t>(token)] - log_sum_exp(logits));
    return {.token = token, .logprob = logprob, .logprob_after = logprob};
  }
  process(logits, prompt, generated, stream, allowed);
  const size_t chosen = options_.draws() ? draw(generated.size(), stream) : argmax(candidates_.logit);
  const int32_t token = candidates_.token[chosen];
  Pick pick{.token = token, .logprob = static_cast<float>(logits[static_cast<size_t>(token)] - log_sum_exp(logits))};
  if (options_.draws()) {
    pick.logprob_after = std::log(probability_[chosen]);
    note_surprise(probability_[chosen]);
  } else {
    pick.logprob_after = static_cast<float>(candidates_.logit[chosen] - log_sum_exp(candidates_.logit));
  }
  return pick;
}

// The candidate at which the running sum of probabilities passes u times their total.
size_t Sampler::draw(uint64_t index, uint64_t stream) {
  probabilities();
  constexpr size_t kStretch = 512;
  const std::span<const float> all = probability_;
  const auto sum_of_block = [&](size_t begin) { return row_sum(all.subspan(begin, std::min(kStretch, all.size() - begin))); };
  double total = 0, before = 0;
  for (size_t begin = 0; begin < all.size(); begin += kStretch) total += sum_of_block(begin);
  const double target = uniform53(options_.seed, index, stream) * total;
  for (size_t begin = 0; begin < all.size(); begin += kStretch) {
    const double block = sum_of_block(begin);
    if (before + block > target) {
      double up_to = before;
      for (size_t i = begin; i < std::min(begin + kStretch, all.size()); ++i)
        if ((up_to += all[i]) > target && all[i] > 0) return i;
    }
    before += block;
  }
  return argmax(candidates_.logit);  // target rounded up to the total
}

void Sampler::check(std::span<const float> logits) const {
  if (static_cast<int64_t>(logits.size()) != vocab_size_)
    throw ShapeError("a row of logits has " + std::to_string(logits.size()) + " entries; expected vocab_size " +
                     std::to_string(vocab_size_));
  check_logits(logits);
}

const Candidates& Sampler::process(std::span<const float> logits, std::span<const int32_t> prompt,
                                   std::span<const int32_t> generated, uint64_t stream, std::span<const uint32_t> allowed) {
  check(logits);
  take(logits, allowed);
  for (const SamplingRule rule : options_.order) {
    if (rule >= SamplingRule::temperature && !options_.draws()) continue;
    apply(rule, prompt, generated, stream);
    if (rule > SamplingRule::temperature) continue;  // the rules that cut change no score
    const float top = largest(candidates_.logit);
    if (std::isfinite(top)) continue;
    const std::string name = sampling_order_text({rule});
    throw UsageError(top < 0 ? name + " forbids every token " + (allowed.empty() ? "of the vocabulary" : "that may come here") +
                                   "; leave at least one above -inf"
                             : name + " makes a score infinite; use a less extreme value");
  }
  return candidates_;
}

// The candidates before any rule.
void Sampler::take(std::span<const float> logits, std::span<const uint32_t> allowed) {
  if (allowed.empty()) {
    candidates_.logit.assign(logits.begin(), logits.end());
    candidates_.token.resize(logits.size());
    std::iota(candidates_.token.begin(), candidates_.token.end(), 0);
    return;
  }
  if (allowed.size() != (logits.size() + 31) / 32)
    throw ShapeError("a mask of tokens has " + std::to_string(allowed.size()) + " words; expected one for 32 of the " +
                     std::to_string(logits.size()) + " tokens");
  candidates_.token.clear();
  candidates_.logit.clear();
  for (size_t word = 0; word < allowed.size(); ++word)
    for (uint32_t bits = allowed[word]; bits != 0; bits &= bits - 1) {
      const size_t token = word * 32 + static_cast<size_t>(std::countr_zero(bits));
      if (token >= logits.size()) break;
      candidates_.token.push_back(static_cast<int32_t>(token));
      candidates_.logit.push_back(logits[token]);
    }
  if (candidates_.token.empty()) throw RunError("no token of the vocabulary may come here");
}

// Before any rule has cut, candidate i is token i. After a cut the penalties look tokens up.
template <class To>
void Sampler::change(int32_t token, To to) {
  size_t i = static_cast<size_t>(token);
  if (candidates_.token.size() != static_cast<size_t>(vocab_size_)) {
    const auto at = std::lower_bound(candidates_.token.begin(), candidates_.token.end(), token);
    if (at == candidates_.token.end() || *at != token) return;
    i = static_cast<size_t>(at - candidates_.token.begin());
  }
  candidates_.logit[i] = to(candidates_.logit[i]);
}

void Sampler::apply(SamplingRule rule, std::span<const int32_t> prompt, std::span<const int32_t> generated, uint64_t stream) {
  switch (rule) {
    case SamplingRule::bias:
      for (const auto& [token, bias] : options_.logit_bias)
        change(token, [b = static_cast<float>(bias)](float s) { return s + b; });
      return;
    case SamplingRule::repetition: {
      if (options_.repetition_penalty == 1) return;
      const float penalty = static_cast<float>(options_.repetition_penalty);
      count(prompt);
      count(generated);
      for (const int32_t token : seen_) change(token, [&](float s) { return s < 0 ? s * penalty : s / penalty; });
      break;
    }
    case SamplingRule::frequency:
    case SamplingRule::presence: {
      const bool frequency = rule == SamplingRule::frequency;
      const double penalty = frequency ? options_.frequency_penalty : options_.presence_penalty;
      if (penalty == 0) return;
      count(generated);
      for (const int32_t token : seen_) {
        const double times = frequency ? counted_[static_cast<size_t>(token)] : 1;
        change(token, [&](float s) { return s - static_cast<float>(penalty * times); });
      }
      break;
    }
    case SamplingRule::dry:
      if (options_.dry_multiplier == 0) return;
      for (const auto& [token, penalty] :
           repetition_penalties(prompt, generated, options_, breakers_ ? *breakers_ : SequenceBreakers()))
        if (token >= 0 && token < vocab_size_) change(token, [&](float s) { return s - penalty; });
      return;
    case SamplingRule::temperature: return apply_temperature();
    case SamplingRule::top_k: return cut_top_k();
    case SamplingRule::top_p: return cut_top_p();
    case SamplingRule::min_p: return cut_min_p();
    case SamplingRule::typical: return cut_typical();
    case SamplingRule::top_n_sigma: return cut_top_n_sigma();
    case SamplingRule::xtc: return cut_xtc(generated.size(), stream);
    case SamplingRule::mirostat: return cut_mirostat();
  }
  for (const int32_t token : seen_) counted_[static_cast<size_t>(token)] = 0;
  seen_.clear();
}

void Sampler::count(std::span<const int32_t> tokens) {
  counted_.resize(static_cast<size_t>(vocab_size_));  // of the first use: many a sampler never counts
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab_size_) continue;  // an embedding may know more tokens than the head scores
    if (counted_[static_cast<size_t>(token)]++ == 0) seen_.push_back(token);
  }
}

void Sampler::apply_temperature() {
  if (!options_.temperature) return;
  const float temperature = static_cast<float>(*options_.temperature);
  for (float& s : candidates_.logit) s /= temperature;
}

// probability_[i] = exp(s_i - max) / sum, in f32 with the sum in double.
void Sampler::probabilities() {
  probability_.resize(candidates_.logit.size());
  const double sum = exponentials(candidates_.logit, largest(candidates_.logit), probability_.data());
  for (float& p : probability_) p = static_cast<float>(p / sum);
}

template <class Keep>
void Sampler::keep_where(Keep keep) {
  size_t kept = 0;
  for (size_t i = 0; i < candidates_.token.size(); ++i) {  // written always: no branch to guess
    const bool keeps = keep(i);
    candidates_.token[kept] = candidates_.token[i];
    candidates_.logit[kept] = candidates_.logit[i];
    kept += keeps;
  }
  candidates_.token.resize(kept);
  candidates_.logit.resize(kept);
}

void Sampler::cut_top_k() {
  if (options_.top_k && *options_.top_k > 0) keep_most_likely(static_cast<size_t>(*options_.top_k));
}

void Sampler::keep_most_likely(size_t k) {
  if (k >= candidates_.logit.size()) return;
  keep_where([&, cut = kth_largest(candidates_.logit, k, distance_)](size_t i) { return candidates_.logit[i] >= cut; });
}

void Sampler::cut_top_p() {
  if (!options_.top_p || *options_.top_p >= 1) return;
  probabilities();
  // The reference sums f32 probabilities in double, rounds each sum to f32 and compares it with 1 - p in f32.
  const float limit = static_cast<float>(1 - *options_.top_p);
  const auto& s = candidates_.logit;
  Crossing at = first_crossing(
      s, [&](size_t i) { return probability_[i]; }, [&](double sum) { return static_cast<float>(sum) > limit; }, members_);
  if (!at.found) {  // p is 0, or so small that rounding ate it: the last in ascending order stays
    const size_t last = s.size() - 1 - static_cast<size_t>(std::max_element(s.rbegin(), s.rend()) - s.rbegin());
    at = {.found = true, .key = ordered_key(s[last]), .index = last};
  }
  keep_where([&, cut = s[at.index]](size_t i) { return s[i] > cut || (s[i] == cut && i >= at.index); });
}

void Sampler::cut_min_p() {
  if (!options_.min_p || *options_.min_p == 0) return;
  probabilities();
  const size_t top = argmax(probability_);
  const float limit = static_cast<float>(*options_.min_p) * probability_[top];
  keep_where([&](size_t i) { return probability_[i] >= limit || i == top; });
}

void Sampler::cut_typical() {
  if (!options_.typical_p || *options_.typical_p >= 1) return;
  probabilities();
  const auto& s = candidates_.logit;
  const float log_sum = static_cast<float>(log_sum_exp(s));
  double entropy = 0;
  for (size_t i = 0; i < s.size(); ++i)
    if (s[i] > -kInfinity) entropy -= double{s[i] - log_sum} * probability_[i];
  distance_.resize(s.size());
  for (size_t i = 0; i < s.size(); ++i) distance_[i] = std::abs(log_sum - s[i] - static_cast<float>(entropy));
  const float limit = static_cast<float>(*options_.typical_p);
  const Crossing at = first_crossing(
      distance_, [&](size_t i) { return probability_[i]; }, [&](double sum) { return static_cast<float>(sum) >= limit; },
      members_);
  const float cut = at.found ? distance_[at.index] : *std::max_element(distance_.begin(), distance_.end());
  keep_where([&](size_t i) { return distance_[i] <= cut; });
}

void Sampler::cut_top_n_sigma() {
  if (!options_.top_n_sigma || *options_.top_n_sigma <= 0) return;
  const auto& s = candidates_.logit;
  const auto mean_of = [&](auto term) {
    double sum = 0, count = 0;
    for (const float x : s)
      if (x > -kInfinity) sum += term(double{x}), ++count;
    return sum / count;
  };
  const double mean = mean_of([](double x) { return x; });
  const double deviation = std::sqrt(mean_of([&](double x) { return (x - mean) * (x - mean); }));
  const double limit = double{largest(s)} - *options_.top_n_sigma * deviation;
  keep_where([&](size_t i) { return double{s[i]} >= limit; });
}

void Sampler::cut_xtc(uint64_t index, uint64_t stream) {
  if (!options_.xtc_probability || options_.xtc_threshold > 0.5) return;
  constexpr uint64_t kNotTheDraws = 0x9e3779b97f4a7c15;  // another sequence of random numbers than draw()
  if (uniform53(options_.seed ^ kNotTheDraws, index, stream) >= *options_.xtc_probability) return;
  probabilities();
  const auto& p = probability_;
  const auto threshold = static_cast<float>(options_.xtc_threshold);
  size_t least = p.size();
  for (size_t i = 0; i < p.size(); ++i)
    if (p[i] >= threshold && (least == p.size() || p[i] <= p[least])) least = i;
  keep_where([&](size_t i) { return p[i] < threshold || i == least; });
}

// Version 1 of Mirostat: how many of the most likely tokens have together the surprise mu, if probabilities fall as Zipf's law
// has it with the slope of the first hundred.
double Sampler::mirostat_count() {
  constexpr size_t kMostLikely = 100;
  std::vector<float>& p = distance_;
  p.assign(probability_.begin(), probability_.end());
  const size_t n = std::min(kMostLikely, p.size());
  std::partial_sort(p.begin(), p.begin() + static_cast<ptrdiff_t>(n), p.end(), std::greater<>());
  double both = 0, squares = 0;
  for (size_t i = 0; i + 1 < n; ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    both += t * std::log(double{p[i]} / double{p[i + 1]});
    squares += t * t;
  }
  const double slope = both / squares, excess = slope - 1;
  return std::pow(excess * std::exp2(mu_) / (1 - std::pow(static_cast<double>(vocab_size_), -excess)), 1 / slope);
}

void Sampler::cut_mirostat() {
  if (options_.mirostat == 0) return;
  probabilities();
  if (options_.mirostat == 1) {
    const double count = mirostat_count();
    return keep_most_likely(count < 1 || std::isnan(count) ? 1 : static_cast<size_t>(std::min(count, 1e9)));
  }
  const double least = std::exp2(-mu_);
  keep_where([&, top = argmax(probability_)](size_t i) { return double{probability_[i]} >= least || i == top; });
}

void Sampler::note_surprise(double probability) {
  mu_ -= options_.mirostat_eta * (-std::log2(probability) - options_.mirostat_tau);
}

void Sampler::accept(int32_t token) {
  const auto at = std::lower_bound(candidates_.token.begin(), candidates_.token.end(), token);
  if (at == candidates_.token.end() || *at != token) throw UsageError("token " + std::to_string(token) + " is no candidate");
  probabilities();
  note_surprise(probability_[static_cast<size_t>(at - candidates_.token.begin())]);
}

std::vector<double> drawn_probabilities(const Candidates& left, std::span<const TokenLogprob> tokens) {
  const double sum = log_sum_exp(left.logit);
  std::vector<double> drawn;
  for (const TokenLogprob& entry : tokens) {
    const auto found = std::lower_bound(left.token.begin(), left.token.end(), entry.token);
    const bool kept = found != left.token.end() && *found == entry.token;
    const auto place = static_cast<size_t>(found - left.token.begin());
    drawn.push_back(kept ? std::exp(static_cast<double>(left.logit[place]) - sum) : 0.0);
  }
  return drawn;
}

}  // namespace vitrine
