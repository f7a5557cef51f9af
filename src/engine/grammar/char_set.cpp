#include "grammar/char_set.h"

#include <fmt/format.h>

#include <algorithm>

namespace vitrine {
namespace {

constexpr uint32_t kLastCharacter = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

std::string regex_character(uint32_t code) {
  const bool plain = (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
  return plain ? std::string(1, static_cast<char>(code)) : fmt::format("\\x{{{:X}}}", code);
}

}  // namespace

CharSet::CharSet(std::vector<CharRange> ranges) {
  std::vector<CharRange> parts;
  for (const CharRange& r : ranges) {
    if (r.first < kFirstSurrogate) parts.push_back({r.first, std::min(r.last, kFirstSurrogate - 1)});
    if (r.last > kLastSurrogate) parts.push_back({std::max(r.first, kLastSurrogate + 1), std::min(r.last, kLastCharacter)});
  }
  std::ranges::sort(parts, {}, &CharRange::first);
  for (const CharRange& r : parts) {
    if (r.first > r.last) continue;
    if (!ranges_.empty() && r.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, r.last);
    else
      ranges_.push_back(r);
  }
}

CharSet CharSet::any() { return CharSet({{0, kLastCharacter}}); }

bool CharSet::meets(const CharSet& other) const {
  for (size_t i = 0, j = 0; i < ranges_.size() && j < other.ranges_.size();) {
    const CharRange &a = ranges_[i], &b = other.ranges_[j];
    if (a.first <= b.last && b.first <= a.last) return true;
    a.last < b.last ? ++i : ++j;
  }
  return false;
}

CharSet CharSet::complement() const {
  std::vector<CharRange> rest;
  uint32_t from = 0;
  for (const CharRange& r : ranges_) {
    if (r.first > from) rest.push_back({from, r.first - 1});
    from = r.last + 1;
  }
  if (from <= kLastCharacter) rest.push_back({from, kLastCharacter});
  return CharSet(std::move(rest));
}

void CharSet::add(const CharSet& other) {
  if (other.empty()) return;
  std::vector<CharRange> all = std::move(ranges_);
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  *this = CharSet(std::move(all));
}

std::string CharSet::regex() const {
  if (ranges_.size() == 1 && ranges_[0].first == ranges_[0].last) return regex_character(ranges_[0].first);
  std::string text = "[";
  for (const CharRange& r : ranges_) {
    text += regex_character(r.first);
    if (r.last > r.first) text += "-" + regex_character(r.last);
  }
  return text + "]";
}

}  // namespace vitrine
