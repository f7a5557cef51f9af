// Pictures of merging: what averages, arcs and task vectors make of rows of the model's own weights.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "picture/data/interpolate.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

constexpr int64_t kRowsRead = 128;  // of the matrix; more would show nothing else
constexpr int kSteps = 40;          // from t = 0 to t = 1

using RowValues = std::vector<double>;

double product_of(const RowValues& a, const RowValues& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
double length_of(const RowValues& a) { return std::sqrt(product_of(a, a)); }
double cosine_of(const RowValues& a, const RowValues& b) {
  return std::clamp(product_of(a, b) / (length_of(a) * length_of(b)), -1.0, 1.0);
}
double degrees(double radians) { return radians * 180 / std::numbers::pi; }

// The first rows of the matrix that reads the stream into the MLP (or the first expert) of one layer, as they are stored. Rows of
// zeros have no direction and are left out.
struct WeightRows {
  std::string matrix;
  int64_t layer, out, in;
  int64_t read;                // rows from the first on that were looked at
  std::vector<int64_t> index;  // of each row that is there
  std::vector<RowValues> rows;
};

WeightRows weight_rows(const Studio& studio) {
  const int64_t layer = studio.options.layer.value_or(studio.facts.shape.n_layers / 2);
  WeightRows found{fmt::format("blocks.{}.mlp.W_in", layer), layer, 0, 0, 0, {}, {}};
  const Weight* w = studio.facts.parameters.matrix(found.matrix);
  for (const char* of_expert : {"W_in", "W_gate_in"})
    if (w == nullptr && studio.facts.experts) {
      found.matrix = fmt::format("blocks.{}.mlp.experts.0.{}", layer, of_expert);
      w = studio.facts.parameters.matrix(found.matrix);
    }
  if (w == nullptr) return found;
  found.out = w->out;
  found.in = w->in;
  found.read = std::min(w->out, kRowsRead);
  for (int64_t r = 0; r < found.read; ++r) {
    RowValues row;
    for (int64_t i = 0; i < w->in; ++i) row.push_back(w->at<double>(r, i));
    if (length_of(row) == 0) continue;
    found.index.push_back(r);
    found.rows.push_back(std::move(row));
  }
  return found;
}

struct RowPair {
  const char* kind;
  size_t a, b;  // into WeightRows::rows
};

// The two that are most alike, the first two, the two that are most opposed; each pair once.
std::vector<RowPair> row_pairs(const WeightRows& w) {
  RowPair alike{"alike", 0, 1}, opposed{"opposed", 0, 1};
  double most = -2, least = 2;
  for (size_t i = 0; i < w.rows.size(); ++i)
    for (size_t j = i + 1; j < w.rows.size(); ++j) {
      const double cosine = cosine_of(w.rows[i], w.rows[j]);
      if (cosine > most) most = cosine, alike = {"alike", i, j};
      if (cosine < least) least = cosine, opposed = {"opposed", i, j};
    }
  std::vector<RowPair> pairs = {alike};
  for (const RowPair& pair : {RowPair{"first", 0, 1}, opposed})
    if (std::none_of(pairs.begin(), pairs.end(), [&](const RowPair& p) { return p.a == pair.a && p.b == pair.b; }))
      pairs.push_back(pair);
  return pairs;
}

// Two vectors in the plane that they span, the first along x: where a mix of them lies.
struct Plane {
  double a, b, cosine;
  PictureJson at(const Mix& mix) const {
    return {number(mix.first * a + mix.second * b * cosine),
            number(mix.second * b * std::sqrt(std::max(0.0, 1 - cosine * cosine)))};
  }
  double length(const Mix& mix) const { return mixed_length(mix, a, b, cosine); }
};

PictureJson no_rows(const WeightRows& w) {
  return absent(w.out == 0
                    ? "This model has no matrix that reads the stream into an MLP."
                    : fmt::format("{} has fewer than two rows that are not zero, so there is nothing between them.", w.matrix));
}

void name_matrix(PictureJson& p, const WeightRows& w) {
  p["matrix"] = w.matrix;
  p["layer"] = w.layer;
  p["shape"] = {w.out, w.in};
  p["read"] = w.read;
}

}  // namespace

PictureJson data_of_interpolation(Studio& studio) {
  const WeightRows w = weight_rows(studio);
  if (w.rows.size() < 2) return no_rows(w);
  std::vector<double> t;
  for (int i = 0; i <= kSteps; ++i) t.push_back(static_cast<double>(i) / kSteps);
  PictureJson pairs = PictureJson::array();
  std::string alt;
  for (const RowPair& pair : row_pairs(w)) {
    const Plane plane{length_of(w.rows[pair.a]), length_of(w.rows[pair.b]), cosine_of(w.rows[pair.a], w.rows[pair.b])};
    const double angle = std::acos(plane.cosine);
    std::vector<double> straight, arc;
    PictureJson path = PictureJson::array();
    for (const double at : t) {
      straight.push_back(plane.length(straight_mix(at)));
      arc.push_back(plane.length(slerp_mix(at, plane.cosine)));
      path.push_back(plane.at(slerp_mix(at, plane.cosine)));
    }
    const Mix middle = slerp_mix(0.5, plane.cosine);
    pairs.push_back({{"kind", pair.kind},
                     {"rows", {w.index[pair.a], w.index[pair.b]}},
                     {"lengths", {number(plane.a), number(plane.b)}},
                     {"cosine", number(plane.cosine)},
                     {"angle", number(angle)},
                     {"degrees", number(degrees(angle))},
                     {"straight", middle.straight},
                     {"a", plane.at({1, 0})},
                     {"b", plane.at({0, 1})},
                     {"arc", std::move(path)},
                     {"linearLengths", numbers(straight)},
                     {"slerpLengths", numbers(arc)},
                     {"averageLength", number(plane.length(straight_mix(0.5)))},
                     {"slerpLength", number(plane.length(middle))},
                     {"cosHalf", number(std::cos(angle / 2))}});
    alt += fmt::format(
        "{}Rows {} and {}, lengths {:.3g} and {:.3g}, {:.1f} degrees apart: their average has length {:.3g}, the "
        "middle of the arc {:.3g}.",
        alt.empty() ? "" : " ", w.index[pair.a], w.index[pair.b], plane.a, plane.b, degrees(angle),
        plane.length(straight_mix(0.5)), plane.length(middle));
  }
  PictureJson p = present(
      fmt::format(
          "Two rows of {} ({} of {}) in the plane that they span, as if they were the same weights of two models. "
          "The straight line holds the weighted averages (1 − t) a + t b, the arc the spherical ones (SLERP). The curves are "
          "the lengths of both from a to b.",
          w.matrix, plural(w.out, "row"), plural(w.in, "number")),
      alt);
  name_matrix(p, w);
  p["t"] = numbers(t);
  p["pairs"] = std::move(pairs);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "two rows of {matrix}", "columns": [["rows", "pairs.*.rows"], ["|a|", "pairs.*.lengths.0"], ["|b|", "pairs.*.lengths.1"], ["cosine", "pairs.*.cosine", ".4f"],
       ["angle °", "pairs.*.degrees", ".2f"], ["|average|", "pairs.*.averageLength"], ["|SLERP|", "pairs.*.slerpLength"], ["", "pairs.*.straight", "too near to a line for an arc"]]},
    {"note": "lengths on the way of the first pair", "columns": [["t", "t.0::4", ".1f"], ["linear", "pairs.0.linearLengths.0::4"], ["SLERP", "pairs.0.slerpLengths.0::4"]]},
    {"note": "lengths on the way of every pair", "detail": true, "columns": [["rows", "pairs.#0.rows"], ["t", "t.#1"], ["linear", "pairs.*.linearLengths.*"], ["SLERP", "pairs.*.slerpLengths.*"]]}
  ])json");
  return p;
}

PictureJson data_of_task_vectors(Studio& studio) {
  const WeightRows w = weight_rows(studio);
  if (w.rows.size() < 2) return no_rows(w);
  RowValues initial(static_cast<size_t>(w.in), 0);
  for (const RowValues& row : w.rows)
    for (size_t i = 0; i < row.size(); ++i) initial[i] += row[i] / static_cast<double>(w.rows.size());
  const RowPair pair = row_pairs(w).front();
  const RowValues &first = w.rows[pair.a], &second = w.rows[pair.b];
  const auto task = [&](const RowValues& row) {
    RowValues difference = row;
    for (size_t i = 0; i < row.size(); ++i) difference[i] -= initial[i];
    return difference;
  };
  const RowValues task_a = task(first), task_b = task(second);
  // What rounding leaves of a difference of equal rows has no direction.
  if (length_of(task_a) <= 1e-9 * length_of(first) || length_of(task_b) <= 1e-9 * length_of(second))
    return absent(fmt::format("The rows of {} are all alike, so none differs from their mean.", w.matrix));
  const Plane plane{length_of(task_a), length_of(task_b), cosine_of(task_a, task_b)};
  const Mix average = straight_mix(0.5), middle = slerp_mix(0.5, plane.cosine);
  const auto merged = [&](const Mix& mix, double eta) {  // initial + eta · task vector of the merge
    RowValues row = initial;
    for (size_t i = 0; i < row.size(); ++i) row[i] += eta * (mix.first * task_a[i] + mix.second * task_b[i]);
    return row;
  };
  std::vector<double> etas, distances, lengths;
  for (int i = 0; i <= 10; ++i) {
    etas.push_back(i / 10.0);
    const RowValues row = merged(middle, etas.back());
    distances.push_back(etas.back() * plane.length(middle));
    lengths.push_back(length_of(row));
  }
  PictureJson arc = PictureJson::array();
  for (int i = 0; i <= kSteps; ++i) arc.push_back(plane.at(slerp_mix(static_cast<double>(i) / kSteps, plane.cosine)));
  const double angle = std::acos(plane.cosine);
  PictureJson p = present(
      fmt::format(
          "Rows {} and {} of {} as the weights of two models that were trained from one start, in the plane of their task "
          "vectors. The mean of {} stands in for the start, which this file does not hold. The line back from the middle of "
          "the arc is LITI.",
          w.index[pair.a], w.index[pair.b], w.matrix,
          w.rows.size() == static_cast<size_t>(w.out) ? std::string("all rows") : fmt::format("{} of its rows", w.rows.size())),
      fmt::format("The task vectors have lengths {:.3g} and {:.3g} and are {:.1f} degrees apart, the rows themselves {:.1f}. The "
                  "average of the task vectors has length {:.3g}, the middle of their arc {:.3g}. Halfway back to the start "
                  "the merged row has length {:.3g}.",
                  plane.a, plane.b, degrees(angle), degrees(std::acos(cosine_of(first, second))), plane.length(average),
                  plane.length(middle), lengths[5]));
  name_matrix(p, w);
  p["rows"] = {w.index[pair.a], w.index[pair.b]};
  p["averaged"] = w.rows.size();
  p["initialLength"] = number(length_of(initial));
  p["lengths"] = {number(length_of(first)), number(length_of(second))};
  p["cosine"] = number(cosine_of(first, second));
  p["taskLengths"] = {number(plane.a), number(plane.b)};
  p["taskCosine"] = number(plane.cosine);
  p["taskAngle"] = number(angle);
  p["straight"] = middle.straight;
  p["a"] = plane.at({1, 0});
  p["b"] = plane.at({0, 1});
  p["average"] = plane.at(average);
  p["slerp"] = plane.at(middle);
  p["arc"] = std::move(arc);
  p["averageLength"] = number(plane.length(average));
  p["slerpLength"] = number(plane.length(middle));
  p["mergedLengths"] = {{"average", number(length_of(merged(average, 1)))}, {"slerp", number(length_of(merged(middle, 1)))}};
  p["liti"] = {{"eta", numbers(etas)}, {"distances", numbers(distances)}, {"lengths", numbers(lengths)}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "rows {rows.0} and {rows.1} of {matrix}; the start is the mean of {averaged} rows",
     "columns": [["", {"cells": ["start", "first", "second", "average", "SLERP"]}],
       ["length", ["initialLength", "lengths.0", "lengths.1", "mergedLengths.average", "mergedLengths.slerp"]],
       ["from the start", ["liti.distances.0", "taskLengths.0", "taskLengths.1", "averageLength", "slerpLength"]]]},
    {"note": "cosine of the two", "columns": [["", {"cells": ["rows", "task vectors"]}], ["cosine", ["cosine", "taskCosine"], ".4f"]]},
    {"note": "LITI: from the start to the merge by SLERP", "columns": [["η", "liti.eta.*", ".1f"], ["length", "liti.lengths.*"], ["from the start", "liti.distances.*"]]}
  ])json");
  return p;
}

}  // namespace vitrine
