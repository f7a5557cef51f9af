#pragma once
#include <string>

#include "jinja/interpreter.h"

namespace vitrine::jinja {

using StringMethod = Value (*)(Interpreter&, const Value& self, Arguments& arguments);
/// Python's method of str with that name; null if there is none.
StringMethod find_string_method(const std::string& name);

// Shared with the filters of the same names.
Value strip_text(Meter& meter, const Text& text, const Value* characters, bool left, bool right);
Value replace_text(Meter& meter, const Text& text, const Text& old, const Text& by, int64_t count);
Value join_texts(Meter& meter, const Text& separator, const std::vector<Text>& texts);
Value center_text(Meter& meter, const Text& text, int64_t width, const Text& fill);
/// The parts between line ends, as str.splitlines().
std::vector<Text> lines_of(Meter& meter, const Text& text, bool keep_ends = false);
/// str.isupper() or str.islower(): some letter has that case and none the other.
bool has_case(Meter& meter, const Text& text, bool upper);

}  // namespace vitrine::jinja
