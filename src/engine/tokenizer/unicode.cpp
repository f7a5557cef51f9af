#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "tokenizer/unicode_tables.h"

namespace vitrine {
namespace {

// The flags of every code point, in blocks of which those with one value throughout are kept once.
class Flags {
 public:
  Flags() : block_of_(kCodePoints / kBlock), uniform_(256, -1) {
    for (uint32_t first = 0, run = 0; first < kCodePoints; first += kBlock) {
      while (end_of(run) <= first) ++run;
      const uint8_t flags = kCharacterRuns[run].flags;
      const bool uniform = end_of(run) >= first + kBlock;
      if (!uniform || uniform_[flags] < 0) {
        if (uniform) uniform_[flags] = int(blocks_.size());
        block_of_[first / kBlock] = uint16_t(blocks_.size());
        blocks_.emplace_back();
        for (uint32_t i = 0, at = run; i < kBlock; ++i) {
          while (end_of(at) <= first + i) ++at;
          blocks_.back()[i] = kCharacterRuns[at].flags;
        }
      } else {
        block_of_[first / kBlock] = uint16_t(uniform_[flags]);
      }
    }
  }
  uint8_t of(uint32_t c) const { return c < kCodePoints ? blocks_[block_of_[c / kBlock]][c % kBlock] : 0; }

 private:
  static constexpr uint32_t kCodePoints = 0x110000, kBlock = 256;
  static uint32_t end_of(uint32_t run) {
    return run + 1 < std::size(kCharacterRuns) ? uint32_t(kCharacterRuns[run + 1].first) : kCodePoints;
  }
  std::vector<uint16_t> block_of_;
  std::vector<std::array<uint8_t, kBlock>> blocks_;
  std::vector<int> uniform_;  // by flags; -1: no such block yet
};

bool has(uint32_t c, CharacterFlag flag) {
  static const Flags flags;
  return (flags.of(c) & flag) != 0;
}

// The run of a sorted table that holds c; null: none does.
template <class Run, size_t kSize>
const Run* run_of(const Run (&runs)[kSize], uint32_t c) {
  const auto at =
      std::lower_bound(std::begin(runs), std::end(runs), c, [](const Run& run, uint32_t code) { return run.last < code; });
  return at != std::end(runs) && at->first <= c ? at : nullptr;
}

}  // namespace

bool is_whitespace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(uint32_t c) { return has(c, kLetter); }
bool is_number(uint32_t c) { return has(c, kNumber); }
bool is_numeric(uint32_t c) { return has(c, kNumeric); }
bool is_punctuation(uint32_t c) { return has(c, kPunctuation); }
bool is_word(uint32_t c) { return has(c, kWord); }
bool is_accent(uint32_t c) { return has(c, kAccent); }
bool is_bert_accent(uint32_t c) { return has(c, kBertAccent); }
bool is_bert_control(uint32_t c) { return has(c, kBertControl); }

bool is_cjk_ideograph(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_normalized(uint32_t c) { return run_of(kNotNormalized, c) == nullptr; }

uint32_t lower_case(uint32_t c) {
  if (const LowerCaseRun* later = run_of(kLaterLowerCase, c)) return uint32_t(int32_t(c) + later->distance);
  return uint32_t(utf8proc_tolower(utf8proc_int32_t(c)));
}

}  // namespace vitrine
