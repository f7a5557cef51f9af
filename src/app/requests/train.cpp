// train: one step of gradient descent on weights of its own. The engine's stay as they are, and others may use it meanwhile.
#include "hooks/listening.h"
#include "model/from_gguf.h"
#include "ops/stopping.h"
#include "requests/shared.h"
#include "train/one_step.h"

namespace vitrine {
namespace {

RequestAnswer trained(const Host& host, Fields& fields) {
  const Engine& engine = host.engine;
  if (engine.opened().adapter != nullptr)
    throw UsageError(
        "a step of training moves all weights of a model, and this one runs with an adapter beside them. Open the "
        "model without it, or a merged copy (vitrine convert)");
  const std::string prompt = fields.text("prompt").value_or(""), target = fields.text("target").value_or("");
  const double rate = fields.number("rate").value_or(0.003);
  const int64_t top = fields.integer("top").value_or(10);
  const OneStepText text = one_step_text(engine, prompt, target);
  require_memory(one_step_bytes(engine.model()), 0, "The weights in f32 and their gradients",
                 "Use a machine with more memory, or a smaller model");
  Learner learner(as_huggingface(open_model(host.name)), one_step_options(host.threads));
  std::optional<Stopping> stopping;
  if (host.gone != nullptr) stopping.emplace(learner.engine().context(), *host.gone);
  return {to_json(engine, prompt, text, take_one_step(learner, text.prompt, text.target, rate, top))};
}

}  // namespace

Request train_request() {
  using namespace type;
  return {"train",
          "As `vitrine train --one-step --json`.",
          {{"prompt", text, "A text."},
           {"target", text, "What should follow the prompt."},
           {"rate", number, "The learning rate. Default: 0.003.", Use::honored, 0, 1e6},
           top_field("Number of most likely tokens. Default: 10.", 1e6)},
          trained};
}

}  // namespace vitrine
