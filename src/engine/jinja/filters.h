#pragma once
// The filters in groups: one map per file, joined in filters.cpp.
#include <map>
#include <string>

#include "jinja/interpreter.h"

namespace vitrine::jinja {

using FilterMap = std::map<std::string, Filter>;

const FilterMap& text_filters();
const FilterMap& number_filters();
const FilterMap& sequence_filters();
const FilterMap& select_filters();

/// The parts of an attribute's name: "a.0.b" looks up three times. None looks up nothing: the item itself.
std::vector<Value> attribute_parts(const Value& name);
/// `fallback`, unless None, stands for what is undefined on the way.
Value attribute_of(Interpreter& interpreter, Value item, const std::vector<Value>& parts, const Value& fallback = None{});
/// Strings in lower case unless case matters; anything else as it is.
Value fold_case(Meter& meter, const Value& value, bool case_sensitive);

}  // namespace vitrine::jinja
