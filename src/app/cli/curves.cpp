// vitrine curves: the metrics of training runs beside each other, in the terminal and as a page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "cli/braille_chart.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "io/atomic_file.h"
#include "io/byte_stream.h"
#include "picture/page/text_page.h"
#include "picture/svg/front.h"

namespace vitrine::cli {
namespace {

struct CurvesArguments {
  std::vector<std::string> runs, metrics;
  std::string out;
  bool json = false;
};

constexpr const char* kColors[] = {"36", "33", "35", "32", "31", "34"};  // ANSI, one for each run
constexpr int kColumns = 72, kRows = 8, kLabel = 11;                     // of a chart; columns of the labels before it

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

struct MetricRun {
  std::string name;
  std::vector<Json> lines;  // each an object with a step
};

// A last line that is half-written is skipped.
MetricRun open_metric_run(const std::string& run) {
  const std::string path = file_of(run);
  if (!std::filesystem::exists(path))
    throw InputError(path + ": is missing. Expected the folder of a run of `vitrine train`, or its metrics.jsonl");
  MetricRun opened{run, {}};
  std::istringstream file(text_of(path));
  size_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    Json line = Json::parse(text, nullptr, false);
    if (line.is_discarded() && file.eof()) break;
    if (!line.is_object() || !line.contains("step") || !line.at("step").is_number())
      throw InputError(fmt::format("{}: line {} is no line of metrics; expected a JSON object with a step", path, number));
    opened.lines.push_back(std::move(line));
  }
  return opened;
}

// One number of each line; lines that lack it are passed over.
RunCurve run_curve(const MetricRun& run, const std::string& metric) {
  RunCurve curve{run.name, {}, {}};
  for (const Json& line : run.lines) {
    if (!line.contains(metric) || !line.at(metric).is_number()) continue;
    curve.x.push_back(line.at("step").get<double>());
    curve.y.push_back(line.at(metric).get<double>());
  }
  return curve;
}

std::string in_color(size_t run, const std::string& text) {
  return terminal().colors ? fmt::format("\x1b[{}m{}\x1b[39m", kColors[run % std::size(kColors)], text) : text;
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void add(const std::vector<double>& values) {
    for (const double v : values)
      if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  }
};

std::string last_value(const RunCurve& curve) {
  return curve.y.empty() ? "none" : fmt::format("{:.4g} at step {:.0f}", curve.y.back(), curve.x.back());
}

ColoredPage::Chart metric_chart(const std::string& metric, const std::vector<RunCurve>& curves) {
  FrontChart chart;
  chart.title = chart.y_label = metric;
  chart.description = metric + " of each run by step";
  chart.x_label = "step";
  std::string alt = metric + ":";
  for (const RunCurve& curve : curves) {
    FrontChart::Curve& drawn = chart.curves.emplace_back(FrontChart::Curve{curve.run, {}});
    for (size_t i = 0; i < curve.x.size(); ++i)
      drawn.points.push_back({curve.x[i], curve.y[i], fmt::format("{:.4g}", curve.y[i])});
    alt += " " + curve.run + " " + last_value(curve) + ";";
  }
  return {front_svg(chart), alt};
}

void run_curves(CurvesArguments o) {
  if (!o.out.empty()) check_writable("--out", o.out);
  if (o.metrics.empty()) o.metrics = {"loss", "val_loss", "lr", "grad_norm"};
  std::vector<MetricRun> runs;
  for (const std::string& run : o.runs) runs.push_back(open_metric_run(run));
  ColoredPage page;
  page.title = "Training runs";
  OrderedJson document;
  bool any = false;
  for (const std::string& metric : o.metrics) {
    std::vector<RunCurve> curves;
    Range x, y;
    for (const MetricRun& run : runs) {
      curves.push_back(run_curve(run, metric));
      x.add(curves.back().x);
      y.add(curves.back().y);
    }
    if (!(x.low <= x.high && y.low <= y.high)) continue;
    any = true;
    for (const RunCurve& curve : curves) document[metric][curve.run] = {{"step", curve.x}, {"value", curve.y}};
    if (!o.out.empty()) page.charts.push_back(metric_chart(metric, curves));
    if (o.json) continue;
    std::vector<ChartCurve> drawn;
    for (size_t i = 0; i < curves.size(); ++i)
      drawn.push_back({curves[i].x, curves[i].y, terminal().colors ? kColors[i % std::size(kColors)] : ""});
    const int columns = terminal().columns > kLabel ? std::min(kColumns, terminal().columns - kLabel) : kColumns;
    const Chart chart = braille_chart(drawn, x.low, std::max(x.high, x.low + 1), columns, kRows);
    print("{}\n", visible_message(metric));
    for (size_t r = 0; r < chart.lines.size(); ++r)
      print("{:>10} {}\n",
            r == 0                        ? fmt::format("{:.4g}", chart.high)
            : r + 1 == chart.lines.size() ? fmt::format("{:.4g}", chart.low)
                                          : "",
            chart.lines[r]);
    for (size_t i = 0; i < curves.size(); ++i)
      print("           {}  {}\n", in_color(i, visible_message(curves[i].run)), last_value(curves[i]));
    print("\n");
  }
  if (!any) throw InputError("no run has a number of that name. `head -n 2 RUN/metrics.jsonl` shows the names there are");
  if (!o.out.empty()) write_file_atomically(o.out, colored_text_page(page));
  if (o.json) print_json(document);
}

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

}  // namespace

const Command curves_command = {
    "curves", "Draw the metrics of training runs side by side",
    "Reads metrics.jsonl of each run, also while it is running, or such a file directly, plain, .gz or .zst. --out writes "
    "the same curves as a page that needs no network.",
    "vitrine curves models/training/metrics.jsonl.gz models/training/metrics-long.jsonl.gz --metric val_loss", define_curves};

}  // namespace vitrine::cli
