#include "picture/data/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/utf8.h"

namespace vitrine {
namespace {

std::vector<std::byte> bytes_of_base64(const std::string& text) {
  std::vector<std::byte> bytes;
  uint32_t group = 0, bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const uint32_t six = c >= 'a'   ? static_cast<uint32_t>(c - 'a' + 26)
                         : c >= 'A' ? static_cast<uint32_t>(c - 'A')
                         : c == '+' ? 62
                         : c == '/' ? 63
                                    : static_cast<uint32_t>(c - '0' + 52);
    group = group << 6 | six;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<std::byte>(group >> bits & 255));
    }
  }
  return bytes;
}

}  // namespace

const PictureJson* available(const PictureJson& pictures, const char* name) {
  const auto picture = pictures.find(name);
  return picture != pictures.end() && picture->at("available").get<bool>() ? &*picture : nullptr;
}

std::string with_spaces(std::string text) {
  for (const std::string_view mark : {"\u2581", "\u0120"})
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) text.replace(at, mark.size(), " ");
  return text;
}

std::string cut(const std::string& text, size_t most) {
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); i += std::max<size_t>(1, utf8_at(text, i).size))
    if (++characters > most) return text.substr(0, i) + "…";
  return text;
}

std::string shortened(const std::string& text, size_t most) {
  std::string result;
  for (const char c : cut(text, most)) result += c == '\n' ? "⏎" : c == '\t' ? "⇥" : c == ' ' ? "␣" : std::string(1, c);
  return result;
}

std::string PictureView::spelling(int64_t id, size_t most) const {
  const auto& pieces = document.at("pieces");
  const std::string key = std::to_string(id);
  return pieces.contains(key) ? shortened(pieces.at(key).get<std::string>(), most) : "#" + key;
}

std::string PictureView::token_at(size_t position, size_t most) const {
  const PictureJson& token = document.at("tokens").at(position);
  return token.at("piece").is_null() ? "#" + token.at("id").dump() : shortened(token.at("piece").get<std::string>(), most);
}

std::vector<double> unpacked(const PictureJson& packed) {
  const std::vector<std::byte> bytes = bytes_of_base64(packed.at("base64").get<std::string>());
  const std::string type = packed.at("type");
  const double scale = packed.at("scale");
  std::vector<double> stored;
  const size_t each = type == "f32" ? 4 : type == "u16" ? 2 : 1;
  for (size_t i = 0; i + each <= bytes.size(); i += each) {
    float f = 0;
    uint16_t u = 0;
    if (each == 4) std::memcpy(&f, bytes.data() + i, 4);
    if (each == 2) std::memcpy(&u, bytes.data() + i, 2);
    stored.push_back(each == 4 ? static_cast<double>(f) : scale * (each == 2 ? u : std::to_integer<int>(bytes[i])));
  }
  if (packed.at("layout") == "dense") return stored;
  const auto shape = packed.at("shape").get<std::vector<size_t>>();
  const size_t n = shape.back();
  std::vector<double> values;
  for (size_t square = 0; square < stored.size() / causal_cells(n); ++square)
    for (size_t t = 0; t < n; ++t)
      for (size_t s = 0; s < n; ++s) values.push_back(s <= t ? stored[square * causal_cells(n) + causal_index(t, s)] : 0);
  return values;
}

std::vector<double> number_list(const PictureJson& list) {
  std::vector<double> values;
  for (const PictureJson& v : list) values.push_back(v.is_null() ? std::nan("") : v.get<double>());
  return values;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "not finite";
  return fmt::format("{:.4g}", value);
}

}  // namespace vitrine
