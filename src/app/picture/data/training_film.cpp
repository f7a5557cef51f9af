// The film of a training run that ships with the book: its log, told checkpoint by checkpoint (models/book/gpt2-tales).
#include "base/error.h"
#include "base/json.h"
#include "picture/data/shipped_text.h"
#include "picture/data/studio.h"

namespace vitrine {

PictureJson data_of_training_film(Studio&) {
  const std::string_view text = shipped_text("models/book/gpt2-tales/story.json");
  if (text.empty()) return absent("This build has no log of a training run.");
  const PictureJson story = PictureJson::parse(text);
  const PictureJson &checkpoints = story.at("checkpoints"), &first = checkpoints.front(), &last = checkpoints.back();
  PictureJson p = present(
      fmt::format(
          "How the small GPT-2 of this chapter learned, from its training log: loss, a continuation of \"{}\" drawn at "
          "temperature 0.8 with the same seed at each checkpoint, one head's attention and the embeddings of some words on "
          "the plane on which the trained ones vary most.",
          story.at("beginning").get<std::string>()),
      fmt::format("From step 0 to step {} the validation loss falls from {:.3f} to {:.3f} nats.", last.at("step").get<int64_t>(),
                  first.at("valLoss").get<double>(), last.at("valLoss").get<double>()));
  for (const auto& [key, value] : story.items()) p[key] = value;
  // What the run began with and what became of it, of the kinds of parameters.
  PictureJson parts = PictureJson::array();
  for (const auto& [name, size] : last.at("parts").items())
    parts.push_back({{"name", name}, {"first", first.at("parts").at(name)[0]}, {"last", size[0]}, {"lastMean", size[1]}});
  p["parts"] = std::move(parts);
  p["prose"] = {{"steps", last.at("step")},
                {"tokens", last.at("tokens")},
                {"first", first.at("valLoss")},
                {"last", last.at("valLoss")},
                {"layer", story.at("watched").at("layer")},
                {"head", story.at("watched").at("head")},
                {"previous", last.at("previous")}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "the run at its checkpoints", "columns": [["step", "checkpoints.*.step"], ["tokens seen", "checkpoints.*.tokens", "count"], ["validation loss", "checkpoints.*.valLoss", ".3f"],
       ["on the token before", "checkpoints.*.previous", ".3f"], ["continuation", "checkpoints.*.sample", "piece"]]},
    {"note": "root mean square of each kind of parameter, over all layers", "detail": true, "columns": [["parameter", "parts.*.name"], ["at random", "parts.*.first", ".4f"],
       ["trained", "parts.*.last", ".4f"], ["mean, trained", "parts.*.lastMean", ".4f"]]},
    {"note": "training loss, means", "detail": true, "columns": [["up to step", "losses.*.0"], ["loss", "losses.*.1"]]},
    {"note": "the first pairs of the vocabulary, with their counts in the corpus", "detail": true, "columns": [["pair", "#0", "ordinal"], ["left", "merges.*.left", "piece"],
       ["right", "merges.*.right", "piece"], ["new piece", "merges.*.piece", "piece"], ["count", "merges.*.count"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Loss of the training run by step.", "x": {"label": "step, log", "log": true}, "y": {"label": "loss in nats"},
     "series": [
       {"name": "training", "tone": "attention", "draw": "line", "x": "losses.*.0", "y": "losses.*.1", "hint": "up to step {losses.*.0}\ntraining loss {losses.*.1}"},
       {"name": "validation", "tone": "mlp", "draw": "both", "x": "checkpoints.1::1.step", "y": "checkpoints.1::1.valLoss",
        "hint": "step {checkpoints.1::1.step}\nvalidation loss {checkpoints.1::1.valLoss}\n{checkpoints.1::1.sample}"}]}
  ])json");
  return p;
}

}  // namespace vitrine
