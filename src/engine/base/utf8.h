#pragma once
// UTF-8, strictly (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

inline constexpr uint32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

/// The character at `pos` < text.size(). Where the bytes are not UTF-8: valid = false, code = U+FFFD, and size is the
/// length of the longest start of a character there, at least 1 (the count of bytes that one U+FFFD stands for).
struct Utf8Char {
  uint32_t code;
  uint32_t size;
  bool valid;
};
Utf8Char utf8_beyond_ascii(std::string_view text, size_t pos);
inline Utf8Char utf8_at(std::string_view text, size_t pos) {
  const auto lead = static_cast<unsigned char>(text[pos]);
  if (lead < 0x80) return {lead, 1, true};
  return utf8_beyond_ascii(text, pos);
}

void append_utf8(std::string& out, uint32_t code);
std::string to_utf8(uint32_t code);

/// The length of the longest valid start of `text`.
size_t valid_utf8_prefix(std::string_view text);
inline bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

/// `text` with U+FFFD for each longest start of a character that is not completed.
std::string utf8_lossy(std::string_view text);

/// Cuts a stream of bytes at ends of characters.
class Utf8Buffer {
 public:
  explicit Utf8Buffer(bool replace) : replace_(replace) {}
  /// Adds bytes and moves every complete character to `out`; bytes that cannot be part of one become U+FFFD, or go
  /// through unchanged where replace is false.
  void push(std::string_view bytes, std::string& out);
  void flush(std::string& out);  // the incomplete rest, as invalid bytes

 private:
  void drain(std::string& out, bool end);
  bool replace_;
  std::string held_;
};

}  // namespace vitrine
