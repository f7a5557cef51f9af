#include "tokenizer/gpt2_words.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace vitrine {

CharClass class_of(uint32_t character) {
  if (is_whitespace(character)) return CharClass::space;
  if (is_letter(character)) return CharClass::letter;
  return is_numeric(character) ? CharClass::number : CharClass::other;
}

namespace {

// Whether the character of which text[pos - 1] is the last byte is valid and no white space.
bool ends_visible(std::string_view text, size_t pos) {
  size_t begin = pos - 1;
  while (begin > 0 && pos - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  const Utf8Char last = utf8_at(text, begin);
  return last.valid && begin + last.size == pos && class_of(last.code) != CharClass::space;
}

}  // namespace

size_t gpt2_safe_cut(std::string_view text, size_t from, size_t limit) {
  if (text.empty()) return 0;
  // Only a white space of ASCII is looked for: nearly every text has one in each sentence or line. No word goes on behind white
  // space, and one that ends in no white space does not depend on what follows it.
  for (size_t at = std::min(limit, text.size() - 1); at > from; --at) {
    const auto before = static_cast<unsigned char>(text[at - 1]);
    if (kByteClass[static_cast<unsigned char>(text[at])] != CharClass::space) continue;
    if ((before > ' ' && before < 0x7F) || (before >= 0x80 && ends_visible(text, at))) return at;
  }
  return 0;
}

}  // namespace vitrine
