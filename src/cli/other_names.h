#pragma once
// Options of other programs, for those who know them from there.
#include <span>
#include <string>
#include <string_view>

namespace vitrine::cli {

/// What stands for an option of llama.cpp's programs in a command with these options ("--context"): "; here it is --context", or
/// why there is none. Empty where nothing is known.
std::string known_elsewhere(std::string_view word, std::span<const std::string> options);

}  // namespace vitrine::cli
