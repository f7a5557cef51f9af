// vitrine curves: the metrics of training runs beside each other, in the terminal and as a page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "cli/braille_chart.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "io/atomic_file.h"
#include "io/byte_stream.h"

namespace vitrine::cli {
namespace {

struct CurvesArguments {
  std::vector<std::string> runs, metrics;
  std::string out;
  bool json = false;
};

constexpr const char* kColours[] = {"36", "33", "35", "32", "31", "34"};  // ANSI, one for each run
constexpr const char* kPageColours[] = {"#0b7285", "#e67700", "#862e9c", "#2b8a3e", "#c92a2a", "#1864ab"};
constexpr int kColumns = 72, kRows = 8;

struct RunCurve {
  std::string run;
  std::vector<double> x, y;
};

std::string file_of(const std::string& run) { return std::filesystem::is_directory(run) ? run + "/metrics.jsonl" : run; }

// Also of a .gz or .zst file.
std::string text_of(const std::string& path) {
  const std::unique_ptr<ByteStream> stream = ByteStream::open(path);
  std::string text;
  char piece[1 << 16];
  while (const size_t n = stream->read(piece)) text.append(piece, n);
  return text;
}

// One number of each line of a run; lines that lack it are passed over, as is a last line that is half-written.
RunCurve curve_of(const std::string& run, const std::string& metric) {
  RunCurve curve{run, {}, {}};
  const std::string path = file_of(run);
  if (!std::filesystem::exists(path))
    throw InputError(path + ": is missing. Expected the folder of a run of `vitrine train`, or its metrics.jsonl");
  std::istringstream file(text_of(path));
  size_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    const Json line = Json::parse(text, nullptr, false);
    if (line.is_discarded() && file.eof()) break;
    if (!line.is_object() || !line.contains("step") || !line.at("step").is_number())
      throw InputError(fmt::format("{}: line {} is no line of metrics; expected a JSON object with a step", path, number));
    if (!line.contains(metric) || !line.at(metric).is_number()) continue;
    curve.x.push_back(line.at("step").get<double>());
    curve.y.push_back(line.at(metric).get<double>());
  }
  return curve;
}

std::string in_colour(size_t run, const std::string& text) {
  return terminal().colours ? fmt::format("\x1b[{}m{}\x1b[39m", kColours[run % std::size(kColours)], text) : text;
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(const std::vector<double>& values) {
    for (const double v : values)
      if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  }
};

std::string escaped(const std::string& text) {
  std::string to;
  for (const char c : text)
    to += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return to;
}

// A drawing of 720 by 240 with its range at the left and the steps below.
std::string svg_of(const std::string& metric, const std::vector<RunCurve>& curves, const Range& x, const Range& y) {
  const double wide = x.high > x.low ? x.high - x.low : 1, tall = y.high > y.low ? y.high - y.low : 1;
  std::string svg = fmt::format("<h2>{}</h2>\n<svg viewBox=\"0 0 800 280\" role=\"img\" aria-label=\"{}\">\n", escaped(metric),
                                escaped(metric));
  svg += fmt::format("<text x=\"0\" y=\"24\">{:.4g}</text><text x=\"0\" y=\"254\">{:.4g}</text>\n", y.high, y.low);
  svg += fmt::format("<text x=\"70\" y=\"275\">step {:.0f}</text><text x=\"790\" y=\"275\" text-anchor=\"end\">{:.0f}</text>\n",
                     x.low, x.high);
  svg += "<rect x=\"70\" y=\"14\" width=\"720\" height=\"240\" fill=\"none\" stroke=\"#ccc\"/>\n";
  for (size_t i = 0; i < curves.size(); ++i) {
    std::string points;
    for (size_t k = 0; k < curves[i].x.size(); ++k)
      if (std::isfinite(curves[i].y[k]))
        points += fmt::format("{:.1f},{:.1f} ", 70 + 720 * (curves[i].x[k] - x.low) / wide,
                              254 - 240 * (curves[i].y[k] - y.low) / tall);
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", points,
                       kPageColours[i % std::size(kPageColours)]);
  }
  return svg + "</svg>\n";
}

void run_curves(CurvesArguments o) {
  if (!o.out.empty()) check_writable("--out", o.out);
  if (o.metrics.empty()) o.metrics = {"loss", "val_loss", "lr", "grad_norm"};
  std::string page;
  OrderedJson document;
  bool any = false;
  for (const std::string& metric : o.metrics) {
    std::vector<RunCurve> curves;
    Range x, y;
    for (const std::string& run : o.runs) {
      curves.push_back(curve_of(run, metric));
      x.add(curves.back().x);
      y.add(curves.back().y);
    }
    if (!(x.low <= x.high && y.low <= y.high)) continue;
    any = true;
    for (const RunCurve& curve : curves) document[metric][curve.run] = {{"step", curve.x}, {"value", curve.y}};
    if (!o.out.empty()) page += svg_of(metric, curves, x, y);
    if (o.json) continue;
    std::vector<ChartCurve> drawn;
    for (size_t i = 0; i < curves.size(); ++i)
      drawn.push_back({curves[i].x, curves[i].y, terminal().colours ? kColours[i % std::size(kColours)] : ""});
    const Chart chart = braille_chart(drawn, x.low, std::max(x.high, x.low + 1), kColumns, kRows);
    print("{}\n", visible_message(metric));
    for (size_t r = 0; r < chart.lines.size(); ++r)
      print("{:>10} {}\n",
            r == 0                        ? fmt::format("{:.4g}", chart.high)
            : r + 1 == chart.lines.size() ? fmt::format("{:.4g}", chart.low)
                                          : "",
            chart.lines[r]);
    for (size_t i = 0; i < curves.size(); ++i)
      print("           {}  {}\n", in_colour(i, visible_message(curves[i].run)),
            curves[i].y.empty() ? "none" : fmt::format("{:.4g} at step {:.0f}", curves[i].y.back(), curves[i].x.back()));
    print("\n");
  }
  if (!any) throw InputError("no run has a number of that name. `head -n 2 RUN/metrics.jsonl` shows the names there are");
  if (!o.out.empty()) {
    std::string legend;
    for (size_t i = 0; i < o.runs.size(); ++i)
      legend += fmt::format("<li style=\"color:{}\">{}</li>\n", kPageColours[i % std::size(kPageColours)], escaped(o.runs[i]));
    write_file_atomically(o.out,
                          "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Training runs</title>\n"
                          "<style>body{font:14px sans-serif;max-width:60em;margin:2em auto}svg{width:100%}</style>\n<ul>\n" +
                              legend + "</ul>\n" + page + "</html>\n");
  }
  if (o.json) print_json(document);
}

}  // namespace

Action define_curves(CLI::App& app) {
  auto o = std::make_shared<CurvesArguments>();
  app.add_option("RUN", o->runs, "Folders of runs, or their metrics.jsonl")->type_name("")->required();
  app.add_option("--metric", o->metrics,
                 "A number of metrics.jsonl to draw. May be repeated; default: loss, val_loss, lr, grad_norm")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  app.add_option("--out,-o", o->out, "Also write a page with the curves (replaced if it exists)")
      ->type_name("PAGE.html")
      ->check(not_empty());
  add_json(app, o->json);
  return [o] { run_curves(*o); };
}

}  // namespace vitrine::cli
