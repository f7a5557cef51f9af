// Pictures of what the model expects next, and why.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "inspect/parts.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

const char* kind_of(const StreamPart& part) {
  switch (part.kind) {
    case StreamPart::Kind::embed: return "embedding";
    case StreamPart::Kind::positions: return "position";
    case StreamPart::Kind::head: return "head";
    case StreamPart::Kind::attention_bias: return "attention-bias";
    case StreamPart::Kind::convolution: return "convolution";
    case StreamPart::Kind::mlp: return "mlp";
    case StreamPart::Kind::per_layer: return "per_layer";
    case StreamPart::Kind::norm_bias: return "norm-bias";
  }
  return "";
}

std::string label_of(const StreamPart& part) {
  switch (part.kind) {
    case StreamPart::Kind::embed: return "embedding";
    case StreamPart::Kind::positions: return "position";
    case StreamPart::Kind::head: return fmt::format("layer {} head {}", part.layer, part.head);
    case StreamPart::Kind::attention_bias: return fmt::format("layer {} attention bias", part.layer);
    case StreamPart::Kind::convolution:
      return fmt::format("layer {} {}", part.layer,
                         part.name.ends_with("delta") || part.name.ends_with("ssm") ? "recurrence" : "convolution");
    case StreamPart::Kind::mlp: return fmt::format("layer {} MLP", part.layer);
    case StreamPart::Kind::per_layer: return fmt::format("layer {} per-layer embedding", part.layer);
    case StreamPart::Kind::norm_bias: return fmt::format("layer {} norm bias", part.layer);
  }
  return "";
}

}  // namespace

PictureJson data_of_next_tokens(Studio& studio) {
  const Observation& seen = studio.seen;
  const TokenLogprob& best = seen.next.back().front();
  PictureJson p = present(
      "The ten most likely next tokens after every position. Read the prompt from left to right to a column, then down the "
      "column: "
      "what "
      "could come next. The token that really follows is marked.",
      fmt::format("After the whole prompt the most likely next token is \"{}\" with probability {:.3f}.",
                  studio.piece(best.token), best.prob()));
  p["k"] = seen.next.back().size();
  p["ids"] = p["probs"] = p["actual"] = PictureJson::array();
  for (const auto& top : seen.next) {
    PictureJson ids = PictureJson::array(), probs = PictureJson::array();
    for (const TokenLogprob& t : top) {
      ids.push_back(studio.mention(t.token));
      probs.push_back(number(t.prob()));
    }
    p["ids"].push_back(std::move(ids));
    p["probs"].push_back(std::move(probs));
  }
  for (size_t i = 0; i < seen.next_logprob.size(); ++i)
    p["actual"].push_back(
        {{"id", studio.prompt.ids[i + 1]}, {"prob", number(std::exp(seen.next_logprob[i]))}, {"rank", seen.next_rank[i] + 1}});
  p["actual"].push_back(nullptr);  // after the last token nothing is known to follow
  p["tables"] = PictureJson::parse(R"json([
    {"keep": "last", "columns": [["at", "#0"], ["after", "#0", "at"], ["most likely", "ids.*.0", "token"], ["", "probs.*.0", "%"],
       ["second", "ids.*.1", "token"], ["", "probs.*.1", "%"], ["third", "ids.*.2", "token"], ["", "probs.*.2", "%"],
       ["came", "actual.*.id", "token"], ["", "actual.*.prob", "%"], ["rank", "actual.*.rank"]]},
    {"detail": true, "columns": [["position", "#0"], ["after", "#0", "at"], ["rank", "#1", "ordinal"], ["token", "ids.*.*", "token"], ["id", "ids.*.*"], ["probability", "probs.*.*"]]}
  ])json");
  return p;
}

PictureJson data_of_logit_lens(Studio& studio) {
  constexpr int64_t kMostPositions = 32, kTop = 5;
  const int64_t n = studio.tokens(), shown = std::min(n, kMostPositions);
  std::vector<int64_t> positions(static_cast<size_t>(shown));
  std::iota(positions.begin(), positions.end(), n - shown);
  const LogitLens lens =
      logit_lens(studio.engine, studio.prompt.ids, positions, kTop, studio.options.memory, nullptr, studio.options.lens.get());
  size_t settled = lens.points.size() - 1;  // first depth from which on the last token's prediction stays
  while (settled > 0 && lens.at(settled - 1, positions.size() - 1).rank == 1) --settled;
  PictureJson p =
      present(studio.options.lens == nullptr
                  ? "What the model would predict if the stream ended after each layer: the final norm and the output "
                    "projection, applied "
                    "to the stream at that depth. At the last depth it is the prediction itself."
                  : "What each layer knows of the prediction, through a tuned lens: a matrix and a vector that were trained for "
                    "that depth, "
                    "then the final norm and the output projection. At the last depth it is the prediction itself.",
              settled == 0 ? std::string("After the last token the answer is there from the embedding on.")
                           : fmt::format("After the last token the answer is the most likely from layer {} on.", settled - 1));
  p["positions"] = positions;
  p["depths"] = PictureJson::array({"embedding"});
  for (size_t d = 1; d < lens.points.size(); ++d) p["depths"].push_back(fmt::format("layer {}", d - 1));
  p["k"] = kTop;
  for (const char* key : {"ids", "probs", "kl", "finalProb", "finalRank", "lengths"}) p[key] = PictureJson::array();
  for (size_t r = 0; r < positions.size(); ++r) {
    PictureJson ids = PictureJson::array(), probs = PictureJson::array(), kl = PictureJson::array(),
                final_prob = PictureJson::array(), rank = PictureJson::array(), lengths = PictureJson::array();
    for (size_t d = 0; d < lens.points.size(); ++d) {
      const LensReading& reading = lens.at(d, r);
      PictureJson top_ids = PictureJson::array(), top_probs = PictureJson::array();
      for (const TokenLogprob& t : reading.top) {
        top_ids.push_back(studio.mention(t.token));
        top_probs.push_back(number(t.prob()));
      }
      ids.push_back(std::move(top_ids));
      probs.push_back(std::move(top_probs));
      kl.push_back(number(reading.kl));
      final_prob.push_back(number(std::exp(reading.logprob)));
      rank.push_back(reading.rank);
      lengths.push_back(number(reading.length));
    }
    p["ids"].push_back(std::move(ids));
    p["probs"].push_back(std::move(probs));
    p["kl"].push_back(std::move(kl));
    p["finalProb"].push_back(std::move(final_prob));
    p["finalRank"].push_back(std::move(rank));
    p["lengths"].push_back(std::move(lengths));
  }
  p["besideLast"] = (positions.size() - 1) * lens.points.size();
  p["tables"] = PictureJson::parse(R"json([
    {"note": "after {positions.-1|at}", "keep": "last", "beside": "besideLast",
     "columns": [["depth", "depths.*"], ["most likely", "ids.-1.*.0", "token"], ["", "probs.-1.*.0", "%"], ["second", "ids.-1.*.1", "token"], ["", "probs.-1.*.1", "%"],
       ["third", "ids.-1.*.2", "token"], ["", "probs.-1.*.2", "%"], ["the answer", "finalProb.-1.*", "%"], ["rank", "finalRank.-1.*"], ["KL", "kl.-1.*", ".3f"]]},
    {"detail": true, "columns": [["position", "positions.#0"], ["after", "positions.#0", "at"], ["depth", "depths.#1"], ["most likely", "ids.*.*.0", "token"],
       ["probability", "probs.*.*.0"], ["KL from the final prediction, nats", "kl.*.*"], ["probability of the final token", "finalProb.*.*"], ["its rank", "finalRank.*.*"],
       ["length of the stream", "lengths.*.*"]]}
  ])json");
  return p;
}

PictureJson data_of_logit_attribution(Studio& studio) {
  const int64_t position = studio.options.position.value_or(studio.tokens() - 1);
  constexpr size_t kExplained = 5;
  if (position < 0 || position >= studio.tokens())
    throw InputError(fmt::format("position {} does not exist: the prompt has {}, 0 to {}", position,
                                 plural(studio.tokens(), "token"), studio.tokens() - 1));
  const auto& next = studio.seen.next[static_cast<size_t>(position)];
  std::vector<int32_t> targets;
  for (size_t i = 0; i < std::min(kExplained, next.size()); ++i) targets.push_back(studio.mention(next[i].token));
  const LogitAttribution made =
      attribute_logits(studio.engine, studio.prompt.ids, targets, std::span(&position, 1), studio.options.memory);
  const LogitAttribution::Logit& best = made.logits.front();
  const size_t strongest = static_cast<size_t>(
      std::max_element(best.parts.begin(), best.parts.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }) -
      best.parts.begin());
  PictureJson p = present(
      "A logit as a sum over everything that wrote to the stream, with the final norm's scale as in this run and before the "
      "final "
      "cap, if there is one. What rounding leaves over is stated.",
      fmt::format("The logit {:.3f} of \"{}\": the strongest part, {:+.3f}, is {}.", best.before_cap, studio.piece(best.token),
                  best.parts[strongest], label_of(made.parts[strongest])));
  p["position"] = position;
  p["components"] = PictureJson::array();
  for (const StreamPart& part : made.parts)
    p["components"].push_back({{"kind", kind_of(part)}, {"layer", part.layer}, {"head", part.head}, {"label", label_of(part)}});
  p["wide"] = std::any_of(made.parts.begin(), made.parts.end(), [](const StreamPart& part) { return part.head > 5; });
  const bool norm_bias = !studio.facts.rms && studio.facts.final_norm;
  const bool head_bias = static_cast<bool>(studio.engine.model().head().weight->bias);
  if (norm_bias) p["components"].push_back({{"kind", "norm-bias"}, {"layer", -1}, {"head", -1}, {"label", "final norm bias"}});
  if (head_bias) p["components"].push_back({{"kind", "output-bias"}, {"layer", -1}, {"head", -1}, {"label", "output bias"}});
  p["targets"] = PictureJson::array();
  for (size_t i = 0; i < made.logits.size(); ++i) {
    const LogitAttribution::Logit& logit = made.logits[i];
    std::vector<double> parts = logit.parts;
    if (norm_bias) parts.push_back(logit.norm_bias);
    if (head_bias) parts.push_back(logit.head_bias);
    p["targets"].push_back({{"id", logit.token},
                            {"prob", number(next[i].prob())},
                            {"logit", number(logit.logit)},
                            {"uncapped", number(logit.before_cap)},
                            {"parts", numbers(parts)},
                            {"remainder", number(logit.rounding)}});
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "logits of the most likely tokens as sums; the strongest parts of the first", "most": 20, "largest": "targets.0.parts.*", "rest": "others together",
     "columns": [["part", "components.*.label"], ["{targets.0.id|token}", "targets.0.parts.*", "+.4f"], ["{targets.1.id|token}", "targets.1.parts.*", "+.4f"],
       ["{targets.2.id|token}", "targets.2.parts.*", "+.4f"], ["{targets.3.id|token}", "targets.3.parts.*", "+.4f"], ["{targets.4.id|token}", "targets.4.parts.*", "+.4f"]]},
    {"columns": [["token", "targets.*.id", "token"], ["remainder", "targets.*.remainder", "+.1e"],
       ["logit before the cap", "targets.*.uncapped", ".4f"], ["logit", "targets.*.logit", ".4f"]]}
  ])json");
  if (studio.facts.final_softcap == 0) p["tables"][1]["columns"].erase(2);
  return p;
}

}  // namespace vitrine
