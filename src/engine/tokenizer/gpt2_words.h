#pragma once
// Cuts text into the words of GPT-2's pattern, which byte-level tokenizers encode and byte-pair training counts, several times
// faster than a regular expression would.
#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace vitrine {

/// What GPT-2's pattern asks of a character: \p{L}, \p{N}, \s or none of them.
enum class CharClass : uint8_t { letter, number, space, other, beyond_ascii };

CharClass class_of(uint32_t character);

/// The class of a character by its first byte.
inline constexpr std::array<CharClass, 256> kByteClass = [] {
  std::array<CharClass, 256> table{};
  for (int b = 0; b < 256; ++b) {
    const bool letter = (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z'), space = b == ' ' || (b >= '\t' && b <= '\r');
    table[size_t(b)] = b >= 0x80              ? CharClass::beyond_ascii
                       : letter               ? CharClass::letter
                       : b >= '0' && b <= '9' ? CharClass::number
                       : space                ? CharClass::space
                                              : CharClass::other;
  }
  return table;
}();

/// The end of the run of characters of class `c` that goes on at text[pos].
inline size_t class_run_end(std::string_view text, size_t pos, CharClass c) {
  for (;;) {
    while (pos < text.size() && kByteClass[static_cast<unsigned char>(text[pos])] == c) ++pos;
    if (pos == text.size() || kByteClass[static_cast<unsigned char>(text[pos])] != CharClass::beyond_ascii) return pos;
    const Utf8Char next = utf8_at(text, pos);
    if ((next.valid ? class_of(next.code) : CharClass::other) != c) return pos;
    pos += next.size;
  }
}

/// The bytes of a contraction ('s 't 're 've 'm 'll 'd) at text[pos]; 0: there is none.
inline size_t contraction_size(std::string_view text, size_t pos) {
  const size_t left = text.size() - pos;
  if (left < 2) return 0;
  const char a = text[pos + 1];
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (left < 3) return 0;
  const char b = text[pos + 2];
  return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/// Calls visit(begin, end) for the words of GPT-2's pattern (kGpt2Pattern), which cover the text. Bytes that are not UTF-8
/// belong to the class `other`.
template <class Visit>
void each_gpt2_word(std::string_view text, Visit&& visit) {
  const auto class_at = [&](size_t pos, size_t& size) {
    const CharClass c = kByteClass[static_cast<unsigned char>(text[pos])];
    size = 1;
    if (c != CharClass::beyond_ascii) return c;
    const Utf8Char at = utf8_at(text, pos);
    size = at.size;
    return at.valid ? class_of(at.code) : CharClass::other;
  };
  for (size_t begin = 0, size = 0; begin < text.size();) {
    size_t end = 0;
    if (text[begin] == '\'') size = contraction_size(text, begin);
    if (text[begin] == '\'' && size > 0) {
      visit(begin, begin + size);
      begin += size;
      continue;
    }
    CharClass c = class_at(begin, size);
    if (text[begin] == ' ' && begin + 1 < text.size()) {  // one space belongs to what follows it
      size_t next = 0;
      const CharClass after = class_at(begin + 1, next);
      if (after != CharClass::space) c = after, size = 1 + next;
    }
    if (c != CharClass::space) {
      end = class_run_end(text, begin + size, c);
    } else {  // \s+(?!\S): all white space at the text's end; elsewhere its last character is left for the next word
      size_t last = begin;
      end = begin + size;
      for (size_t next = 0; end < text.size() && class_at(end, next) == CharClass::space; end += next) last = end;
      if (end < text.size() && last > begin) end = last;
    }
    visit(begin, end);
    begin = end;
  }
}

/// Marks the first byte of every word in `starts`, bit i % 64 of starts[i / 64], contractions aside: each begins a word, but what
/// follows its apostrophe is marked as if there were no contractions. False, with nothing marked: the text has white space beyond
/// ASCII, which this does not know.
bool mark_gpt2_words(std::string_view text, std::vector<uint64_t>& starts);

/// The same words as above, faster. `starts` is working memory.
template <class Visit>
void each_gpt2_word(std::string_view text, std::vector<uint64_t>& starts, const Visit& visit) {
  if (!mark_gpt2_words(text, starts)) return each_gpt2_word(text, visit);
  size_t begin = 0;
  for (size_t block = 0; block * 64 < text.size(); ++block) {
    for (uint64_t bits = starts[block]; bits != 0; bits &= bits - 1) {
      const size_t end = block * 64 + size_t(std::countr_zero(bits));
      if (end <= begin) continue;  // the text's start, or inside a contraction
      if (text[begin] == '\'') {
        if (const size_t size = contraction_size(text, begin); size > 0) {
          visit(begin, begin + size);
          begin += size;
          if (end <= begin) continue;
        }
      }
      visit(begin, end);
      begin = end;
    }
  }
  if (begin == text.size()) return;
  if (const size_t size = text[begin] == '\'' ? contraction_size(text, begin) : 0; size > 0) {
    visit(begin, begin + size);
    begin += size;
  }
  if (begin < text.size()) visit(begin, text.size());
}

/// A place at or before `limit`, and after `from`, where the text may be cut without changing its words: between a character
/// that is no white space and a white space. 0: there is none.
size_t gpt2_safe_cut(std::string_view text, size_t from, size_t limit);

}  // namespace vitrine
