// Pictures of routing: which token went to which expert, and how evenly the experts are used.
#include <algorithm>
#include <cmath>

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

// Numbers in [0, 1] of the tokens from `first` on, in 16 bits.
PictureJson shares(const std::vector<float>& values, int64_t first, int64_t tokens, int64_t each) {
  std::vector<uint16_t> stored;
  for (auto i = static_cast<size_t>(first * each); i < values.size(); ++i)
    stored.push_back(static_cast<uint16_t>(std::lround(std::clamp(values[i], 0.0f, 1.0f) * 65535.0f)));
  return packed(std::span<const uint16_t>(stored), {tokens - first, each}, 1.0 / 65535, false);
}

std::string how_weighed(const ExpertSpec& spec) {
  return spec.softmax_over_all && !spec.renormalize ? "A weight is the probability of a chosen expert."
                                                    : "The weights are the probabilities of the chosen experts, divided by "
                                                      "their sum.";
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
      fmt::format("In each layer the router gives every token's vector {} scores, one for each expert; their softmax says how "
                  "probable each expert is. The {} run, and their results are added by weight. {} The stronger the color, the "
                  "more weight; an expert that was not chosen has 0 and does not run.{}",
                  spec.count, spec.per_row == 1 ? "most likely one is" : fmt::format("{} most likely", spec.per_row),
                  how_weighed(spec), first > 0 ? fmt::format(" Of the last {} tokens.", shown) : ""),
      fmt::format("{} with {} each; every token goes through {} of them. The heaviest choice is expert {} for token {} at "
                  "position {} in layer {}, with weight {:.3f}.{}",
                  plural(layers.size(), "layer"), plural(spec.count, "expert"), spec.per_row, heaviest.expert,
                  studio.piece(studio.prompt.ids[static_cast<size_t>(heaviest.token)]), heaviest.token, heaviest.layer,
                  static_cast<double>(heaviest.weight), dense_layers(studio, layers)));
  p["count"] = spec.count;
  p["perToken"] = spec.per_row;
  p["first"] = first;
  p["layers"] = std::move(list);
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
    list.push_back({{"layer", l},
                    {"share", numbers(share)},
                    {"probability", numbers(probability)},
                    {"idle", std::count(share.begin(), share.end(), 0.0)},
                    {"balance", number(balance)}});
  }
  PictureJson p = present(
      fmt::format(
          "How much of a layer's work each of its {} experts does in this prompt: its share of the tokens' choices, and "
          "the mean of its probability. Were the load even, each would have 1/{} = {:.2f} %. The balance is {} · Σ (share "
          "of the tokens that choose an expert) · (its mean probability), which training keeps low: {} when the load is "
          "even.",
          spec.count, spec.count, 100 / count, spec.count, spec.per_row),
      fmt::format("The busiest is expert {} of layer {}: {:.2f} % of that layer's choices. Of {} experts in {}, {} got no token "
                  "of this prompt.{}",
                  busiest.expert, busiest.layer, 100 * busiest.share, static_cast<int64_t>(layers.size()) * spec.count,
                  plural(layers.size(), "layer"), idle, dense_layers(studio, layers)));
  p["count"] = spec.count;
  p["perToken"] = spec.per_row;
  p["ideal"] = number(1 / count);
  p["layers"] = std::move(list);
  return p;
}

}  // namespace vitrine
