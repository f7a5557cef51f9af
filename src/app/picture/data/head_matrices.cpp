// Pictures of one head as A·x·S: its matrices, what is linear in it and what is not, and several heads against one.
#include <algorithm>
#include <cmath>

#include "picture/data/head_study.h"

namespace vitrine {
namespace {

constexpr int64_t kSide = 32;             // of the maps of S and Y
constexpr int64_t kLargestSquare = 1024;  // a sum of S is written out up to this width

std::string map_note(int64_t width) {
  return width <= kSide
             ? fmt::format("All {} × {} entries.", width, width)
             : fmt::format("{} × {} entries in {} × {} cells: the root mean square of each block.", width, width, kSide, kSide);
}

PictureJson described(const FactoredMatrix& m) {
  const Spectrum spectrum = spectrum_of(m);
  return {{"rank", spectrum.rank},
          {"frobenius", number(spectrum.frobenius)},
          {"singularValues", numbers(spectrum.singular_values)},
          {"map", packed_rows(reduced(m, kSide))}};
}

// The same vectors, the last one first: a second input of the same size.
RowsD last_first(const RowsD& x) { return x.colwise().reverse(); }

}  // namespace

PictureJson data_of_head_matrices(Studio& studio) {
  HeadStudy& study = head_study(studio);
  if (PictureJson none = no_head_formula(studio, study); !none.is_null()) return none;
  const AttentionFormula& formula = *study.formula;
  const auto head = static_cast<size_t>(study.head);
  const int64_t width = studio.facts.shape.d_model;
  const RowsD &x = study.x.at(study.layer), &A = study.patterns[head], &h = study.results[head];
  const PictureJson S = described(formula.S(study.head)), Y = described(formula.Y(study.head));
  const double check = relative_distance(formula.written(study.head, A, x), h);
  const double pattern_check = (formula.patterns(x, {})[head] - A).cwiseAbs().maxCoeff();
  PictureJson p = present(
      fmt::format(
          "The three parts of {}: A, the weights of attention of this run; S = W_V W_O, which turns what a token hands over "
          "into an update; and Y = W_Q W_Kᵀ, from which A is made. S and Y are [{}, {}] and do not depend on the prompt.{}",
          head_title(study), width, width, cut_sentence(studio, study)),
      fmt::format(
          "Of {}, S has rank {} and largest singular value {:.3g}, Y rank {} and {:.3g}. Computed from its parts, the head's "
          "output differs from the run's by {:.1g} of its length.",
          head_title(study), S.at("rank").get<int64_t>(), S.at("singularValues")[0].get<double>(), Y.at("rank").get<int64_t>(),
          Y.at("singularValues")[0].get<double>(), check));
  p["layer"] = study.layer;
  p["head"] = study.head;
  p["dModel"] = width;
  p["headDim"] = Y.at("singularValues").size();
  p["A"] = packed_rows(A);
  p["S"] = S;
  p["Y"] = Y;
  p["check"] = number(check);
  p["patternCheck"] = number(pattern_check);
  p["outputLength"] = number(h.norm());
  p["hasConstant"] = formula.has_constant();
  p["turns"] = formula.turns();
  p["plainScores"] = formula.plain_scores();
  p["mapNote"] = map_note(width);
  p["constant"] = formula.has_constant() ? PictureJson(" + the constant of its biases") : PictureJson("");
  p["prose"] = {{"layer", study.layer},
                {"head", study.head},
                {"chosen", study.chosen},
                {"check", p["check"]},
                {"rank_s", S.at("rank")},
                {"rank_y", Y.at("rank")},
                {"constant", formula.has_constant()},
                {"turns", formula.turns()},
                {"plain", formula.plain_scores()},
                {"sinks", formula.has_sinks()}};
  p["which"] = head_title(study);
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "remark", "text": "Check: ‖h − A·x·S{constant}‖ / ‖h‖ = {check|.2g}, where h is what the head wrote in this run. A computed from x and Y's factors alone differs from the run's by at most {patternCheck|.2g}."},
    {"choose": "Matrix", "options": [
      {"name": "A, from token to token", "charts": [
        {"kind": "grid", "title": "A of {which}", "made": "run", "label": "Weights of attention of {which}: rows are tokens that look, columns tokens that are looked at.",
         "values": "A.*.*", "rows": "{#0|place}", "columns": "{#1|at}", "place": "{#1|place}", "columnTitle": "looked at", "scale": "sequential", "most": 1, "cell": 28, "tall": 22,
         "hint": "{#0|place} looks at {#1|place}\n{A.*.*|%}", "key": {"label": "weight of attention", "low": "0", "high": "1"}}]},
      {"name": "S = W_V W_O", "charts": [
        {"kind": "grid", "title": "S of {which}: what is read (rows) becomes what is written (columns)", "made": "model", "label": "The matrix S of {which}.",
         "values": "S.map.*.*", "rows": "", "scale": "SCALE", "cell": 14, "tall": 14,
         "hint": "row {#0}, column {#1}\n{S.map.*.*}", "key": {"label": "S. {mapNote}"}}]},
      {"name": "Y = W_Q W_Kᵀ", "charts": [
        {"kind": "grid", "title": "Y of {which}: the token that looks (rows) meets the one looked at (columns)", "made": "model", "label": "The matrix Y of {which}.",
         "values": "Y.map.*.*", "rows": "", "scale": "SCALE", "cell": 14, "tall": 14,
         "hint": "row {#0}, column {#1}\n{Y.map.*.*}", "key": {"label": "Y. {mapNote}"}}]}]},
    {"kind": "xy", "title": "Singular values: {S.singularValues.length} of {dModel} directions, no more", "made": "model", "label": "Singular values of S and Y, largest first.",
     "x": {"label": "direction", "whole": true}, "y": {"label": "singular value", "zero": true}, "height": 240,
     "series": [
       {"name": "Y", "tone": "attention", "draw": "both", "y": "Y.singularValues.*", "hint": "Y, direction {#0|ordinal}\n{Y.singularValues.*}"},
       {"name": "S", "tone": "mlp", "draw": "both", "y": "S.singularValues.*", "hint": "S, direction {#0|ordinal}\n{S.singularValues.*}"}]},
    {"kind": "remark", "text": "Both matrices have {dModel} rows and columns. S has rank {S.rank}, Y rank {Y.rank}."}
  ])json");
  for (const size_t option : {1, 2}) {
    PictureJson& chart = p["charts"][1]["options"][option]["charts"][0];
    chart["scale"] = width <= kSide ? "diverging" : "sequential";
    if (width > kSide) chart["key"]["low"] = "0";
  }
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["matrix", {"cells": ["S", "Y"]}], ["rank", ["S.rank", "Y.rank"]], ["largest singular value", ["S.singularValues.0", "Y.singularValues.0"]],
                 ["Frobenius norm", ["S.frobenius", "Y.frobenius"]]]},
    {"note": "check against the run", "columns": [["‖h − A·x·S‖ / ‖h‖", "check"], ["largest difference of A", "patternCheck"], ["‖h‖", "outputLength"]]},
    {"note": "A", "detail": true, "columns": [["looks", "#0"], ["token", "#0", "at"], ["looked at", "#1"], ["token", "#1", "at"], ["weight", "A.*.*"]]},
    {"note": "singular values", "detail": true, "columns": [["direction", "#0", "ordinal"], ["S", "S.singularValues.*"], ["Y", "Y.singularValues.*"]]}
  ])json");
  return p;
}

PictureJson data_of_frozen_attention(Studio& studio) {
  HeadStudy& study = head_study(studio);
  if (study.layers.empty()) return no_head_formula(studio, study);
  if (study.tokens() < 2)
    return absent("With one token a head has nothing to choose from: its weight is 1 whatever it reads. Give it two or more.");
  PictureJson p = present(
      fmt::format("Two inputs are given to every head, alone and added up: x, what it reads in this run, and y, the same vectors "
                  "with the last one first. f keeps the weights A of x; h makes A anew for each input.{}",
                  cut_sentence(studio, study)),
      "");
  p["heads"] = PictureJson::array();
  size_t shown = 0, least = 0, most = 0;
  double most_frozen = 0;
  for (const int64_t layer : study.layers) {
    const AttentionFormula formula(studio.engine, layer);
    const RowsD &x = study.x.at(layer), y = last_first(x), sum = x + y;
    const std::vector<RowsD> A_x = formula.patterns(x, {}), A_y = formula.patterns(y, {}), A_sum = formula.patterns(sum, {});
    for (int64_t head = 0; head < formula.heads(); ++head) {
      const auto i = static_cast<size_t>(head);
      const auto f = [&](const RowsD& input) { return formula.mixed(head, A_x[i], input); };
      const double frozen = relative_distance(f(x) + f(y), f(sum));
      const double free =
          relative_distance(formula.mixed(head, A_x[i], x) + formula.mixed(head, A_y[i], y), formula.mixed(head, A_sum[i], sum));
      if (layer == study.layer && head == study.head) shown = p["heads"].size();
      p["heads"].push_back({{"layer", layer}, {"head", head}, {"frozen", number(frozen)}, {"free", number(free)}});
      most_frozen = std::max(most_frozen, frozen);
      const auto free_of = [&](size_t at) { return p["heads"][at].at("free").get<double>(); };
      if (free < free_of(least)) least = p["heads"].size() - 1;
      if (free > free_of(most)) most = p["heads"].size() - 1;
    }
  }
  p["shown"] = p["heads"][shown];
  p["least"] = p["heads"][least];
  p["most"] = p["heads"][most];
  p["mostFrozen"] = number(most_frozen);
  p["prose"] = {{"layer", p["shown"]["layer"]}, {"head", p["shown"]["head"]}, {"frozen", p["shown"]["frozen"]},
                {"free", p["shown"]["free"]},   {"heads", p["heads"].size()}, {"most_frozen", p["mostFrozen"]},
                {"least", p["least"]["free"]},  {"most", p["most"]["free"]}};
  p["alt"] = fmt::format(
      "With A kept, the largest deviation of {} is {:.1g} of the output's length: rounding. With A made anew it is "
      "{:.2g} to {:.2g}.",
      plural(p["heads"].size(), "head"), most_frozen, p["least"].at("free").get<double>(), p["most"].at("free").get<double>());
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "remark", "text": "Layer {shown.layer}, head {shown.head}: with A kept, ‖f(x + y) − f(x) − f(y)‖ / ‖f(x + y)‖ = {shown.frozen|.2g}. With A made anew, ‖h(x + y) − h(x) − h(y)‖ / ‖h(x + y)‖ = {shown.free|.3g}."},
    {"kind": "xy", "title": "Every head of the model", "label": "Deviation from linearity of every head, with its weights of attention kept and made anew.",
     "x": {"label": "heads, layer by layer", "whole": true}, "y": {"label": "deviation, log", "log": true}, "height": 300,
     "series": [
       {"name": "A made anew", "tone": "attention", "draw": "dots", "y": "heads.*.free", "hint": "layer {heads.*.layer}, head {heads.*.head}\nA made anew: {heads.*.free}"},
       {"name": "A kept", "tone": "mlp", "draw": "dots", "y": "heads.*.frozen", "hint": "layer {heads.*.layer}, head {heads.*.head}\nA kept: {heads.*.frozen}"}]}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "‖f(x + y) − f(x) − f(y)‖ / ‖f(x + y)‖", "keep": "spread", "columns": [["layer", "heads.*.layer"], ["head", "heads.*.head"], ["A kept", "heads.*.frozen"], ["A made anew", "heads.*.free"]]}
  ])json");
  return p;
}

PictureJson data_of_heads_as_one(Studio& studio) {
  HeadStudy& study = head_study(studio);
  if (study.layers.empty()) return no_head_formula(studio, study);
  if (studio.facts.shape.n_heads < 2) return absent("Each layer of this model has one head: there is nothing to add up.");
  PictureJson p = present(
      fmt::format(
          "What is lost if the heads of a layer are replaced by one: their matrices S are added up, and its weights are the "
          "mean of theirs. 0 %: nothing; 100 %: as much as if the layer wrote nothing.{}",
          cut_sentence(studio, study)),
      "");
  p["layers"] = PictureJson::array();
  p["fold"] = nullptr;
  p["rank"] = nullptr;
  const int64_t width = studio.facts.shape.d_model;
  for (const int64_t layer : study.layers) {
    const AttentionFormula formula(studio.engine, layer);
    const RowsD& x = study.x.at(layer);
    const std::vector<RowsD> A = formula.patterns(x, {});
    RowsD mean = RowsD::Zero(x.rows(), x.rows()), all = RowsD::Zero(x.rows(), x.cols()), one = all;
    for (const RowsD& pattern : A) mean += pattern / static_cast<double>(A.size());
    for (int64_t head = 0; head < formula.heads(); ++head) {
      all += formula.mixed(head, A[static_cast<size_t>(head)], x);
      one += formula.mixed(head, mean, x);
    }
    p["layers"].push_back({{"layer", layer}, {"lost", number(relative_distance(one, all))}});
    const bool shown = layer == study.layer || study.layers.size() == 1;
    if (!shown || width > kLargestSquare) continue;
    // The sum of all S, written out: [d_model, d_model].
    RowsD sum = RowsD::Zero(width, width);
    FactoredMatrix stacked{.d_model = width, .d_head = 0, .left = {}, .right = {}};
    for (int64_t head = 0; head < formula.heads(); ++head) {
      const FactoredMatrix S = formula.S(head);
      const Eigen::Map<const RowsF> left(S.left.data(), S.d_head, width), right(S.right.data(), S.d_head, width);
      sum += left.cast<double>().transpose() * right.cast<double>();
      stacked.d_head += S.d_head;
      stacked.left.insert(stacked.left.end(), S.left.begin(), S.left.end());
      stacked.right.insert(stacked.right.end(), S.right.begin(), S.right.end());
    }
    p["fold"] = number(relative_distance(mean * x * sum, one));
    p["rank"] = spectrum_of(stacked).rank;
    p["rankEach"] = spectrum_of(formula.S(study.head)).rank;
  }
  const auto lost = [&](const PictureJson& layer) { return layer.at("lost").get<double>(); };
  const auto [least, most] = std::minmax_element(p["layers"].begin(), p["layers"].end(),
                                                 [&](const PictureJson& a, const PictureJson& b) { return lost(a) < lost(b); });
  const PictureJson low = *least, high = *most;
  p["heads"] = studio.facts.shape.n_heads;
  p["shownLayer"] = study.layer;
  p["prose"] = {{"layer", study.layer},
                {"fold", p["fold"]},
                {"rank", p["rank"]},
                {"least_layer", low.at("layer")},
                {"least_lost", low.at("lost")},
                {"most_layer", high.at("layer")},
                {"most_lost", high.at("lost")}};
  p["leastLost"] = low;
  p["mostLost"] = high;
  p["alt"] =
      fmt::format("One head in the place of {} loses {:.0f} % of what layer {} writes, the least, and {:.0f} % of layer {}.",
                  studio.facts.shape.n_heads, 100 * lost(p["leastLost"]), p["leastLost"].at("layer").get<int64_t>(),
                  100 * lost(p["mostLost"]), p["mostLost"].at("layer").get<int64_t>());
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "remark", "if": "fold", "text": "Layer {shownLayer}: if its {heads} heads all had the same weights Ā, their sum would be the one head Ā·x·(S₁ + S₂ + …): the two differ by {fold|.2g} of their length. One S has rank {rankEach}, the sum {rank}."},
    {"kind": "bars", "title": "Their weights are not the same: what one head would lose", "label": "Share of each layer's update that is lost if its heads are replaced by one.",
     "name": "layer {layers.*.layer}", "value": "layers.*.lost", "note": "{layers.*.lost|%}", "hint": "layer {layers.*.layer}\n‖one head − all heads‖ / ‖all heads‖ = {layers.*.lost}"}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "one head in the place of {heads}", "keep": "spread", "columns": [["layer", "layers.*.layer"], ["lost", "layers.*.lost", "%"]]},
    {"if": "fold", "note": "layer {shownLayer}, all heads with the same weights", "columns": [["‖Ā·x·ΣS − Σ Ā·x·S‖ / ‖Σ Ā·x·S‖", "fold"], ["rank of one S", "rankEach"], ["rank of the sum", "rank"]]}
  ])json");
  return p;
}

}  // namespace vitrine
