#pragma once
// What a user may have meant by a word that nobody knows.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace vitrine {

/// Insertions, deletions, replacements and swaps of neighboring letters that turn `a` into `b`, no letter touched twice
/// (optimal string alignment). Only the first 256 bytes of each count.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the least distance to `word`, the first among equals; empty if there is none.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// What was meant by a word that is no candidate: the first that begins with it, if it has three letters or more; else the
/// nearest, if the word may be a slip of it: one letter other, or one for each four of the candidate's, and not all of it. Else
/// empty.
std::string meant_by(std::string_view word, std::span<const std::string> candidates);

}  // namespace vitrine
