#pragma once
// A grammar as llguidance takes it.
#include <string>

#include "grammar/grammar.h"

namespace vitrine {

/// One of llguidance's kinds ("json_schema", "regex", "lark") and its text.
struct GrammarSource {
  const char* kind;
  std::string text;
};

/// Checks size, UTF-8 and nesting, and rewrites what llguidance does not read itself. Errors: InputError naming grammar.source.
GrammarSource grammar_source(const Grammar& grammar);

}  // namespace vitrine
