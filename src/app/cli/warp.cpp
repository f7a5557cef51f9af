// vitrine warp: rounds of training, merging and interpolation, from a recipe.
#include "warp/warp.h"

#include <cmath>
#include <memory>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "cli/train_view.h"
#include "io/atomic_file.h"
#include "picture/svg/front.h"

namespace vitrine::cli {
namespace {

struct WarpArguments {
  std::string config;
  bool resume = false, json = false;
};

std::string measure_text(const WarpMeasure& m) {
  return fmt::format("loss {:.4f}, perplexity {:.3f}, distance {:.4f}{}", m.loss, std::exp(m.loss), m.distance,
                     m.divergence ? fmt::format(", KL {:.5f}", *m.divergence) : "");
}

FrontChart::Point front_point(const std::string& what, const WarpMeasure& m) {
  return {m.distance, m.loss, what + ": " + measure_text(m)};
}

std::string warp_svg(const WarpResult& result) {
  FrontChart chart;
  chart.title = "Loss against distance from the initial model";
  chart.description =
      fmt::format("One curve for each of {} rounds: models between the one that the round began from and its merged children.",
                  result.rounds.size());
  chart.x_label = "distance from the initial model, ‖θ - θ0‖";
  chart.y_label = "loss (nats a token)";
  for (size_t r = 0; r < result.rounds.size(); ++r) {
    const WarpRound& round = result.rounds[r];
    const std::string name = fmt::format("round {}", r + 1);
    FrontChart::Curve curve{name, {}};
    for (const WarpRound::Point& point : round.points)
      curve.points.push_back(front_point(fmt::format("{}, eta {}", name, point.eta), point.measure));
    chart.curves.push_back(std::move(curve));
    for (size_t i = 0; i < round.children.size(); ++i)
      chart.marks.push_back(
          {front_point(fmt::format("{}, child {}", name, i + 1), round.children[i].measure), static_cast<int>(r)});
  }
  chart.marks_name = "children, initial model";
  chart.marks.push_back({front_point("initial model", result.initial), -1});
  return front_svg(chart);
}

OrderedJson measure_json(const WarpMeasure& m) {
  OrderedJson json = {{"loss", m.loss}, {"perplexity", std::exp(m.loss)}, {"distance", m.distance}};
  if (m.divergence) json["kl"] = *m.divergence;
  return json;
}

OrderedJson warp_json(const WarpConfig& config, const WarpResult& result) {
  OrderedJson rounds = OrderedJson::array();
  for (const WarpRound& round : result.rounds) {
    OrderedJson children = OrderedJson::array(), etas = OrderedJson::array();
    for (const WarpRound::Parent& parent : round.children) {
      children.push_back({{"model", parent.model}});
      children.back().update(measure_json(parent.measure));
    }
    for (const WarpRound::Point& point : round.points) {
      etas.push_back({{"eta", point.eta}});
      etas.back().update(measure_json(point.measure));
    }
    rounds.push_back(
        {{"init", round.init}, {"children", children}, {"etas", etas}, {"next", round.next}, {"model", round.model}});
  }
  return {{"model", config.model},   {"tokens", result.tokens},
          {"window", result.window}, {"initial", measure_json(result.initial)},
          {"rounds", rounds},        {"stopped", result.stopped}};
}

void print_warp(const WarpConfig& config, const WarpResult& result, const std::string& file) {
  const auto line = [](const std::string& what, const WarpMeasure& m) {
    print("{}  {:>8.4f}  {:>10.3f}  {:>9.4f}{}\n", pad_right(what, 24), m.loss, std::exp(m.loss), m.distance,
          m.divergence ? fmt::format("  {:>9.5f}", *m.divergence) : "");
  };
  print("{}  {:>8}  {:>10}  {:>9}{}\n", pad_right("", 24), "loss", "perplexity", "distance",
        config.divergence ? fmt::format("  {:>9}", "KL") : "");
  line("initial model", result.initial);
  for (size_t r = 0; r < result.rounds.size(); ++r) {
    const WarpRound& round = result.rounds[r];
    for (size_t i = 0; i < round.children.size(); ++i)
      line(fmt::format("round {}, child {}", r + 1, i + 1), round.children[i].measure);
    for (const WarpRound::Point& point : round.points)
      line(fmt::format("round {}, eta {}{}", r + 1, point.eta, point.eta == round.next ? " *" : ""), point.measure);
  }
  if (!result.rounds.empty()) print("* {}\n", result.rounds.back().model);
  if (result.stopped) print("stopped. Go on with: vitrine warp {} --resume\n", file);
}

void run_warp_command(const WarpArguments& o) {
  const WarpConfig config = read_warp_config(o.config);
  const StopSignals signals(true);
  std::unique_ptr<TrainView> view;
  size_t told = 0;
  WarpEvents events;
  events.stop = [] { return StopSignals::asked(); };
  events.say = [](const std::string& line) { log("{}", line); };
  events.child = [&](int64_t, int64_t) {
    view.reset();
    TrainEvents its;
    its.started = [&](const TrainEvents::Start& s) {
      if (s.first_step < s.steps) view = std::make_unique<TrainView>(s.steps);
    };
    its.stepped = [&](const StepReport& r, const TrainEvents::Rate& rate) { view->step(r, rate); };
    its.evaluated = [&](int64_t step, double loss, bool) {
      if (view) view->evaluated(step, loss);
    };
    its.stop = [] { return StopSignals::asked(); };
    return its;
  };
  events.measured = [&](const WarpResult& result) {
    view.reset();
    if (told == 0 && result.rounds.empty()) log("initial model: {}", measure_text(result.initial));
    for (; told < result.rounds.size(); ++told) {
      const WarpRound& round = result.rounds[told];
      for (size_t i = 0; i < round.children.size(); ++i)
        log("round {}, child {}: {}", told + 1, i + 1, measure_text(round.children[i].measure));
      for (const WarpRound::Point& point : round.points)
        log("round {}, eta {}: {}{}", told + 1, point.eta, measure_text(point.measure), point.eta == round.next ? " *" : "");
    }
    write_file_atomically(config.out + "/front.svg", warp_svg(result));
  };
  const WarpResult result = run_warp(config, o.resume, events);
  view.reset();
  if (o.json) return print_json(warp_json(config, result));
  print_warp(config, result, o.config);
}

Action define_warp(CLI::App& app) {
  auto o = std::make_shared<WarpArguments>();
  app.add_option("CONFIG", o->config, "The recipe, in YAML (docs/warp.md)")->type_name("FILE")->required();
  app.add_flag("--resume", o->resume, "Continue a run that was stopped or killed; the result is bit-identical");
  add_json(app, o->json);
  return [o] { run_warp_command(*o); };
}

}  // namespace

const Command warp_command = {
    "warp", "Train, merge and interpolate in rounds (WARP)",
    "A round trains several models from one, with configurations of `vitrine train`. It merges them by spherical "
    "interpolation of their task vectors, and interpolates between the merged model and the one that the round started "
    "from. The next round starts from one point of that interpolation. All of them are scored on a text. `out` gets the "
    "models, warp.json and front.svg, which shows loss against distance. --resume continues a run that was stopped or "
    "killed. docs/warp.md explains the keys and how `vitrine data` makes the example's data.",
    "vitrine warp examples/warp.yaml", define_warp};

}  // namespace vitrine::cli
