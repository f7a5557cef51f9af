#include "grammar/source.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/gbnf.h"

namespace vitrine {
namespace {

// Between two parts of a JSON text: nothing, a space, or a line break and an indentation. Without a limit a model may write
// spaces until its context is full.
constexpr std::string_view kJsonSpace = R"("x-guidance":{"whitespace_pattern":" |\\n[ \\t]{0,64}"})";

// llguidance follows numbers by their remainder, one state for each, and does not count them against its limits. Numbers that
// must be multiples of several have a state for each pair of remainders.
constexpr uint64_t kMostRemainders = 20000;

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

// llguidance's lexer holds, for each optional part of a regular expression, the parts that may stand in its place: time and
// memory of n of them in a row grow with n squared. Here any two are counted, in a row or not.
constexpr uint64_t kMostOptionalPairs = 20'000'000;  // a fraction of a second, 200 MB

uint64_t optional_pairs(std::string_view regex) {
  uint64_t optional = 0, choices = 0;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i], next = i + 1 < regex.size() ? regex[i + 1] : ')';
    const bool empty = (c == '(' || c == '|') && (next == '|' || next == ')');
    if (c == '?' || c == '*' || c == '{' || empty) ++optional;
    if (c == '|') ++choices;
  }
  return optional * (optional + choices) / 2;
}

void check_optional_pairs(const Grammar& grammar, uint64_t pairs) {
  if (pairs > kMostOptionalPairs)
    refuse(grammar, "has too many optional parts in regular expressions (marked by ?, * or {}): thousands in one are too costly");
}

// llguidance compares each name of "required" with all before it.
constexpr uint64_t kMostRequiredPairs = 8'000'000;  // a third of a second

struct SchemaPairs {
  uint64_t optional = 0, required = 0;
};

// Of all patterns and all required names of a schema. What is no schema, such as an example, may hold such keys, too.
void count_pairs(const Json& schema, SchemaPairs& pairs) {
  if (schema.is_object() || schema.is_array())
    for (const Json& inside : schema) count_pairs(inside, pairs);
  if (!schema.is_object()) return;
  if (const auto pattern = schema.find("pattern"); pattern != schema.end() && pattern->is_string())
    pairs.optional += optional_pairs(pattern->get_ref<const std::string&>());
  if (const auto patterns = schema.find("patternProperties"); patterns != schema.end() && patterns->is_object())
    for (const auto& [pattern, value] : patterns->items()) pairs.optional += optional_pairs(pattern);
  if (const auto required = schema.find("required"); required != schema.end() && required->is_array())
    pairs.required += required->size() * required->size() / 2;
}

// The digits of a number without point and exponent, as 25 of 0.25; nothing if that is too large to be of use.
std::optional<uint64_t> digits_of(const Json& number) {
  const std::string text = number.dump();
  uint64_t value = 0;
  for (const char c : text.substr(0, text.find('e'))) {
    if (c < '0' || c > '9') continue;
    value = value * 10 + static_cast<uint64_t>(c - '0');
    if (value > kMostRemainders * 1000) return {};
  }
  if (number.is_number_float())
    while (value > 0 && value % 10 == 0) value /= 10;
  return value;
}

void check_multiples(const Grammar& grammar, const Json& schema, uint64_t& states) {
  if (schema.is_object() || schema.is_array())
    for (const Json& inside : schema) check_multiples(grammar, inside, states);
  if (!schema.is_object()) return;
  const auto multiple = schema.find("multipleOf");
  if (multiple == schema.end() || !multiple->is_number()) return;
  const std::optional<uint64_t> digits = digits_of(*multiple);
  if (digits && *digits > 0) states = std::lcm(states, *digits);  // both are small
  if (!digits || states > kMostRemainders)
    refuse(grammar,
           "multipleOf " + multiple->dump() +
               " is too costly: the smallest number that all of multipleOf divide, written without points, may have up to " +
               std::to_string(kMostRemainders));
}

std::string json_schema(const Grammar& grammar) {
  const Json schema = parse_json(grammar.text, grammar.source);
  if (!schema.is_object() && !schema.is_boolean())
    refuse(grammar,
           std::string("is ") + schema.type_name() + "; a JSON schema is an object, such as {\"type\": \"object\"}, or true");
  uint64_t states = 1;
  check_multiples(grammar, schema, states);
  SchemaPairs pairs;
  count_pairs(schema, pairs);
  check_optional_pairs(grammar, pairs.optional);
  if (pairs.required > kMostRequiredPairs) refuse(grammar, "has too many names in \"required\": thousands are too costly");
  if (schema.is_boolean() && !schema.get<bool>()) refuse(grammar, "the schema false allows no text");
  if (schema.is_boolean()) return "{" + std::string(kJsonSpace) + "}";
  if (schema.contains("x-guidance")) return grammar.text;
  const size_t inside = grammar.text.find('{') + 1;
  return grammar.text.substr(0, inside) + std::string(kJsonSpace) + (schema.empty() ? "" : ",") + grammar.text.substr(inside);
}

// As a string of Lark.
std::string quoted(const std::string& text) { return text.empty() ? "" : Json(text).dump(); }

}  // namespace

GrammarSource grammar_source(const Grammar& grammar) {
  if (grammar.text.size() > kMostGrammarBytes)
    refuse(grammar, "has " + std::to_string(grammar.text.size()) + " bytes; a grammar has " + std::to_string(kMostGrammarBytes) +
                        " at most");
  if (!is_valid_utf8(grammar.text) || grammar.text.find('\0') != std::string::npos)
    refuse(grammar, "is not UTF-8 text without NUL bytes (the first bad byte is " +
                        std::to_string(std::min(valid_utf8_prefix(grammar.text), grammar.text.find('\0'))) + ")");
  switch (grammar.kind) {
    case GrammarKind::json_schema:
      if (grammar.before.empty() && grammar.after.empty()) return {"json_schema", json_schema(grammar)};
      return {"lark",
              "start: " + quoted(grammar.before) + " json " + quoted(grammar.after) + "\njson: %json " + json_schema(grammar)};
    case GrammarKind::regex:
      check_nesting(grammar);
      check_optional_pairs(grammar, optional_pairs(grammar.text));
      return {"regex", grammar.text};
    case GrammarKind::gbnf: return {"lark", gbnf_to_lark(grammar.text, grammar.source)};
    case GrammarKind::lark:
      check_nesting(grammar);
      if (grammar.text.find("%json") != std::string::npos)
        refuse(grammar, "%json is not supported; give the schema as a JSON schema");
      return {"lark", grammar.text};
  }
  return {};
}

}  // namespace vitrine
