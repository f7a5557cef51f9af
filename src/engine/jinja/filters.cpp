#include "jinja/filters.h"

#include "jinja/unicode.h"

namespace vitrine::jinja {

Filter find_filter(const std::string& name) {
  for (const FilterMap* filters : {&text_filters(), &number_filters(), &sequence_filters(), &select_filters()})
    if (const auto at = filters->find(name); at != filters->end()) return at->second;
  return nullptr;
}

std::string known_filters() {
  std::map<std::string, Filter> all;
  for (const FilterMap* filters : {&text_filters(), &number_filters(), &sequence_filters(), &select_filters()})
    all.insert(filters->begin(), filters->end());
  std::string names;
  for (const auto& [name, filter] : all) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

std::vector<Value> attribute_parts(const Value& name) {
  if (name.is_none()) return {};
  const Text* text = name.as_text();
  if (!text) return {name};
  std::vector<Value> parts;
  for (size_t begin = 0;;) {
    const size_t end = std::min(text->bytes().find('.', begin), text->size());
    const std::string part = text->bytes().substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    parts.push_back(number ? Value(static_cast<int64_t>(std::stoll(part))) : Value::text(part));
    if (end == text->size()) return parts;
    begin = end + 1;
  }
}

Value attribute_of(Interpreter& interpreter, Value item, const std::vector<Value>& parts, const Value& fallback) {
  for (const Value& part : parts) {
    item = interpreter.subscript(item, part);
    if (item.is_undefined() && !fallback.is_none()) item = fallback;
  }
  return item;
}

Value fold_case(Meter& meter, const Value& value, bool case_sensitive) {
  const Text* text = value.as_text();
  if (case_sensitive || !text) return value;
  meter.make_string(2 * text->size());
  return Value::text(text->respelled(to_lower(text->view())));
}

}  // namespace vitrine::jinja
