#include "jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "jinja/long_cases.h"

namespace vitrine::jinja {
namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The byte at which the code point before `at` begins.
size_t previous(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && continues(text[at]));
  return at;
}

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

char32_t upper(char32_t code) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))); }
char32_t lower(char32_t code) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))); }
char32_t title(char32_t code) { return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))); }

const LongCase* long_case(char32_t code) {
  const auto at = std::lower_bound(std::begin(kLongCases), std::end(kLongCases), code,
                                   [](const LongCase& entry, char32_t c) { return entry.code < c; });
  return at != std::end(kLongCases) && at->code == code ? at : nullptr;
}

void append_all(std::string& text, const char32_t* codes) {
  for (; *codes; ++codes) append_code_point(text, *codes);
}

void append_upper(std::string& text, char32_t code) {
  if (const LongCase* entry = long_case(code))
    append_all(text, entry->upper);
  else
    append_code_point(text, upper(code));
}

void append_title(std::string& text, char32_t code) {
  if (const LongCase* entry = long_case(code))
    append_all(text, entry->title);
  else
    append_code_point(text, title(code));
}

bool is_cased(char32_t code) { return is_upper(code) || is_lower(code) || category(code) == UTF8PROC_CATEGORY_LT; }

// Letters are looked through to both sides of a sigma for other letters: marks and the like between them do not count.
bool is_case_ignorable(char32_t code) {
  const auto c = category(code);
  return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019 || c == UTF8PROC_CATEGORY_MN ||
         c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK;
}

// Lower case of the code point at [begin, end): a capital sigma at the end of a word becomes the final one.
void append_lower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t code) {
  if (code == 0x130) return append_all(out, U"i\u0307");
  if (code != 0x3A3) return append_code_point(out, lower(code));
  bool before = false, after = false;
  for (size_t at = begin; at > 0;) {
    at = previous(text, at);
    size_t next = at;
    const char32_t other = next_code_point(text, next);
    if (is_case_ignorable(other)) continue;
    before = is_cased(other);
    break;
  }
  while (end < text.size()) {
    const char32_t other = next_code_point(text, end);
    if (is_case_ignorable(other)) continue;
    after = is_cased(other);
    break;
  }
  append_code_point(out, before && !after ? 0x3C2 : 0x3C3);
}

template <class Strips>
Stripped strip(std::string_view text, bool left, bool right, Strips strips) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t at = begin;
    if (!strips(next_code_point(text, at))) break;
    begin = at;
  }
  while (right && begin < end) {
    size_t at = previous(text, end);
    const size_t start = at;
    if (!strips(next_code_point(text, at))) break;
    end = start;
  }
  return {begin, end};
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t first = byte(at);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t code = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length && at + i < text.size(); ++i) code = code << 6 | (byte(at + i) & 0x3F);
  at = at + length < text.size() ? at + length : text.size();
  return code;
}

void append_code_point(std::string& text, char32_t code) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

size_t code_point_count(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += !continues(byte);
  return count;
}

size_t byte_of_code_point(std::string_view text, size_t index) {
  for (size_t at = 0; at < text.size(); ++at)
    if (!continues(text[at]) && index-- == 0) return at;
  return text.size();
}

size_t first_invalid_byte(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                         static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (length <= 0) return at;
    at += static_cast<size_t>(length);
  }
  return std::string_view::npos;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t code) {
  if (code < 0x7F) return code >= 0x20;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_upper(char32_t code) { return category(code) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t code) { return category(code) == UTF8PROC_CATEGORY_LL || code == 0xAA || code == 0xBA; }

bool is_letter(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(char32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t code) { return code == '_' || is_letter(code) || is_numeric(code); }

std::string to_upper(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) append_upper(result, next_code_point(text, at));
  return result;
}

std::string to_lower(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = next_code_point(text, at);
    append_lower(result, text, begin, at, code);
  }
  return result;
}

std::string swap_case(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (is_upper(code))
      append_lower(result, text, begin, at, code);
    else if (is_lower(code))
      append_upper(result, code);
    else
      append_code_point(result, code);
  }
  return result;
}

std::string to_title(std::string_view text) {
  std::string result;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (inside)
      append_lower(result, text, begin, at, code);
    else
      append_title(result, code);
    inside = is_cased(code);
  }
  return result;
}

std::string capitalized(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (begin == 0)
      append_title(result, code);
    else
      append_lower(result, text, begin, at, code);
  }
  return result;
}

std::string case_folded(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t folded[4] = {};
    int boundary = 0;
    const auto code = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    const auto count = utf8proc_decompose_char(code, folded, 4, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count && i < 4; ++i) append_code_point(result, static_cast<char32_t>(folded[i]));
  }
  return result;
}

Stripped strip_space(std::string_view text, bool left, bool right) { return strip(text, left, right, is_space); }

Stripped strip_characters(std::string_view text, std::string_view characters, bool left, bool right) {
  std::u32string set;
  for (size_t at = 0; at < characters.size();) set += next_code_point(characters, at);
  std::sort(set.begin(), set.end());
  return strip(text, left, right, [&](char32_t code) { return std::binary_search(set.begin(), set.end(), code); });
}

}  // namespace vitrine::jinja
