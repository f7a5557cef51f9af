#pragma once
// The schemas inside a JSON schema.
#include <functional>
#include <string>

#include "base/json.h"

namespace vitrine {

/// Calls `visit` for `schema` and, where that returns true, for each schema inside it. Values (const, enum, default, examples)
/// are none, and neither are the names of properties and definitions.
void each_schema(OrderedJson& schema, const std::function<bool(OrderedJson&)>& visit);

/// Whether a keyword holds a value (const, enum, default, examples), or schemas by name (properties, $defs and the like).
bool holds_value(const std::string& keyword);
bool holds_named_schemas(const std::string& keyword);

/// What {"$ref": "#/…"} refers to inside `whole`; null: `schema` has no such reference, or nothing is there.
const OrderedJson* referenced(const OrderedJson& schema, const OrderedJson& whole);

}  // namespace vitrine
