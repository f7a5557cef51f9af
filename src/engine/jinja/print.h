#pragma once
// Values as text: what {{ }} prints, what appears inside printed lists, and JSON.
#include "jinja/value.h"

namespace vitrine::jinja {

/// str(value).
Text to_text(Meter& meter, const Value& value);
/// repr(value): strings with quotes and escapes.
Text repr(Meter& meter, const Value& value);

/// The shortest digits that read back as `value`, as Python writes them: 1.0, 1e-07, 1e+16, inf, nan.
std::string float_repr(double value);

struct JsonStyle {
  bool ascii = false;  // escape everything beyond ASCII
  bool sorted = false;
  std::optional<std::string> indent;  // one level; nothing: all on one line
  std::string item_separator = ", ", key_separator = ": ";
};
/// json.dumps. Errors: Problem for values and keys that JSON does not know.
Text to_json(Meter& meter, const Value& value, const JsonStyle& style);

}  // namespace vitrine::jinja
