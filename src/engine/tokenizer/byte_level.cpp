#include "tokenizer/byte_level.h"

#include "base/utf8.h"

namespace vitrine {
namespace {
struct Alphabet {
  std::array<std::string, 256> text;
  std::array<int, 324> byte;  // by character; the largest is U+0143
  Alphabet() {
    byte.fill(-1);
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const uint32_t character = printable ? b : next++;
      text[b] = to_utf8(character);
      byte[character] = int(b);
    }
  }
};
const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}
}  // namespace

const std::array<std::string, 256>& byte_level_alphabet() { return alphabet().text; }

int byte_of_character(uint32_t character) { return character < alphabet().byte.size() ? alphabet().byte[character] : -1; }

bool append_byte_level(std::string_view piece, std::string& out) {
  const size_t before = out.size();
  for (size_t pos = 0; pos < piece.size();) {
    const Utf8Char c = utf8_at(piece, pos);
    const int byte = c.valid ? byte_of_character(c.code) : -1;
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out += char(byte);
    pos += c.size;
  }
  return true;
}

}  // namespace vitrine
