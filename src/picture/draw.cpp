// From a document to one SVG, and what the drawings share.
#include "picture/draw.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"

namespace vitrine {
namespace {

struct Drawing {
  const char* name;
  Svg (*draw)(const Canvas&);
};
constexpr std::array kDrawings = {
    Drawing{"dot-product", svg_of_dot_product},
    Drawing{"tokens", svg_of_tokens},
    Drawing{"merges", svg_of_merges},
    Drawing{"splits", svg_of_splits},
    Drawing{"embedding-cosine", svg_of_embedding_cosine},
    Drawing{"embedding-neighbours", svg_of_embedding_neighbours},
    Drawing{"position-vectors", svg_of_position_vectors},
    Drawing{"embedding-rescaling", svg_of_embedding_rescaling},
    Drawing{"update-scale", svg_of_update_scale},
    Drawing{"residual-scale", svg_of_residual_scale},
    Drawing{"layer-norm", svg_of_layer_norm},
    Drawing{"norm-statistics", svg_of_norm_statistics},
    Drawing{"head-grouping", svg_of_head_grouping},
    Drawing{"softmax", svg_of_softmax},
    Drawing{"attention", svg_of_attention},
    Drawing{"soft-cap", svg_of_soft_cap},
    Drawing{"rope-rotation", svg_of_rope_rotation},
    Drawing{"rope-wavelengths", svg_of_rope_wavelengths},
    Drawing{"query-length", svg_of_query_length},
    Drawing{"activation-curves", svg_of_activation_curves},
    Drawing{"mlp-surfaces", svg_of_mlp_surfaces},
    Drawing{"final-norm", svg_of_final_norm},
    Drawing{"next-tokens", svg_of_next_tokens},
    Drawing{"logit-lens", svg_of_logit_lens},
    Drawing{"logit-attribution", svg_of_logit_attribution},
    Drawing{"input-attribution", svg_of_input_attribution},
    Drawing{"reach", svg_of_reach},
    Drawing{"gradient-norms", svg_of_gradient_norms},
    Drawing{"gradient-hooks", svg_of_gradient_hooks},
};

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

std::string shortened(const std::string& text, size_t most) {
  std::string result;
  size_t characters = 0;
  for (size_t i = 0; i < text.size();) {
    if (++characters > most) return result + "…";
    const size_t size = std::max<size_t>(1, utf8_at(text, i).size);
    const std::string_view c = std::string_view(text).substr(i, size);
    result += c == "\n" ? "⏎" : c == "\t" ? "⇥" : c == " " ? "␣" : c;
    i += size;
  }
  return result;
}

std::string Canvas::spelling(int64_t id, size_t most) const {
  const auto& pieces = document.at("pieces");
  const std::string key = std::to_string(id);
  return pieces.contains(key) ? shortened(pieces.at(key).get<std::string>(), most) : "#" + key;
}

std::string Canvas::token_at(size_t position, size_t most) const {
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

std::string picture_svg(const PictureJson& document, std::string_view name, const PictureOptions& options) {
  const PictureJson& picture = document.at("pictures").at(std::string(name));
  if (!picture.at("available").get<bool>()) throw InputError(picture.at("reason").get<std::string>());
  for (const Drawing& drawing : kDrawings)
    if (name == drawing.name) return drawing.draw({document, picture, options}).finish();
  throw UsageError("there is no drawing of \"" + std::string(name) + "\"");
}

}  // namespace vitrine
