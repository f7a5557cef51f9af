#include "base/shell_word.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace vitrine {

std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-./,:=+@").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain) && text[0] != '-') return text;
  std::string quoted = "'";
  for (const char c : text) c == '\'' ? quoted += "'\\''" : quoted += c;
  return quoted + "'";
}

}  // namespace vitrine
