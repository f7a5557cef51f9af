#pragma once
// Command lines for people to copy.
#include <string>

namespace vitrine {

/// `text` as one word of a POSIX shell: as it is where no character of it is special, else in single quotes.
std::string shell_word(const std::string& text);

}  // namespace vitrine
