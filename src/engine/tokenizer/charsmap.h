#pragma once
// SentencePiece's compiled normalization table ("precompiled_charsmap"): a double-array trie from strings to their
// replacements. Also used by the Precompiled normalizer of tokenizer.json. Layout: u32 size of the trie in bytes, the
// trie's u32 units, then the replacements, each ended by a zero byte. A unit holds a label (low 8 bits), a leaf flag
// (bit 8), an offset (from bit 10, in units of 256 where bit 9 is set); value units have bit 31 set.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

class Charsmap {
 public:
  Charsmap() = default;
  /// `blob` as the file holds it; empty: no rules. Errors: FileError naming `where`.
  Charsmap(std::string_view blob, const std::string& where);

  bool empty() const { return units_.empty(); }
  struct Rule {
    size_t size;                   // bytes of the text that it replaces
    std::string_view replacement;  // valid as long as the Charsmap
  };
  /// The rule for the longest string that begins at text[pos].
  std::optional<Rule> longest(std::string_view text, size_t pos) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace vitrine
