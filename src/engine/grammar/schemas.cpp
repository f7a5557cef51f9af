#include "grammar/schemas.h"

#include <algorithm>
#include <string_view>

namespace vitrine {
namespace {

constexpr std::string_view kHoldValues[] = {"const", "enum", "default", "examples"},
                           kHoldNamedSchemas[] = {"properties", "patternProperties", "$defs", "definitions"};

}  // namespace

bool holds_value(const std::string& keyword) { return std::ranges::count(kHoldValues, keyword) > 0; }
bool holds_named_schemas(const std::string& keyword) { return std::ranges::count(kHoldNamedSchemas, keyword) > 0; }

void each_schema(OrderedJson& schema, const std::function<bool(OrderedJson&)>& visit) {
  if (schema.is_array())  // of anyOf and its like
    for (OrderedJson& part : schema) each_schema(part, visit);
  if (!schema.is_object() || !visit(schema)) return;
  for (auto& [key, value] : schema.items()) {
    if (holds_value(key)) continue;
    if (holds_named_schemas(key) && value.is_object())
      for (OrderedJson& named : value) each_schema(named, visit);
    else
      each_schema(value, visit);
  }
}

const OrderedJson* referenced(const OrderedJson& schema, const OrderedJson& whole) {
  const auto reference = schema.find("$ref");
  if (reference == schema.end() || !reference->is_string()) return nullptr;
  const auto& text = reference->get_ref<const std::string&>();
  if (text == "#") return &whole;
  if (!text.starts_with("#/")) return nullptr;
  try {
    const OrderedJson::json_pointer place(text.substr(1));
    return whole.contains(place) ? &whole.at(place) : nullptr;
  } catch (const OrderedJson::exception&) {  // "~2", or a number that is no index
    return nullptr;
  }
}

}  // namespace vitrine
