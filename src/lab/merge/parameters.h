#pragma once
// From what a recipe says to the numbers of one tensor: scopes, filters, gradients.
#include <span>
#include <string>
#include <string_view>

#include "merge/method.h"

namespace vitrine {

/// Settings from the one that counts most: a source's, its slice's, its module's, the recipe's. Null pointers are skipped.
using SettingScopes = std::span<const ParameterSettings* const>;

/// The value for a tensor at place t (0 to 1) of its slice. Numbers of a gradient are interpolated, flags are picked.
/// Errors: UsageError naming where the recipe says something that is no such value; if nobody says anything and there is no
/// fallback, it begins with `where` and names the tensor.
double resolve_parameter(const ParameterSpec& spec, SettingScopes scopes, std::string_view tensor, double t,
                         const std::string& where);

}  // namespace vitrine
