#include "tokenizer/charsmap.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace vitrine {

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  if (blob.empty()) return;
  uint32_t trie_bytes = 0;
  if (blob.size() < 4) throw FileError(where, fmt::format("precompiled_charsmap has {} bytes, expected at least 4", blob.size()));
  std::memcpy(&trie_bytes, blob.data(), 4);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes >= blob.size() - 4)
    throw FileError(where, fmt::format("precompiled_charsmap says its trie has {} bytes; expected a multiple of 4 below {}",
                                       trie_bytes, blob.size() - 4));
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), blob.data() + 4, trie_bytes);
  replacements_ = blob.substr(4 + size_t(trie_bytes));
  if (replacements_.back() != 0)
    throw FileError(where, "precompiled_charsmap does not end with a zero byte; is the file complete?");
}

std::optional<Charsmap::Rule> Charsmap::longest(std::string_view text, size_t pos) const {
  if (units_.empty()) return std::nullopt;
  const auto offset = [](uint32_t unit) { return size_t(unit >> 10) << ((unit & 0x200) >> 6); };
  std::optional<Rule> best;
  size_t node = offset(units_[0]);
  for (size_t i = pos; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & 0x800000FFu) != byte) break;
    node ^= offset(unit);
    if (node >= units_.size()) break;
    if (unit & 0x100) {
      const size_t at = units_[node] & 0x7FFFFFFFu;
      if (at < replacements_.size()) best = Rule{i + 1 - pos, std::string_view(replacements_.c_str() + at)};
    }
  }
  return best;
}

}  // namespace vitrine
