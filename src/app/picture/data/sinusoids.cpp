// Pictures of sinusoidal positions: why N is larger than the context, the wheels, and the map from one position to the next.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/embed.h"
#include "ops/step.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

// Vaswani et al., arXiv:1706.03762 section 3.5, sines and cosines as pairs: pair j turns by N^(-2j/E) radians per position.
struct Sinusoids {
  int64_t E;  // components; even
  double N;
  int64_t C;                      // positions
  std::vector<double> frequency;  // of each pair

  Sinusoids(int64_t components, double n, int64_t positions) : E(components), N(n), C(positions) {
    for (int64_t j = 0; j < E / 2; ++j) frequency.push_back(std::pow(N, -2.0 * static_cast<double>(j) / static_cast<double>(E)));
  }
  double slowest() const { return 2 * std::numbers::pi / frequency.back(); }
  // (sine, cosine) of each pair, one after the other.
  std::vector<double> at(int64_t k) const {
    std::vector<double> e;
    for (const double f : frequency) {
      e.push_back(std::sin(static_cast<double>(k) * f));
      e.push_back(std::cos(static_cast<double>(k) * f));
    }
    return e;
  }
  // From any position to one k further on: the lengths of all vectors are the same, and so are these.
  double distance(int64_t k) const {
    double squares = 0;
    for (const double f : frequency) squares += 2 - 2 * std::cos(static_cast<double>(k) * f);
    return std::sqrt(std::max(0.0, squares));
  }
};

Sinusoids that_repeat() { return {8, 16, 128}; }
Sinusoids that_are_unique() { return {8, 256, 128}; }

// With the model's width and context, and the usual N.
Sinusoids as_wide_as(const ModelFacts& facts) {
  constexpr int64_t kMostPositions = 1024;
  const int64_t context = facts.shape.context_length;
  return {std::max<int64_t>(2, facts.shape.d_model / 2 * 2), 10000,
          std::max<int64_t>(4, context > 0 ? std::min(context, kMostPositions) : kMostPositions)};
}

PictureJson case_of(const Sinusoids& s, bool values) {
  std::vector<double> distance;
  for (int64_t k = 0; k < s.C; ++k) distance.push_back(s.distance(k));
  // From the second neighbor on: which position looks most like position 0.
  const auto nearest = std::min_element(distance.begin() + 2, distance.end());
  const std::vector<float> stored(distance.begin(), distance.end());
  PictureJson one = {{"E", s.E},
                     {"N", number(s.N)},
                     {"C", s.C},
                     {"slowest", number(s.slowest())},
                     {"distance", packed(std::span<const float>(stored), {s.C})},
                     {"neighbor", number(distance[1])},
                     {"nearest", nearest - distance.begin()},
                     {"nearestDistance", number(*nearest)},
                     {"alike", std::count_if(distance.begin() + 2, distance.end(), [&](double d) { return d < distance[1]; })}};
  one["values"] = nullptr;
  if (!values) return one;
  std::vector<float> grid(static_cast<size_t>(s.E * s.C));
  for (int64_t k = 0; k < s.C; ++k) {
    const std::vector<double> e = s.at(k);
    for (size_t component = 0; component < e.size(); ++component)
      grid[component * static_cast<size_t>(s.C) + static_cast<size_t>(k)] = static_cast<float>(e[component]);
  }
  one["values"] = packed(std::span<const float>(grid), {s.E, s.C});
  return one;
}

}  // namespace

PictureJson data_of_sinusoids(Studio& studio) {
  const Sinusoids repeats = that_repeat(), unique = that_are_unique(), wide = as_wide_as(studio.facts);
  PictureJson p = present(
      "Positions as sines and cosines, for N smaller and larger than the context C, and below each how far the vector of "
      "position k "
      "is from that of position 0. Where the distance falls below that of neighbors, two positions look more alike than "
      "neighbors do.",
      "");
  p["cases"] = {case_of(repeats, true), case_of(unique, true), case_of(wide, false)};
  p["names"] = {"N < C", "N > C", "this model's width"};
  p["prose"] = PictureJson::object();
  for (const auto& [key, i] : {std::pair{"repeats_", 0}, std::pair{"unique_", 1}})
    for (const auto& [name, field] :
         {std::pair{"e", "E"}, std::pair{"n", "N"}, std::pair{"c", "C"}, std::pair{"nearest", "nearest"},
          std::pair{"distance", "nearestDistance"}, std::pair{"neighbor", "neighbor"}})
      p["prose"][std::string(key) + name] = p["cases"][static_cast<size_t>(i)][field];
  for (size_t i = 0; i < 3; ++i) p["cases"][i]["name"] = p["names"][i];
  p["alt"] = fmt::format(
      "With E = {}, N = {:g} and C = {}, position {} comes back to within {:.3g} of position 0, while neighbors are {:.3g} "
      "apart. With "
      "N = {:g} the nearest, position {}, stays {:.3g} away, neighbors {:.3g}.",
      repeats.E, repeats.N, repeats.C, p["cases"][0]["nearest"].get<int64_t>(), p["cases"][0]["nearestDistance"].get<double>(),
      p["cases"][0]["neighbor"].get<double>(), unique.N, p["cases"][1]["nearest"].get<int64_t>(),
      p["cases"][1]["nearestDistance"].get<double>(), p["cases"][1]["neighbor"].get<double>());
  p["charts"] = PictureJson::parse(R"json([
    {"choose": "Choice of N", "each": "cases.*", "name": "{cases.#0.name}", "charts": [
      {"kind": "remark", "text": "E = {cases.#0.E}, N = {cases.#0.N}, C = {cases.#0.C} positions. The slowest wheel needs {cases.#0.slowest} positions for a turn. The most similar to position 0, from position 2 on, is position {cases.#0.nearest}: {cases.#0.nearestDistance} away; neighbors are {cases.#0.neighbor} apart. Positions more similar to position 0 than its neighbor: {cases.#0.alike}."},
      {"kind": "grid", "if": "cases.#0.values", "title": "e, component by component", "label": "Sines and cosines of each position.", "values": "cases.#0.values.*.*",
       "rows": "{#1}", "scale": "diverging", "most": 1, "cell": 5, "tall": 14, "hint": "component {#1} of position {#2}\n{cases.#0.values.*.*}",
       "key": {"label": "sine or cosine; positions from left to right", "low": "−1", "high": "1"}},
      {"kind": "xy", "title": "Distance to position 0", "label": "Distance of each position's vector to that of position 0.", "height": 220,
       "x": {"label": "position k", "whole": true}, "y": {"label": "‖e(k) − e(0)‖", "zero": true},
       "series": [{"name": "distance", "named": false, "tone": "attention", "draw": "line", "y": "cases.#0.distance.*", "hint": "position {#1}\n{cases.#0.distance.*} away from position 0"}],
       "rules": [{"y": "cases.#0.neighbor", "label": "neighbors: {cases.#0.neighbor}"}]}]}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["case", "cases.*.name"], ["E", "cases.*.E"], ["N", "cases.*.N"], ["C", "cases.*.C"], ["slowest turn", "cases.*.slowest"],
                 ["most similar to 0", "cases.*.nearest"], ["distance", "cases.*.nearestDistance"], ["neighbors", "cases.*.neighbor"]]},
    {"detail": true, "columns": [["case", "cases.#0.name"], ["k", "#1"], ["distance to position 0", "cases.*.distance.*"]]}
  ])json");
  return p;
}

PictureJson data_of_sinusoid_wheel(Studio&) {
  const Sinusoids unique = that_are_unique();
  PictureJson p = present(
      fmt::format(
          "Each pair of a sine and a cosine is the point e^(i·k·ω) on a circle, ω = N^(−2j/E): here E = {}, N = {:g}. One "
          "position further on, each hand has turned by the same angle ω, wherever it stood.",
          unique.E, unique.N),
      "");
  p["E"] = unique.E;
  p["N"] = number(unique.N);
  p["C"] = unique.C;
  p["wheels"] = PictureJson::array();
  for (size_t j = 0; j < unique.frequency.size(); ++j)
    p["wheels"].push_back(
        {{"pair", j}, {"frequency", number(unique.frequency[j])}, {"turn", number(2 * std::numbers::pi / unique.frequency[j])}});
  constexpr int64_t kShown = 5;
  p["positions"] = PictureJson::array();
  for (int64_t k = 0; k < kShown; ++k) p["positions"].push_back(numbers(unique.at(k)));
  p["alt"] = fmt::format("{} hands. From one position to the next the fastest turns by {:.3g} rad, the slowest by {:.3g} rad.",
                         unique.frequency.size(), unique.frequency.front(), unique.frequency.back());
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["pair j", "wheels.*.pair"], ["radians per position", "wheels.*.frequency"], ["positions per turn", "wheels.*.turn"]]},
    {"note": "the first positions", "detail": true, "columns": [["position", "#0"], ["component", "#1"], ["value", "positions.*.*", ".4f"]]}
  ])json");
  return p;
}

PictureJson data_of_sinusoid_shift(Studio& studio) {
  const Sinusoids small = that_are_unique(), wide = as_wide_as(studio.facts);
  // e(k + 1) = R e(k): (sin, cos) of a + ω = (sin a cos ω + cos a sin ω, cos a cos ω - sin a sin ω).
  std::vector<double> R(static_cast<size_t>(small.E * small.E));
  for (int64_t j = 0; j < small.E / 2; ++j) {
    const double w = small.frequency[static_cast<size_t>(j)];
    const auto cell = [&](int64_t r, int64_t c) -> double& { return R[static_cast<size_t>((2 * j + r) * small.E + 2 * j + c)]; };
    cell(0, 0) = cell(1, 1) = std::cos(w);
    cell(0, 1) = std::sin(w);
    cell(1, 0) = -std::sin(w);
  }
  // The largest error of the map over all positions. e: [C, E], pairs side by side.
  const auto error = [](const Sinusoids& s, auto&& e) {
    double most = 0;
    for (int64_t j = 0; j < s.E / 2; ++j) {
      const double w = s.frequency[static_cast<size_t>(j)], sin = std::sin(w), cos = std::cos(w);
      for (int64_t k = 0; k + 1 < s.C; ++k) {
        const double a = e(k, 2 * j), b = e(k, 2 * j + 1);
        most = std::max({most, std::abs(a * cos + b * sin - e(k + 1, 2 * j)), std::abs(b * cos - a * sin - e(k + 1, 2 * j + 1))});
      }
    }
    return most;
  };
  std::vector<std::vector<double>> exact;
  for (int64_t k = 0; k < small.C; ++k) exact.push_back(small.at(k));
  const double small_error =
      error(small, [&](int64_t k, int64_t c) { return exact[static_cast<size_t>(k)][static_cast<size_t>(c)]; });
  // The table that a model with such positions adds, in f32.
  Context& ctx = studio.engine.context();
  const auto frame = ctx.frame();
  const std::vector<int32_t> any(static_cast<size_t>(wide.C), 0);
  const Tensor table = sinusoidal_positions(ctx, Step::of(any), wide.E, SinusoidLayout::pairs);
  const double wide_error =
      error(wide, [&](int64_t k, int64_t c) { return static_cast<double>(table.data<float>()[k * wide.E + c]); });
  PictureJson p = present(
      fmt::format(
          "The matrix R that takes the vector of any position to the next: e(k + 1) = R e(k), with a block of two by two for "
          "each wheel and zeros elsewhere. It does not depend on k. Here E = {}, N = {:g}.",
          small.E, small.N),
      fmt::format(
          "{} rotations along the diagonal. Over {} positions the map's largest error is {:.1g}; for vectors of {} numbers in "
          "f32 over {} positions it is {:.1g}.",
          small.frequency.size(), small.C, small_error, wide.E, wide.C, wide_error));
  p["prose"] = {{"error", number(small_error)}, {"wide_error", number(wide_error)}};
  std::vector<float> cells(R.begin(), R.end());
  p["E"] = small.E;
  p["N"] = number(small.N);
  p["C"] = small.C;
  p["R"] = packed(std::span<const float>(cells), {small.E, small.E});
  p["error"] = number(small_error);
  p["longer"] = {{"E", wide.E}, {"N", number(wide.N)}, {"C", wide.C}, {"error", number(wide_error)}};
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "grid", "label": "The matrix that moves a position on by one: rotations of two by two along the diagonal.", "values": "R.*.*",
     "rows": "{#0}", "columns": "{#1}", "scale": "diverging", "most": 1, "cell": 44, "tall": 30, "write": ".2f", "hint": "row {#0}, column {#1}\n{R.*.*}",
     "key": {"label": "entry of R", "low": "−1", "high": "1"}},
    {"kind": "remark", "text": "Largest error of R e(k) − e(k + 1), all k below {C}: {error|.2g}. The same map for E = {longer.E}, N = {longer.N}, on the f32 table that a model adds, all k below {longer.C}: {longer.error|.2g}."}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "R e(k) − e(k + 1)", "columns": [["E", ["E", "longer.E"]], ["N", ["N", "longer.N"]], ["positions", ["C", "longer.C"]], ["largest error", ["error", "longer.error"]]]},
    {"detail": true, "columns": [["row", "#0"], ["column", "#1"], ["R", "R.*.*"]]}
  ])json");
  return p;
}

}  // namespace vitrine
