#pragma once
// JSON schemas of requests, changed before a grammar is made of them.
#include <functional>

#include "jinja/jinja.h"

namespace vitrine::serve {

/// Calls `visit` for `schema` and, where that returns true, for each schema inside it. Values (const, enum, default, examples)
/// are none, and neither are the names of properties and definitions.
void each_schema(OrderedJson& schema, const std::function<bool(OrderedJson&)>& visit);

}  // namespace vitrine::serve
