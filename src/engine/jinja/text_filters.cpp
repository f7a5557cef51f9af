// Filters that make text.
#include <algorithm>

#include "jinja/filters.h"
#include "jinja/format.h"
#include "jinja/html.h"
#include "jinja/print.h"
#include "jinja/string_methods.h"
#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

template <std::string (*spell)(std::string_view)>
Value respell_filter(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("the filter", passed, {});
  const Text text = to_text(i.meter(), value);
  i.meter().make_string(2 * text.size());
  return Value::text(text.respelled(spell(text.view())));
}

bool separates_words(char c) { return c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; }

// Unlike str.title, a letter after an apostrophe or a digit stays small.
std::string title(std::string_view text) {
  std::string result;
  bool begins = true;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t code = next_code_point(text, at);
    const std::string_view letter = text.substr(start, at - start);
    const bool separator = is_space(code) || (letter.size() == 1 && separates_words(letter[0]));
    result += begins && !separator ? to_upper(letter) : to_lower(letter);
    begins = separator;
  }
  return result;
}

Value trim(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("trim", passed, {"chars"});
  return strip_text(i.meter(), to_text(i.meter(), value), bound.has(0) ? &bound[0] : nullptr, true, true);
}

Value string(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("string", passed, {});
  return Value::text(to_text(i.meter(), value));
}

Value escape(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("escape", passed, {});
  return Value::text(escape_html(i.meter(), to_text(i.meter(), value)));
}

Value force_escape(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("forceescape", passed, {});
  return Value::text(escape_html(i.meter(), to_text(i.meter(), value).as_markup(false)));
}

Value safe(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("safe", passed, {});
  return Value::text(to_text(i.meter(), value).as_markup(true));
}

Value replace_filter(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("replace", passed, {"old", "new", "count"}, 2);
  Meter& meter = i.meter();
  return replace_text(meter, to_text(meter, value).as_markup(false), to_text(meter, bound[0]), to_text(meter, bound[1]),
                      bound.optional_integer(2).value_or(-1));
}

Value join_filter(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("join", passed, {"d", "attribute"});
  Meter& meter = i.meter();
  std::vector<Text> texts;
  const auto parts = bound.has(1) ? attribute_parts(bound[1]) : std::vector<Value>();
  const Next next = iterate(meter, value);
  for (Value item; next(item);) {
    texts.push_back(to_text(meter, attribute_of(i, std::move(item), parts)));
    meter.make_string(texts.back().size());
  }
  return join_texts(meter, bound.has(0) ? to_text(meter, bound[0]).as_markup(false) : Text(), texts);
}

Value indent(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("indent", passed, {"width", "first", "blank"});
  Meter& meter = i.meter();
  require_defined(value);
  if (!value.as_text()) throw Problem("indent needs a string, not '" + type_name(value) + "'");
  const bool first = bound.truth(1, false), blank = bound.truth(2, false);
  const Text indentation = bound.has(0) && bound[0].as_text()
                               ? bound.text(0)
                               : to_text(meter, arithmetic(meter, Arithmetic::multiply, Value::text(" "), bound.integer(0, 4)));
  Text text = *value.as_text();
  text.append("\n");
  const std::vector<Text> lines = lines_of(meter, text);
  Text result;
  for (size_t n = 0; n < lines.size(); ++n) {
    if (n > 0) result.append("\n");
    if (n == 0 ? first : blank || !lines[n].empty()) result.append(indentation);
    result.append(lines[n]);
    meter.make(indentation.size() + lines[n].size() + 1);
    meter.check_string(result.size());
  }
  return Value::text(result.as_markup(text.markup()));
}

Value center(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("center", passed, {"width"});
  return center_text(i.meter(), to_text(i.meter(), value), bound.integer(0, 80), Text(" "));
}

Value format_filter(Interpreter& i, const Value& value, Arguments& passed) {
  if (!passed.named.empty() && !passed.positional.empty())
    throw Problem("format takes either plain or named arguments, not both");
  Value values;
  if (passed.named.empty()) {
    values = Value::tuple(i.meter(), passed.positional);
  } else {
    DictBuilder dict(i.meter());
    for (const auto& [name, given] : passed.named) dict.set(Value::text(name), given);
    values = dict.finish();
  }
  return Value::text(format_percent(i.meter(), to_text(i.meter(), value), values));
}

Value truncate(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("truncate", passed, {"length", "killwords", "end", "leeway"});
  const Text end = bound.has(2) ? bound.text(2) : Text("...");
  const int64_t end_length = static_cast<int64_t>(code_point_count(end.view()));
  const int64_t longest = bound.integer(0, 255), leeway = bound.optional_integer(3).value_or(5);
  if (longest < end_length) throw Problem("truncate needs a length of at least that of its end");
  if (leeway < 0) throw Problem("truncate needs a leeway that is not negative");
  const auto has = length(i.meter(), value);
  if (!has) throw Problem("truncate needs a string, not '" + type_name(value) + "'");
  if (*has <= longest || *has - longest <= leeway) return value;
  if (!value.as_text()) throw Problem("truncate can shorten a string only, not '" + type_name(value) + "'");
  const Text& text = *value.as_text();
  i.meter().make_string(text.size() + end.size());
  Text result = text.slice(0, byte_of_code_point(text.view(), static_cast<size_t>(longest - end_length)));
  if (!bound.truth(1, false))
    if (const size_t space = result.bytes().rfind(' '); space != std::string::npos) result = result.slice(0, space);
  result.append(end);
  return Value::text(std::move(result));
}

Value word_count(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("wordcount", passed, {});
  const Text text = to_text(i.meter(), value);
  i.meter().look(text.size());
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = is_word(next_code_point(text.view(), at));
    count += word && !inside;
    inside = word;
  }
  return count;
}

std::string json_part(const Value& value, const char* what) {
  if (!value.as_text()) throw Problem(std::string("tojson needs a string as ") + what);
  return value.as_text()->bytes();
}

// json.dumps with the arguments that Hugging Face's tojson passes on.
Value to_json_filter(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("tojson", passed, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ascii = bound.truth(0, false), .sorted = bound.truth(3, false), .indent = {}};
  if (bound.has(1) && !bound[1].is_none()) {
    if (bound[1].as_text())
      style.indent = bound.text(1).bytes();
    else
      style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(bound.integer(1, 0), 0, 1000)), ' ');
    style.item_separator = ",";
  }
  if (bound.has(2) && !bound[2].is_none()) {
    const auto parts = to_vector(i.meter(), bound[2]);
    if (parts.size() != 2) throw Problem("tojson needs two separators");
    style.item_separator = json_part(parts[0], "separator");
    style.key_separator = json_part(parts[1], "separator");
  }
  return Value::text(to_json(i.meter(), value, style));
}

}  // namespace

const FilterMap& text_filters() {
  static const FilterMap filters = {{"capitalize", respell_filter<capitalized>},
                                    {"center", center},
                                    {"e", escape},
                                    {"escape", escape},
                                    {"forceescape", force_escape},
                                    {"format", format_filter},
                                    {"indent", indent},
                                    {"join", join_filter},
                                    {"lower", respell_filter<to_lower>},
                                    {"replace", replace_filter},
                                    {"safe", safe},
                                    {"string", string},
                                    {"title", respell_filter<title>},
                                    {"tojson", to_json_filter},
                                    {"trim", trim},
                                    {"truncate", truncate},
                                    {"upper", respell_filter<to_upper>},
                                    {"wordcount", word_count}};
  return filters;
}

}  // namespace vitrine::jinja
