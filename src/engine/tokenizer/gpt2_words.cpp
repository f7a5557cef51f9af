#include "tokenizer/gpt2_words.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/gpt2_classes.h"
#include "tokenizer/unicode.h"

namespace vitrine {

CharClass class_of(uint32_t character) {
  if (is_whitespace(character)) return CharClass::space;
  if (is_letter(character)) return CharClass::letter;
  return is_number(character) ? CharClass::number : CharClass::other;
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

bool mark_gpt2_words(std::string_view text, std::vector<uint64_t>& starts) {
  const size_t blocks = (text.size() + 63) / 64;
  starts.resize(blocks);
  char rest[64];
  // What the block before ends in, and for a character beyond ASCII that reaches into the next block, its class there.
  ClassBits before{0, 0, 0, 0, 0}, over{0, 0, 0, 0, 0};
  for (size_t block = 0; block < blocks; ++block) {
    const size_t first = block * 64, size = std::min<size_t>(64, text.size() - first);
    const char* source = text.data() + first;
    if (size < 64) {
      std::fill(std::begin(rest), std::end(rest), '\n');  // white space up to the end is one word
      std::copy(source, source + size, rest);
      source = rest;
    }
    ClassBits c = classes_of(source);
    c.letter |= over.letter, c.number |= over.number;
    c.beyond &= ~over.beyond;
    over = {};
    while (c.beyond != 0) {
      const auto at = size_t(std::countr_zero(c.beyond));
      const Utf8Char character = utf8_at(text, first + at);
      const CharClass kind = character.valid ? class_of(character.code) : CharClass::other;
      if (kind == CharClass::space) return false;
      const uint64_t bytes = (uint64_t{1} << character.size) - 1, here = bytes << at, there = at > 60 ? bytes >> (64 - at) : 0;
      c.beyond &= ~here;
      over.beyond = there;
      if (kind == CharClass::letter) c.letter |= here, over.letter = there;
      if (kind == CharClass::number) c.number |= here, over.number = there;
    }
    const uint64_t other = ~(c.letter | c.number | c.white), carry_other = ~(before.letter | before.number | before.white);
    const auto same = [](uint64_t now, uint64_t last) { return now & (now << 1 | last >> 63); };
    const uint64_t goes_on = same(c.letter, before.letter) | same(c.number, before.number) |
                             (block > 0 ? same(other, carry_other) : other & other << 1);
    const uint64_t after_space = c.space << 1 | before.space >> 63;
    // White space: its first character begins a word, and its last one, where it has others before it.
    const uint64_t white_first = c.white & ~(c.white << 1 | before.white >> 63), white_last = c.white & ~(c.white >> 1);
    starts[block] = (~c.white & ~goes_on & ~after_space) | white_first;
    // Whether the last character of a block is the last of its run, the next block tells.
    starts[block] |= white_last & ~(uint64_t{1} << 63);
    if (block > 0 && before.white >> 63 != 0 && (c.white & 1) == 0) starts[block - 1] |= uint64_t{1} << 63;
    before = c;
  }
  if (text.size() % 64 != 0) starts.back() &= (uint64_t{1} << text.size() % 64) - 1;
  return true;
}

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
