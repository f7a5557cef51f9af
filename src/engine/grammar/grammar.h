#pragma once
// Grammars that a generated text conforms to: JSON schemas, regular expressions, GBNF and Lark, through the library llguidance.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "generate/constraint.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {

enum class GrammarKind : uint8_t {
  json_schema,  // JSON Schema 2020-12, objects closed; what the library does not know is refused by name
  regex,        // of the whole text, in the syntax of Rust's regex
  gbnf,         // as llama.cpp reads it
  lark,         // as llguidance reads it
};

/// JSON of another schema, with text around it, that a text may be instead.
struct GrammarAlternative {
  std::string schema;
  std::string before = {}, after = {};
};

struct Grammar {
  GrammarKind kind = GrammarKind::json_schema;
  std::string text;
  std::string source;                   // a file or a flag, named in messages
  std::string before = {}, after = {};  // of a JSON schema alone: text that stands around the JSON
  // Of a JSON schema alone: a regular expression of the space between the parts of the JSON; "": there is none. Without it: a
  // space, or a line break and an indentation.
  std::optional<std::string> space = {};
  std::optional<GrammarAlternative> alternative = {};  // of a JSON schema alone
  double mask_seconds = 0;                             // of a processor, for the masks of one text together; 0: no limit
};

/// Bytes of a grammar's text at most, and brackets in it that may be open at once.
inline constexpr size_t kMostGrammarBytes = size_t{1} << 20;
inline constexpr size_t kMostOpenBrackets = 64;

/// Whether this vitrine was built with llguidance.
bool has_grammars();
/// Starts the threads that compute masks. Otherwise they start with the first mask, at the priority of the thread that asks for
/// it.
void start_mask_threads();

/// Compiles grammars for one model's vocabulary. compile() may be called from several threads at once.
class GrammarCompiler {
 public:
  /// Reads the vocabulary, which takes a while for a large one. vocab_size: of the model, whose logits may have more entries than
  /// the tokenizer has pieces. The tokenizer is not needed afterwards.
  /// Errors: UsageError without llguidance, with what to install; InputError for a tokenizer whose tokens have no bytes of their
  /// own (Tokenizer::token_bytes), or more of them than llguidance holds.
  GrammarCompiler(const Tokenizer& tokenizer, int64_t vocab_size);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  /// What it gives may outlive the compiler. Errors: InputError naming grammar.source and what is wrong with it or too costly in
  /// it.
  std::shared_ptr<const Constraint> compile(const Grammar& grammar) const;

 private:
  struct Vocabulary;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace vitrine
