#pragma once
// How a text is cut into what a model reads and what is scored: the part of perplexity on which its definitions disagree.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

/// Whose definition of perplexity.
enum class Protocol : uint8_t {
  vitrine,       // every window begins with BOS; each token is scored once, in the first window that holds it
  transformers,  // the sliding window of its documentation: BOS at the beginning of the text only
  harness,       // loglikelihood_rolling of lm-evaluation-harness
  llama_cpp,     // llama-perplexity: windows side by side, the second half of each is scored
};
/// "vitrine", "transformers", "harness", "llama.cpp". Errors: UsageError for another word.
Protocol protocol_of(std::string_view word);
std::string_view name_of(Protocol protocol);

struct WindowOptions {
  Protocol like = Protocol::vitrine;
  int64_t context = 0;      // tokens of a window; 0: the protocol's own
  int64_t stride = 0;       // from one window to the next; 0: half of the context. Of vitrine and transformers
  bool no_special = false;  // neither BOS nor EOS anywhere
};

/// What an evaluation took.
struct EvaluationTime {
  double seconds = 0;
  int64_t tokens_read = 0;  // rows that the model ran

  double tokens_per_s() const { return static_cast<double>(tokens_read) / std::max(seconds, 1e-9); }
  VITRINE_MEMBERS(seconds, tokens_read, tokens_per_s());
};

/// What was agreed on: printed with every number.
struct WindowDefinition {
  Protocol like = Protocol::vitrine;
  int64_t context = 0, stride = 0;
  bool special = true;          // the tokenizer adds what it adds to a text (transformers, harness, llama.cpp)
  std::optional<int32_t> lead;  // the token in front of windows: BOS, or what stands for it
  /// In sentences.
  std::string text(const Engine& engine) const;
};
/// Errors: UsageError for a context or stride that the model or the protocol does not allow.
WindowDefinition define_windows(const Engine& engine, const WindowOptions& options);

/// The ids of a text as the definition reads it, with the bytes that each stands for.
std::vector<TokenPiece> tokenize(const Engine& engine, const WindowDefinition& definition, std::string_view text);

/// A window over a text's ids. The model reads `lead`, if there is one, and ids [begin, end - 1); ids [first, end) are scored.
struct TextWindow {
  std::optional<int32_t> lead;
  size_t begin = 0, end = 0, first = 0;
  size_t scored() const { return end - first; }
  /// Tokens in front of id `i` in this window.
  size_t before(size_t i) const { return i - begin + (lead ? 1 : 0); }
};
/// In order; those that score nothing are left out. `n`: ids of the text.
/// Errors: InputError for llama.cpp's definition and a text of less than two windows.
std::vector<TextWindow> windows_over(size_t n, const WindowDefinition& definition);

}  // namespace vitrine
