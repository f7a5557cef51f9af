#include "cli/merge_sweep.h"

#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "io/atomic_file.h"
#include "merge/sweep.h"
#include "picture/svg/front.h"

namespace vitrine::cli {
namespace {

OrderedJson sweep_json(const MergeSweep& sweep) {
  OrderedJson points = OrderedJson::array();
  for (const SweepPoint& point : sweep.points)
    points.push_back({{sweep.parameter, point.value},
                      {"loss", point.text.loss},
                      {"perplexity", point.text.perplexity()},
                      {"distance", point.distance ? OrderedJson(*point.distance) : OrderedJson()}});
  return {{"parameter", sweep.parameter},
          {"tokens", sweep.points.front().text.tokens},
          {"window", sweep.points.front().text.window},
          {"distance_from", sweep.distance_from},
          {"points", points}};
}

std::string sweep_svg(const MergeRecipe& recipe, const MergeSweep& sweep) {
  FrontChart chart;
  chart.title = fmt::format("{} for values of {}", recipe.method, sweep.parameter);
  chart.description = fmt::format("The loss of {} merges, from {} {} to {}.", sweep.points.size(), sweep.parameter,
                                  sweep.points.front().value, sweep.points.back().value);
  chart.x_label = sweep.parameter;
  chart.y_label = "loss (nats a token)";
  FrontChart::Curve curve{recipe.method, {}};
  for (const SweepPoint& point : sweep.points)
    curve.points.push_back({point.value, point.text.loss,
                            fmt::format("{} {}: loss {:.4f}, perplexity {:.3f}", sweep.parameter, point.value, point.text.loss,
                                        point.text.perplexity())});
  chart.curves.push_back(std::move(curve));
  return front_svg(chart);
}

}  // namespace

void add_sweep_options(CLI::App& app, SweepArguments& sweep) {
  app.add_option("--sweep", sweep.sweep,
                 "Merge in memory for each value of a parameter and score --text (eta=0,0.25,0.5); writes no model")
      ->type_name("NAME=VALUES")
      ->check(not_empty());
  app.add_option("--svg", sweep.svg, "Draw the losses of --sweep into this file")
      ->type_name("FILE")
      ->check(not_empty())
      ->needs("--sweep");
}

void run_sweep(const MergeRecipe& recipe, const MergeOptions& options, const SweepArguments& sweep, const std::string& text_file,
               bool json, int threads) {
  const SweptParameter swept = parse_sweep(sweep.sweep, "--sweep");
  if (text_file.empty()) throw UsageError("--sweep needs a text that the merges are scored on: --text FILE");
  if (!sweep.svg.empty()) check_writable("--svg", sweep.svg);
  const std::string text = read_text(text_file);
  size_t done = 0;
  MergeSweep result;
  {
    Progress progress("sweeping");
    result = sweep_merge(recipe, options, swept, text, threads, [&](const SweepPoint& point) {
      progress.show(static_cast<double>(++done) / static_cast<double>(swept.values.size()),
                    fmt::format("{} {}: perplexity {:.3f}", swept.name, point.value, point.text.perplexity()));
    });
  }
  if (!sweep.svg.empty()) write_file_atomically(sweep.svg, sweep_svg(recipe, result));
  if (json) return print_json(sweep_json(result));
  const TextLoss& text_of = result.points.front().text;
  log("{} tokens of {} scored in windows of {}; distance from {}", grouped(text_of.tokens), text_file, text_of.window,
      result.distance_from);
  print("{}  {:>8}  {:>10}  {:>9}\n", pad_left(swept.name, 10), "loss", "perplexity", "distance");
  for (const SweepPoint& point : result.points)
    print("{:>10}  {:>8.4f}  {:>10.3f}  {:>9}\n", fmt::format("{:.6g}", point.value), point.text.loss, point.text.perplexity(),
          point.distance ? fmt::format("{:.4f}", *point.distance) : "-");
}

}  // namespace vitrine::cli
