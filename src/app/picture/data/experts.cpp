// Pictures of routing: which token went to which expert, and how evenly the experts are used.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

// Choices, weights and probabilities of a page, two bytes each: about so many bytes of each kind. Earlier tokens are left out.
constexpr size_t kMostBytes = size_t{3} << 20;

std::optional<PictureJson> without_experts(const Studio& studio) {
  if (studio.facts.experts) return {};
  return absent("This model has no experts: in each layer every token goes through the same MLP.");
}

std::vector<int64_t> layers_with_experts(const Observation& seen) {
  std::vector<int64_t> layers;
  for (size_t l = 0; l < seen.experts.size(); ++l)
    if (!seen.experts[l].chosen.empty()) layers.push_back(static_cast<int64_t>(l));
  return layers;
}

// " Layers without experts: 0, 3." or nothing.
std::string dense_layers(const Studio& studio, const std::vector<int64_t>& layers) {
  std::string others;
  for (int64_t l = 0; l < studio.facts.shape.n_layers; ++l)
    if (std::find(layers.begin(), layers.end(), l) == layers.end()) others += (others.empty() ? "" : ", ") + std::to_string(l);
  return others.empty() ? "" : " Layers without experts: " + others + ".";
}

// The layer that is asked for is one of the model's.
void check_layer(const Studio& studio, const std::vector<int64_t>& layers) {
  const std::optional<int64_t>& layer = studio.options.layer;
  if (layer && std::find(layers.begin(), layers.end(), *layer) == layers.end())
    throw InputError(fmt::format("layer {} has no experts.{}", *layer, dense_layers(studio, layers)));
}

// Numbers from 0 on of the tokens from `first` on, in 16 bits.
PictureJson shares(const std::vector<float>& values, int64_t first, int64_t tokens, int64_t each) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first * each);
  const float most = std::max(1.0f, begin == values.end() ? 0 : *std::max_element(begin, values.end()));  // weights may be scaled
  std::vector<uint16_t> stored;
  for (auto value = begin; value != values.end(); ++value)
    stored.push_back(static_cast<uint16_t>(std::lround(std::max(*value / most, 0.0f) * 65535.0f)));
  return packed(std::span<const uint16_t>(stored), {tokens - first, each}, static_cast<double>(most) / 65535, false);
}

// Of the layer that is asked for: the weights of the experts that each of the last tokens has chosen (null: not chosen), and the
// router's shares of the same experts.
PictureJson one_layer_of(const Studio& studio, int64_t first) {
  const ExpertSpec& spec = *studio.facts.experts;
  const LayerExperts& kept = studio.seen.experts[static_cast<size_t>(*studio.options.layer)];
  const auto tokens = static_cast<size_t>(studio.seen.tokens - first);
  const size_t shown = std::min(tokens, size_t{kept.probabilities.empty() ? 24u : 12u}),
               begin = static_cast<size_t>(studio.seen.tokens) - shown;
  const auto count = static_cast<size_t>(spec.count), per_row = static_cast<size_t>(spec.per_row);
  std::set<size_t> experts(kept.chosen.begin() + static_cast<std::ptrdiff_t>(begin * per_row), kept.chosen.end());
  PictureJson one = {{"layer", *studio.options.layer}, {"experts", experts}, {"beside", tokens - shown}};
  one["others"] = experts.size() < count ? fmt::format("; {} of {} experts", experts.size(), count) : "";
  one["positions"] = one["weights"] = PictureJson::array();
  one["probabilities"] = kept.probabilities.empty() ? PictureJson(nullptr) : PictureJson::array();
  float most = 0;
  for (size_t t = begin; t < begin + shown; ++t) {
    std::vector<float> weights, probabilities;
    for (const size_t e : experts) {
      weights.push_back(std::nanf(""));
      for (size_t i = t * per_row; i < (t + 1) * per_row; ++i)
        if (kept.chosen[i] == e) most = std::max(most, weights.back() = kept.weights[i]);
      if (!kept.probabilities.empty()) probabilities.push_back(kept.probabilities[t * count + e]);
    }
    one["positions"].push_back(t);
    one["weights"].push_back(numbers(weights));
    if (!kept.probabilities.empty()) one["probabilities"].push_back(numbers(probabilities));
  }
  one["most"] = number(static_cast<double>(most));
  return one;
}

// What the router's scores become, and which experts run.
std::string how_chosen(const ExpertSpec& spec) {
  if (!spec.sigmoid)
    return fmt::format("their softmax says how probable each expert is. The {} run",
                       spec.per_row == 1 ? "most likely one is" : fmt::format("{} most likely", spec.per_row));
  const char* const by = spec.correction != nullptr ? ", by these numbers and a learned correction of each expert," : "";
  return fmt::format("the sigmoid of each is a number between 0 and 1, whatever the others are. The {}",
                     spec.per_row == 1 ? fmt::format("best one{} is run", by) : fmt::format("{} best{} run", spec.per_row, by));
}

// What each expert has of all that the router gives.
const char* share_name(const ExpertSpec& spec) { return spec.sigmoid ? "share of the sigmoids" : "probability"; }

std::string how_weighed(const ExpertSpec& spec) {
  if (spec.near) return "A weight is the share of a chosen expert among those whose scores are near to it.";
  if (spec.weighs_inputs) return "A weight is the sigmoid of a chosen expert's score, and multiplies what the expert reads.";
  const std::string times = spec.scale != 1 ? fmt::format(", times {:g}", spec.scale) : "";
  const std::string one = spec.sigmoid ? "sigmoid" : "probability", several = spec.sigmoid ? "sigmoids" : "probabilities";
  return spec.softmax_over_all && !spec.renormalize
             ? fmt::format("A weight is the {} of a chosen expert{}.", one, times)
             : fmt::format("The weights are the {} of the chosen experts, divided by their sum{}.", several, times);
}

}  // namespace

PictureJson data_of_experts(Studio& studio) {
  if (const auto none = without_experts(studio)) return *none;
  const ExpertSpec& spec = *studio.facts.experts;
  const Observation& seen = studio.seen;
  const std::vector<int64_t> layers = layers_with_experts(seen);
  check_layer(studio, layers);
  const int64_t each = static_cast<int64_t>(layers.size()) * spec.per_row * static_cast<int64_t>(sizeof(uint16_t));
  const int64_t shown = std::min(seen.tokens, std::max<int64_t>(1, static_cast<int64_t>(kMostBytes) / each));
  const int64_t first = seen.tokens - shown;
  struct Heaviest {
    float weight = -1;
    int64_t layer = 0, token = 0, expert = 0;
  } heaviest;
  PictureJson list = PictureJson::array();
  for (const int64_t l : layers) {
    const LayerExperts& kept = seen.experts[static_cast<size_t>(l)];
    for (size_t i = static_cast<size_t>(first * spec.per_row); i < kept.weights.size(); ++i)
      if (kept.weights[i] > heaviest.weight)
        heaviest = {kept.weights[i], l, static_cast<int64_t>(i) / spec.per_row, kept.chosen[i]};
    const bool probable = !kept.probabilities.empty() && layers.size() * kept.probabilities.size() * 2 <= kMostBytes;
    const std::span<const uint16_t> chosen = std::span(kept.chosen).subspan(static_cast<size_t>(first * spec.per_row));
    list.push_back(
        {{"layer", l},
         {"chosen", packed(chosen, {shown, spec.per_row}, 1, false)},
         {"weights", shares(kept.weights, first, seen.tokens, spec.per_row)},
         {"probabilities", probable ? shares(kept.probabilities, first, seen.tokens, spec.count) : PictureJson(nullptr)}});
  }
  PictureJson p = present(
      fmt::format("In each layer the router gives every token's vector {} scores, one for each expert; {}, and their "
                  "results are added by weight. {} The stronger the color, the more weight; an expert that was not chosen has 0 "
                  "and does not run.{}",
                  spec.count, how_chosen(spec), how_weighed(spec),
                  first > 0 ? fmt::format(" Of the last {} tokens.", shown) : ""),
      fmt::format("{} with {} each; every token goes through {} of them. The heaviest choice is expert {} for token {} at "
                  "position {} in layer {}, with weight {:.3f}.{}",
                  plural(layers.size(), "layer"), plural(spec.count, "expert"), spec.per_row, heaviest.expert,
                  studio.piece(studio.prompt.ids[static_cast<size_t>(heaviest.token)]), heaviest.token, heaviest.layer,
                  static_cast<double>(heaviest.weight), dense_layers(studio, layers)));
  p["count"] = spec.count;
  p["perToken"] = spec.per_row;
  p["share"] = share_name(spec);
  p["first"] = first;
  p["positions"] = PictureJson::array();
  for (int64_t position = first; position < seen.tokens; ++position) p["positions"].push_back(position);
  p["layers"] = std::move(list);
  constexpr size_t kMostLayers = 8;
  constexpr int64_t kMostNamed = 3;
  p["every"] = p["one"] = nullptr;
  if (studio.options.layer) {
    p["one"] = one_layer_of(studio, first);
  } else {
    p["every"] =
        fmt::format("{} of each token, the heaviest first{}",
                    spec.per_row > kMostNamed ? fmt::format("{} of the {} experts", kMostNamed, spec.per_row) : "experts",
                    layers.size() > kMostLayers ? fmt::format(", in {} of {} layers", kMostLayers, layers.size()) : "");
  }
  p["tables"] = PictureJson::parse(R"json([
    {"if": "every", "note": "{every}; --layer shows the weights of one", "keep": "last", "columns": [["at", "positions.*"], ["token", "positions.*", "at"],
       ["layer {layers.0.layer}", "layers.0.chosen.*", "first 3"], ["layer {layers.1.layer}", "layers.1.chosen.*", "first 3"],
       ["layer {layers.2.layer}", "layers.2.chosen.*", "first 3"], ["layer {layers.3.layer}", "layers.3.chosen.*", "first 3"], ["layer {layers.4.layer}", "layers.4.chosen.*", "first 3"],
       ["layer {layers.5.layer}", "layers.5.chosen.*", "first 3"], ["layer {layers.6.layer}", "layers.6.chosen.*", "first 3"], ["layer {layers.7.layer}", "layers.7.chosen.*", "first 3"]]},
    {"note": "layer {one.layer}: weights of the chosen experts{one.others}", "beside": "one.beside",
     "grid": {"corner": "token", "rows": "{one.positions.#0|at}", "columns": "{one.experts.#1}", "values": "one.weights.*.*", "reach": "one.most", "blank": true}},
    {"note": "layer {one.layer}: {share} of each expert{one.others}", "beside": "one.beside",
     "grid": {"corner": "token", "rows": "{one.positions.#0|at}", "columns": "{one.experts.#1}", "values": "one.probabilities.*.*", "reach": "one.most"}},
    {"note": "What all experts have is in the JSON ({share}).", "detail": true, "columns": [["layer", "layers.#0.layer"], ["position", "positions.#1"],
       ["token", "positions.#1", "at"], ["choice", "#2", "ordinal"], ["expert", "layers.*.chosen.*.*"], ["weight", "layers.*.weights.*.*"]]}
  ])json");
  return p;
}

PictureJson data_of_expert_load(Studio& studio) {
  if (const auto none = without_experts(studio)) return *none;
  const ExpertSpec& spec = *studio.facts.experts;
  const Observation& seen = studio.seen;
  const std::vector<int64_t> layers = layers_with_experts(seen);
  check_layer(studio, layers);
  const auto tokens = static_cast<double>(seen.tokens), count = static_cast<double>(spec.count);
  struct Busiest {
    double share = -1;
    int64_t layer = 0, expert = 0;
  } busiest;
  int64_t idle = 0;
  PictureJson list = PictureJson::array();
  for (const int64_t l : layers) {
    const LayerExperts& kept = seen.experts[static_cast<size_t>(l)];
    std::vector<double> share, probability;
    double balance = 0;
    for (size_t e = 0; e < kept.choices.size(); ++e) {
      share.push_back(kept.choices[e] / (tokens * static_cast<double>(spec.per_row)));
      probability.push_back(kept.probability[e] / tokens);
      balance += count * kept.choices[e] / tokens * probability.back();
      if (share.back() > busiest.share) busiest = {share.back(), l, static_cast<int64_t>(e)};
      idle += kept.choices[e] > 0 ? 0 : 1;
    }
    const auto [least, most] = std::minmax_element(share.begin(), share.end());
    list.push_back({{"layer", l},
                    {"share", numbers(share)},
                    {"probability", numbers(probability)},
                    {"busiest", most - share.begin()},
                    {"most", number(*most)},
                    {"least", number(*least)},
                    {"idle", std::count(share.begin(), share.end(), 0.0)},
                    {"balance", number(balance)}});
  }
  PictureJson p = present(
      fmt::format("How much of a layer's work each of its {} experts does in this prompt: its share of the tokens' choices, and "
                  "the mean of its {}. Were the load even, each would have 1/{} = {:.2f} %. The balance is {} · Σ (share "
                  "of the tokens that choose an expert) · (its mean {}), which training keeps low: {} when the load is "
                  "even.",
                  spec.count, share_name(spec), spec.count, 100 / count, spec.count, share_name(spec), spec.per_row),
      fmt::format("The busiest is expert {} of layer {}: {:.2f} % of that layer's choices. Of {} experts in {}, {} got no token "
                  "of this prompt.{}",
                  busiest.expert, busiest.layer, 100 * busiest.share, static_cast<int64_t>(layers.size()) * spec.count,
                  plural(layers.size(), "layer"), idle, dense_layers(studio, layers)));
  p["count"] = spec.count;
  p["perToken"] = spec.per_row;
  p["share"] = share_name(spec);
  p["ideal"] = number(1 / count);
  p["wide"] = spec.count > 12;
  p["layers"] = std::move(list);

  p["every"] = studio.options.layer ? PictureJson(nullptr) : PictureJson(true);
  p["one"] = nullptr;
  p["chosen"] = studio.options.layer ? std::find(layers.begin(), layers.end(), *studio.options.layer) - layers.begin() : 0;
  if (studio.options.layer) p["one"] = p["layers"][p["chosen"].get<size_t>()];
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "grid", "if": "every", "title": "Share of each layer's choices", "label": "Share of the choices, by layer and expert.", "values": "layers.*.share.*",
     "rows": "layer {layers.#0.layer}", "columns": "{#1}", "columnTitle": "expert", "scale": "sequential", "cell": 46, "tall": 20, "write": "%",
     "hint": "layer {layers.#0.layer}, expert {#1}\n{layers.*.share.*|%} of the choices, an even load is {ideal|%}\nmean {share} {layers.*.probability.*|%}",
     "key": {"label": "share of the choices", "as": "%"}},
    {"choose": "Layer", "each": "layers.*", "at": "chosen", "name": "{layers.#0.layer}", "charts": [
      {"kind": "xy", "title": "layer {layers.#0.layer}: every expert", "label": "Load of the experts of layer {layers.#0.layer}.", "height": 230,
       "x": {"label": "expert", "whole": true, "pad": 0.5}, "y": {"label": "share", "zero": true, "as": "%"},
       "series": [
         {"name": "of the choices", "tone": "attention", "draw": "dots", "y": "layers.#0.share.*",
          "hint": "layer {layers.#0.layer}, expert {#1}\n{layers.#0.share.*|%} of the choices\nmean {share} {layers.#0.probability.*|%}"},
         {"name": "{share}", "tone": "mlp", "draw": "dots", "y": "layers.#0.probability.*",
          "hint": "layer {layers.#0.layer}, expert {#1}\n{layers.#0.share.*|%} of the choices\nmean {share} {layers.#0.probability.*|%}"}],
       "rules": [{"y": "ideal", "label": "even"}]},
      {"kind": "remark", "text": "An even load is {ideal|%} for each expert. Without a token: {layers.#0.idle}. Balance {layers.#0.balance}, with an even load {perToken}."}]}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"if": "every", "note": "an even load is {ideal|%} for each of {count} experts", "keep": "spread",
     "columns": [["layer", "layers.*.layer"], ["busiest expert", "layers.*.busiest"], ["of the choices", "layers.*.most", "%"], ["least", "layers.*.least", "%"],
       ["no token", "layers.*.idle"], ["balance", "layers.*.balance", ".3f"]]},
    {"note": "layer {one.layer}; an even load is {ideal|%}", "columns": [["expert", "#0"], ["of the choices", "one.share.*", "%"], ["mean {share}", "one.probability.*", "%"]]},
    {"detail": true, "columns": [["layer", "layers.#0.layer"], ["expert", "#1"], ["of the choices", "layers.*.share.*"], ["mean {share}", "layers.*.probability.*"]]}
  ])json");
  return p;
}

}  // namespace vitrine
