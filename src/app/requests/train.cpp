// train: steps of gradient descent on weights of its own. The engine's stay as they are, and others may use it meanwhile.
#include "base/error.h"
#include "hooks/listening.h"
#include "model/from_gguf.h"
#include "model/to_gguf.h"
#include "ops/stopping.h"
#include "requests/shared.h"
#include "runtime/model_tokenizer.h"
#include "train/one_step.h"

namespace vitrine {
namespace {

std::shared_ptr<Learner> new_learner(const Host& host) {
  require_memory(one_step_bytes(host.engine.model()), 0, "The weights in f32 and their gradients",
                 "Use a machine with more memory, or a smaller model");
  return std::make_shared<Learner>(as_huggingface(open_model(host.name)), one_step_options(host.threads));
}

// The one that the request before has left, if this one goes on from there.
std::shared_ptr<Learner> learner_of(const Host& host, bool goes_on) {
  if (!goes_on) {
    if (host.learner == nullptr) return new_learner(host);
    host.learner->reset();  // its memory, before another takes as much
    return *host.learner = new_learner(host);
  }
  if (host.learner == nullptr)
    throw invalid("goes_on",
                  "\"goes_on\" needs the engine of a live page, which keeps the weights; ask for all \"steps\" at once");
  if (*host.learner == nullptr) throw invalid("goes_on", "\"goes_on\" has nothing to go on from: no steps were taken yet");
  return *host.learner;
}

RequestAnswer trained(const Host& host, Fields& fields) {
  const Engine& engine = host.engine;
  if (engine.opened().adapter != nullptr)
    throw UsageError(
        "a step of training moves all weights of a model, and this one runs with an adapter beside them. Open the "
        "model without it, or a merged copy (vitrine convert)");
  const std::string prompt = fields.text("prompt").value_or(""), target = fields.text("target").value_or("");
  const double rate = fields.number("rate").value_or(0.003);
  const int64_t steps = fields.integer("steps").value_or(1), top = fields.integer("top").value_or(10);
  const std::vector<int32_t> follow = token_ids(engine, fields.integers("follow"), "follow");
  const bool goes_on = fields.boolean("goes_on", false);
  const std::string format = fields.text("format").value_or("json");
  if (format != "json" && (format != "gguf" || !host.files))
    throw invalid("format", "\"format\" is \"" + format + "\"; expected json" + (host.files ? " or gguf" : ""));
  const OneStepText text = one_step_text(engine, prompt, target);
  const std::shared_ptr<Learner> learner = learner_of(host, goes_on);
  std::optional<Stopping> stopping;
  if (host.gone != nullptr) stopping.emplace(learner->engine().context(), *host.gone);
  RequestAnswer answer{to_json(engine, prompt, text, take_steps(*learner, text.prompt, text.target, rate, steps, top, follow))};
  if (format == "gguf") {
    const OpenedModel& opened = learner->engine().opened();
    const GgufPlan plan = plan_gguf(opened, opened.gguf == nullptr ? vocabulary_keys(opened) : GgufKeys(), gguf_in_f32());
    require_memory(plan.bytes, 0, "A file of the weights in f32", "Use a machine with more memory, or a smaller model");
    answer.file = gguf_bytes(opened, plan);
    answer.file_name = "trained.gguf";
  }
  return answer;
}

}  // namespace

Request train_request() {
  using namespace type;
  return {"train",
          "As `vitrine train --one-step --json`.",
          {{"prompt", text, "A text."},
           {"target", text, "What should follow the prompt."},
           {"rate", number, "The learning rate. Default: 0.003.", Use::honored, 0, 1e6},
           {"steps", integer, "How many steps. Default: 1.", Use::honored, 0, static_cast<double>(kMostSteps)},
           {"follow", integers,
            "Tokens whose log-probabilities after the prompt are noted at each step. Default: the first of the target, and the "
            "most likely before the steps."},
           {"goes_on", boolean,
            "Begin with the weights that the request before has left, in the engine of a live page. Default: false, with those "
            "of the model."},
           {"format", text, "json (the default), or gguf: the answer is a file with the weights behind the steps, in f32."},
           top_field("Number of most likely tokens. Default: 10.", 1e6)},
          trained};
}

}  // namespace vitrine
