#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace vitrine {
namespace {
utf8proc_category_t category(uint32_t c) { return utf8proc_category(utf8proc_int32_t(c)); }

using Range = std::pair<uint32_t, uint32_t>;

bool lies_in(std::span<const Range> ranges, uint32_t c) {
  return std::any_of(ranges.begin(), ranges.end(), [c](const Range& range) { return c >= range.first && c <= range.second; });
}

// Hugging Face's letters and numbers are those of Unicode 16. These came after Unicode 15.0, utf8proc's.
constexpr Range kLaterLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65}, {0x10D6F, 0x10D85},
    {0x10EC2, 0x10EC4}, {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7},
    {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0}, {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C},
    {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D}};
constexpr Range kLaterNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
                                   {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA}};

// Hugging Face's class of punctuation is that of Unicode 8. What became punctuation later is none for it, and two
// characters that ceased to be still are.
constexpr Range kLaterPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},     {0x1B7D, 0x1B7E},
    {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x1144B, 0x1144F},
    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946},
    {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};
constexpr uint32_t kFormerPunctuation[] = {0x166D, 0x111C9};
}  // namespace

bool is_whitespace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(uint32_t c) {
  const auto k = category(c);
  if (k == UTF8PROC_CATEGORY_CN) return lies_in(kLaterLetters, c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_numeric(uint32_t c) {
  const auto k = category(c);
  if (k == UTF8PROC_CATEGORY_CN) return lies_in(kLaterNumbers, c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  if (std::find(std::begin(kFormerPunctuation), std::end(kFormerPunctuation), c) != std::end(kFormerPunctuation)) return true;
  const auto k = category(c);
  if (k < UTF8PROC_CATEGORY_PC || k > UTF8PROC_CATEGORY_PO) return false;
  return !lies_in(kLaterPunctuation, c);
}

bool is_mark(uint32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_word(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  if (c == 0x200C || c == 0x200D) return true;  // joiners
  // Letters in circles and squares are symbols that are alphabetic.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189))
    return true;
  const auto k = category(c);
  return is_letter(c) || is_mark(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_PC;
}

bool is_control(uint32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

bool is_cjk_ideograph(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

uint32_t lower_case(uint32_t c) { return uint32_t(utf8proc_tolower(utf8proc_int32_t(c))); }

}  // namespace vitrine
