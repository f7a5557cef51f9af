#pragma once
// Vocabularies, and texts that a random "model" writes under a constraint.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>

#include "base/json.h"
#include "base/stopwatch.h"
#include "generate/sampler.h"
#include "grammar/grammar.h"

namespace vitrine {

#define SKIP_WITHOUT_GRAMMARS() \
  if (!has_grammars()) GTEST_SKIP() << "built without llguidance"

struct GrammarFixture {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<GrammarCompiler> compiler;
};

/// "gpt2" (bytes), "gemma" (SentencePiece, 256,000 pieces) or "tales9m" (the model that ships). Each is read once.
inline const GrammarFixture& fixture(const std::string& name) {
  static std::map<std::string, GrammarFixture> known;
  GrammarFixture& f = known[name];
  if (f.tokenizer == nullptr) {
    f.tokenizer = load_tokenizer(name == "tales9m" ? std::string(VITRINE_SOURCE) + "/models/tales9m"
                                                   : std::string(VITRINE_GOLDEN) + "/tokenizers/" + name);
    f.compiler = std::make_unique<GrammarCompiler>(*f.tokenizer, f.tokenizer->vocab_size());
  }
  return f;
}

inline bool is_allowed(std::span<const uint32_t> mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

/// Also with a key twice and with numbers beyond a double's range, which parse_json refuses.
inline bool is_json(const std::string& text) {
  return Json::accept(std::regex_replace(text, std::regex("([0-9])[eE][-+]?[0-9]+"), "$1e1"));
}

struct Written {
  std::string text;
  bool complete = false;  // else max_tokens came first
};

/// Draws at temperature 1.5 from scores of the hash of (seed, step, token), which prefer short tokens, and with every step more
/// those that close something or end the text, so that texts come to an end.
/// mask_ms, if given, gets the time of every mask, which is then computed at once instead of beside.
inline Written write_randomly(const GrammarFixture& f, const Constraint& grammar, uint64_t seed, int max_tokens,
                              std::vector<double>* mask_ms = nullptr) {
  const int32_t n = f.tokenizer->vocab_size();
  static std::map<const Tokenizer*, std::pair<std::vector<float>, std::vector<float>>> scores;
  auto& [base, closing] = scores[f.tokenizer.get()];
  if (base.empty()) {
    std::mt19937 noise(1);
    std::normal_distribution<float> normal(0, 2);
    for (int32_t t = 0; t < n; ++t) {
      const std::string bytes = f.tokenizer->token_bytes(t);
      base.push_back(normal(noise) - 0.5f * static_cast<float>(bytes.size()));
      closing.push_back(!bytes.empty() && bytes.find_first_not_of("\"]}),:0 ") == std::string::npos ? 1.0f : 0.0f);
    }
  }
  Sampler sampler({.temperature = 1.5, .seed = seed}, n);
  std::mt19937_64 random(seed);
  const std::unique_ptr<Constraint> text = grammar.clone();
  Written out;
  std::vector<int32_t> tokens;
  std::vector<float> logits(static_cast<size_t>(n));
  while (!text->must_end() && static_cast<int>(tokens.size()) < max_tokens) {
    if (text->may_end() && std::uniform_real_distribution<>()(random) < 0.3) break;
    const float bonus = 0.4f * static_cast<float>(tokens.size());
    const size_t shift = random() % logits.size();
    for (size_t t = 0; t < logits.size(); ++t)
      logits[t] = base[t + shift < logits.size() ? t + shift : t + shift - logits.size()] + bonus * closing[t];
    const Stopwatch watch;
    const std::span<const uint32_t> mask = text->allowed();
    if (mask_ms != nullptr) mask_ms->push_back(watch.ms());
    const Pick pick = sampler.pick(logits, {}, tokens, 0, mask);
    tokens.push_back(pick.token);
    out.text += f.tokenizer->token_bytes(pick.token);
    text->accept(pick.token);
    if (mask_ms == nullptr) text->prepare();
  }
  out.complete = text->may_end();
  return out;
}

}  // namespace vitrine
