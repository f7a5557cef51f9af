#pragma once
// Options and commands of other programs, for those who know them from there.
#include <span>
#include <string>
#include <string_view>

namespace vitrine::cli {

/// What stands for an option of llama.cpp's programs in a command with these options ("--context"): "; here it is --context", or
/// why there is none. Empty where nothing is known.
std::string known_elsewhere(std::string_view word, std::span<const std::string> options);

/// What stands for a command of other programs (ollama, llama.cpp, mergekit, lm-evaluation-harness, common words): "; here it is
/// `vitrine chat`". Empty where nothing is known.
std::string command_elsewhere(std::string_view word);

/// The command that this program is when it is started under the name of another one: "merge" for /usr/bin/mergekit-yaml. Empty
/// for any other name.
std::string_view command_of_program(std::string_view path);

}  // namespace vitrine::cli
