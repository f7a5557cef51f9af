// Pages of colored text.
#include "picture/page/text_page.h"

#include <gtest/gtest.h>

#include "support/scratch.h"

namespace vitrine {
namespace {

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(TextPages, ColoringsOfOneTextStandTogether) {
  ColoredPage page{.title = "t", .lines = {}, .low = "", .none = "n", .high = "h", .passages = {}, .charts = {}};
  page.passages = {{"difference", {{"the ", 0.5, ""}, {"cat", -1, ""}}},
                   {"first model", {{"the cat", 1, ""}}},
                   {"second model", {{"the ", 0, ""}, {"cat", 0, ""}}},
                   {"another text", {{"a dog", 0, ""}}}};
  const std::string html = colored_text_page(page);
  EXPECT_EQ(count(html, "<div class=\"versions\">"), 2u);
  EXPECT_EQ(count(html, "<section>"), 4u);
  const size_t second = html.find("<div class=\"versions\">", html.find("second model"));
  EXPECT_LT(second, html.find("another text"));
  EXPECT_CONTAINS(html, "<span class=\"b12\">cat</span>");
  EXPECT_CONTAINS(html, "overflow-wrap:anywhere");  // long names of models do not widen the page
}

}  // namespace
}  // namespace vitrine
