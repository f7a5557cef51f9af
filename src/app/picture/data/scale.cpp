// Pictures of the scale of numbers: how weights must start for it to stay, and what a number format holds.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "picture/data/normals.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

double deviation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const double mean = sum / static_cast<double>(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

constexpr uint64_t kSeed = 0;
constexpr size_t kVectorsAtStart = 10, kTableRowsAtStart = 100;  // hidden vectors, rows of the table

struct Start {
  double hidden, plain, scaled;  // deviations: of the vectors, of the logits, of those with rows over √width
};
Start start_at(int64_t width) {
  const auto d = static_cast<size_t>(width);
  const std::vector<double> hidden = normals(2 * kSeed, kVectorsAtStart * d),
                            table = normals(2 * kSeed + 1, kTableRowsAtStart * d);
  std::vector<double> logits;
  for (size_t i = 0; i < kVectorsAtStart; ++i)
    for (size_t r = 0; r < kTableRowsAtStart; ++r) {
      double dot = 0;
      for (size_t c = 0; c < d; ++c) dot += hidden[i * d + c] * table[r * d + c];
      logits.push_back(dot);
    }
  const double plain = deviation(logits);
  for (double& logit : logits) logit /= std::sqrt(static_cast<double>(width));
  return {deviation(hidden), plain, deviation(logits)};
}

float in_f16(float x) { return f16_to_f32(f32_to_f16(x)); }
float in_bf16(float x) { return bf16_to_f32(f32_to_bf16(x)); }

std::string written(float x) { return std::isinf(x) ? "∞" : fmt::format("{:.7g}", static_cast<double>(x)); }

// The largest number of f16 whose square is finite in f16, and the smallest whose square is not zero.
std::pair<float, float> square_range() {
  float largest = 0, smallest = std::numeric_limits<float>::infinity();
  for (uint16_t bits = 1; bits < 0x7c00; ++bits) {
    const float x = f16_to_f32(bits), square = in_f16(x * x);
    if (std::isfinite(square)) largest = std::max(largest, x);
    if (square > 0) smallest = std::min(smallest, x);
  }
  return {largest, smallest};
}

// A root mean square, with every result rounded.
template <class Round>
float rms(std::span<const float> x, Round&& round) {
  float sum = 0;
  for (const float v : x) sum = round(sum + round(v * v));
  return round(std::sqrt(round(sum / static_cast<float>(x.size()))));
}

}  // namespace

PictureJson data_of_initial_scale(Studio& studio) {
  const int64_t width = studio.facts.shape.d_model;
  std::vector<int64_t> widths = {16, 64, 256, 1024, 2048};
  if (std::find(widths.begin(), widths.end(), width) == widths.end()) widths.push_back(width);
  std::sort(widths.begin(), widths.end());
  PictureJson p = present(
      fmt::format(
          "An experiment with random numbers (normal, standard deviation 1, seed {}), before any training: {} vectors times a "
          "table of {} "
          "rows. A logit is a sum of as many products as a vector has numbers, so its deviation grows with the root of that "
          "number; rows that start at deviation 1/√d keep it at 1, whatever the width.",
          kSeed, kVectorsAtStart, kTableRowsAtStart),
      "");
  p["seed"] = kSeed;
  p["vectors"] = kVectorsAtStart;
  p["rows"] = kTableRowsAtStart;
  p["width"] = width;
  p["widths"] = widths;
  p["hidden"] = p["plain"] = p["scaled"] = p["root"] = PictureJson::array();
  for (const int64_t d : widths) {
    const Start start = start_at(d);
    p["hidden"].push_back(number(start.hidden));
    p["plain"].push_back(number(start.plain));
    p["scaled"].push_back(number(start.scaled));
    p["root"].push_back(number(std::sqrt(static_cast<double>(d))));
    if (d == width)
      p["alt"] = fmt::format(
          "At this model's width of {} the vectors have deviation {:.3f}; logits have {:.3f} without the factor and "
          "{:.3f} with it.",
          d, start.hidden, start.plain, start.scaled);
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "deviations; {vectors} random vectors, a table of {rows} random rows, seed {seed}",
     "columns": [["width d", "widths.*", "count"], ["vectors", "hidden.*", ".3f"], ["logits", "plain.*", ".3f"], ["√d", "root.*", ".3f"], ["logits, rows · 1/√d", "scaled.*", ".3f"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Deviation of the logits by the width of the vectors.", "height": 260,
     "x": {"label": "numbers of a vector (d)", "log": true}, "y": {"label": "deviation", "log": true},
     "series": [
       {"name": "logits", "tone": "attention", "draw": "both", "x": "widths.*", "y": "plain.*", "hint": "vectors of {widths.*|count} numbers\nlogits have deviation {plain.*|.3f}\n√d is {root.*|.3f}"},
       {"name": "rows · 1/√d", "tone": "mlp", "draw": "both", "x": "widths.*", "y": "scaled.*", "hint": "vectors of {widths.*|count} numbers\nrows times 1/√d: logits have deviation {scaled.*|.3f}"}]}
  ])json");
  return p;
}

PictureJson data_of_half_range(Studio&) {
  const auto [largest, smallest] = square_range();
  PictureJson p = present(
      fmt::format(
          "Squares of numbers, as a norm needs them, in three formats. float16 ends at {:.0f}: from {:.0f} on a square is "
          "infinite, and a vector divided by it is zero. Therefore norms compute in float32, whatever the format of the rest.",
          static_cast<double>(f16_to_f32(0x7bff)),
          static_cast<double>(f16_to_f32(static_cast<uint16_t>(f32_to_f16(largest) + 1)))),
      fmt::format("The largest float16 number whose square is finite is {}; its square is {}.", written(largest),
                  written(in_f16(largest * largest))));
  p["largest"] = number(static_cast<double>(largest));
  p["smallest"] = number(static_cast<double>(smallest));
  p["x"] = p["f32"] = p["f16"] = p["f16Text"] = p["bf16Text"] = p["f32Text"] = PictureJson::array();
  for (const float x : {0.0001f, 0.01f, 1.f, 16.f, 128.f, 255.f, largest, 256.f, 257.f, 1000.f, 60000.f}) {
    p["x"].push_back(number(static_cast<double>(x)));
    p["f32"].push_back(number(static_cast<double>(x * x)));
    const float half = in_f16(in_f16(x) * in_f16(x));
    p["f16"].push_back(half > 0 ? number(static_cast<double>(half)) : PictureJson(nullptr));
    p["f32Text"].push_back(written(x * x));
    p["f16Text"].push_back(written(half));
    p["bf16Text"].push_back(written(in_bf16(in_bf16(x) * in_bf16(x))));
  }
  constexpr float kVector[] = {300, -40, 2, 0.5f};
  const float full = rms(kVector, [](float x) { return x; }), half = rms(kVector, in_f16);
  p["norm"] = {{"x", {300, -40, 2, 0.5}}, {"f32", written(full)}, {"f16", written(half)}};
  p["norm"]["f32y"] = p["norm"]["f16y"] = PictureJson::array();
  for (const float x : kVector) {
    p["norm"]["f32y"].push_back(written(x / full));
    p["norm"]["f16y"].push_back(written(in_f16(x / half)));
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "squares", "columns": [["x", "x.*", ".7g"], ["in float32", "f32Text.*"], ["in float16", "f16Text.*"], ["in bfloat16", "bf16Text.*"]]},
    {"note": "x over its root mean square: {norm.f32} in float32, {norm.f16} in float16", "columns": [["x", "norm.x.*"], ["in float32", "norm.f32y.*"], ["in float16", "norm.f16y.*"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Squares in float32 and in float16.", "height": 250,
     "x": {"label": "x", "log": true}, "y": {"label": "x²", "log": true},
     "series": [
       {"name": "float32", "tone": "plain", "draw": "both", "dashed": true, "x": "x.*", "y": "f32.*", "hint": "{x.*|.7g} squared in float32\n{f32Text.*}"},
       {"name": "float16", "tone": "attention strong", "draw": "both", "x": "x.*", "y": "f16.*", "hint": "{x.*|.7g} squared in float16\n{f16Text.*}"}]}
  ])json");
  return p;
}

}  // namespace vitrine
