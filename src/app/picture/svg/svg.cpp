#include "picture/svg/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "picture/data/view.h"

namespace vitrine {
namespace {

constexpr int kLevels = 16;  // of each color scale
constexpr const char* kAnchors[] = {"start", "middle", "end"};

struct Color {
  double r, g, b;
};
// web/src/data.ts has the same stops: one sequential and one diverging scale everywhere.
constexpr std::array<Color, 5> kSequentialLight = {
    {{247, 251, 255}, {198, 219, 239}, {107, 174, 214}, {33, 113, 181}, {8, 48, 107}}};
constexpr std::array<Color, 5> kSequentialDark = {{{20, 24, 31}, {23, 58, 94}, {33, 113, 181}, {107, 174, 214}, {222, 235, 247}}};
constexpr std::array<Color, 5> kDivergingLight = {
    {{179, 88, 6}, {241, 163, 64}, {247, 247, 247}, {146, 197, 222}, {33, 102, 172}}};
constexpr std::array<Color, 5> kDivergingDark = {{{253, 184, 99}, {168, 94, 8}, {27, 31, 36}, {47, 109, 168}, {146, 197, 222}}};

std::string mixed(const std::array<Color, 5>& stops, double share) {
  const double place = std::clamp(share, 0.0, 1.0) * 4;
  const size_t i = std::min<size_t>(3, static_cast<size_t>(place));
  const double t = place - static_cast<double>(i);
  const auto mix = [&](double a, double b) { return static_cast<int>(std::lround(a + (b - a) * t)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(stops[i].r, stops[i + 1].r), mix(stops[i].g, stops[i + 1].g),
                     mix(stops[i].b, stops[i + 1].b));
}

// Each rule is of pictures alone: a page that holds one within its text, as notebooks do, keeps its own style.
std::string style() {
  const auto scales = [](const auto& sequential, const auto& diverging) {
    std::string css;
    for (int i = 0; i <= kLevels; ++i) {
      const double share = static_cast<double>(i) / kLevels;
      css += fmt::format(".vitrine .s{0}{{color:{1}}}.vitrine .d{0}{{color:{2}}}", i, mixed(sequential, share),
                         mixed(diverging, share));
    }
    return css;
  };
  // Categories: Okabe and Ito's colors, which survive every color vision; names on them are dark in both themes.
  static constexpr const char* kCategories[] = {"#9aa0a6", "#e69f00", "#56b4e9", "#009e73",
                                                "#cc79a7", "#d55e00", "#f0e442", "#c9d3e0"};
  std::string categories = ".vitrine .onlight{color:#1b1f24}";
  for (size_t i = 0; i < std::size(kCategories); ++i) categories += fmt::format(".vitrine .c{}{{color:{}}}", i, kCategories[i]);
  return categories +
         ".vitrine{color-scheme:light dark;background:#fff}"
         ".vitrine .ink{color:#1b1f24}.vitrine .muted{color:#57606a}.vitrine .faint{color:#d0d7de}"
         ".vitrine .accent{color:#2166ac}.vitrine .accent2{color:#b35806}" +
         scales(kSequentialLight, kDivergingLight) +
         "@media(prefers-color-scheme:dark){.vitrine{background:#0d1117}"
         ".vitrine .ink{color:#e6edf3}.vitrine .muted{color:#9da7b1}.vitrine .faint{color:#30363d}"
         ".vitrine .accent{color:#92c5de}.vitrine .accent2{color:#fdb863}" +
         scales(kSequentialDark, kDivergingDark) +
         "}.vitrine line,.vitrine path{stroke:currentColor;fill:none}"
         ".vitrine rect,.vitrine circle,.vitrine polygon,.vitrine text,.vitrine .head{fill:currentColor}"
         ".vitrine rect{shape-rendering:crispEdges}"
         ".vitrine .open{fill:none;stroke:currentColor}.vitrine .dashed{stroke-dasharray:5 4}";
}

std::string pixels(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

}  // namespace

double SvgScale::at(double value) const {
  const double share =
      log ? (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low)) : (value - low) / (high - low);
  return from + (to - from) * share;
}

std::vector<double> SvgScale::ticks() const {
  std::vector<double> list;
  if (log) {
    const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9)),
              last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
    const int step = std::max(1, (last - first + 5) / 6);
    for (int e = first; e <= last; e += step) list.push_back(std::pow(10.0, e));
    if (list.empty()) list = {low, high};
    return list;
  }
  const double rough = (high - low) / 5, power = std::pow(10.0, std::floor(std::log10(rough)));
  const double nice = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
  const double step = whole ? std::max(1.0, std::round(nice)) : nice;
  for (double t = std::ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step)
    list.push_back(std::abs(t) < step * 1e-6 ? 0 : t);
  return list;
}

SvgScale scale_over(const std::vector<double>& values, double from, double to, bool log, bool with_zero) {
  SvgScale scale{INFINITY, -INFINITY, from, to, log};
  for (const double v : values) {
    if (!std::isfinite(v) || (log && v <= 0)) continue;
    scale.low = std::min(scale.low, v);
    scale.high = std::max(scale.high, v);
  }
  if (!(scale.low <= scale.high)) scale.low = log ? 1 : 0, scale.high = log ? 10 : 1;
  if (with_zero) scale.low = std::min(scale.low, 0.0), scale.high = std::max(scale.high, 0.0);
  if (log) {
    scale.low /= 1.2, scale.high *= 1.2;
    if (scale.high / scale.low < 10) scale.low /= 3, scale.high *= 3;  // at least one power of ten between the ends
    return scale;
  }
  const double pad = scale.high > scale.low ? 0.04 * (scale.high - scale.low) : std::max(0.5, std::abs(scale.low) / 2);
  if (!(with_zero && scale.low == 0)) scale.low -= pad;
  if (!(with_zero && scale.high == 0) || scale.low == 0) scale.high += pad;  // of nothing but zeros: upwards
  return scale;
}

Svg::Svg(double width, double height, const std::string& title, const std::string& description)
    : width_(width), height_(height), title_(title), description_(description) {}

std::string Svg::finish() && {
  const std::string head = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"vitrine\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" "
      "aria-labelledby=\"title desc\" font-family=\"system-ui, sans-serif\">\n<title id=\"title\">{2}</title>\n<desc "
      "id=\"desc\">{3}</desc>\n"
      "<style>{4}</style>\n",
      pixels(width_), pixels(height_), markup_text(title_), markup_text(description_), style());
  return head + body_ + "</svg>\n";
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view color, double width) {
  body_ += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke-width=\"{}\"/>\n", color, pixels(x1),
                       pixels(y1), pixels(x2), pixels(y2), pixels(width));
}

void Svg::arrow(double x1, double y1, double x2, double y2, std::string_view color, double width) {
  line(x1, y1, x2, y2, color, width);
  const double length = std::hypot(x2 - x1, y2 - y1), head = 5 + width;
  if (length < head) return;
  const double ux = (x2 - x1) / length, uy = (y2 - y1) / length;
  body_ += fmt::format("<path class=\"{} head\" d=\"M{} {}L{} {}L{} {}Z\"/>\n", color, pixels(x2), pixels(y2),
                       pixels(x2 - head * ux + head * uy / 2), pixels(y2 - head * uy - head * ux / 2),
                       pixels(x2 - head * ux - head * uy / 2), pixels(y2 - head * uy + head * ux / 2));
}

void Svg::path(const std::vector<std::pair<double, double>>& points, std::string_view color, double width) {
  if (points.size() < 2) return;
  std::string d;
  for (const auto& [x, y] : points) d += (d.empty() ? 'M' : 'L') + pixels(x) + " " + pixels(y);
  body_ += fmt::format("<path class=\"{}\" d=\"{}\" stroke-width=\"{}\"/>\n", color, d, pixels(width));
}

void Svg::polygon(const std::vector<std::pair<double, double>>& corners, std::string_view color, const std::string& hint) {
  std::string points;
  for (const auto& [x, y] : corners) points += (points.empty() ? "" : " ") + pixels(x) + "," + pixels(y);
  body_ += fmt::format("<polygon class=\"{}\" points=\"{}\">{}</polygon>\n", color, points,
                       hint.empty() ? "" : "<title>" + markup_text(hint) + "</title>");
}

void Svg::circle(double x, double y, double r, std::string_view color, const std::string& hint) {
  body_ += fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\">{}</circle>\n", color, pixels(x), pixels(y), pixels(r),
                       hint.empty() ? "" : "<title>" + markup_text(hint) + "</title>");
}

void Svg::rect(double x, double y, double w, double h, std::string_view color, const std::string& hint) {
  body_ += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", color, pixels(x), pixels(y), pixels(w),
                       pixels(h));
  body_ += hint.empty() ? "/>\n" : "><title>" + markup_text(hint) + "</title></rect>\n";
}

void Svg::frame(double x, double y, double w, double h, std::string_view color) {
  body_ += fmt::format("<rect class=\"{} open\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", color, pixels(x), pixels(y),
                       pixels(w), pixels(h));
}

void Svg::text(double x, double y, const std::string& words, Anchor anchor, std::string_view color, double size) {
  body_ +=
      fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\" font-size=\"{}\" xml:space=\"preserve\">{}</text>\n",
                  color, pixels(x), pixels(y), kAnchors[static_cast<size_t>(anchor)], pixels(size), markup_text(words));
}

void Svg::text_up(double x, double y, const std::string& words, std::string_view color, Anchor anchor, double size) {
  body_ +=
      fmt::format("<text class=\"{}\" transform=\"translate({} {}) rotate(-90)\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n",
                  color, pixels(x), pixels(y), kAnchors[static_cast<size_t>(anchor)], pixels(size), markup_text(words));
}

double Svg::text_width(const std::string& words, double size) {
  double width = 0;  // at 12 pixels
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    width += (byte & 0xC0) == 0x80 ? 0 : byte >= 0xE2 ? 11 : 7;
  }
  return width * size / 12;
}

void Svg::x_axis(const SvgScale& scale, double y, const std::string& label) {
  line(scale.from, y, scale.to, y, "muted");
  for (const double t : scale.ticks()) {
    line(scale.at(t), y, scale.at(t), y + 4, "muted");
    text(scale.at(t), y + 16, short_number(t), Anchor::middle, "muted", 11);
  }
  text((scale.from + scale.to) / 2, y + 32, label, Anchor::middle, "muted");
}

void Svg::y_axis(const SvgScale& scale, double x, const std::string& label, double grid_to) {
  line(x, scale.from, x, scale.to, "muted");
  for (const double t : scale.ticks()) {
    if (grid_to > x) line(x, scale.at(t), grid_to, scale.at(t), "faint");
    line(x - 4, scale.at(t), x, scale.at(t), "muted");
    text(x - 7, scale.at(t) + 4, short_number(t), Anchor::end, "muted", 11);
  }
  text_up(x - 55, (scale.from + scale.to) / 2, label);
}

int Svg::level(double share, bool diverging) {
  if (!std::isfinite(share)) return diverging ? kLevels / 2 : 0;
  return static_cast<int>(std::lround(std::clamp(diverging ? (share + 1) / 2 : share, 0.0, 1.0) * kLevels));
}

void Svg::legend(double x, double y, const std::string& low, const std::string& high, bool diverging) {
  constexpr double kCell = 8;
  for (int i = 0; i <= kLevels; ++i) rect(x + i * kCell, y, kCell, 10, (diverging ? "d" : "s") + std::to_string(i));
  text(x, y + 23, low, Anchor::start, "muted", 11);
  text(x + (kLevels + 1) * kCell, y + 23, high, Anchor::end, "muted", 11);
}

}  // namespace vitrine
