#include "serve/schemas.h"

#include <algorithm>
#include <string_view>

namespace vitrine::serve {
namespace {

constexpr std::string_view kHoldValues[] = {"const", "enum", "default", "examples"},
                           kHoldNamedSchemas[] = {"properties", "patternProperties", "$defs", "definitions"};

}  // namespace

void each_schema(OrderedJson& schema, const std::function<bool(OrderedJson&)>& visit) {
  if (schema.is_array())  // of anyOf and its like
    for (OrderedJson& part : schema) each_schema(part, visit);
  if (!schema.is_object() || !visit(schema)) return;
  for (auto& [key, value] : schema.items()) {
    if (std::ranges::count(kHoldValues, key) > 0) continue;
    if (std::ranges::count(kHoldNamedSchemas, key) > 0 && value.is_object())
      for (OrderedJson& named : value) each_schema(named, visit);
    else
      each_schema(value, visit);
  }
}

}  // namespace vitrine::serve
