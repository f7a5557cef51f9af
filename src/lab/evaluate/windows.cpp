#include "evaluate/windows.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr std::array<std::pair<Protocol, std::string_view>, 4> kNames = {{{Protocol::vitrine, "vitrine"},
                                                                          {Protocol::transformers, "transformers"},
                                                                          {Protocol::harness, "harness"},
                                                                          {Protocol::llama_cpp, "llama.cpp"}}};
constexpr int64_t kLongestDefault = 2048;     // of a model that reads more
constexpr int64_t kLlamaCppDefault = 512;     // llama-perplexity's -c
constexpr int64_t kLongestContext = 1 << 20;  // of a model that states none

// What the protocol reads where the user says nothing.
int64_t default_context(Protocol like, int64_t model) {
  const int64_t most = model > 0 ? model : kLongestDefault;
  if (like == Protocol::harness) return most;
  return std::min(most, like == Protocol::llama_cpp ? kLlamaCppDefault : kLongestDefault);
}

void check_sizes(const Engine& engine, const WindowDefinition& d) {
  const int64_t model = engine.shape().context_length, least = d.like == Protocol::llama_cpp ? 4 : 2;
  if (d.context < least)
    throw UsageError("--context " + std::to_string(d.context) + " leaves nothing to score; expected " + std::to_string(least) +
                     " or more");
  if (d.context > (model > 0 ? model : kLongestContext))
    throw UsageError("--context " + std::to_string(d.context) + " is more than " + engine.name() + " reads (" +
                     std::to_string(model > 0 ? model : kLongestContext) + " tokens)");
}

// Windows that overlap, `room` ids each.
std::vector<TextWindow> sliding(size_t n, size_t room, size_t stride, std::optional<int32_t> lead) {
  std::vector<TextWindow> windows;
  size_t scored = 0;  // ids that windows before hold
  for (size_t begin = 0; begin < n && scored < n; begin += stride) {
    TextWindow w{lead, begin, std::min(begin + room, n), 0};
    w.first = std::max(scored, begin + (lead ? 0 : 1));
    scored = w.end;
    if (w.first < w.end) windows.push_back(w);
  }
  return windows;
}

// The first window reads the prefix token; each further one the `context` ids in front of what it scores last.
std::vector<TextWindow> rolling(size_t n, size_t context, int32_t prefix) {
  std::vector<TextWindow> windows;
  if (n == 0) return windows;
  windows.push_back({prefix, 0, std::min(context, n), 0});
  for (size_t scored = windows[0].end; scored < n;) {
    const size_t end = std::min(scored + context, n);
    windows.push_back({{}, end - context - 1, end, scored});
    scored = end;
  }
  return windows;
}

// Side by side; BOS replaces the first id of each, and ids behind the middle are scored.
std::vector<TextWindow> halves(size_t n, size_t context, std::optional<int32_t> bos) {
  if (n < 2 * context)
    throw InputError("the text has " + std::to_string(n) + " tokens; llama.cpp's definition needs two windows, " +
                     std::to_string(2 * context) + " tokens. Give a longer text, or a smaller --context");
  std::vector<TextWindow> windows;
  for (size_t begin = 0; begin + context <= n; begin += context)
    windows.push_back({bos, begin + (bos ? 1 : 0), begin + context, begin + context / 2 + 1});
  return windows;
}

}  // namespace

Protocol protocol_of(std::string_view word) {
  std::string known;
  for (const auto& [protocol, name] : kNames) {
    if (name == word) return protocol;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw UsageError("\"" + std::string(word) + "\" is no definition of perplexity; expected one of " + known);
}

std::string_view name_of(Protocol protocol) {
  for (const auto& [known, name] : kNames)
    if (known == protocol) return name;
  return "";
}

WindowDefinition define_windows(const Engine& engine, const WindowOptions& options) {
  const Tokenizer& tokenizer = engine.tokenizer();
  WindowDefinition d;
  d.like = options.like;
  d.special = !options.no_special;
  d.context = options.context > 0 ? options.context : default_context(options.like, engine.shape().context_length);
  check_sizes(engine, d);
  const bool slides = d.like == Protocol::vitrine || d.like == Protocol::transformers;
  if (options.stride > 0 && !slides)
    throw UsageError("--stride has no meaning in the definition of " + std::string(name_of(d.like)) + "; leave it out");
  if (d.like == Protocol::harness) {
    d.lead = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
    if (!d.lead)
      throw InputError("the harness puts BOS or EOS before a text, and the tokenizer of " + engine.name() + " has neither");
  } else if (d.special && tokenizer.adds_bos() && d.like != Protocol::transformers) {
    d.lead = tokenizer.bos();
  }
  if (!slides) return d;
  d.stride = options.stride > 0 ? options.stride : std::max<int64_t>(1, d.context / 2);
  const int64_t room = d.context - (d.lead ? 1 : 0);
  if (d.stride > room)
    throw UsageError("--stride " + std::to_string(d.stride) + " skips text: a window holds " + std::to_string(room) +
                     " tokens of it. Expected at most that");
  return d;
}

std::string WindowDefinition::text(const Engine& engine) const {
  const auto token = [&](int32_t id) { return engine.piece(id).value_or("") + " (id " + std::to_string(id) + ")"; };
  const std::string size = std::to_string(context);
  switch (like) {
    case Protocol::vitrine:
      return "Each text is tokenized as a whole. It is read in windows of " + size + " tokens" +
             (lead ? ", each beginning with " + token(*lead) : " without BOS") + "; a window begins " + std::to_string(stride) +
             " tokens of text after the one before. A token is scored once, in the first window that holds it" +
             (lead ? "." : ", unless it is the first of its window.");
    case Protocol::transformers:
      return std::string("As in the documentation of transformers: each text is tokenized as a whole, ") +
             (special ? "with the special tokens that its tokenizer adds" : "without special tokens") +
             ". It is read in windows of " + size + " tokens, each beginning " + std::to_string(stride) +
             " tokens after the one before. A token is scored once, in the first window that holds it, unless it is the "
             "first of its window.";
    case Protocol::harness:
      return std::string("As loglikelihood_rolling of lm-evaluation-harness: each text is tokenized as a whole, ") +
             (special ? "with the special tokens that its tokenizer adds" : "without special tokens") +
             ". All tokens are scored, those included: the first window reads " + token(*lead) + " and scores " + size +
             " tokens; each further one scores the next " + size + ", the last one what is left, with " + size +
             " tokens read in all.";
    case Protocol::llama_cpp:
      return std::string("As llama-perplexity: each text is tokenized as a whole, ") +
             (special ? "with the special tokens that its tokenizer adds" : "without special tokens") +
             ", and cut into windows of " + size + " tokens side by side" +
             (lead ? ", of which " + token(*lead) + " replaces the first" : "") + ". In each the tokens behind place " +
             std::to_string(context / 2) + " are scored; what is left at the end of the text is not read.";
  }
  return "";
}

std::vector<TokenPiece> tokenize(const Engine& engine, const WindowDefinition& definition, std::string_view text) {
  bool special = definition.special && definition.like != Protocol::vitrine;
  // The harness adds nothing to a text that begins with the prefix token spelled out.
  if (definition.like == Protocol::harness && text.starts_with(engine.tokenizer().decode(std::span(&*definition.lead, 1))))
    special = false;
  return engine.tokenizer().encode_with_offsets(text, special);
}

std::vector<TextWindow> windows_over(size_t n, const WindowDefinition& definition) {
  const auto context = static_cast<size_t>(definition.context);
  switch (definition.like) {
    case Protocol::vitrine:
    case Protocol::transformers:
      return sliding(n, context - (definition.lead ? 1 : 0), static_cast<size_t>(definition.stride), definition.lead);
    case Protocol::harness: return rolling(n, context, *definition.lead);
    case Protocol::llama_cpp: return halves(n, context, definition.lead);
  }
  return {};
}

}  // namespace vitrine
