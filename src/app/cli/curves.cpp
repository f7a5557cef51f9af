// vitrine curves: the metrics of training runs beside each other, in the terminal and as a page.
#include "cli/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

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
  std::string out, svg;
  int64_t mean = 1;  // of so many values each
  bool json = false;
};

constexpr const char* kColors[] = {"36", "33", "35", "32", "31", "34"};  // ANSI, one for each run
constexpr int kColumns = 72, kRows = 8, kLabel = 11;                     // of a chart; columns of the labels before it

struct RunCurve {
  std::string run;  // or what the curve is of, of those of one run
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

// Numbers within a value, by names with dots between them.
void flatten(const Json& value, const std::string& name, Json& to) {
  if (!value.is_object()) {
    to[name] = value;
    return;
  }
  for (const auto& [key, inner] : value.items()) flatten(inner, name.empty() ? key : name + "." + key, to);
}

// One number of each line, the mean with those before it where `mean` asks for more than one; lines that lack it are ignored.
RunCurve run_curve(const MetricRun& run, const std::string& metric, int64_t mean) {
  RunCurve curve{run.name, {}, {}};
  for (const Json& line : run.lines) {
    if (!line.contains(metric) || !line.at(metric).is_number()) continue;
    curve.x.push_back(line.at("step").get<double>());
    curve.y.push_back(line.at(metric).get<double>());
  }
  const std::vector<double> values = curve.y;
  for (size_t i = 0; i < values.size() && mean > 1; ++i) {
    const size_t first = i + 1 - std::min(i + 1, static_cast<size_t>(mean));
    curve.y[i] = std::accumulate(values.data() + first, values.data() + i + 1, 0.0) / static_cast<double>(i + 1 - first);
  }
  return curve;
}

// Whether a name is what the metric asks for: the same, one of the numbers below it ("layer_grad_norm"), or one that fits a
// pattern in which * stands for any text.
bool asked(std::string_view metric, std::string_view name) {
  if (name == metric || (name.starts_with(metric) && name[metric.size()] == '.')) return true;
  const size_t star = metric.find('*');
  if (star == std::string_view::npos || !name.starts_with(metric.substr(0, star))) return false;
  const std::string_view rest = metric.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at)
    if (name.substr(at) == rest || (rest.find('*') != std::string_view::npos && asked(rest, name.substr(at)))) return true;
  return false;
}

// The names of a run's numbers that a metric asks for, in the order of the lines.
std::vector<std::string> names_of(const MetricRun& run, const std::string& metric) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Json& line : run.lines)
    for (const auto& [name, value] : line.items())
      if (value.is_number() && asked(metric, name) && seen.insert(name).second) names.push_back(name);
  const auto number = [](const std::string& name) {  // blocks.10 behind blocks.9
    const size_t at = name.find_first_of("0123456789");
    return at == std::string::npos ? -1 : std::atoi(name.c_str() + at);
  };
  std::vector<std::pair<int, size_t>> order;  // by number, then as they came
  for (size_t i = 0; i < names.size(); ++i) order.emplace_back(number(names[i]), i);
  std::sort(order.begin(), order.end());
  std::vector<std::string> sorted;
  for (const auto& [_, i] : order) sorted.push_back(std::move(names[i]));
  return sorted;
}

// Every metric there is: single numbers by their names, those of layers together.
std::vector<std::string> all_metrics(const std::vector<MetricRun>& runs) {
  std::vector<std::string> metrics;
  for (const MetricRun& run : runs)
    for (const Json& line : run.lines)
      for (const auto& [name, value] : line.items()) {
        if (!value.is_number() || name == "step") continue;
        std::string metric = name.substr(0, name.find('.'));
        const size_t last = name.rfind('.');
        const size_t end = last == std::string::npos ? last : name.rfind('.', last - 1);  // of the layer's name
        if (metric == "layer_activation" && end != std::string::npos && end > metric.size()) metric += ".*" + name.substr(end);
        if (std::find(metrics.begin(), metrics.end(), metric) == metrics.end()) metrics.push_back(metric);
      }
  return metrics;
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

// Numbers that lie powers of ten apart, as gradients of layers do, need a logarithmic axis.
bool wants_log(const Range& y) { return y.low > 0 && y.high > 1000 * y.low; }

ColoredPage::Chart metric_chart(const std::string& metric, const std::vector<RunCurve>& curves, bool log) {
  FrontChart chart;
  chart.log_y = log;
  chart.title = chart.y_label = metric;
  chart.description = metric + " of each run by step";
  chart.x_label = "step";
  if (log) chart.y_label += ", log";
  std::string alt = metric + ":";
  for (const RunCurve& curve : curves) {
    FrontChart::Curve& drawn = chart.curves.emplace_back(FrontChart::Curve{curve.run, {}});
    for (size_t i = 0; i < curve.x.size(); ++i)
      drawn.points.push_back({curve.x[i], curve.y[i], fmt::format("{:.4g}", curve.y[i])});
    alt += " " + curve.run + " " + last_value(curve) + ";";
  }
  return {front_svg(chart), alt};
}

// Where charts go.
struct Drawing {
  bool in_terminal = false;
  ColoredPage* page = nullptr;  // null: there is none
};

// One chart.
bool draw_curves(const std::string& title, const std::vector<RunCurve>& curves, const Drawing& to) {
  Range x, y;
  for (const RunCurve& curve : curves) x.add(curve.x), y.add(curve.y);
  if (!(x.low <= x.high && y.low <= y.high)) return false;
  const bool log = wants_log(y);
  if (to.page != nullptr) to.page->charts.push_back(metric_chart(title, curves, log));
  if (!to.in_terminal) return true;
  std::vector<ChartCurve> drawn;
  for (size_t i = 0; i < curves.size(); ++i)
    drawn.push_back({curves[i].x, curves[i].y, terminal().colors ? kColors[i % std::size(kColors)] : ""});
  const int columns = terminal().columns > kLabel ? std::min(kColumns, terminal().columns - kLabel) : kColumns;
  const Chart chart = braille_chart(drawn, x.low, std::max(x.high, x.low + 1), columns, kRows, log);
  print("{}{}\n", visible_message(title), log ? " (logarithmic)" : "");
  for (size_t r = 0; r < chart.lines.size(); ++r)
    print("{:>10} {}\n",
          r == 0                        ? fmt::format("{:.4g}", chart.high)
          : r + 1 == chart.lines.size() ? fmt::format("{:.4g}", chart.low)
                                        : "",
          chart.lines[r]);
  for (size_t i = 0; i < curves.size(); ++i)
    print("           {}  {}\n", in_color(i, visible_message(curves[i].run)), last_value(curves[i]));
  print("\n");
  return true;
}

// Every chart of the metrics that are asked for; none: the usual ones. The numbers that are drawn; null: there is no chart.
OrderedJson draw_metrics(std::vector<std::string> metrics, int64_t mean, const std::vector<MetricRun>& runs, const Drawing& to) {
  if (metrics.empty()) metrics = {"loss", "val_loss", "reward", "lr", "grad_norm"};
  if (metrics == std::vector<std::string>{"all"}) metrics = all_metrics(runs);
  OrderedJson document;
  for (const std::string& metric : metrics) {
    std::vector<RunCurve> curves;  // of numbers of that very name, one for each run
    for (const MetricRun& run : runs) curves.push_back(run_curve(run, metric, mean));
    if (draw_curves(metric, curves, to)) {
      for (const RunCurve& curve : curves) document[metric][curve.run] = {{"step", curve.x}, {"value", curve.y}};
      continue;
    }
    for (const MetricRun& run : runs) {  // of several, such as those of layers: one chart for each run
      std::vector<RunCurve> parts;
      for (const std::string& name : names_of(run, metric)) {
        parts.push_back(run_curve(run, name, mean));
        parts.back().run = name.starts_with(metric + ".") ? name.substr(metric.size() + 1) : name;
      }
      if (!draw_curves(runs.size() == 1 ? metric : metric + ", " + run.name, parts, to)) continue;
      for (const RunCurve& part : parts) document[metric][run.name][part.run] = {{"step", part.x}, {"value", part.y}};
    }
  }
  return document;
}

void run_curves(const CurvesArguments& o) {
  if (!o.out.empty()) check_writable("--out", o.out);
  if (!o.svg.empty()) check_writable("--svg", o.svg);
  std::vector<MetricRun> runs;
  for (const std::string& run : o.runs) runs.push_back(open_metric_run(run));
  ColoredPage page;
  page.title = "Training runs";
  const Drawing to{.in_terminal = !o.json, .page = o.out.empty() && o.svg.empty() ? nullptr : &page};
  const OrderedJson document = draw_metrics(o.metrics, o.mean, runs, to);
  if (document.is_null())
    throw InputError("no run has a number of that name. `head -n 2 RUN/metrics.jsonl` shows the names there are");
  if (!o.svg.empty() && page.charts.size() != 1)
    throw UsageError(fmt::format("--svg writes one chart, and there are {}: name one --metric", page.charts.size()));
  if (!o.out.empty()) write_file_atomically(o.out, colored_text_page(page));
  if (!o.svg.empty()) write_file_atomically(o.svg, page.charts.front().svg);
  if (o.json) print_json(document);
}

Action define_curves(CLI::App& app) {
  auto o = std::make_shared<CurvesArguments>();
  app.add_option("RUN", o->runs, "Folders of runs, or their metrics.jsonl")->type_name("")->required();
  app.add_option("--metric", o->metrics,
                 "A number of metrics.jsonl to draw, several of layers by what they have in common (layer_grad_norm, "
                 "'layer_activation.*.before.variance'), or all. May be repeated; default: loss, val_loss, reward, lr, grad_norm")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  app.add_option("--out,-o", o->out, "Also write a page with the curves (replaced if it exists)")
      ->type_name("PAGE.html")
      ->check(not_empty());
  app.add_option("--svg", o->svg, "Also draw the curves of one --metric into this file")
      ->type_name("FILE.svg")
      ->check(not_empty());
  add_count(app, "--mean", o->mean, 1, int64_t{1} << 40, "Draw means of N values: each with those before it (default 1)");
  add_json(app, o->json);
  return [o] { run_curves(*o); };
}

}  // namespace

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
      throw InputError(fmt::format("{}: line {} is not a line of metrics; expected a JSON object with a step", path, number));
    Json flat = Json::object();
    flatten(line, "", flat);
    opened.lines.push_back(std::move(flat));
  }
  return opened;
}

void write_curves_page(const std::string& path, const std::string& title, const std::vector<std::string>& lines,
                       const std::vector<MetricRun>& runs) {
  ColoredPage page;
  page.title = title;
  page.lines = lines;
  draw_metrics({}, 1, runs, {.page = &page});
  write_file_atomically(path, colored_text_page(page));
}

const Command curves_command = {
    "curves", "Draw the metrics of training runs side by side",
    "Reads metrics.jsonl of each run, also while it is running, or such a file directly, plain, .gz or .zst. --out writes "
    "the same curves as a page that needs no network.",
    "vitrine curves models/training/metrics.jsonl.gz models/training/metrics-long.jsonl.gz --metric val_loss", define_curves};

}  // namespace vitrine::cli
