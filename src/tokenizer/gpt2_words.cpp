#include "tokenizer/gpt2_words.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace vitrine {

CharClass class_of(uint32_t character) {
  if (is_whitespace(character)) return CharClass::space;
  if (is_letter(character)) return CharClass::letter;
  return is_numeric(character) ? CharClass::number : CharClass::other;
}

size_t gpt2_safe_cut(std::string_view text, size_t from, size_t limit) {
  if (text.empty()) return 0;
  // Only ASCII characters are looked at: natural text has such a place in every sentence.
  for (size_t at = std::min(limit, text.size() - 1); at > from; --at) {
    const auto before = static_cast<unsigned char>(text[at - 1]);
    if (kByteClass[static_cast<unsigned char>(text[at])] == CharClass::space && before > ' ' && before < 0x7F) return at;
  }
  return 0;
}

}  // namespace vitrine
