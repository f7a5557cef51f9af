#include "evaluate/choice_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "jinja/unicode.h"

namespace vitrine {
namespace {

int32_t prefix_token(const Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const std::optional<int32_t> token = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
  if (!token) throw InputError("an empty context needs BOS or EOS in its place, and the tokenizer has neither");
  return *token;
}

// As the tokenizer's file says, but no BOS in front of one that is spelled out.
std::vector<int32_t> encoded(const Engine& engine, const std::string& text) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const std::optional<int32_t> prefix = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
  const bool there = prefix && text.starts_with(tokenizer.decode(std::span(&*prefix, 1)));
  return tokenizer.encode(text, !there);
}

struct Pair {
  std::vector<int32_t> context, continuation;
};

Pair encode_pair(const Engine& engine, std::string_view context, std::string_view continuation) {
  if (context.empty()) {
    const int32_t prefix = prefix_token(engine);
    std::vector<int32_t> ids = engine.tokenizer().encode(continuation, false);
    if (!ids.empty() && ids[0] == prefix) ids.erase(ids.begin());
    return {{prefix}, std::move(ids)};
  }
  const size_t end = jinja::strip_space(context, false, true).end;
  std::vector<int32_t> whole = encoded(engine, std::string(context) + std::string(continuation));
  std::vector<int32_t> alone = encoded(engine, std::string(context.substr(0, end)));
  whole.erase(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(std::min(alone.size(), whole.size())));
  return {std::move(alone), std::move(whole)};
}

}  // namespace

ScoredSequence choice_tokens(const Engine& engine, std::string_view context, std::string_view continuation) {
  Pair pair = encode_pair(engine, context, continuation);
  if (pair.continuation.empty())
    throw InputError("the choice \"" + std::string(continuation) + "\" has no token of its own behind its context");
  if (pair.context.empty()) throw InputError("the context \"" + std::string(context) + "\" has no token");
  const auto longest = static_cast<size_t>(engine.shape().context_length);
  if (longest > 0 && pair.continuation.size() > longest)
    throw InputError("a choice has " + std::to_string(pair.continuation.size()) + " tokens; the context of " + engine.name() +
                     " holds " + std::to_string(longest));
  ScoredSequence sequence{std::move(pair.context), std::move(pair.continuation)};
  sequence.read.insert(sequence.read.end(), sequence.labels.begin(), sequence.labels.end() - 1);
  if (longest > 0 && sequence.read.size() > longest)
    sequence.read.erase(sequence.read.begin(), sequence.read.end() - static_cast<std::ptrdiff_t>(longest));
  return sequence;
}

}  // namespace vitrine
