#pragma once
// How well a model predicts a text, for merges that are to be compared before they are written.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

/// The text is cut into windows of as many tokens as the context (at most `window`) holds; each begins with BOS where the
/// tokenizer adds one, and nothing of the window before is seen. Every token but a window's first is scored; behind BOS, all are.
struct TextLoss {
  double loss = 0;     // mean of -ln p, of the scored tokens
  int64_t tokens = 0;  // that were scored
  int64_t window = 0;
  double perplexity() const;

  VITRINE_MEMBERS(loss, perplexity(), tokens, window);
};

/// Errors: InputError if the model has no tokenizer or the text has fewer than two tokens; as Engine::token_logprobs.
TextLoss text_loss(Engine& engine, std::string_view text, int64_t window = 1024);

/// What is scored, cut as said above: models of one vocabulary that are compared are given the same.
struct ScoredWindows {
  std::vector<std::vector<int32_t>> ids;  // two or more each
  int64_t window = 0;
};
/// Errors: as text_loss. `most`: tokens of the text, from its beginning; 0: all of them.
ScoredWindows windows_of(const Engine& engine, std::string_view text, int64_t window = 1024, int64_t most = 0);
/// The same for documents of ids: each by itself, with no BOS but its own. next(ids) gives the next one; false: there is none.
/// Errors: InputError naming `where` if none has two tokens.
ScoredWindows windows_of(const Engine& engine, const std::function<bool(std::vector<int32_t>&)>& next, const std::string& where,
                         int64_t window = 1024);

/// Errors: as Engine::token_logprobs.
TextLoss loss_on(Engine& engine, const ScoredWindows& windows);
/// The mean of KL(p || q) over the scored places, in nats, p being what `reference` expects there and q what `engine` does.
/// Errors: InputError for vocabularies of different sizes; RunError for NaN.
double divergence_on(Engine& reference, Engine& engine, const ScoredWindows& windows);

}  // namespace vitrine
