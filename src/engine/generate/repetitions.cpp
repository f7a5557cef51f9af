#include "generate/repetitions.h"

#include <algorithm>
#include <cmath>

namespace vitrine {
namespace {

constexpr size_t kMostBreakerBytes = 40, kMostRest = 20;

// How many bytes of `text` from `at` on are the beginning of `breaker`, all the way to the end of either; 0: they differ.
size_t common_bytes(const std::string& text, size_t at, const std::string& breaker) {
  const size_t n = std::min(text.size() - at, breaker.size());
  return text.compare(at, n, breaker, 0, n) == 0 ? n : 0;
}

// Of the tokens in reverse: how many come before the last breaker.
size_t tokens_after_breaker(const std::vector<int32_t>& reversed, const SequenceBreakers& breakers) {
  for (size_t i = 0; i < reversed.size(); ++i) {
    const auto found = breakers.find(reversed[i]);
    if (found == breakers.end()) continue;
    std::ptrdiff_t longest = -1;
    for (const std::vector<int32_t>& rest : found->second) {
      if (std::ssize(rest) <= longest || rest.size() > i) continue;
      if (std::equal(rest.begin(), rest.end(), reversed.rbegin() + static_cast<std::ptrdiff_t>(reversed.size() - i)))
        longest = std::ssize(rest);
    }
    if (longest >= 0) return i - static_cast<size_t>(longest);
  }
  return reversed.size();
}

// z[i]: how many tokens from i on equal those from 0 on (the Z-function, in linear time).
std::vector<size_t> common_prefixes(const std::vector<int32_t>& x) {
  std::vector<size_t> z(x.size());
  size_t left = 0, right = 0;  // x[left, right) equals the beginning, with the largest right so far
  for (size_t i = 1; i < x.size(); ++i) {
    size_t n = i < right ? std::min(right - i, z[i - left]) : 0;
    while (i + n < x.size() && x[n] == x[i + n]) ++n;
    z[i] = n;
    if (i + n > right) left = i, right = i + n;
  }
  return z;
}

bool is_breaker_alone(int32_t token, const SequenceBreakers& breakers) {
  const auto found = breakers.find(token);
  return found != breakers.end() && std::ranges::any_of(found->second, [](const auto& rest) { return rest.empty(); });
}

}  // namespace

SequenceBreakers sequence_breakers(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  struct Breaker {
    std::string text;
    std::map<size_t, std::vector<int32_t>> rests;  // behind so many of its bytes: a few, which many tokens have
  };
  SequenceBreakers breakers;
  std::vector<Breaker> cut;
  for (const std::string& text : texts)
    if (!text.empty()) cut.push_back({text.substr(0, kMostBreakerBytes), {}});
  if (cut.empty()) return breakers;
  const auto rest_of = [&](Breaker& breaker, size_t n) -> const std::vector<int32_t>& {
    const auto [rest, is_new] = breaker.rests.try_emplace(n);
    if (is_new) {
      rest->second = tokenizer.encode(breaker.text.substr(n), false);
      rest->second.resize(std::min(rest->second.size(), kMostRest));
    }
    return rest->second;
  };
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string word = tokenizer.token_bytes(token);
    for (Breaker& breaker : cut) {
      const std::string& text = breaker.text;
      if (word.find(text) != std::string::npos) {
        breakers[token].emplace_back();
        continue;
      }
      for (size_t at = word.find(text[0]); at != std::string::npos; at = word.find(text[0], at + 1)) {
        const size_t n = common_bytes(word, at, text);
        if (n == 0) continue;
        const std::vector<int32_t>& rest = rest_of(breaker, n);
        auto& rests = breakers[token];
        if (std::find(rests.begin(), rests.end(), rest) == rests.end()) rests.push_back(rest);
      }
    }
  }
  return breakers;
}

std::shared_ptr<const SequenceBreakers> breakers_of(const Engine& engine, const SamplingOptions& options) {
  if (options.dry_multiplier == 0 || !engine.has_tokenizer()) return nullptr;
  return std::make_shared<const SequenceBreakers>(sequence_breakers(engine.tokenizer(), options.dry_sequence_breakers));
}

std::vector<std::pair<int32_t, float>> repetition_penalties(std::span<const int32_t> prompt, std::span<const int32_t> generated,
                                                            const SamplingOptions& options, const SequenceBreakers& breakers) {
  const size_t all = prompt.size() + generated.size(), allowed = static_cast<size_t>(options.dry_allowed_length);
  const size_t last_n = options.dry_penalty_last_n < 0 ? all : std::min(all, static_cast<size_t>(options.dry_penalty_last_n));
  if (last_n <= allowed) return {};
  std::vector<int32_t> reversed(generated.rbegin(), generated.rend());
  reversed.insert(reversed.end(), prompt.rbegin(), prompt.rend());
  reversed.resize(last_n);
  const size_t reach = tokens_after_breaker(reversed, breakers);
  if (reach < allowed) return {};
  const std::vector<size_t> repeated = common_prefixes(reversed);
  std::map<int32_t, size_t> longest;  // repetition that a token would continue
  for (size_t i = 1; i < last_n; ++i) {
    const size_t n = std::min(repeated[i], reach);
    if (n < allowed) continue;
    size_t& most = longest[reversed[i - 1]];
    most = std::max(most, n);
  }
  // No power of the base leaves the range of f32.
  const double largest_power = options.dry_base > 1.000001 ? std::floor(std::log(3.4e38) / std::log(options.dry_base)) : 0;
  std::vector<std::pair<int32_t, float>> penalties;
  for (const auto& [token, n] : longest) {
    if (is_breaker_alone(token, breakers)) continue;
    double power = static_cast<double>(n - allowed);
    if (largest_power > 0) power = std::min(power, largest_power);
    penalties.emplace_back(token, static_cast<float>(options.dry_multiplier * std::pow(options.dry_base, power)));
  }
  return penalties;
}

}  // namespace vitrine
