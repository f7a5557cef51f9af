// Pages of long prompts stay small, and drawings hold their text.
#include <gtest/gtest.h>

#include "picture/observe.h"
#include "picture/svg.h"
#include "support.h"
#include "support/random_model.h"

namespace vitrine {
namespace {

TEST(LongPrompts, TwoThousandTokensStayBelowThirtyMegabytes) {
  TemporaryDirectory folder;
  write_random_model(folder.path(), {{"architectures", {"GemmaForCausalLM"}},
                                     {"model_type", "gemma"},
                                     {"hidden_size", 16},
                                     {"num_hidden_layers", 2},
                                     {"num_attention_heads", 8},
                                     {"num_key_value_heads", 1},
                                     {"head_dim", 16},
                                     {"intermediate_size", 24},
                                     {"vocab_size", 64},
                                     {"max_position_embeddings", 8192},
                                     {"hidden_act", "gelu_pytorch_tanh"}});
  Engine engine(folder.path(), kF32);
  std::vector<int32_t> ids;
  for (int i = 0; i < 2000; ++i) ids.push_back((i * 37 + i / 7) % 64);
  PictureJson document = explain_document(engine, ids_prompt(ids));
  PictureJson& pictures = document.at("pictures");
  EXPECT_EQ(pictures.at("attention").at("level"), "tiles");
  EXPECT_TRUE(pictures.at("update-scale").at("perToken").is_null());
  EXPECT_EQ(pictures.at("next-tokens").at("ids").size(), 2000u);
  EXPECT_EQ(pictures.at("logit-lens").at("positions").size(), 24u);
  for (const PictureInfo& info : vitrine::pictures()) {  // every drawing stays a file that a browser opens at once
    if (!pictures.at(info.name).at("available").get<bool>()) continue;
    EXPECT_LT(picture_svg(document, info.name).size(), size_t{4} << 20) << info.name;
  }
  // Attention takes what pattern_level allows, whatever the model; all the rest has to fit beside it.
  pictures.erase("attention");
  const PatternLevel largest = pattern_level(2000, 18, 8);
  EXPECT_LT(explain_page(document).size() + base64_size(largest.bytes), size_t{30'000'000});
}

// What stands between the quotes of name="…" in an element's tag.
std::string attribute(const std::string& tag, const std::string& name) {
  const std::string key = " " + name + "=\"";
  const size_t begin = tag.find(key);
  if (begin == std::string::npos) return "";
  return tag.substr(begin + key.size(), tag.find('"', begin + key.size()) - begin - key.size());
}

// One character for each reference, such as &amp;
std::string unescaped(std::string text) {
  for (size_t at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1))
    text.erase(at + 1, text.find(';', at) - at);
  return text;
}

TEST(Drawings, HoldTheirText) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PictureJson document =
      explain_document(engine, text_prompt(engine, "Once upon a time there was a little girl who had grandmothers"));
  for (const PictureInfo& info : pictures()) {
    if (!document.at("pictures").at(info.name).at("available").get<bool>()) continue;
    const std::string svg = picture_svg(document, info.name);
    const std::string page = svg.substr(0, svg.find('>'));
    ASSERT_TRUE(page.starts_with("<svg ")) << info.name;
    const double width = std::stod(attribute(page, "width")), height = std::stod(attribute(page, "height"));
    EXPECT_CONTAINS(svg, "<title id=\"title\">");
    EXPECT_CONTAINS(svg, "<desc id=\"desc\">");
    EXPECT_CONTAINS(svg, "role=\"img\"");
    int seen = 0;
    for (size_t at = svg.find("<text "); at != std::string::npos; at = svg.find("<text ", at + 1)) {
      const size_t end = svg.find('>', at);
      const std::string tag = svg.substr(at, end - at), words = unescaped(svg.substr(end + 1, svg.find('<', end) - end - 1)),
                        anchor = attribute(tag, "text-anchor");
      if (attribute(tag, "x").empty()) continue;  // stands upright, beside an axis
      ++seen;
      const double length = 0.9 * Svg::text_width(words, std::stod(attribute(tag, "font-size")));
      const double x = std::stod(attribute(tag, "x")), y = std::stod(attribute(tag, "y"));
      const double left = anchor == "start" ? x : anchor == "end" ? x - length : x - length / 2;
      EXPECT_GE(left, 0) << info.name << ": " << words;
      EXPECT_LE(left + length, width) << info.name << ": " << words;
      EXPECT_TRUE(y >= 8 && y <= height) << info.name << ": " << words;
    }
    EXPECT_GE(seen, 2) << info.name;
  }
}

}  // namespace
}  // namespace vitrine
