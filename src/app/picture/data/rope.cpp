// Pictures of rotary positions.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

#include "ops/step.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

PictureJson no_rotation(const ModelFacts& facts) {
  if (facts.positions == Positions::none)
    return absent(
        "This model has no positions at all: order reaches it through the mask alone, by which a token sees those before it.");
  if (facts.positions == Positions::alibi)
    return absent("This model has no rotary positions: its scores fall with the distance of query and key (ALiBi).");
  return absent(facts.positions == Positions::learned
                    ? "This model has no rotary positions: it adds a learned vector for each position to the embeddings."
                    : "This model has no rotary positions: it adds sines and cosines of the position to the embeddings.");
}

double wavelength(float frequency) { return 2 * std::numbers::pi / static_cast<double>(frequency); }

}  // namespace

PictureJson data_of_rope_rotation(Studio& studio) {
  if (!studio.facts.rope) return no_rotation(studio.facts);
  const std::vector<float> frequencies = rope_frequencies(*studio.facts.rope);
  const auto pairs = static_cast<int64_t>(frequencies.size());
  constexpr int kPositions = 5;
  // The same share of the way as component 20 of 128.
  const int64_t later =
      std::min<int64_t>(pairs - 1, std::max<int64_t>(pairs > 1 ? 1 : 0, std::lround(20.0 / 128.0 * static_cast<double>(pairs))));
  PictureJson p = present(
      "The vector (1, 0) as positions 0 to 4 turn it, at the fastest frequency and at a slower one. The dot product of two of "
      "them "
      "depends only on how far apart they are.",
      fmt::format("Five vectors from one point, each turned on by {}; beside them five turned by {:.3g}.",
                  plural(fmt::format("{:.3g}", frequencies[0]), "radian"), frequencies[static_cast<size_t>(later)]));
  p["components"] = PictureJson::array();
  std::vector<std::array<double, 2>> first;
  for (const int64_t component : {int64_t{0}, later}) {
    const auto frequency = static_cast<double>(frequencies[static_cast<size_t>(component)]);
    PictureJson points = PictureJson::array();
    for (int t = 0; t < kPositions; ++t) {
      const double x = std::cos(t * frequency), y = std::sin(t * frequency);
      points.push_back({number(x), number(y)});
      if (component == 0) first.push_back({x, y});
    }
    p["components"].push_back({{"component", component},
                               {"of", pairs},
                               {"frequency", number(frequency)},
                               {"wavelength", number(2 * std::numbers::pi / frequency)},
                               {"points", points}});
    if (later == 0) break;
  }
  std::vector<std::vector<double>> dot;
  for (const auto& a : first) {
    std::vector<double>& row = dot.emplace_back();
    for (const auto& b : first) row.push_back(a[0] * b[0] + a[1] * b[1]);
  }
  p["dot"] = table(dot);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "the vector (1, 0), turned", "columns": [["pair", "components.#0.component"], ["position", "#1"],
       ["x[0]", "components.*.points.*.0", ".4f"], ["x[1]", "components.*.points.*.1", ".4f"]]}
  ])json");
  return p;
}

PictureJson data_of_rope_wavelengths(Studio& studio) {
  const ModelFacts& facts = studio.facts;
  if (!facts.rope) return no_rotation(facts);
  const std::vector<float> frequencies = rope_frequencies(*facts.rope);
  std::vector<double> wavelengths;
  for (const float f : frequencies) wavelengths.push_back(wavelength(f));
  const int64_t context = facts.shape.context_length;
  const auto beyond =
      std::find_if(wavelengths.begin(), wavelengths.end(), [&](double w) { return w > static_cast<double>(context); });
  const bool some = beyond != wavelengths.end();
  PictureJson p = present(
      "Wavelength of each pair of components: after how many positions it has turned once round. Short ones tell neighbors "
      "apart. Those beyond the context never turn once round; the longest hardly turn, so their part of the score ignores "
      "position.",
      fmt::format("{}, from {:.3g} to {:.6g} positions on a log axis; {} the context of {}.", plural(wavelengths.size(), "pair"),
                  wavelengths.front(), wavelengths.back(),
                  some ? fmt::format("from pair {} on they exceed", beyond - wavelengths.begin()) : "none exceeds", context));
  static constexpr const char* kScalings[] = {"none", "linear", "llama3", "yarn", "longrope"};
  p["theta"] = number(facts.rope->theta);
  p["scaling"] = kScalings[static_cast<size_t>(facts.rope->scaling)];
  p["layout"] = facts.rope->layout == RopeLayout::halves ? "halves" : "pairs";
  p["frequencies"] = numbers(frequencies);
  p["wavelengths"] = numbers(wavelengths);
  p["contextLength"] = context;
  p["firstBeyondContext"] = some ? PictureJson(beyond - wavelengths.begin()) : PictureJson(nullptr);

  p["rules"] = PictureJson::array();
  const auto rule = [&](const char* what, int64_t tokens) {
    p["rules"].push_back({{"y", tokens}, {"label", fmt::format("{}: {}", what, plural(tokens, "token"))}});
  };
  if (context > 0) rule("context", context);
  for (const int64_t window : std::set<int64_t>(facts.windows.begin(), facts.windows.end()))
    if (window != kNoWindow) rule("window", window);
  p["stretched"] = p["scaling"] == "none" ? "" : ", stretched: " + p["scaling"].get<std::string>();
  p["turns"] = some ? fmt::format("From pair {} on, a turn takes longer than the whole context.", beyond - wavelengths.begin())
                    : std::string("No pair turns more slowly than once in the context.");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Wavelength of each rotating pair of components.",
     "x": {"label": "pair of components", "whole": true}, "y": {"label": "wavelength, tokens, log", "log": true},
     "series": [{"name": "wavelength", "named": false, "tone": "attention", "draw": "both", "y": "wavelengths.*",
                 "hint": "pair {#0}\nwavelength {wavelengths.*} tokens\nfrequency {frequencies.*}"}],
     "rules": "rules"},
    {"kind": "remark", "text": "θ = {theta|count}{stretched}. {turns}"}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "{turns}", "keep": "spread", "columns": [["pair", "#0"], ["radians/position", "frequencies.*"], ["wavelength", "wavelengths.*"]]}
  ])json");
  return p;
}

PictureJson data_of_query_length(Studio& studio) {
  const ModelFacts& facts = studio.facts;
  if (!facts.rope) return no_rotation(facts);
  const Observation& seen = studio.seen;
  std::vector<double> wavelengths;
  for (const float f : rope_frequencies(*facts.rope)) wavelengths.push_back(wavelength(f));
  PictureJson p = present(
      fmt::format("Length of the query vectors in each turning pair, by head, mean over {}. Heads that are strong at short "
                  "wavelengths look at places, heads that are strong at long ones at content. Short prompts are noisy.",
                  plural(seen.tokens, "token")),
      "");
  const auto pairs = static_cast<int64_t>(wavelengths.size());
  p["wavelengths"] = numbers(wavelengths);
  p["layers"] = PictureJson::array();
  size_t strongest_layer = 0, strongest = 0;
  for (size_t l = 0; l < seen.query_length.size(); ++l) {
    std::vector<float> mean;
    for (size_t i = 0; i < seen.query_length[l].size(); ++i) {
      mean.push_back(static_cast<float>(seen.query_length[l][i] / static_cast<double>(seen.tokens)));
      if (seen.query_length[l][i] > seen.query_length[strongest_layer][strongest]) strongest_layer = l, strongest = i;
    }
    p["layers"].push_back(packed(std::span<const float>(mean), {facts.shape.n_heads, pairs}));
  }
  int64_t later = facts.shape.n_layers * 5 / 6;
  while (later > 0 && !facts.attends(later)) --later;
  p["shown"] = PictureJson::array({studio.options.layer.value_or(facts.attention_layer)});
  if (!studio.options.layer && later > 0) p["shown"].push_back(later);
  p["nTokens"] = seen.tokens;
  p["alt"] = fmt::format("The longest is in layer {}, head {}, at wavelength {:.3g}: {:.3g}.", strongest_layer,
                         strongest / static_cast<size_t>(pairs), wavelengths[strongest % static_cast<size_t>(pairs)],
                         seen.query_length[strongest_layer][strongest] / static_cast<double>(seen.tokens));
  p["longest"] = PictureJson::array();
  for (const PictureJson& layer : p["shown"]) {
    const std::vector<double>& values = seen.query_length[layer.get<size_t>()];
    for (size_t h = 0; h < values.size() / wavelengths.size(); ++h) {
      const std::span<const double> head = std::span(values).subspan(h * wavelengths.size(), wavelengths.size());
      const size_t pair = static_cast<size_t>(std::max_element(head.begin(), head.end()) - head.begin());
      const double all = std::sqrt(std::inner_product(head.begin(), head.end(), head.begin(), 0.0)),
                   n = static_cast<double>(seen.tokens);
      p["longest"].push_back({{"layer", layer},
                              {"head", h},
                              {"wavelength", number(wavelengths[pair])},
                              {"length", number(head[pair] / n)},
                              {"all", number(all / n)}});
    }
  }
  p["besideLongest"] = static_cast<size_t>(facts.shape.n_heads) * (p["layers"].size() - p["shown"].size());
  p["ticks"] = PictureJson::array();  // 6, 63, 628, 6283: 2π times powers of ten
  double turn = 2 * std::numbers::pi * 0.999;
  for (size_t pair = 0; pair < wavelengths.size(); ++pair) {
    if (wavelengths[pair] < turn) continue;
    p["ticks"].push_back({{"at", pair}, {"text", fmt::format("{:.0f}", std::floor(wavelengths[pair]))}});
    while (wavelengths[pair] >= turn) turn *= 10;
  }
  p["charts"] = PictureJson::parse(R"json([
    {"choose": "Layer", "each": "layers.*", "at": "shown.0", "name": "layer {#0}", "charts": [
      {"kind": "grid", "title": "Layer {#0}", "label": "Length of the query vectors of layer {#0} by head and wavelength.",
       "values": "layers.#0.*.*", "rows": "head {#1}", "scale": "sequential", "cell": 60, "tall": 20, "ticks": "ticks", "bottomTitle": "wavelength, tokens",
       "hint": "layer {#0}, head {#1}\nwavelength {wavelengths.#2} tokens\nlength {layers.#0.*.*}",
       "key": {"label": "length of q in layer {#0}, mean over the tokens"}}]},
    {"if": "shown.1", "choose": "Second panel", "each": "layers.*", "at": "shown.1", "name": "layer {#0}"},
    {"kind": "remark", "text": "Each layer has a scale of its own: compare heads and wavelengths within it."}
  ])json");
  p["charts"][1]["charts"] = p["charts"][0]["charts"];
  p["tables"] = PictureJson::parse(R"json([
    {"note": "the pair in which each head's queries are longest", "beside": "besideLongest",
     "columns": [["layer", "longest.*.layer"], ["head", "longest.*.head"], ["wavelength", "longest.*.wavelength"], ["length", "longest.*.length"], ["all pairs", "longest.*.all"]]},
    {"detail": true, "columns": [["layer", "#0"], ["head", "#1"], ["wavelength", "wavelengths.#2"], ["length", "layers.*.*.*"]]}
  ])json");
  return p;
}

}  // namespace vitrine
