#pragma once
// What a regular expression costs llguidance's lexer.
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

/// llguidance's lexer holds, for each optional part of a regular expression, the parts that may stand in its place: time and
/// memory of n of them in a row grow with n squared. Here any two are counted, in a row or not.
uint64_t optional_pairs(std::string_view regex);

/// Errors: InputError naming `source` for more than a fraction of a second and 200 MB.
void check_optional_pairs(uint64_t pairs, const std::string& source);

}  // namespace vitrine
