#pragma once
// Classes of characters as tokenizers has them: its parts go by different versions of Unicode (unicode_tables.h).
#include <cstdint>

namespace vitrine {

bool is_whitespace(uint32_t c);    // the property White_Space
bool is_letter(uint32_t c);        // \p{L} of a regular expression
bool is_number(uint32_t c);        // \p{N} of a regular expression
bool is_numeric(uint32_t c);       // the same in Digits, with newer numbers
bool is_punctuation(uint32_t c);   // ASCII punctuation and symbols, and the categories P* of Unicode 8
bool is_word(uint32_t c);          // \w of Whitespace and of single words: letters, marks, decimal digits, connectors, joiners
bool is_accent(uint32_t c);        // a mark for StripAccents
bool is_bert_accent(uint32_t c);   // a nonspacing mark for BertNormalizer
bool is_bert_control(uint32_t c);  // Cc, Cf, Co for BertNormalizer
bool is_cjk_ideograph(uint32_t c);
bool is_normalized(uint32_t c);   // false: newer than the tables of the normal forms, which leave it as it is
uint32_t lower_case(uint32_t c);  // simple mapping; U+0130 is the caller's

}  // namespace vitrine
