#pragma once
// The script of a character (Unicode's property Script), from PCRE2's tables.
#include <cstdint>
#include <memory>

namespace vitrine {

class Scripts {
 public:
  enum : int { kCommon = 0, kInherited, kHan, kHiragana, kKatakana };  // others are numbered on
  Scripts();
  /// The script's number; kCommon for characters without one.
  int of(uint32_t character) const;

 private:
  std::shared_ptr<void> code_;  // pcre2_code
};

}  // namespace vitrine
