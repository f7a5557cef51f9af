#pragma once
// Python's view of a string, whose unit is the code point, on UTF-8 bytes. All texts here are valid UTF-8.
#include <cstddef>
#include <string>
#include <string_view>

namespace vitrine::jinja {

/// The code point at byte `at`, which moves behind it.
char32_t next_code_point(std::string_view text, size_t& at);
void append_code_point(std::string& text, char32_t code);
size_t code_point_count(std::string_view text);
/// The byte at which code point `index` begins; the end of the text if it has no more than `index`.
size_t byte_of_code_point(std::string_view text, size_t index);
/// Position of the first byte that is not part of valid UTF-8 (no surrogates, no overlong forms); npos if there is none.
size_t first_invalid_byte(std::string_view text);

bool is_space(char32_t code);      // str.isspace and \s
bool is_printable(char32_t code);  // str.isprintable: others are escaped by repr
bool is_letter(char32_t code);     // str.isalpha
bool is_digit(char32_t code);      // \d and str.isdecimal
bool is_numeric(char32_t code);    // str.isnumeric: digits, fractions, letters that are numbers
bool is_upper(char32_t code);
bool is_lower(char32_t code);
bool is_word(char32_t code);  // \w

/// Full case mappings of Unicode, as Python's methods of the same names.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string case_folded(std::string_view text);
std::string swap_case(std::string_view text);
/// str.title: upper case for the first letter of each run of letters, lower case for the others.
std::string to_title(std::string_view text);
/// str.capitalize: upper case for the first code point, lower case for the others.
std::string capitalized(std::string_view text);

/// The bytes [begin, end) without white space at the left and/or the right.
struct Stripped {
  size_t begin, end;
};
Stripped strip_space(std::string_view text, bool left, bool right);
/// The same for the code points in `characters`.
Stripped strip_characters(std::string_view text, std::string_view characters, bool left, bool right);

}  // namespace vitrine::jinja
