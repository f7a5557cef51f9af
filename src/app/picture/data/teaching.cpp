// What a student is trained towards: the word of the text or a teacher's distribution; and runs of ours that were logged.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "picture/data/shipped_text.h"
#include "picture/data/studio.h"

namespace vitrine {

PictureJson data_of_targets(Studio& studio) {
  const Observation& seen = studio.seen;
  if (studio.tokens() < 2) return absent("The prompt has one token: nothing of it follows another.");
  const auto at = static_cast<size_t>(studio.tokens() - 2);
  const int32_t really = studio.prompt.ids.back();
  PictureJson p = present(
      "Two targets for the last token of this prompt, given those before it. The text has one word with probability 1 and no "
      "other. This "
      "model, taken as a teacher, gives every word a probability; the most likely are shown, and the one that came.",
      "");
  p["position"] = at;
  p["really"] = studio.mention(really);
  p["rows"] = PictureJson::array();
  bool among = false;
  double shown = 0;
  const auto add = [&](int32_t id, double probability) {
    p["rows"].push_back({{"id", studio.mention(id)}, {"text", id == really ? 1 : 0}, {"teacher", number(probability)}});
    among = among || id == really;
    shown += probability;
  };
  for (const TokenLogprob& next : seen.next[at]) add(next.token, next.prob());
  const double of_text = std::exp(seen.next_logprob[at]);
  if (!among) add(really, of_text);
  p["others"] = number(std::max(0.0, 1 - shown));
  p["alt"] = fmt::format(
      "The word that came is {}: 1 in the text, {:.3g} for this model as a teacher. All words that are not shown have {:.3g} "
      "together.",
      studio.piece(really), of_text, std::max(0.0, 1 - shown));
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "pairs", "label": "Probability of each word: of the text, and of the teacher.", "name": "{rows.*.id|token}",
     "axis": {"label": "probability", "domain": [0, 1]},
     "from": {"name": "text", "value": "rows.*.text", "hint": "{rows.*.id|token}\nin the text {rows.*.text}"},
     "to": {"name": "teacher", "value": "rows.*.teacher", "hint": "{rows.*.id|token}\nteacher {rows.*.teacher|%}"}},
    {"kind": "remark", "text": "After position {position}. All other words together: {others|%} for the teacher, 0 in the text."}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["word", "rows.*.id", "token"], ["text", "rows.*.text"], ["teacher", "rows.*.teacher", "%"]]}
  ])json");
  return p;
}

namespace {

// A log that is compiled in; null if this build has none.
PictureJson training_log(const char* file) {
  const std::string_view text = shipped_text(std::string("models/training/") + file);
  return text.empty() ? PictureJson() : PictureJson::parse(text);
}

}  // namespace

PictureJson data_of_distillation(Studio&) {
  const PictureJson log = training_log("student/curve.json");
  if (log.is_null()) return absent("This build has no log of the student's training.");
  PictureJson p = present(
      fmt::format(
          "A student of {} million parameters, trained twice on the same tokens in the same order, from the same first weights: "
          "from "
          "the text alone, and from the predictions of a teacher of {} million, with a tenth of the loss still from the text. "
          "Loss on tales that neither run saw, in nats a "
          "token of the text.",
          log.at("studentMillions").dump(), log.at("teacherMillions").dump()),
      "");
  for (const char* key : {"tokens", "text", "teacher", "recipe"}) p[key] = log.at(key);
  p["alt"] = fmt::format("After {} tokens: {} from the text alone, {} from the teacher.", p.at("tokens").back().dump(),
                         p.at("text").back().dump(), p.at("teacher").back().dump());
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Validation loss of both students by tokens.", "height": 280,
     "x": {"label": "tokens of training"}, "y": {"label": "loss on held-out tales, nats a token"},
     "series": [
       {"name": "from the text", "tone": "mlp", "draw": "both", "x": "tokens.1::1", "y": "text.1::1", "hint": "{tokens.1::1|count} tokens\nfrom the text alone: {text.1::1}"},
       {"name": "from a teacher", "tone": "attention", "draw": "both", "x": "tokens.1::1", "y": "teacher.1::1", "hint": "{tokens.1::1|count} tokens\nfrom the teacher: {teacher.1::1}"}]},
    {"kind": "remark", "text": "Made by `{recipe}`."}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["tokens", "tokens.*", "count"], ["from the text", "text.*", ".4f"], ["from the teacher", "teacher.*", ".4f"]]}
  ])json");
  return p;
}

PictureJson data_of_beyond_training(Studio&) {
  const PictureJson log = training_log("length/length.json");
  if (log.is_null()) return absent("This build has no measurement of texts longer than those of training.");
  PictureJson p = present(fmt::format("The model that comes with this book read texts of {} tokens in training. Here it reads "
                                      "whole tales from the beginning, and "
                                      "for comparison the same tales with never more than {} tokens in front. Mean loss of the "
                                      "tokens by their place in the tale.",
                                      log.at("trained").dump(), log.at("within").dump()),
                          "");
  for (const char* key : {"places", "whole", "short", "counts", "recipe"}) p[key] = log.at(key);
  p["trained"] = log.at("trained");
  const auto at = [&](const char* key, size_t i) { return p.at(key)[i].get<double>(); };
  const size_t last = p.at("places").size() - 1;
  p["alt"] = fmt::format(
      "Around token {}: {:.3f} with the whole tale, {:.3f} with the last tokens only. Around token {}: {:.3f} and {:.3f}.",
      p.at("places")[0].dump(), at("whole", 0), at("short", 0), p.at("places")[last].dump(), at("whole", last),
      at("short", last));
  p["prose"] = {{"trained", log.at("trained")},
                {"within", log.at("within")},
                {"last", p.at("places")[last]},
                {"whole", p.at("whole")[last]},
                {"short", p.at("short")[last]}};
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Loss by place in the tale.", "height": 280,
     "x": {"label": "place in the tale, tokens"}, "y": {"label": "loss, nats a token"},
     "series": [
       {"name": "whole tale", "tone": "attention", "draw": "both", "x": "places.*", "y": "whole.*", "hint": "around token {places.*}\nwhole tale in front: {whole.*}"},
       {"name": "last tokens", "tone": "mlp", "draw": "both", "dashed": true, "x": "places.*", "y": "short.*", "hint": "around token {places.*}\nlast tokens only: {short.*}"}]},
    {"kind": "remark", "text": "Made by `{recipe}`."}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["around token", "places.*"], ["tokens scored", "counts.*", "count"], ["whole tale", "whole.*", ".4f"], ["last tokens only", "short.*", ".4f"]]}
  ])json");
  return p;
}

}  // namespace vitrine
