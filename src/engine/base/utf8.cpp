#include "base/utf8.h"

#include <cstring>

namespace vitrine {

Utf8Char utf8_beyond_ascii(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return pos + i < text.size() ? uint32_t(static_cast<unsigned char>(text[pos + i])) : 0u; };
  const uint32_t lead = byte(0);
  // The second byte's range excludes overlong forms (E0, F0), surrogates (ED) and what lies above U+10FFFF (F4).
  uint32_t length = 0, low = 0x80, high = 0xBF, code = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2, code = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3, code = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4, code = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacementCharacter, 1, false};
  }
  for (uint32_t i = 1; i < length; ++i) {
    const uint32_t next = byte(i);
    if (next < low || next > high) return {kReplacementCharacter, i, false};
    low = 0x80, high = 0xBF;
    code = code << 6 | (next & 0x3F);
  }
  return {code, length, true};
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += char(0xC0 | code >> 6);
    out += char(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += char(0xE0 | code >> 12);
    out += char(0x80 | (code >> 6 & 0x3F));
    out += char(0x80 | (code & 0x3F));
  } else {
    out += char(0xF0 | code >> 18);
    out += char(0x80 | (code >> 12 & 0x3F));
    out += char(0x80 | (code >> 6 & 0x3F));
    out += char(0x80 | (code & 0x3F));
  }
}

std::string to_utf8(uint32_t code) {
  std::string out;
  append_utf8(out, code);
  return out;
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    uint64_t eight = 0;
    if (pos + 8 <= text.size()) {
      std::memcpy(&eight, text.data() + pos, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        pos += 8;
        continue;
      }
    }
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid) return pos;
    pos += c.size;
  }
  return pos;
}

std::string utf8_lossy(std::string_view text) {
  std::string out;
  Utf8Buffer buffer(true);
  buffer.push(text, out);
  buffer.flush(out);
  return out;
}

void Utf8Buffer::push(std::string_view bytes, std::string& out) {
  held_ += bytes;
  drain(out, false);
}

void Utf8Buffer::flush(std::string& out) {
  drain(out, true);
  held_.clear();
}

void Utf8Buffer::drain(std::string& out, bool end) {
  size_t pos = 0;
  while (pos < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(pos);
    const size_t valid = valid_utf8_prefix(rest);
    out += rest.substr(0, valid);
    pos += valid;
    if (pos == held_.size()) break;
    const Utf8Char c = utf8_at(held_, pos);
    if (!end && pos + c.size == held_.size() && utf8_at(held_, pos).size < 4) {
      // The held bytes end inside this character. It is incomplete, not wrong, if its lead byte announces more.
      const auto lead = static_cast<unsigned char>(held_[pos]);
      const uint32_t announced = lead >= 0xF0 && lead <= 0xF4   ? 4
                                 : lead >= 0xE0 && lead <= 0xEF ? 3
                                 : lead >= 0xC2 && lead <= 0xDF ? 2
                                                                : 1;
      if (c.size < announced) break;
    }
    if (replace_) {
      out += kReplacementUtf8;
    } else {
      out += std::string_view(held_).substr(pos, c.size);
    }
    pos += c.size;
  }
  held_.erase(0, pos);
}

}  // namespace vitrine
