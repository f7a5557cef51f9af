#include "grammar/source.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex_cost.h"

namespace vitrine {
namespace {

[[noreturn]] void refuse(const Grammar& grammar, const std::string& why) { throw InputError(grammar.source + ": " + why); }

// Parsers that call themselves for each bracket run out of stack.
void check_nesting(const Grammar& grammar) {
  size_t open = 0;
  for (const char c : grammar.text) {
    if (c == '(' || c == '[' || c == '{') ++open;
    if ((c == ')' || c == ']' || c == '}') && open > 0) --open;
    if (open > kMostOpenBrackets)
      refuse(grammar, "has more than " + std::to_string(kMostOpenBrackets) + " open brackets at once");
  }
}

// As a string of Lark.
std::string quoted(const std::string& text) { return text.empty() ? "" : Json(text).dump(); }

GrammarSource schema_source(const Grammar& grammar) {
  const std::string schema = json_schema(grammar);
  if (grammar.before.empty() && grammar.after.empty() && !grammar.alternative) return {"json_schema", schema};
  std::string rules = "start: " + quoted(grammar.before) + " json " + quoted(grammar.after);
  std::string values = "\njson: %json " + schema;
  if (grammar.alternative) {
    const GrammarAlternative& other = *grammar.alternative;
    Grammar alone = grammar;
    alone.text = other.schema;
    rules += " | " + quoted(other.before) + " other " + quoted(other.after);
    values += "\nother: %json " + json_schema(alone);
  }
  return {"lark", rules + values};
}

}  // namespace

GrammarSource grammar_source(const Grammar& grammar) {
  if (grammar.text.size() > kMostGrammarBytes)
    refuse(grammar, "has " + std::to_string(grammar.text.size()) + " bytes; a grammar has " + std::to_string(kMostGrammarBytes) +
                        " at most");
  if (!is_valid_utf8(grammar.text) || grammar.text.find('\0') != std::string::npos)
    refuse(grammar, "is not UTF-8 text without NUL bytes (the first bad byte is " +
                        std::to_string(std::min(valid_utf8_prefix(grammar.text), grammar.text.find('\0'))) + ")");
  switch (grammar.kind) {
    case GrammarKind::json_schema: return schema_source(grammar);
    case GrammarKind::regex:
      check_nesting(grammar);
      check_optional_pairs(optional_pairs(grammar.text), grammar.source);
      return {"regex", grammar.text};
    case GrammarKind::gbnf: return {"lark", gbnf_to_lark(grammar.text, grammar.source)};
    case GrammarKind::lark:
      check_nesting(grammar);
      check_optional_pairs(optional_pairs(grammar.text), grammar.source);
      if (grammar.text.find("%json") != std::string::npos)
        refuse(grammar, "%json is not supported; give the schema as a JSON schema");
      return {"lark", grammar.text};
  }
  return {};
}

}  // namespace vitrine
