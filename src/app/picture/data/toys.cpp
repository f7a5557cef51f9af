// Pictures that need no run: dot products, what a norm does to two numbers, activations and a toy MLP.
#include <cmath>
#include <numbers>

#include "picture/data/studio.h"

namespace vitrine {
namespace {

std::vector<double> spaced(double first, double last, int n) {
  std::vector<double> values;
  for (int i = 0; i < n; ++i) values.push_back(first + (last - first) * i / (n - 1));
  return values;
}

// The toy's weights, chosen so that its three hidden units cut the plane into six regions of visible size, one with all units
// above zero and one with none.
constexpr double kProjection[2][2] = {{0.8, -0.3}, {-0.4, 0.9}};
constexpr double kGate[2][3] = {{1.0, -0.6, 0.3}, {0.3, 0.9, 1.1}};
constexpr double kUp[2][3] = {{0.7, 0.5, -0.9}, {-0.4, 0.8, 0.6}};
constexpr double kDown[3][2] = {{0.9, -0.2}, {0.8, 0.5}, {-1.1, 0.7}};

enum Kind { kLinear, kRelu, kReglu, kGeglu };

// y[0] of the toy at (a, b).
double toy(Kind kind, double a, double b) {
  if (kind == kLinear) return a * kProjection[0][0] + b * kProjection[1][0];
  double y = 0;
  for (int i = 0; i < 3; ++i) {
    const double gate = a * kGate[0][i] + b * kGate[1][i], up = a * kUp[0][i] + b * kUp[1][i];
    const double z = activation_value(kind == kGeglu ? Activation::gelu_tanh : Activation::relu, gate) * (kind == kRelu ? 1 : up);
    y += z * kDown[i][0];
  }
  return y;
}

// "0.9 x[0] − 0.3 x[1]"; parts that are zero are left out.
std::string sum_of(std::initializer_list<std::pair<double, const char*>> parts) {
  std::string sum;
  for (const auto& [factor, of] : parts) {
    if (std::abs(factor) < 1e-12) continue;
    sum += sum.empty() ? (factor < 0 ? "−" : "") : factor < 0 ? " − " : " + ";
    sum += fmt::format("{:.4g} {}", std::abs(factor), of);
  }
  return sum.empty() ? "0" : sum;
}

// What y[0] is in a region of the toy: `mask` has a bit for each hidden unit that is above zero there.
PictureJson region_of_toy(int mask) {
  double a = 0, b = 0, aa = 0, ab = 0, bb = 0;
  std::string on, which;
  for (int i = 0; i < 3; ++i) {
    const bool above = (mask >> i & 1) != 0;
    on += above ? '1' : '0';
    if (!above) continue;
    which += (which.empty() ? "" : ", ") + std::to_string(i);
    a += kGate[0][i] * kDown[i][0];
    b += kGate[1][i] * kDown[i][0];
    aa += kGate[0][i] * kUp[0][i] * kDown[i][0];
    ab += (kGate[0][i] * kUp[1][i] + kGate[1][i] * kUp[0][i]) * kDown[i][0];
    bb += kGate[1][i] * kUp[1][i] * kDown[i][0];
  }
  return {{"mask", mask},
          {"on", on},
          {"units", mask == 7   ? "all"
                    : mask == 0 ? "none"
                                : which},
          {"linear", {number(a), number(b)}},
          {"quadratic", {number(aa), number(ab), number(bb)}},
          {"relu", sum_of({{a, "x[0]"}, {b, "x[1]"}})},
          {"reglu", sum_of({{aa, "x[0]²"}, {ab, "x[0] x[1]"}, {bb, "x[1]²"}})}};
}

template <size_t R, size_t C>
PictureJson matrix(const double (&m)[R][C]) {
  PictureJson rows = PictureJson::array();
  for (const auto& row : m) rows.push_back(numbers(std::span<const double>(row)));
  return rows;
}

}  // namespace

PictureJson absent(const std::string& reason) { return {{"available", false}, {"reason", reason}}; }
PictureJson present(const std::string& caption, const std::string& alt) {
  return {{"available", true}, {"caption", caption}, {"alt", alt}};
}

PictureJson data_of_dot_product(Studio&) {
  PictureJson p = present(
      "The dot product of each line with a = (1, 0): the sum of x_i · a_i. Among lines of one length it is largest in a's "
      "direction, 0 at a right angle and smallest in the opposite direction; twice the length gives twice the product.",
      "Lines from one point. Along a, twice as long: 2. Turned by 45 degrees: 1/√2. At a right angle: 0. By 135 degrees: −1/√2. "
      "Opposite: −1.");
  const double r = std::numbers::sqrt2 / 2;
  p["a"] = {1, 0};
  p["vectors"] = PictureJson::array();
  const auto add = [&](double x, double y, const char* label) {
    p["vectors"].push_back({{"x", {number(x), number(y)}}, {"dot", number(x)}, {"label", label}});
  };
  add(2, 0, "2");
  add(r, r, "1/√2");
  add(0, 1, "0");
  add(-r, r, "−1/√2");
  add(-1, 0, "−1");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "products with a = (1, 0)", "columns": [["x[0]", "vectors.*.x.0", ".4f"], ["x[1]", "vectors.*.x.1", ".4f"], ["x · a", "vectors.*.dot", ".4f"], ["exactly", "vectors.*.label"]]}
  ])json");
  return p;
}

PictureJson data_of_layer_norm(Studio& studio) {
  PictureJson p = present(
      fmt::format("LayerNorm subtracts the mean, divides by the standard deviation, then multiplies by a weight and adds a bias. "
                  "RMSNorm only divides by the root mean square and multiplies by a weight: the direction stays until then. "
                  "This model uses {}.",
                  studio.facts.rms ? "RMSNorm" : "LayerNorm"),
      "The vector (1, 5): without its mean 3 it is (−2, 2), over its standard deviation 2 it is (−1, 1); weight and bias then "
      "move "
      "it to (−0.5, 1.5). RMSNorm shortens it to (0.277, 1.387) without turning it.");
  constexpr double x[2] = {1, 5}, weight[2] = {1.5, 0.5}, bias[2] = {1, 1};
  const double mean = (x[0] + x[1]) / 2, sigma = std::sqrt(((x[0] - mean) * (x[0] - mean) + (x[1] - mean) * (x[1] - mean)) / 2);
  const double rms = std::sqrt((x[0] * x[0] + x[1] * x[1]) / 2);
  const auto pair = [](double a, double b) { return PictureJson{number(a), number(b)}; };
  const double scaled[2] = {(x[0] - mean) / sigma, (x[1] - mean) / sigma};
  p["model"] = studio.facts.rms ? "rms_norm" : "layer_norm";
  p["x"] = pair(x[0], x[1]);
  p["mean"] = number(mean);
  p["centered"] = pair(x[0] - mean, x[1] - mean);
  p["sigma"] = number(sigma);
  p["scaled"] = pair(scaled[0], scaled[1]);
  p["weight"] = pair(weight[0], weight[1]);
  p["bias"] = pair(bias[0], bias[1]);
  p["layerNorm"] = pair(scaled[0] * weight[0] + bias[0], scaled[1] * weight[1] + bias[1]);
  p["rms"] = number(rms);
  p["rmsScaled"] = pair(x[0] / rms, x[1] / rms);
  p["rmsNorm"] = pair(x[0] / rms * weight[0], x[1] / rms * weight[1]);
  const double root = std::sqrt(8.0 / 3.0);
  p["three"] = {
      {"x", {2, 4, 6}}, {"mean", 4}, {"variance", number(8.0 / 3.0)}, {"scaled", {number(-2 / root), 0, number(2 / root)}}};
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["LayerNorm", {"cells": ["x", "− mean", "over σ", "· weight + bias"]}],
                 ["x[0]", ["x.0", "centered.0", "scaled.0", "layerNorm.0"], ".3f"], ["x[1]", ["x.1", "centered.1", "scaled.1", "layerNorm.1"], ".3f"]]},
    {"columns": [["RMSNorm", {"cells": ["x", "over RMS", "· weight"]}],
                 ["x[0]", ["x.0", "rmsScaled.0", "rmsNorm.0"], ".3f"], ["x[1]", ["x.1", "rmsScaled.1", "rmsNorm.1"], ".3f"]]}
  ])json");
  return p;
}

PictureJson data_of_activation_curves(Studio& studio) {
  PictureJson p = present(
      fmt::format(
          "Activation functions of one number: ReLU is max(0, x), GELU is x times the normal distribution's share below x "
          "(its tanh form is nearly the same), SiLU is x / (1 + e⁻ˣ). This model's MLP is {} ({}).",
          studio.facts.mlp_title(), activation_name(studio.facts.activation)),
      "Four curves from −2 to 2. ReLU has a corner at 0; GELU and SiLU dip a little below 0 and then come near to x.");
  const std::vector<double> x = spaced(-2, 2, 81);
  p["x"] = numbers(x);
  for (const auto& [key, f] : {std::pair{"relu", Activation::relu}, std::pair{"geluTanh", Activation::gelu_tanh},
                               std::pair{"geluExact", Activation::gelu_exact}, std::pair{"silu", Activation::silu}}) {
    std::vector<double> y;
    for (const double v : x) y.push_back(activation_value(f, v));
    p[key] = numbers(y);
  }
  p["active"] = numbers(studio.seen.active);
  p["tables"] = PictureJson::parse(R"json([
    {"keep": "spread", "most": 9,
     "columns": [["x", "x.*", ".1f"], ["ReLU", "relu.*", ".4f"], ["GELU", "geluExact.*", ".4f"], ["its tanh form", "geluTanh.*", ".4f"], ["SiLU", "silu.*", ".4f"]]},
    {"note": "share of the MLP's units that are above zero", "keep": "spread", "most": 16, "columns": [["layer", "#0"], ["active", "active.*", "%"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "title": "The functions", "made": "toy", "label": "Activation functions from −2 to 2.", "height": 330,
     "x": {"label": "input a", "domain": [-2, 2]}, "y": {"label": "output", "domain": [-0.4, 2]},
     "series": [
       {"name": "ReLU", "tone": "plain", "draw": "line", "dashed": true, "x": "x.*", "y": "relu.*", "hint": "ReLU\nof {x.*} is {relu.*}"},
       {"name": "GELU", "tone": "attention", "draw": "line", "dashed": true, "x": "x.*", "y": "geluTanh.*", "hint": "GELU, its tanh form\nof {x.*} is {geluTanh.*}"},
       {"name": "SiLU", "tone": "mlp", "draw": "line", "dashed": true, "x": "x.*", "y": "silu.*", "hint": "SiLU\nof {x.*} is {silu.*}"}]},
    {"kind": "xy", "title": "How many hidden units are above zero", "made": "run", "label": "Share of hidden units above zero, by layer.", "height": 200,
     "x": {"label": "layer", "whole": true, "pad": 0.5}, "y": {"label": "share of hidden units above zero", "domain": [0, 1], "as": "%"},
     "series": [{"name": "active", "named": false, "tone": "mlp", "draw": "both", "y": "active.*", "hint": "layer {#0}\n{active.*|%} of the hidden units are above zero"}]}
  ])json");
  const Activation used = studio.facts.activation;
  const int own = used == Activation::relu                                          ? 0
                  : used == Activation::silu                                        ? 2
                  : used == Activation::gelu_tanh || used == Activation::gelu_exact ? 1
                                                                                    : -1;
  if (own >= 0) {
    PictureJson& series = p["charts"][0]["series"][static_cast<size_t>(own)];
    series["name"] = series["name"].get<std::string>() + " (here)";
    series["tone"] = series["tone"].get<std::string>() + " strong";
    series.erase("dashed");
  }
  return p;
}

PictureJson data_of_mlp_surfaces(Studio&) {
  PictureJson p = present(
      "A toy with two inputs, three hidden units and fixed weights: its first output over a square of inputs. Linear is a plane; "
      "with ReLU it is bent along three lines, flat in each of six regions, from the one with all units above zero to the one "
      "with none; a gate (ReGLU) makes each region a quadratic; GELU "
      "instead of ReLU (GeGLU) smooths the borders.",
      "Four surfaces over inputs from −2 to 2: a slope, a folded slope, a curved one with sharp folds, the same with soft folds; "
      "and a map of the six regions, one for each set of hidden units above zero.");
  constexpr int kSide = 41;
  const std::vector<double> x = spaced(-2, 2, kSide);
  std::vector<float> surfaces;
  for (int kind = kLinear; kind <= kGeglu; ++kind)
    for (const double a : x)
      for (const double b : x) surfaces.push_back(static_cast<float>(toy(static_cast<Kind>(kind), a, b)));
  std::vector<uint8_t> regions;
  for (const double a : x)
    for (const double b : x) {
      int mask = 0;
      for (int i = 0; i < 3; ++i) mask |= a * kGate[0][i] + b * kGate[1][i] > 0 ? 1 << i : 0;
      regions.push_back(static_cast<uint8_t>(mask));
    }
  p["pieces"] = PictureJson::array();
  for (const int mask : {7, 6, 2, 0, 1, 5})  // once around the origin
    p["pieces"].push_back(region_of_toy(mask));
  p["x"] = numbers(x);
  p["weights"] = {{"proj", matrix(kProjection)}, {"gate", matrix(kGate)}, {"up", matrix(kUp)}, {"down", matrix(kDown)}};
  p["kinds"] = {"linear", "relu", "reglu", "geglu"};
  p["surfaces"] = packed(std::span<const float>(surfaces), {4, kSide, kSide});
  p["regions"] = packed(std::span<const uint8_t>(regions), {kSide, kSide}, 1, false);
  const std::vector<double> at = {-2, -1, 0, 1, 2};
  p["sliceAt"] = numbers(at);
  p["slices"] = PictureJson::array();
  for (int kind = kLinear; kind <= kGeglu; ++kind) {
    std::vector<std::vector<double>> slices;
    for (const double b : at) {
      std::vector<double>& slice = slices.emplace_back();
      for (const double a : x) slice.push_back(toy(static_cast<Kind>(kind), a, b));
    }
    p["slices"].push_back(table(slices));
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "y[0] over x[0] at x[1] = {sliceAt.3}", "beside": 200,
     "columns": [["x[0]", "x.0::10"], ["linear", "slices.0.3.0::10", ".4f"], ["ReLU", "slices.1.3.0::10", ".4f"],
                 ["ReGLU", "slices.2.3.0::10", ".4f"], ["GeGLU", "slices.3.3.0::10", ".4f"]]},
    {"note": "y[0] in each region: one formula for ReLU, one for ReGLU",
     "columns": [["units above zero", "pieces.*.units"], ["ReLU", "pieces.*.relu"], ["ReGLU", "pieces.*.reglu"]]},
    {"note": "The slices. The JSON has the whole surfaces and the weights.", "detail": true,
     "columns": [["kind", "kinds.#0"], ["x[1]", "sliceAt.#1"], ["x[0]", "x.#2"], ["y[0]", "slices.*.*.*"]]}
  ])json");
  return p;
}

}  // namespace vitrine
