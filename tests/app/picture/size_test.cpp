// Pages of long prompts stay small, and drawings hold their text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/base64.h"
#include "picture/data/observe.h"
#include "picture/svg/svg.h"
#include "support.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

TEST(LongPrompts, TwoThousandTokensStayBelowThirtyMegabytes) {
  Scratch folder;
  write_random_model(folder.path(), small_gemma(2, 16));
  Engine engine(folder.path(), kF32);
  std::vector<int32_t> ids;
  for (int i = 0; i < 2000; ++i) ids.push_back((i * 37 + i / 7) % 64);
  PictureJson document = explain_document(engine, ids_prompt(ids));
  PictureJson& pictures = document.at("pictures");
  EXPECT_EQ(pictures.at("attention").at("level"), "tiles");
  EXPECT_TRUE(pictures.at("update-scale").at("perToken").is_null());
  EXPECT_EQ(pictures.at("next-tokens").at("ids").size(), 2000u);
  EXPECT_EQ(pictures.at("logit-lens").at("positions").size(), 32u);
  for (const PictureInfo& info : chapter_pictures()) {  // every drawing stays a file that a browser opens at once
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

// What stands in the texts of a drawing, those along an upright axis too.
std::vector<std::string> texts_of(const std::string& svg) {
  std::vector<std::string> texts;
  for (size_t at = svg.find("<text "); at != std::string::npos; at = svg.find("<text ", at + 1)) {
    const size_t begin = svg.find('>', at) + 1;
    texts.push_back(svg.substr(begin, svg.find('<', begin) - begin));
  }
  return texts;
}

// No text that lies leaves the page.
int expect_text_inside(const std::string& svg, const std::string& name) {
  const std::string page = svg.substr(0, svg.find('>'));
  const double width = std::stod(attribute(page, "width")), height = std::stod(attribute(page, "height"));
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
    EXPECT_GE(left, 0) << name << ": " << words;
    EXPECT_LE(left + length, width) << name << ": " << words;
    EXPECT_TRUE(y >= 8 && y <= height) << name << ": " << words;
  }
  return seen;
}

void expect_drawings(const PictureJson& document) {
  for (const auto& [name, picture] : document.at("pictures").items()) {
    if (!picture.at("available").get<bool>()) continue;
    const std::string svg = picture_svg(document, name);
    const std::string page = svg.substr(0, svg.find('>'));
    ASSERT_TRUE(page.starts_with("<svg ")) << name;
    EXPECT_CONTAINS(svg, "<title id=\"title\">");
    EXPECT_CONTAINS(svg, "<desc id=\"desc\">");
    EXPECT_CONTAINS(svg, "role=\"img\"");
    EXPECT_GE(expect_text_inside(svg, name), 2) << name;
  }
}

TEST(Drawings, HoldTheirText) {
  for (const Chapter& chapter : chapters()) {
    SCOPED_TRACE(chapter.name);
    expect_drawings(chapter_document(chapter));
  }
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  expect_drawings(explain_document(engine, text_prompt(engine, "Once upon a time there was a little girl who had grandmothers")));
}

size_t occurrences(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Drawings, WrapMergesAndSplits) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PicturePrompt prompt = text_prompt(
      engine, "Once upon a time there was an extraordinarily beautiful grandmother whose granddaughters understood everything");
  const PictureJson merges = picture_document(engine, prompt, "merges"), splits = picture_document(engine, prompt, "splits");
  const std::string merged = picture_svg(merges, "merges"), split = picture_svg(splits, "splits");
  expect_text_inside(merged, "merges");
  expect_text_inside(split, "splits");
  for (const std::string& svg : {merged, split}) EXPECT_EQ(svg.find("…"), std::string::npos);
  // A line of parts before the first merge and one after each: every part is there.
  const PictureJson& picture = merges.at("pictures").at("merges");
  size_t parts = picture.at("start").size(), boxes = parts;
  for (size_t i = 0; i < picture.at("steps").size(); ++i) boxes += --parts;
  EXPECT_GT(picture.at("start").size(), 100u);
  EXPECT_EQ(occurrences(merged, "<rect "), boxes);
  EXPECT_EQ(texts_of(merged).size(), boxes + picture.at("steps").size() + 1);
  size_t cuts = 0;
  for (const PictureJson& one : splits.at("pictures").at("splits").at("splits")) cuts += one.at("ids").size() - 1;
  size_t bars = 0;
  for (const std::string& text : texts_of(split)) bars += occurrences(text, "|");
  EXPECT_EQ(bars, cuts);
}

TEST(Drawings, AttentionNamesItsHeadsAndTokens) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const auto texts = [&](const std::string& prompt, const PictureOptions& options) {
    const PictureJson document = picture_document(engine, text_prompt(engine, prompt), "attention", options);
    const std::string svg = picture_svg(document, "attention", options);
    expect_text_inside(svg, prompt);
    return texts_of(svg);
  };
  const auto has = [](const std::vector<std::string>& all, const std::string& text) {
    return std::count(all.begin(), all.end(), text);
  };
  const ModelShape& shape = engine.shape();
  const std::vector<std::string> grid = texts("The king and the queen", {});
  for (int64_t l = 0; l < shape.n_layers; ++l)
    for (int64_t h = 0; h < shape.n_heads; ++h) EXPECT_EQ(has(grid, fmt::format("L{} H{}", l, h)), 1) << l << " " << h;
  EXPECT_EQ(has(grid, "▁queen"), shape.n_heads + shape.n_layers);  // beside each row and under each column of heads
  EXPECT_EQ(has(grid, "attention weight"), 1);
  // Names do not fit: the tokens are listed by their numbers.
  const std::vector<std::string> longer = texts(
      "Once upon a time there was a king who had a daughter and a son, and the son went into the forest and did not come home",
      {});
  EXPECT_EQ(has(longer, "L7 H0"), 1);
  EXPECT_EQ(std::count_if(longer.begin(), longer.end(), [](const auto& t) { return t.find("8 ▁king") != std::string::npos; }), 1);
  PictureOptions one;
  one.layer = 5;
  one.head = 2;
  const std::vector<std::string> head = texts("The king and the queen", one);
  EXPECT_EQ(has(head, "layer 5, head 2"), 1);
  EXPECT_EQ(has(head, "▁queen"), 2);
  EXPECT_EQ(has(head, "attention weight"), 1);
}

}  // namespace
}  // namespace vitrine
