#pragma once
// Objects without other properties than those that a JSON schema names.
#include <string>

#include "base/json.h"

namespace vitrine {

/// Adds "additionalProperties": false to each object schema in `schema` that has "properties" or "patternProperties" and no rule
/// for others: a model that may go on inventing properties rarely stops. Of a schema that is composed of parts (allOf, anyOf,
/// oneOf or $ref beside properties or each other) the whole is closed, with the properties of all parts; parts that are
/// references are copied in. Errors: InputError naming `source` for a schema that is composed of itself, or of too many parts.
void close_objects(OrderedJson& schema, const std::string& source);

}  // namespace vitrine
