#include "picture/page/text_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/base64.h"
#include "picture/data/values.h"

namespace vitrine {
namespace {

constexpr int kLevels = 12;

// One class for each strength of both colors. They are told apart by every common kind of color blindness, and the text stays
// readable on them in light and dark.
std::string colors_of_levels() {
  std::string style;
  for (int level = 1; level <= kLevels; ++level) {
    const double alpha = 0.8 * level / kLevels;
    style += fmt::format(".o{0}{{background:rgba(235,120,0,{1:.2f})}}.b{0}{{background:rgba(40,120,255,{1:.2f})}}", level, alpha);
  }
  return style;
}

std::string class_of(double share) {
  if (std::isnan(share)) return "grey";
  const int level = static_cast<int>(std::lround(std::min(std::abs(share), 1.0) * kLevels));
  return level == 0 ? "" : fmt::format("{}{}", share > 0 ? 'o' : 'b', level);
}

std::string piece_markup(const ColoredPiece& piece) {
  std::string text;
  for (const char c : markup_text(piece.text)) text += c == '\n' ? "<i>⏎</i>\n" : std::string(1, c);  // visible, and a line's end
  const std::string name = class_of(piece.share);
  return fmt::format("<span{}{}>{}</span>", name.empty() ? "" : " class=\"" + name + "\"",
                     piece.hint.empty() ? "" : " title=\"" + markup_text(piece.hint) + "\"", text);
}

std::string passage_markup(const ColoredPage::Passage& passage) {
  std::string html = "<section>";
  if (!passage.heading.empty()) html += "<h2>" + markup_text(passage.heading) + "</h2>\n";
  html += "<div class=\"text\">";
  for (const ColoredPiece& piece : passage.pieces) html += piece_markup(piece);
  return html + "</div></section>\n";
}

// Behind the last of the passages from `first` on that color one text.
size_t end_of_versions(const std::vector<ColoredPage::Passage>& passages, size_t first) {
  const auto text_of = [&](size_t i) {
    std::string text;
    for (const ColoredPiece& piece : passages[i].pieces) text += piece.text;
    return text;
  };
  const std::string text = text_of(first);
  size_t end = first + 1;
  while (end < passages.size() && text_of(end) == text) ++end;
  return end;
}

std::string legend_markup(const ColoredPage& page) {
  std::string cells;
  const auto cell = [&](double share, const std::string& words) {
    cells += fmt::format("<span class=\"{}\">&nbsp;{}&nbsp;</span> ", class_of(share), markup_text(words));
  };
  if (!page.low.empty()) {
    cell(-1, page.low);
    cell(-0.5, " ");
  }
  cell(0, page.none);
  cell(0.5, " ");
  cell(1, page.high);
  return "<p>" + cells + "</p>\n";
}

}  // namespace

std::string colored_text_page(const ColoredPage& page) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
      "<title>" +
      markup_text(page.title) +
      "</title>\n<style>body{font:16px/1.6 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 "
      "1em;overflow-wrap:anywhere}"
      // Several colorings of one text stand side by side where there is room; of an odd number the first has a row of its own.
      ".versions{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(24em,100%),1fr));gap:0 2em}"
      ".versions>:first-child:nth-last-child(odd){grid-column:1/-1}"
      ".text{white-space:pre-wrap;overflow-wrap:anywhere}.text span{border-radius:2px}.text i{opacity:.35;font-style:normal}"
      ".grey{opacity:.5}img{max-width:100%;height:auto}" +
      colors_of_levels() + "</style>\n</head>\n<body>\n<h1>" + markup_text(page.title) + "</h1>\n";
  for (const std::string& line : page.lines) html += "<p>" + markup_text(line) + "</p>\n";
  if (!page.passages.empty()) html += legend_markup(page);
  for (size_t i = 0; i < page.passages.size();) {
    const size_t end = end_of_versions(page.passages, i);
    html += "<div class=\"versions\">";
    for (; i < end; ++i) html += passage_markup(page.passages[i]);
    html += "</div>\n";
  }
  for (const ColoredPage::Chart& chart : page.charts)
    html += "<p><img alt=\"" + markup_text(chart.alt) + "\" src=\"data:image/svg+xml;base64," +
            base64(std::as_bytes(std::span(chart.svg))) + "\"></p>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace vitrine
