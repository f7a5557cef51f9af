// The tuned lens beside the logit lens: predictions on the way, and how far they are from the last.
#include "inspect/tuned_lens.h"

#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "inspect/parts.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

// The lens that was given, or that of the model's own folder; null: there is none.
std::shared_ptr<const TunedLens> lens_at_hand(const Studio& studio) {
  if (studio.options.lens != nullptr) return studio.options.lens;
  const auto path = std::filesystem::path(studio.engine.opened().files.directory) / kTunedLensFile;
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? open_tuned_lens(path.string(), studio.engine) : nullptr;
}

// Of a depth, over all positions.
double mean_kl(const LogitLens& lens, size_t depth) {
  double sum = 0;
  for (size_t r = 0; r < lens.positions.size(); ++r) sum += lens.at(depth, r).kl;
  return sum / static_cast<double>(lens.positions.size());
}

}  // namespace

PictureJson data_of_tuned_lens(Studio& studio) {
  constexpr int64_t kMostPositions = 32;
  std::shared_ptr<const TunedLens> tuned;
  try {
    tuned = lens_at_hand(studio);
  } catch (const InputError& error) {
    return absent(error.what());
  }
  if (tuned == nullptr)
    return absent(
        "No tuned lens of this model is at hand: `vitrine lens train` makes one, and `vitrine picture tuned-lens --lens FILE` "
        "looks through it.");
  const int64_t n = studio.tokens(), shown = std::min(n, kMostPositions);
  std::vector<int64_t> positions(static_cast<size_t>(shown));
  std::iota(positions.begin(), positions.end(), n - shown);
  const auto read = [&](const TunedLens* lens) {
    return logit_lens(studio.engine, studio.prompt.ids, positions, 1, studio.options.memory, nullptr, lens);
  };
  const LogitLens plain = read(nullptr), seen = read(tuned.get());
  PictureJson depths = PictureJson::array();
  size_t closer = 0;
  for (size_t d = 0; d < plain.points.size(); ++d) {
    const auto side = [&](const LogitLens& lens) {
      const TokenLogprob& top = lens.at(d, positions.size() - 1).top[0];
      return PictureJson{{"id", studio.mention(top.token)}, {"prob", number(top.prob())}, {"kl", number(mean_kl(lens, d))}};
    };
    depths.push_back({{"name", d == 0 ? std::string("embedding") : fmt::format("layer {}", d - 1)},
                      {"logit", side(plain)},
                      {"tuned", side(seen)}});
    closer += mean_kl(seen, d) < mean_kl(plain, d) ? 1 : 0;
  }
  const auto first = [&](const char* lens) { return depths[0].at(lens).at("kl").get<double>(); };
  PictureJson p = present(
      fmt::format(
          "How far the prediction at each depth is from the last one, KL in nats, mean over {}. The logit lens applies the "
          "final norm and the output projection to the stream as it is. The tuned lens first applies a matrix and a vector "
          "that were trained for that depth on other texts.",
          plural(shown, "token")),
      fmt::format("At the embedding the distance is {:.2f} nats through the logit lens and {:.2f} through the tuned lens, which "
                  "is closer "
                  "at {} of {} depths.",
                  first("logit"), first("tuned"), closer, plain.points.size() - 1));
  p["positions"] = positions;
  p["depths"] = depths;
  p["prose"] = {{"logit", first("logit")}, {"tuned", first("tuned")}, {"closer", closer}, {"depths", plain.points.size() - 1}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "after {positions.-1|at}; KL: mean over the tokens",
     "columns": [["depth", "depths.*.name"], ["logit lens", "depths.*.logit.id", "token"], ["", "depths.*.logit.prob", "%"], ["KL", "depths.*.logit.kl", ".3f"],
       ["tuned lens", "depths.*.tuned.id", "token"], ["", "depths.*.tuned.prob", "%"], ["KL", "depths.*.tuned.kl", ".3f"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Distance of the prediction at each depth from the last one.", "height": 260,
     "x": {"label": "layers that have written", "whole": true, "pad": 0.5}, "y": {"label": "KL in nats", "zero": true},
     "series": [
       {"name": "logit lens", "tone": "mlp", "draw": "both", "y": "depths.*.logit.kl",
        "hint": "{depths.*.name}, logit lens\nKL {depths.*.logit.kl} nats\nafter the last token: {depths.*.logit.id|token}, {depths.*.logit.prob|%}"},
       {"name": "tuned lens", "tone": "attention", "draw": "both", "y": "depths.*.tuned.kl",
        "hint": "{depths.*.name}, tuned lens\nKL {depths.*.tuned.kl} nats\nafter the last token: {depths.*.tuned.id|token}, {depths.*.tuned.prob|%}"}]}
  ])json");
  return p;
}

}  // namespace vitrine
