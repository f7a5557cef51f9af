#pragma once
// Sets of characters as ranges of code points.
#include <cstdint>
#include <string>
#include <vector>

namespace vitrine {

struct CharRange {
  uint32_t first, last;
  bool operator==(const CharRange&) const = default;
};

/// By rising code points; ranges do not touch each other. No set has the code points that are no characters (surrogates).
class CharSet {
 public:
  CharSet() = default;
  explicit CharSet(std::vector<CharRange> ranges);  // in any order
  static CharSet any();

  bool empty() const { return ranges_.empty(); }
  size_t size() const { return ranges_.size(); }  // ranges
  bool meets(const CharSet& other) const;         // some character is in both
  CharSet complement() const;
  void add(const CharSet& other);
  /// As a regular expression of one character; not for an empty set.
  std::string regex() const;
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<CharRange> ranges_;
};

}  // namespace vitrine
