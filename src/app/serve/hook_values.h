#pragma once
// Values of hooks as answers tell them.
#include <string>

#include "hooks/values_json.h"
#include "serve/api_error.h"

namespace vitrine::serve {

/// `object` with one member more behind the others, whose value is JSON text.
std::string with_member(const OrderedJson& object, const std::string& name, const std::string& text);

}  // namespace vitrine::serve
