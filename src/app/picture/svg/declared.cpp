// Drawings of pictures from the charts that they declare (Chart in web/src/data.ts).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "picture/data/paths.h"
#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kChartWidth = 640, kChartLeft = 70, kChartRight = 610, kLine = 20;
constexpr size_t kMostRows = 48;  // of pairs

std::string text_of(const PictureJson& declared, const char* key) { return declared.at(key).get<std::string>(); }

// "attention faint" of the page's classes as a color of the drawing.
std::string color_of(std::string_view tone) {
  if (tone.find("faint") != std::string_view::npos) return "faint";
  if (tone.starts_with("mlp")) return "accent2";
  return tone.starts_with("plain") ? "muted" : "accent";
}

// A hint of several lines in one.
std::string one_line(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) text.replace(at, 1, "; ");
  return text;
}

class Charts {
 public:
  explicit Charts(const PictureView& view) : paths_(view), svg_(kChartWidth, 0, view.title(), view.alt()) {}

  Svg draw(const PictureJson& charts) && {
    for (const PictureJson& chart : charts) add(chart);
    svg_.set_height(y_ + 6);
    return std::move(svg_);
  }

 private:
  using Points = std::vector<std::pair<double, double>>;

  void add(const PictureJson& chart) {
    if (!there(chart)) return;
    if (chart.contains("choose")) return add_chosen(chart);
    const std::string kind = chart.at("kind");
    if (kind == "beside") return add_beside(chart);
    if (kind == "remark") return add_remark(text(chart, "text"));
    if (const std::string title = chart.value("title", ""); !title.empty()) {
      svg_.text(20, y_ + 14, paths_.text(title, paths_.bound()), Anchor::start, "muted");
      y_ += 22;
    }
    if (kind == "xy") {
      add_xy(chart, kChartLeft, kChartRight, 260);
      y_ += 260 + 54;
    } else if (kind == "bars") {
      add_bars(chart);
    } else if (kind == "pairs") {
      add_pairs(chart);
    } else {
      add_grid(chart);
    }
  }

  // Words, as many lines as they need, without the marks of code.
  void add_remark(std::string text) {
    std::erase(text, '`');
    std::string line;
    const auto end_line = [&] {
      svg_.text(20, y_ + 14, line, Anchor::start, "muted", 11);
      y_ += 16;
      line.clear();
    };
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(' ', begin), text.size());
      const std::string word = text.substr(begin, end - begin);
      if (!line.empty() && Svg::text_width(line + " " + word, 11) > kChartWidth - 40) end_line();
      line += (line.empty() ? "" : " ") + word;
      begin = end + 1;
    }
    end_line();
    y_ += 8;
  }

  bool there(const PictureJson& chart) {
    return !chart.contains("if") || !paths_.value(text_of(chart, "if"), paths_.bound()).is_null();
  }
  // A text of a declaration, with values.
  std::string text(const PictureJson& declared, const char* key) { return paths_.text(text_of(declared, key), paths_.bound()); }

  // The alternative that a page shows first.
  void add_chosen(const PictureJson& chart) {
    const double at = chart.contains("at") ? paths_.number(text_of(chart, "at"), paths_.bound()) : 0;
    if (!chart.contains("each")) {
      for (const PictureJson& option : chart.at("options"))
        if (there(option)) {
          add_choice(chart, option);
          for (const PictureJson& one : option.at("charts")) add(one);
          return;
        }
      return;
    }
    const Places before = paths_.bind(paths_.places(text_of(chart, "each"))[static_cast<size_t>(at)]);
    add_choice(chart, chart);
    for (const PictureJson& one : chart.at("charts")) add(one);
    paths_.bind(before);
  }

  // What a page lets its reader choose, and what stands here: "Statistic: RMS".
  void add_choice(const PictureJson& chart, const PictureJson& option) {
    svg_.text(20, y_ + 14, text(chart, "choose") + ": " + text(option, "name"), Anchor::start, "muted");
    y_ += 22;
  }

  // Two small ones in a row.
  void add_beside(const PictureJson& declared) {
    constexpr double kHigh = 150, kWide = 270;
    const PictureJson& chart = declared.at("chart");
    std::vector<Places> all = paths_.places(text_of(declared, "each"));
    const Places before = paths_.bound();
    std::erase_if(all, [&](const Places& at) { return paths_.bind(at), !there(chart); });
    for (size_t i = 0; i < all.size(); ++i) {
      paths_.bind(all[i]);
      const double left = i % 2 == 0 ? 50 : kChartWidth / 2 + 40;
      svg_.text(left - 30, y_ + 14, text(chart, "title"), Anchor::start, "muted");
      y_ += 22;
      add_xy(chart, left, left + kWide, kHigh);
      y_ += i % 2 == 1 || i + 1 == all.size() ? kHigh + 54 : -22;
    }
    paths_.bind(before);
  }

  struct Series {
    const PictureJson& declared;
    std::string name;
    std::vector<Places> places;
    std::vector<double> x, y;
  };

  static SvgScale scale(const PictureJson& axis, const std::vector<double>& values, double from, double to) {
    if (axis.contains("domain")) return {axis.at("domain")[0], axis.at("domain")[1], from, to};
    if (axis.value("whole", false) && !values.empty()) {
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      const double pad = axis.value("pad", 0.0);
      return {.low = std::round(*low) - pad,
              .high = std::max(std::round(*high), std::round(*low) + (pad > 0 ? 0 : 1)) + pad,
              .from = from,
              .to = to,
              .whole = true};
    }
    return scale_over(values, from, to, axis.value("log", false), axis.value("zero", false));
  }

  void add_xy(const PictureJson& chart, double left, double right, double high) {
    const double top = y_ + 12, bottom = y_ + high;
    std::vector<Series> all;
    std::vector<double> xs, ys;
    double names = 0;
    for (const PictureJson& declared : chart.at("series")) {
      std::vector<Places> places = paths_.places(declared.at("y"));
      if (places.size() > declared.value("most", SIZE_MAX)) continue;
      Series& series = all.emplace_back(Series{declared, text(declared, "name"), std::move(places), {}, {}});
      for (const Places& at : series.places) {
        series.x.push_back(x_of(chart, declared, at));
        series.y.push_back(paths_.number(declared.at("y"), at));
      }
      xs.insert(xs.end(), series.x.begin(), series.x.end());
      ys.insert(ys.end(), series.y.begin(), series.y.end());
      if (declared.value("named", true)) names = std::max(names, Svg::text_width(series.name));
    }
    PictureJson rules = chart.value("rules", PictureJson::array());
    if (rules.is_string()) rules = paths_.value(rules, paths_.bound());
    for (const PictureJson& rule : rules) ys.push_back(rule_of(rule));
    const double end = names > 0 ? right - names - 8 : right;
    const SvgScale across = scale(chart.at("x"), xs, left, end), up = scale(chart.at("y"), ys, bottom, top);
    svg_.y_axis(up, left, high > 200 ? chart.at("y").at("label").get<std::string>() : "", end);
    svg_.x_axis(across, bottom, chart.at("x").at("label"));
    for (const PictureJson& rule : rules) {
      const double y = up.at(rule_of(rule));
      svg_.line(left, y, end, y, "muted dashed");
      svg_.text(left + 8, y - 5, text(rule, "label"));
    }
    for (const Series& series : all) add_series(series, across, up);
    add_names(all, across, up);
  }

  double x_of(const PictureJson& chart, const PictureJson& series, const Places& at) {
    const double x = series.contains("x") ? paths_.number(series.at("x"), at) : static_cast<double>(at.back());
    return x * chart.at("x").value("step", 1.0) + series.value("shift", 0.0);
  }
  double rule_of(const PictureJson& rule) {
    return rule.at("y").is_number() ? rule.at("y").get<double>() : paths_.number(rule.at("y"), paths_.bound());
  }

  static bool drawn(const SvgScale& up, double y) { return std::isfinite(y) && (!up.log || y > 0); }
  static double inside(const SvgScale& up, double y) { return up.at(std::clamp(y, up.low, up.high)); }

  void add_series(const Series& series, const SvgScale& across, const SvgScale& up) {
    const std::string draw = series.declared.at("draw"), color = color_of(text_of(series.declared, "tone"));
    Points line;
    for (size_t i = 0; i <= series.y.size(); ++i) {
      const bool there = i < series.y.size() && drawn(up, series.y[i]);
      if (there) line.emplace_back(across.at(series.x[i]), inside(up, series.y[i]));
      if (there) continue;
      if (draw != "dots") svg_.path(line, color + (series.declared.value("dashed", false) ? " dashed" : ""), 2);
      line.clear();
    }
    if (draw == "line") return;
    for (size_t i = 0; i < series.y.size(); ++i)
      if (drawn(up, series.y[i]))
        svg_.circle(across.at(series.x[i]), inside(up, series.y[i]),
                    color == "faint" ? 2
                    : draw == "both" ? 2.5
                                     : 4,
                    color, hint(series.declared, series.places[i]));
  }

  // Names at the last points, pushed apart where they would touch; dots have a dot of their color before theirs.
  void add_names(const std::vector<Series>& all, const SvgScale& across, const SvgScale& up) {
    struct Name {
      double x, y;
      const Series* series;
    };
    std::vector<Name> names;
    for (const Series& series : all) {
      if (!series.declared.value("named", true)) continue;
      for (size_t i = series.y.size(); i-- > 0;)
        if (drawn(up, series.y[i])) {
          const bool stops =
              series.declared.at("draw") != "dots" && across.at(series.x[i]) < across.from + 0.8 * (across.to - across.from);
          names.push_back({stops ? across.at(series.x[i]) + 7 : across.to + 7, inside(up, series.y[i]) + 4, &series});
          break;
        }
    }
    std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.y < b.y; });
    double taken = 0;
    for (Name& name : names) {
      name.y = std::max({name.y, taken + 14, up.to + 8});
      taken = name.y;
      svg_.text(name.x, name.y, name.series->name, Anchor::start, color_of(name.series->declared.at("tone").get<std::string>()));
    }
  }

  void add_bars(const PictureJson& chart) {
    std::vector<Places> rows = paths_.places(chart.at("value"));
    const size_t all = rows.size();
    const auto value = [&](const Places& at) { return paths_.number(chart.at("value"), at); };
    if (const size_t most = chart.value("largest", rows.size()); most < rows.size()) {
      std::vector<Places> sorted = rows;
      paths_.largest_first(sorted, chart.at("value"));
      sorted.resize(most);
      std::sort(sorted.begin(), sorted.end());
      rows = std::move(sorted);
    }
    std::vector<double> values = {0};
    double left = 0, notes = 0;
    const auto name = [&](const Places& at) { return cut(paths_.text(text_of(chart, "name"), at), 26); };
    const auto note = [&](const Places& at) {
      return chart.contains("note") ? paths_.text(text_of(chart, "note"), at) : short_number(value(at));
    };
    for (const Places& at : rows) {
      if (std::isfinite(value(at))) values.push_back(value(at));
      left = std::max(left, Svg::text_width(name(at)));
      notes = std::max(notes, Svg::text_width(note(at), 11));
    }
    left += 24;
    if (chart.contains("most")) values.push_back(chart.at("most"));
    const SvgScale x = scale_over(values, left, kChartWidth - notes - 20, false, true);
    for (const Places& at : rows) {
      const double end = x.at(std::isfinite(value(at)) ? value(at) : 0), zero = x.at(0);
      const bool faint = chart.contains("faint") && paths_.value(chart.at("faint"), at) == true;
      svg_.text(left - 8, y_ + 12, name(at), Anchor::end);
      svg_.rect(std::min(zero, end), y_ + 3, std::max(0.5, std::abs(end - zero)), 12,
                faint           ? "muted"
                : value(at) < 0 ? "accent2"
                                : "accent",
                hint(chart, at));
      svg_.text(std::max(zero, end) + 6, y_ + 13, note(at), Anchor::start, "muted", 11);
      y_ += kLine;
    }
    y_ += 10;
    if (rows.size() < all) add_remark(fmt::format("The {} with the largest values, of {}.", rows.size(), all));
  }

  // Two dots a row and the way between them: before and after.
  void add_pairs(const PictureJson& chart) {
    struct End {
      const PictureJson& declared;
      const char* color;
    };
    const End ends[] = {{chart.at("from"), "accent2"}, {chart.at("to"), "accent"}};
    std::vector<Places> rows = paths_.places(ends[0].declared.at("value"));
    rows.resize(std::min(rows.size(), kMostRows));
    const auto value = [&](const End& end, const Places& at) { return paths_.number(end.declared.at("value"), at); };
    const auto name = [&](const Places& at) { return cut(paths_.text(text_of(chart, "name"), at), 18); };
    std::vector<double> values;
    double left = 0, legend = 12;
    for (const Places& at : rows) {
      for (const End& end : ends) values.push_back(value(end, at));
      left = std::max(left, Svg::text_width(name(at)));
    }
    left += 24;
    const SvgScale x = scale(chart.at("axis"), values, left + 8, kChartRight);
    for (const End& end : ends) {
      const std::string words = text(end.declared, "name");
      svg_.circle(left + legend, y_ + 10, 4, end.color);
      svg_.text(left + legend + 10, y_ + 14, words);
      legend += Svg::text_width(words) + 34;
    }
    y_ += 24;
    for (const Places& at : rows) {
      const double middle = y_ + kLine / 2, from = value(ends[0], at), to = value(ends[1], at);
      svg_.text(left - 8, middle + 4, name(at), Anchor::end);
      if (drawn(x, from) && drawn(x, to)) svg_.line(x.at(from), middle, x.at(to), middle, "muted");
      for (const End& end : ends)
        if (drawn(x, value(end, at))) svg_.circle(x.at(value(end, at)), middle, 4, end.color, hint(end.declared, at));
      y_ += kLine;
    }
    svg_.x_axis(x, y_ + 4, text_of(chart.at("axis"), "label"));
    y_ += 48;
  }

  void add_grid(const PictureJson& chart) {
    const std::string path = chart.at("values");
    const bool diverging = chart.at("scale") == "diverging";
    const std::pair<size_t, size_t> sizes = paths_.sizes(path);
    const size_t rows = sizes.first, columns = sizes.second;
    const auto places = [&](size_t row, size_t column) {
      Places at = paths_.bound();
      at.insert(at.end(), {row, column});
      return at;
    };
    std::vector<double> values;
    double most = chart.value("most", 0.0), longest_row = 0, longest_column = 0;
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c) values.push_back(paths_.number(path, places(r, c)));
    if (most == 0)
      for (const double value : values) most = std::isfinite(value) ? std::max(most, std::abs(value)) : most;
    most = std::max(most, 1e-30);
    const auto names = [&](const char* key, size_t n, auto&& at) {
      std::vector<std::string> all;
      for (size_t i = 0; i < n && chart.contains(key); ++i) all.push_back(cut(paths_.text(text_of(chart, key), at(i)), 14));
      return all;
    };
    const std::vector<std::string> row_names = names("rows", rows, [&](size_t i) { return places(i, 0); }),
                                   column_names = names("columns", columns, [&](size_t i) { return places(0, i); });
    for (const std::string& name : row_names) longest_row = std::max(longest_row, Svg::text_width(name, 11));
    for (const std::string& name : column_names) longest_column = std::max(longest_column, Svg::text_width(name, 11));
    const double left = std::max(24.0, longest_row + 28),
                 wide = std::min(chart.value("cell", 40.0), (kChartRight - left) / static_cast<double>(columns));
    const double high = rows == columns && diverging ? wide : std::clamp(320 / static_cast<double>(rows), 6.0, 18.0);
    if (const std::string title = chart.value("columnTitle", ""); !title.empty()) {
      svg_.text(left, y_ + 10, title, Anchor::start, "muted", 11);
      y_ += 16;
    }
    const bool above = longest_column <= wide - 2;  // their names fit across
    if (above && !column_names.empty()) {
      for (size_t c = 0; c < columns; ++c)
        svg_.text(left + wide * (static_cast<double>(c) + 0.5), y_ + 10, column_names[c], Anchor::middle, "muted", 11);
      y_ += 16;
    }
    svg_.heat(
        left, y_, wide, high, rows, columns, diverging, [&](size_t r, size_t c) { return values[r * columns + c] / most; },
        [&](size_t r, size_t c) { return hint(chart, places(r, c)); });
    const size_t step = high < 11 ? static_cast<size_t>(std::ceil(12 / high)) : 1;
    for (size_t r = 0; r < row_names.size(); r += step)
      svg_.text(left - 6, y_ + high * (static_cast<double>(r) + 0.5) + 4, row_names[r], Anchor::end, "ink", 11);
    y_ += high * static_cast<double>(rows);
    if (!above) {
      const size_t every = static_cast<size_t>(std::ceil(12 / wide));
      for (size_t c = 0; c < column_names.size(); c += every)
        svg_.text_up(left + wide * (static_cast<double>(c) + 0.5) + 4, y_ + 6, column_names[c], "ink", Anchor::end, 11);
      y_ += longest_column + 12;
    }
    if (chart.contains("ticks")) {
      for (const PictureJson& tick : paths_.value(text_of(chart, "ticks"), paths_.bound()))
        svg_.text(left + wide * (tick.at("at").get<double>() + 0.5), y_ + 14, text_of(tick, "text"), Anchor::middle, "muted", 11);
      svg_.text(left + wide * static_cast<double>(columns), y_ + 30, text_of(chart, "bottomTitle"), Anchor::end, "muted", 11);
      y_ += 22;
    }
    const PictureJson& key = chart.at("key");
    const auto end = [&](const char* name, const std::string& usual) { return key.contains(name) ? text_of(key, name) : usual; };
    svg_.legend(left, y_ + 10, end("low", "0"),
                end("high", key.value("as", "") == "%" ? fmt::format("{:.2f} %", 100 * most) : short_number(most)), diverging);
    svg_.text(left + 150, y_ + 19, text(key, "label"), Anchor::start, "muted", 11);
    y_ += 46;
  }

  std::string hint(const PictureJson& declared, const Places& at) { return one_line(paths_.text(text_of(declared, "hint"), at)); }

  Paths paths_;
  Svg svg_;
  double y_ = 8;
};

}  // namespace

Svg svg_of_charts(const PictureView& view) { return Charts(view).draw(view.picture.at("charts")); }

}  // namespace vitrine
