// Grammars with llguidance; without.cpp stands in its place where that is not built.
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "grammar/grammar.h"
#include "grammar/mask_worker.h"
#include "grammar/matcher.h"
#include "grammar/source.h"

namespace vitrine {
namespace {

// llguidance's tree of tokens: levels, and nodes below the root.
constexpr size_t kMostTokenBytes = 1000;
constexpr size_t kMostTreeNodes = (size_t{1} << 22) - 2;

constexpr LlgParserLimits kLimits = {
    .max_items_in_row = 2000,
    .initial_lexer_fuel = 1'000'000,  // large published schemas take half of it; tens of milliseconds
    .step_lexer_fuel = 200'000,       // of a mask: tens of milliseconds
    .step_max_items = 50'000,         // of a mask
    .max_lexer_states = 50'000,       // of a text, 1 to 2 KB each
    .max_grammar_size = 500'000,
    .precompute_large_lexemes = true,
    .verbose_errors = false,
};

// llguidance's compiler calls itself for every reference of a schema or a grammar to another part. A megabyte of them needs less.
constexpr size_t kCompilerStack = size_t{1} << 30;

/// Runs `work` on a thread with a large stack, of which the memory is taken as it is used.
template <class F>
void run_deep(F&& work) {
  pthread_attr_t attributes;
  pthread_t thread;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kCompilerStack);
  const auto body = [](void* call) -> void* {
    (*static_cast<std::remove_reference_t<F>*>(call))();
    return nullptr;
  };
  const int error = ::pthread_create(&thread, &attributes, body, &work);
  ::pthread_attr_destroy(&attributes);
  if (error != 0) throw RunError(std::string("a thread to compile a grammar cannot be started: ") + std::strerror(error));
  ::pthread_join(thread, nullptr);
}

struct TokenTable {
  std::vector<uint32_t> sizes;  // of each token of the model's vocabulary
  std::vector<uint8_t> bytes;   // of all of them
};

// Tokens that are not part of any text, or longer than the library takes, have no bytes, and no mask has them. Neither have bytes
// that UTF-8 lacks: the library marks control tokens with one of them.
TokenTable token_table(const Tokenizer& tokenizer, int64_t vocab_size) {
  TokenTable table;
  std::vector<std::string> texts;
  for (int64_t id = 0; id < vocab_size; ++id) {
    std::string text = id < tokenizer.vocab_size() ? tokenizer.token_bytes(static_cast<int32_t>(id)) : "";
    if (text.size() > kMostTokenBytes || text.find('\xFF') != std::string::npos) text.clear();
    table.sizes.push_back(static_cast<uint32_t>(text.size()));
    table.bytes.insert(table.bytes.end(), text.begin(), text.end());
    texts.push_back(std::move(text));
  }
  if (table.bytes.size() <= kMostTreeNodes) return table;
  std::ranges::sort(texts);
  size_t nodes = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t shared = i == 0 ? 0 : static_cast<size_t>(std::ranges::mismatch(texts[i - 1], texts[i]).in2 - texts[i].begin());
    nodes += std::max<size_t>(texts[i].size() - shared, 1);
  }
  if (nodes > kMostTreeNodes)
    throw InputError(tokenizer.description() + ": its tokens make a tree of " + std::to_string(nodes) +
                     " nodes; grammars take up to " + std::to_string(kMostTreeNodes));
  return table;
}

}  // namespace

struct GrammarCompiler::Vocabulary : GrammarVocabulary {
  Vocabulary(const Tokenizer& its, int64_t vocab_size) {
    const TokenTable table = token_table(its, vocab_size);
    LlgTokenizerInitV2 init{};
    init.struct_size = sizeof init;
    init.vocab_size = static_cast<uint32_t>(vocab_size);
    init.tok_eos = UINT32_MAX;  // who holds the mask knows the end tokens
    init.token_lens = table.sizes.data();
    init.token_bytes = table.bytes.data();
    init.use_approximate_greedy_tokenize_fn = true;
    char reason[256] = "";
    tokenizer = llg_new_tokenizer_v2(&init, reason, sizeof reason);
    if (tokenizer == nullptr) throw InputError(its.description() + " does not serve grammars: " + reason);
    text.resize((table.sizes.size() + 31) / 32);
    for (size_t t = 0; t < table.sizes.size(); ++t) text[t / 32] |= uint32_t{table.sizes[t] > 0} << t % 32;
  }
};

bool has_grammars() { return true; }

void start_mask_threads() {
  MaskWorker::quick().start();
  MaskWorker::slow().start();
}

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size)
    : vocabulary_(std::make_shared<const Vocabulary>(tokenizer, vocab_size)) {}
GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<const Constraint> GrammarCompiler::compile(const Grammar& grammar) const {
  const GrammarSource source = grammar_source(grammar);
  LlgConstraintInit init{};
  init.tokenizer = vocabulary_->tokenizer;
  init.limits = kLimits;
  MatcherHandle matcher;
  run_deep([&] { matcher.reset(llg_new_matcher(&init, source.kind, source.text.c_str())); });
  if (const std::string reason = failure(matcher.get()); !reason.empty()) throw InputError(grammar.source + ": " + reason);
  auto constraint = std::make_shared<GrammarConstraint>(std::move(matcher), vocabulary_, grammar.source, grammar.mask_seconds);
  constraint->allowed();  // kept for every text; and a grammar without texts, or too costly at once, is refused now
  return constraint;
}

}  // namespace vitrine
