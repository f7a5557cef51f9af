// Pictures of the residual stream and its norms.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "picture/data/studio.h"

namespace vitrine {
namespace {

std::string sublayer_name(size_t i) { return fmt::format("{} {}", i / 2, i % 2 == 0 ? "attention" : "mlp"); }

// The norm's factor as it multiplies: Gemma's files hold w and mean 1 + w.
std::vector<double> gain_of(const ModelFacts& facts, const Model& model, const std::string& norm) {
  const Vector* w = facts.parameters.vector(norm + ".w");
  if (w == nullptr && norm.ends_with("ln2")) w = facts.parameters.vector(norm.substr(0, norm.size() - 1) + "1.w");  // read twice
  if (w == nullptr) return {1};
  std::vector<double> gain;
  const double offset = facts.rms ? model.layer(0).norm.offset : 0;
  for (int64_t i = 0; i < w->size; ++i) gain.push_back(offset + w->at<double>(i));
  return gain;
}

// What the norms of one name do, in words.
std::string kind_title(const ModelFacts& facts, const std::string& kind) {
  if (kind == "ln_final") return "final norm";
  const char* part = kind.starts_with("ln1") ? "attention" : kind.starts_with("ln2") ? "the MLP" : nullptr;
  if (part == nullptr) return kind;
  if (kind.ends_with("_post")) return fmt::format("on what {} adds ({})", part, kind);
  return fmt::format("{} {} ({})", facts.norm_place == NormPlace::after ? "behind" : "in front of", part, kind);
}

}  // namespace

PictureJson data_of_update_scale(Studio& studio) {
  const Observation& seen = studio.seen;
  std::vector<double> scales;
  PictureJson sublayers = PictureJson::array();
  for (size_t i = 0; i < seen.sublayers.size(); ++i) {
    const double skip = seen.sublayers[i].skip.sigma(), update = seen.sublayers[i].update.sigma();
    scales.push_back(update_scale(update, skip));
    sublayers.push_back({{"layer", i / 2},
                         {"part", i % 2 == 0 ? "attention" : "mlp"},
                         {"scale", number(scales.back())},
                         {"sigmaSkip", number(skip)},
                         {"sigmaUpdate", number(update)}});
  }
  const size_t largest = static_cast<size_t>(std::max_element(scales.begin(), scales.end()) - scales.begin());
  std::vector<double> sorted = scales;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  PictureJson p = present(
      "How much each sub-layer changes the stream: √(σr² / (σr² + σs²)), where σr is the standard deviation of what it adds and "
      "σs "
      "that of the stream it is added to. 0: nothing new. 1: the stream is replaced.",
      fmt::format("Update scales of {} over {}: half of them are below {:.2f}; the largest is {:.2f}, layer {}.",
                  plural(scales.size(), "sub-layer"), plural(seen.tokens, "token"), sorted[sorted.size() / 2], scales[largest],
                  sublayer_name(largest)));
  p["sublayers"] = std::move(sublayers);
  p["perToken"] = nullptr;
  if (!seen.sublayers[0].skip_token.empty()) {
    std::vector<std::vector<double>> rows;
    for (const Observation::Sublayer& sub : seen.sublayers) {
      std::vector<double>& row = rows.emplace_back();
      for (size_t t = 0; t < sub.skip_token.size(); ++t)
        row.push_back(update_scale(sub.update_token[t].sigma(), sub.skip_token[t].sigma()));
    }
    p["perToken"] = table(rows);
  }
  p["tables"] = PictureJson::parse(R"json([
    {"keep": "spread", "columns": [["layer", "sublayers.0::2.layer"],
       ["attention", "sublayers.0::2.scale", ".3f"], ["σ added", "sublayers.0::2.sigmaUpdate"], ["σ stream", "sublayers.0::2.sigmaSkip"],
       ["MLP", "sublayers.1::2.scale", ".3f"], ["σ added", "sublayers.1::2.sigmaUpdate"], ["σ stream", "sublayers.1::2.sigmaSkip"]]},
    {"note": "by token", "detail": true, "columns": [["layer", "sublayers.#0.layer"], ["part", "sublayers.#0.part"], ["position", "#1"],
       ["token", "#1", "at"], ["update scale", "perToken.*.*"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Update scale of the attention and the MLP of each layer.",
     "x": {"label": "layer", "whole": true, "pad": 0.5}, "y": {"label": "update scale", "domain": [0, 1]},
     "series": [
       {"name": "attention, by token", "named": false, "tone": "attention faint", "draw": "dots", "x": "#0", "shift": -0.12,
        "y": "perToken.0::2.*", "most": 2000, "hint": "layer {#0}, attention\nat {#1|place}\nupdate scale {perToken.0::2.*}",
        "pick": {"do": "sublayer", "with": ["{#0}", "attention", "{#1}"], "says": "how to switch it off there"}},
       {"name": "MLP, by token", "named": false, "tone": "mlp faint", "draw": "dots", "x": "#0", "shift": 0.12,
        "y": "perToken.1::2.*", "most": 2000, "hint": "layer {#0}, MLP\nat {#1|place}\nupdate scale {perToken.1::2.*}",
        "pick": {"do": "sublayer", "with": ["{#0}", "mlp", "{#1}"], "says": "how to switch it off there"}},
       {"name": "attention", "tone": "attention", "draw": "dots", "shift": -0.12, "y": "sublayers.0::2.scale",
        "hint": "layer {#0}, attention\nupdate scale {sublayers.0::2.scale}\nσ of what it adds {sublayers.0::2.sigmaUpdate}\nσ of the stream {sublayers.0::2.sigmaSkip}",
        "pick": {"do": "sublayer", "with": ["{#0}", "attention"], "says": "how to switch it off"}},
       {"name": "MLP", "tone": "mlp", "draw": "dots", "shift": 0.12, "y": "sublayers.1::2.scale",
        "hint": "layer {#0}, MLP\nupdate scale {sublayers.1::2.scale}\nσ of what it adds {sublayers.1::2.sigmaUpdate}\nσ of the stream {sublayers.1::2.sigmaSkip}",
        "pick": {"do": "sublayer", "with": ["{#0}", "mlp"], "says": "how to switch it off"}}]}
  ])json");
  return p;
}

PictureJson data_of_residual_scale(Studio& studio) {
  const Observation& seen = studio.seen;
  std::vector<double> with;
  for (const Moments& m : seen.stream) with.push_back(m.sigma());
  const std::vector<double> without = stream_without_norms(studio.engine, studio.prompt.ids, studio.facts);
  const auto lost = std::find_if(without.begin(), without.end(), [](double s) { return !std::isfinite(s); });
  const size_t finite = static_cast<size_t>(lost - without.begin());
  std::string fate = finite == 0 ? "overflows at once"
                     : finite == without.size()
                         ? fmt::format("reaches {:.3g}", without.back())
                         : fmt::format("reaches {:.3g} and then leaves the range of 32-bit numbers", without[finite - 1]);
  PictureJson p = present(
      "Standard deviation of the residual stream where each sub-layer reads it, on a log axis: as the model is, and in a second "
      "run "
      "in which every norm passes its input on unchanged. A model is not trained to run this way; the run shows what the norms "
      "do.",
      fmt::format("With norms the scale goes from {:.3g} to {:.3g}; without, it {}.", with.front(), with.back(), fate));
  p["labels"] = PictureJson::array();
  for (size_t i = 0; i + 1 < with.size(); ++i) p["labels"].push_back(sublayer_name(i));
  p["labels"].push_back("final");
  p["withNorms"] = numbers(with);
  std::vector<double> shown(without);
  std::fill(shown.begin() + static_cast<std::ptrdiff_t>(finite), shown.end(), INFINITY);  // null in JSON, from the first on
  p["withoutNorms"] = numbers(shown);
  std::vector<double> grows = {1}, adds = {1};
  for (int i = 0; i < 18; ++i) {
    grows.push_back(grows.back() + 2 * grows.back());
    adds.push_back(adds.back() + 2);
  }
  p["toy"] = {{"without", numbers(grows)}, {"with", numbers(adds)}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "σ of the stream that each sub-layer reads", "keep": "spread",
     "columns": [["sub-layer", "labels.*"], ["with norms", "withNorms.*"], ["without", "withoutNorms.*"]]},
    {"note": "a toy, from 1", "detail": true, "columns": [["steps", "#0"], ["x + 2", "toy.with.*"], ["x + 2x", "toy.without.*"]]}
  ])json");
  // How many of the first layers can do without norms before a norm after them meets numbers whose squares overflow.
  constexpr double kMostSquared = 1e15;
  const auto large = static_cast<size_t>(std::find_if(shown.begin(), shown.end(), [](double s) { return !(s <= kMostSquared); }) -
                                         shown.begin());
  p["survivors"] = large == shown.size() ? PictureJson("all") : PictureJson(std::max<size_t>(large / 2, 1) - 1);
  p["lost"] = finite == shown.size() ? PictureJson(nullptr) : p["labels"][finite];
  p["charts"] = PictureJson::parse(R"json([
    {"choose": "Show", "options": [
      {"name": "this run", "charts": [
        {"kind": "xy", "label": "Scale of the residual stream before each sub-layer, with and without norms.",
         "x": {"label": "layer (attention, then MLP)", "step": 0.5, "whole": true}, "y": {"label": "σ of the residual stream, log", "log": true},
         "series": [
           {"name": "with norms", "tone": "attention", "draw": "both", "y": "withNorms.*",
            "hint": "before {labels.*}, with norms\nσ of the stream {withNorms.*}"},
           {"name": "norms off", "tone": "mlp", "draw": "both", "dashed": true, "y": "withoutNorms.*",
            "hint": "before {labels.*}, norms off\nσ of the stream {withoutNorms.*}",
            "pick": {"do": "norms", "with": ["{survivors}"], "says": "how to run without norms"}}]},
        {"kind": "remark", "if": "lost", "text": "Without norms the numbers leave the range of 32-bit floats before {lost}."}]},
      {"name": "a toy: 18 steps", "charts": [
        {"kind": "xy", "label": "A scale that is multiplied by 3 against one that grows by 2, in 18 steps.",
         "x": {"label": "step", "whole": true}, "y": {"label": "scale, log", "log": true},
         "series": [
           {"name": "x + 2", "tone": "attention", "draw": "both", "y": "toy.with.*", "hint": "after {#0} steps of x + 2\n{toy.with.*|count}"},
           {"name": "x + 2x", "tone": "mlp", "draw": "both", "dashed": true, "y": "toy.without.*", "hint": "after {#0} steps of x + 2x\n{toy.without.*|count}"}]},
        {"kind": "remark", "text": "After 18 steps: {toy.without.-1|count} against {toy.with.-1|count}."}]}]}
  ])json");
  return p;
}

PictureJson data_of_embedding_rescaling(Studio& studio) {
  const double factor = studio.facts.shape.embedding_scale;
  if (factor == 1) return absent("This model adds its embeddings to the stream as they are stored; it does not rescale them.");
  const Observation& seen = studio.seen;
  const auto scale = [&](size_t i) { return update_scale(seen.sublayers[i].update.sigma(), seen.sublayers[i].skip.sigma()); };
  const Unscaled without = without_embedding_scale(studio.engine, studio.prompt.ids, factor);
  PictureJson p = present(
      fmt::format(
          "Update scale of the first layer with the embeddings multiplied by √{} = {:.4g} as the model does, and, in another "
          "run, without. Near 1 the sub-layer replaces the token's embedding instead of adding to it.",
          studio.facts.shape.d_model, factor),
      fmt::format("First attention: {:.3f} with the factor, {:.3f} without. First MLP: {:.3f} and {:.3f}.", scale(0),
                  without.attention, scale(1), without.mlp));
  p["factor"] = number(factor);
  p["sigmaWith"] = number(seen.embedding.sigma());
  p["sigmaWithout"] = number(without.sigma);
  p["sublayers"] =
      PictureJson::array({{{"name", "first attention"}, {"with", number(scale(0))}, {"without", number(without.attention)}},
                          {{"name", "first MLP"}, {"with", number(scale(1))}, {"without", number(without.mlp)}}});
  p["tables"] = PictureJson::parse(R"json([
    {"note": "update scale of the first layer's", "columns": [["sub-layer", {"cells": ["attention", "MLP", "σ of the embeddings"]}],
       ["with the factor", ["sublayers.0.with", "sublayers.1.with", "sigmaWith"]],
       ["without", ["sublayers.0.without", "sublayers.1.without", "sigmaWithout"]]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "pairs", "label": "Update scale of the first layer with the embeddings scaled and as stored.", "name": "{sublayers.*.name}",
     "axis": {"label": "update scale", "domain": [0, 1]},
     "from": {"name": "as stored", "value": "sublayers.*.without",
              "hint": "{sublayers.*.name}, embeddings as stored\nupdate scale {sublayers.*.without}"},
     "to": {"name": "× {factor}", "value": "sublayers.*.with",
            "hint": "{sublayers.*.name}, embeddings × {factor}\nupdate scale {sublayers.*.with}"}}
  ])json");
  return p;
}

PictureJson data_of_norm_statistics(Studio& studio) {
  const Observation& seen = studio.seen;
  PictureJson p = present(
      "What enters and leaves each norm, over all tokens and components together: mean, standard deviation and root mean square; "
      "and the factors the norm multiplies by afterwards.",
      fmt::format("{}. The first reads a root mean square of {:.3g} and gives {:.3g}; the last reads {:.3g} and gives {:.3g}.",
                  plural(seen.norms.size(), "norm"), seen.norms.front().in.rms(), seen.norms.front().out.rms(),
                  seen.norms.back().in.rms(), seen.norms.back().out.rms()));
  p["kinds"] = PictureJson::array();
  std::vector<std::vector<float>> each;  // by kind and norm: entering and leaving, by token
  for (const Observation::Norm& norm : seen.norms) {
    // "blocks.3.ln1" is of the kind "ln1".
    const bool of_layer = norm.name.starts_with("blocks.");
    const size_t dot = of_layer ? norm.name.find('.', 7) : 0;
    const std::string kind = of_layer ? norm.name.substr(dot + 1) : norm.name;
    const auto known =
        std::find_if(p["kinds"].begin(), p["kinds"].end(), [&](const PictureJson& one) { return one.at("kind") == kind; });
    const auto at = static_cast<size_t>(known - p["kinds"].begin());
    if (known == p["kinds"].end()) {
      p["kinds"].push_back({{"kind", kind},
                            {"title", kind_title(studio.facts, kind)},
                            {"layered", of_layer ? PictureJson(true) : PictureJson(nullptr)},
                            {"norms", PictureJson::array()}});
      each.emplace_back();
    }
    const std::vector<double> gain = gain_of(studio.facts, studio.engine.model(), norm.name);
    const double sum = std::accumulate(gain.begin(), gain.end(), 0.0);
    p["kinds"][at]["norms"].push_back({{"name", norm.name},
                                       {"layer", of_layer ? std::stoi(norm.name.substr(7)) : 0},
                                       {"inMean", number(norm.in.mean())},
                                       {"inSigma", number(norm.in.sigma())},
                                       {"inRms", number(norm.in.rms())},
                                       {"outMean", number(norm.out.mean())},
                                       {"outSigma", number(norm.out.sigma())},
                                       {"outRms", number(norm.out.rms())},
                                       {"weightMean", number(sum / static_cast<double>(gain.size()))},
                                       {"weightMin", number(*std::min_element(gain.begin(), gain.end()))},
                                       {"weightMax", number(*std::max_element(gain.begin(), gain.end()))}});
    each[at].insert(each[at].end(), norm.in_rms.begin(), norm.in_rms.end());
    each[at].insert(each[at].end(), norm.out_rms.begin(), norm.out_rms.end());
  }
  p["alone"] = nullptr;
  const Observation::Norm& last = seen.norms.back();
  if (!last.name.starts_with("blocks."))
    p["alone"] = fmt::format("The {}: RMS {:.3g} enters, {:.3g} leaves.", kind_title(studio.facts, last.name), last.in.rms(),
                             last.out.rms());
  for (size_t k = 0; k < each.size(); ++k)
    p["kinds"][k]["perToken"] =
        seen.tokens <= kTokensEach
            ? packed(std::span<const float>(each[k]), {static_cast<int64_t>(p["kinds"][k]["norms"].size()), 2, seen.tokens})
            : PictureJson(nullptr);
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["norm", "kinds.*.norms.*.name"], ["in: mean", "kinds.*.norms.*.inMean"], ["σ", "kinds.*.norms.*.inSigma"], ["RMS", "kinds.*.norms.*.inRms"],
       ["out: mean", "kinds.*.norms.*.outMean"], ["σ", "kinds.*.norms.*.outSigma"], ["RMS", "kinds.*.norms.*.outRms"]]},
    {"note": "weights of the norms", "detail": true, "columns": [["norm", "kinds.*.norms.*.name"], ["mean", "kinds.*.norms.*.weightMean"],
       ["smallest", "kinds.*.norms.*.weightMin"], ["largest", "kinds.*.norms.*.weightMax"]]},
    {"note": "by token", "detail": true, "columns": [["norm", "kinds.#0.norms.#1.name"], ["position", "#2"], ["token", "#2", "at"],
       ["RMS in", "kinds.*.perToken.*.0.*"], ["RMS out", "kinds.*.perToken.*.1.*"]]}
  ])json");
  // One option a statistic: a small chart for each kind, with a line for each of the numbers.
  PictureJson options = PictureJson::array();
  struct Line {
    const char *name, *tone, *key;
  };
  const auto add = [&](const char* name, const char* label, bool log, std::initializer_list<Line> lines) {
    std::string series;
    for (const Line& line : lines)
      series += fmt::format(R"json({}{{"name": "{}", "tone": "{}", "draw": "both", "dashed": {}, "x": "kinds.#0.norms.*.layer",
                            "y": "kinds.#0.norms.*.{}", "hint": "{{kinds.#0.norms.*.name}}\n{} {{kinds.#0.norms.*.{}}}",
                            "pick": {{"do": "norm", "with": ["{{kinds.#0.norms.*.name}}"], "says": "how to switch it off"}}}})json",
                            series.empty() ? "" : ", ", line.name, line.tone, line.tone != std::string_view("attention"),
                            line.key, line.name, line.key);
    options.push_back(PictureJson::parse(fmt::format(
        R"json({{"name": "{}", "charts": [{{"kind": "beside", "each": "kinds.*", "chart":
          {{"kind": "xy", "if": "kinds.#0.layered", "title": "{{kinds.#0.title}}", "height": 210,
            "label": "Statistics entering and leaving each norm {{kinds.#0.title}}.",
            "x": {{"label": "layer", "whole": true}}, "y": {{"label": "{}", "log": {}}}, "series": [{}]}}}}]}})json",
        name, label, log, series)));
  };
  add("RMS", "root mean square, log", true, {{"enters", "mlp", "inRms"}, {"leaves", "attention", "outRms"}});
  add("σ", "standard deviation, log", true, {{"enters", "mlp", "inSigma"}, {"leaves", "attention", "outSigma"}});
  add("mean", "mean", false, {{"enters", "mlp", "inMean"}, {"leaves", "attention", "outMean"}});
  add("weights", "weight of the norm", false,
      {{"largest", "plain", "weightMax"}, {"mean", "attention", "weightMean"}, {"smallest", "plain", "weightMin"}});
  p["charts"] = PictureJson::parse(
      R"json([{"choose": "Statistic"}, {"kind": "remark", "if": "kinds.1", "text": "Each kind of norm has a scale of its own."},
    {"kind": "remark", "if": "alone", "text": "{alone}"}])json");
  p["charts"][0]["options"] = std::move(options);
  return p;
}

PictureJson data_of_final_norm(Studio& studio) {
  if (!studio.facts.final_norm)
    return absent("This model normalizes the stream after each sub-layer, so nothing is left for a final norm to do.");
  const Observation::Norm& norm = studio.seen.norms.back();
  const auto [low, high] = std::minmax_element(norm.in_rms.begin(), norm.in_rms.end());
  const auto [after_low, after_high] = std::minmax_element(norm.out_rms.begin(), norm.out_rms.end());
  PictureJson p = present(
      "Root mean square of each token's vector before and after the final norm. However large the stream has "
      "become, the output projection reads vectors of nearly one size: all are divided by their own, and what is left of the "
      "differences comes from the norm's learned weights.",
      fmt::format("Before the norm from {:.3g} to {:.3g}, after it from {:.3g} to {:.3g}.", *low, *high, *after_low,
                  *after_high));
  p["before"] = numbers(norm.in_rms);
  p["after"] = numbers(norm.out_rms);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "root mean square of each token's vector", "columns": [["at", "#0"], ["token", "#0", "at"], ["before", "before.*"], ["after", "after.*"]]}
  ])json");
  constexpr size_t kFewTokens = 40;
  p["few"] = norm.in_rms.size() <= kFewTokens ? PictureJson(true) : PictureJson(nullptr);
  p["many"] = norm.in_rms.size() <= kFewTokens ? PictureJson(nullptr) : PictureJson(true);
  p["charts"] = PictureJson::parse(R"json([
    {"if": "few", "kind": "pairs", "label": "Root mean square of each token before and after the final norm.", "name": "{#0|at}",
     "axis": {"label": "RMS, log", "log": true},
     "from": {"name": "before", "value": "before.*", "hint": "{#0|place}\nRMS before the final norm {before.*}"},
     "to": {"name": "after", "value": "after.*", "hint": "{#0|place}\nRMS after the final norm {after.*}"}},
    {"if": "many", "kind": "xy", "label": "Root mean square of each token before and after the final norm.",
     "x": {"label": "position", "whole": true}, "y": {"label": "RMS, log", "log": true},
     "series": [
       {"name": "before", "tone": "mlp", "draw": "line", "dashed": true, "y": "before.*", "hint": "{#0|place}\nRMS before {before.*}"},
       {"name": "after", "tone": "attention", "draw": "line", "y": "after.*", "hint": "{#0|place}\nRMS after {after.*}"}]}
  ])json");
  return p;
}

}  // namespace vitrine
