#include "picture/data/values.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/base64.h"
#include "base/utf8.h"

namespace vitrine {
namespace {

PictureJson packed_bytes(const char* type, std::span<const std::byte> bytes, const std::vector<int64_t>& shape, double scale,
                         bool causal) {
  return {{"type", type},   {"shape", shape}, {"layout", causal ? "causal" : "dense"},
          {"scale", scale}, {"offset", 0},    {"base64", base64(bytes)}};
}

}  // namespace

PictureJson number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return value == 0 ? PictureJson(0) : PictureJson(static_cast<int64_t>(value));
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.7g", value);
  return std::strtod(text.data(), nullptr);
}

PictureJson numbers(std::span<const double> values) {
  PictureJson list = PictureJson::array();
  for (const double value : values) list.push_back(number(value));
  return list;
}

PictureJson numbers(std::span<const float> values) {
  PictureJson list = PictureJson::array();
  for (const float value : values) list.push_back(number(static_cast<double>(value)));
  return list;
}

PictureJson table(const std::vector<std::vector<double>>& rows) {
  PictureJson list = PictureJson::array();
  for (const auto& row : rows) list.push_back(numbers(row));
  return list;
}

PictureJson packed(std::span<const float> values, const std::vector<int64_t>& shape) {
  return packed_bytes("f32", std::as_bytes(values), shape, 1, false);
}
PictureJson packed(std::span<const uint16_t> stored, const std::vector<int64_t>& shape, double scale, bool causal) {
  return packed_bytes("u16", std::as_bytes(stored), shape, scale, causal);
}
PictureJson packed(std::span<const uint8_t> stored, const std::vector<int64_t>& shape, double scale, bool causal) {
  return packed_bytes("u8", std::as_bytes(stored), shape, scale, causal);
}

std::string script_json(const PictureJson& document) {
  const std::string text = document.dump(-1, ' ', false, PictureJson::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size() + text.size() / 64);
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i, 3);
    if (text[i] == '<') {
      safe += "\\u003c";
    } else if (rest == "\xE2\x80\xA8" || rest == "\xE2\x80\xA9") {
      safe += rest[2] == '\xA8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      safe += text[i];
    }
  }
  return safe;
}

std::string markup_text(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char read = utf8_at(text, i);
    const std::string_view character = text.substr(i, read.size);
    const auto code = static_cast<unsigned char>(text[i]);
    i += character.size();
    const bool control = code < 0x20 && code != '\t' && code != '\n' && code != '\r';
    if (!read.valid || control || code == 0x7F || character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF") {
      safe += "\xEF\xBF\xBD";
    } else if (character == "&") {
      safe += "&amp;";
    } else if (character == "<") {
      safe += "&lt;";
    } else if (character == ">") {
      safe += "&gt;";
    } else if (character == "\"") {
      safe += "&quot;";
    } else if (character == "'") {
      safe += "&#39;";
    } else {
      safe += character;
    }
  }
  return safe;
}

}  // namespace vitrine
