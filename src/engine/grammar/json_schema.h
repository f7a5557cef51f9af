#pragma once
// A JSON schema as llguidance takes it.
#include <string>

#include "grammar/grammar.h"

namespace vitrine {

/// The text of a schema whose texts conform to the one of `grammar`, which llguidance reads and which texts end under: objects
/// are closed, integers have at most 16 digits, and space between the parts is bounded. Of what llguidance lacks, it rewrites
/// uniqueItems, unknown formats and look-ahead at the start of patterns. Errors: InputError naming grammar.source.
std::string json_schema(const Grammar& grammar);

}  // namespace vitrine
