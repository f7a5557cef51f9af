#include "serve/grammars.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "grammar/grammar.h"

namespace vitrine::serve {
namespace {

std::shared_ptr<const Constraint> compiled(GrammarKind kind, std::string text, const std::string& field, const Service& service,
                                           const std::optional<std::string>& space = {},
                                           const std::optional<GrammarAlternative>& call = {}) {
  if (!has_grammars())
    throw unsupported(field, "\"" + field + "\" asks for constrained decoding, which this server was built without");
  try {
    return service.grammars().compile({.kind = kind,
                                       .text = std::move(text),
                                       .source = "\"" + field + "\"",
                                       .space = space,
                                       .alternative = call,
                                       .mask_seconds = service.options().mask_seconds});
  } catch (const InputError& error) {
    throw invalid(field, error.what(), kind == GrammarKind::json_schema ? "invalid_json_schema" : "invalid_value");
  }
}

// A regular expression that is this text alone.
std::string literal(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~/").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string one_of(const std::vector<std::string>& texts, const std::string& field) {
  if (texts.empty()) throw invalid(field, "\"" + field + "\" is empty; expected the texts to choose from");
  std::string regex;
  for (const std::string& text : texts) regex += (regex.empty() ? "(" : "|(") + literal(text) + ")";
  return regex;
}

std::string schema_text(const OrderedJson& value) { return value.is_string() ? value.get<std::string>() : json_text(value); }

// A grammar in GBNF has rules with ::=, one in Lark with a colon. llama.cpp marks Lark by its first word.
GrammarKind kind_of_grammar(const std::string& text) {
  return text.starts_with("%llguidance") || text.find("::=") == std::string::npos ? GrammarKind::lark : GrammarKind::gbnf;
}

std::string required_text(const OrderedJson& value, const std::string& field) {
  if (!value.is_string()) throw invalid(field, "\"" + field + "\" is " + kind_of(value) + "; expected a string", "invalid_type");
  return value.get<std::string>();
}

// The value of one field, by what the field is called without "guided_".
std::shared_ptr<const Constraint> of_kind(const std::string& kind, const OrderedJson& value, const std::string& field,
                                          const Service& service, const std::optional<std::string>& space) {
  if (kind == "json" || kind == "json_schema")
    return compiled(GrammarKind::json_schema, schema_text(value), field, service, space);
  if (kind == "json_object") return compiled(GrammarKind::json_schema, R"({"type": "object"})", field, service, space);
  if (kind == "regex") return compiled(GrammarKind::regex, required_text(value, field), field, service);
  if (kind == "lark") return compiled(GrammarKind::lark, required_text(value, field), field, service);
  if (kind == "grammar") {
    std::string text = required_text(value, field);
    const GrammarKind language = kind_of_grammar(text);
    return compiled(language, std::move(text), field, service);
  }
  std::vector<std::string> texts;  // choice
  if (!value.is_array())
    throw invalid(field, "\"" + field + "\" is " + kind_of(value) + "; expected a list of strings", "invalid_type");
  for (const OrderedJson& text : value) texts.push_back(required_text(text, field));
  return compiled(GrammarKind::regex, one_of(texts, field), field, service);
}

// Of structured_outputs: what the text follows, and how. The last two are so anyway.
constexpr std::array kStructures = {"json", "regex", "choice", "grammar", "json_object"};
constexpr std::array kOptions = {"whitespace_pattern", "disable_any_whitespace", "disable_additional_properties",
                                 "disable_fallback"};

bool is_one_of(const std::string& key, const auto& list) { return std::ranges::find(list, key) != list.end(); }

// {"json": …}, {"regex": …}, {"choice": […]}, {"grammar": …} or {"json_object": true}, with kOptions; null: options alone.
std::shared_ptr<const Constraint> structured(const OrderedJson& value, const Service& service,
                                             const std::optional<std::string>& space) {
  std::shared_ptr<const Constraint> constraint;
  for (const auto& [key, part] : value.items()) {
    const std::string field = "structured_outputs." + key;
    if (part.is_null() || (key == "json_object" && part == false)) continue;
    if (is_one_of(key, kOptions)) {
      if (!part.is_boolean() && key != "whitespace_pattern")
        throw invalid(field, "\"" + field + "\" is " + kind_of(part) + "; expected true or false", "invalid_type");
      continue;
    }
    if (!is_one_of(key, kStructures))
      throw invalid(field, "\"" + field +
                               "\" is not known; expected json, regex, choice, grammar or json_object, and "
                               "disable_any_whitespace");
    if (constraint != nullptr) throw invalid(field, "\"structured_outputs\" has more than one of its fields; give one");
    constraint = of_kind(key, part, field, service, space);
  }
  return constraint;
}

}  // namespace

const std::vector<Field>& grammar_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    return std::vector<Field>{
        {"grammar", text, "A grammar that the text follows, in GBNF; without `::=`, or after `%llguidance`, in Lark."},
        {"lark", text, "A grammar in llguidance's variant of Lark that the text follows."},
        {"json_schema", object | boolean, "A JSON schema that the text follows."},
        {"guided_json", text | object, "The same as `json_schema`."},
        {"guided_regex", text, "A regular expression that the whole text matches."},
        {"guided_choice", texts, "The text is one of these."},
        {"guided_grammar", text, "The same as `grammar`."},
        {"structured_outputs", object,
         "json, regex, choice, grammar or json_object: the constraint of the text. Also beside another field: "
         "disable_any_whitespace, JSON without space between its parts, or whitespace_pattern, a regular expression of that "
         "space."},
    };
  }();
  return table;
}

std::optional<std::string> json_space(const Fields& fields) {
  const OrderedJson* outputs = fields.find("structured_outputs");
  if (outputs == nullptr) return {};
  if (outputs->value("disable_any_whitespace", OrderedJson()) == true) return "";
  const OrderedJson pattern = outputs->value("whitespace_pattern", OrderedJson());
  if (pattern.is_null()) return {};
  return required_text(pattern, "structured_outputs.whitespace_pattern");
}

void ignore_grammar(Fields& fields) {
  for (const auto& [name, value] : fields.body().items()) {
    if (value.is_null()) continue;
    const bool holds_format = (name == "text" || name == "output_config") && value.contains("format");
    if (holds_format) fields.ignore(name + ".format");
    if (name == "response_format" ||
        std::ranges::any_of(grammar_fields(), [&](const Field& field) { return field.name == name; }))
      fields.ignore(name);
  }
}

std::shared_ptr<const Constraint> read_grammar(const Fields& fields, const Service& service) {
  std::shared_ptr<const Constraint> constraint;
  std::string first;
  const std::optional<std::string> space = json_space(fields);
  for (const Field& field : grammar_fields()) {
    const OrderedJson* value = fields.find(field.name);
    if (value == nullptr || *value == "") continue;
    const std::string name = field.name;
    if (name == "structured_outputs" &&
        std::ranges::all_of(value->items(), [](const auto& part) { return is_one_of(part.key(), kOptions); })) {
      structured(*value, service, space);
      continue;
    }
    if (!first.empty())
      throw invalid(name, "\"" + first + "\" and \"" + name + "\" both say what the text follows; give one of them");
    first = name;
    constraint = name == "structured_outputs"
                     ? structured(*value, service, space)
                     : of_kind(name.starts_with("guided_") ? name.substr(7) : name, *value, name, service, space);
  }
  return constraint;
}

std::shared_ptr<const Constraint> read_format(const OrderedJson& format, const std::string& where, const Service& service,
                                              const std::optional<std::string>& space,
                                              const std::optional<GrammarAlternative>& call) {
  const auto type = format.find("type");
  const std::string kind = type != format.end() && type->is_string() ? type->get<std::string>() : "";
  if (kind == "text") {
    refuse_others(format, where, {"type"});
    return nullptr;
  }
  if (kind != "json_object" && kind != "json_schema")
    throw invalid(where + ".type", "\"" + where + ".type\" is \"" + kind + "\"; expected text, json_object or json_schema");
  refuse_others(format, where, {"type", "json_schema", "name", "description", "schema", "strict"});
  OrderedJson schema = kind == "json_object" ? OrderedJson{{"type", "object"}} : OrderedJson();
  const auto inside = format.find("json_schema");
  for (const OrderedJson* holder : {&format, inside != format.end() && inside->is_object() ? &*inside : nullptr}) {
    if (holder == nullptr) continue;
    if (holder != &format) refuse_others(*holder, where + ".json_schema", {"name", "description", "schema", "strict"});
    if (holder->contains("schema")) schema = (*holder)["schema"];
  }
  if (!schema.is_object() && !schema.is_boolean())
    throw invalid(where,
                  "\"" + where + "\" has no schema; expected {\"type\": \"json_schema\", \"json_schema\": {\"schema\": …}}",
                  "missing_required_parameter");
  return compiled(GrammarKind::json_schema, json_text(schema), where, service, space, call);
}

Field format_field() {
  return {"response_format", type::object,
          "{\"type\": \"text\"}, {\"type\": \"json_object\"} or {\"type\": \"json_schema\", \"json_schema\": {\"schema\": "
          "…}}: the format of the answer."};
}

std::shared_ptr<const Constraint> format_or(std::shared_ptr<const Constraint> grammar, const Fields& fields,
                                            const Service& service, const std::optional<GrammarAlternative>& call) {
  const OrderedJson* format = fields.find("response_format");
  if (format == nullptr) return grammar;
  return only_one(read_format(*format, "response_format", service, json_space(fields), call), std::move(grammar),
                  "response_format");
}

std::shared_ptr<const Constraint> only_one(std::shared_ptr<const Constraint> format, std::shared_ptr<const Constraint> grammar,
                                           const std::string& where) {
  if (format != nullptr && grammar != nullptr)
    throw invalid(where, "\"" + where + "\" and a grammar both say what the text follows; give one of them");
  return format != nullptr ? std::move(format) : std::move(grammar);
}

}  // namespace vitrine::serve
