#pragma once
// Classes of characters, as the reference libraries define them (utf8proc's tables of Unicode 15, and what is newer).
#include <cstdint>

namespace vitrine {

bool is_whitespace(uint32_t c);   // the property White_Space
bool is_letter(uint32_t c);       // categories L* of Unicode 16
bool is_numeric(uint32_t c);      // categories Nd, Nl, No of Unicode 16
bool is_punctuation(uint32_t c);  // ASCII punctuation and symbols, and the categories P* of Unicode 8
bool is_mark(uint32_t c);         // Mn, Mc, Me
bool is_nonspacing_mark(uint32_t c);
bool is_word(uint32_t c);     // \w: letters, marks, decimal digits, connector punctuation, joiners
bool is_control(uint32_t c);  // Cc, Cf, Cn, Co
bool is_cjk_ideograph(uint32_t c);
uint32_t lower_case(uint32_t c);  // simple mapping; U+0130 is the caller's

}  // namespace vitrine
