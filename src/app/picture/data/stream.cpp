// Pictures of the residual stream and its norms.
#include <algorithm>
#include <cmath>

#include "picture/data/studio.h"

namespace vitrine {
namespace {

std::string sublayer_name(size_t i) { return fmt::format("{} {}", i / 2, i % 2 == 0 ? "attention" : "mlp"); }

// The norm's factor as it multiplies: Gemma's files hold w and mean 1 + w.
std::vector<double> gain_of(const ModelFacts& facts, const Model& model, const std::string& norm) {
  const Vector* w = facts.parameters.vector(norm + ".w");
  std::vector<double> gain;
  const double offset = facts.rms ? model.layer(0).norm.offset : 0;
  for (int64_t i = 0; w != nullptr && i < w->size; ++i) gain.push_back(offset + w->at<double>(i));
  return gain;
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
      "in which every norm passes its input on unchanged. A trained model was never meant to run so; it shows what the norms "
      "hold back.",
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
  p["attention"] = {{"with", number(scale(0))}, {"without", number(without.attention)}};
  p["mlp"] = {{"with", number(scale(1))}, {"without", number(without.mlp)}};
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
  for (const char* key :
       {"norms", "inMean", "inSigma", "inRms", "outMean", "outSigma", "outRms", "weightMean", "weightMin", "weightMax"})
    p[key] = PictureJson::array();
  std::vector<float> each;
  for (const Observation::Norm& norm : seen.norms) {
    p["norms"].push_back(norm.name);
    p["inMean"].push_back(number(norm.in.mean()));
    p["inSigma"].push_back(number(norm.in.sigma()));
    p["inRms"].push_back(number(norm.in.rms()));
    p["outMean"].push_back(number(norm.out.mean()));
    p["outSigma"].push_back(number(norm.out.sigma()));
    p["outRms"].push_back(number(norm.out.rms()));
    const std::vector<double> gain = gain_of(studio.facts, studio.engine.model(), norm.name);
    double sum = 0;
    for (const double g : gain) sum += g;
    p["weightMean"].push_back(number(sum / static_cast<double>(gain.size())));
    p["weightMin"].push_back(number(*std::min_element(gain.begin(), gain.end())));
    p["weightMax"].push_back(number(*std::max_element(gain.begin(), gain.end())));
    each.insert(each.end(), norm.in_rms.begin(), norm.in_rms.end());
    each.insert(each.end(), norm.out_rms.begin(), norm.out_rms.end());
  }
  p["perToken"] = nullptr;
  if (seen.tokens <= kTokensEach)
    p["perToken"] = packed(std::span<const float>(each), {static_cast<int64_t>(seen.norms.size()), 2, seen.tokens});
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
  return p;
}

}  // namespace vitrine
