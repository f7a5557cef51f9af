// attribute: which tokens a prediction depends on, by gradients.
#include "inspect/attribution.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

RequestAnswer attribute_answer(const Host& host, Fields& fields) {
  const std::vector<int32_t> ids = read_prompt(host, fields).ids;
  AttributionOptions options;
  options.token = token_field(fields, "token", host.engine);
  options.against = token_field(fields, "against", host.engine);
  options.steps = fields.integer("steps").value_or(64);
  const std::string baseline = fields.text("baseline").value_or("mean");
  if (baseline != "mean" && baseline != "zero")
    throw invalid("baseline", "\"baseline\" is \"" + baseline + "\"; expected mean or zero");
  options.baseline = baseline == "mean" ? Baseline::mean : Baseline::zero;
  std::optional<AttributionRuns> runs;
  do {
    host.run([&](Engine& engine) {
      if (!runs) runs.emplace(engine, ids, options);
      runs->next();
    });
  } while (!runs->done());
  const Attribution found = std::move(*runs).take();
  RequestAnswer answer{tokens_json(host.engine, ids)};
  answer.json.update(json_of(found, speller_of(host.engine)));
  std::vector<std::string> words{"attribute", "--token", std::to_string(found.token)};
  if (options.against) words.insert(words.end(), {"--against", std::to_string(*options.against)});
  words.insert(words.end(), {"--steps", std::to_string(options.steps), "--baseline", baseline, "--json"});
  answer.add_command(host, words, ids);
  return answer;
}

}  // namespace

Request attribute_request() {
  using namespace type;
  return {
      "attribute", "Which tokens a prediction depends on, by gradients.",
      joined({prompt_fields(),
              {{"token", integer | text,
                "The token whose log-probability is explained: an id, or a text that is one token. Default: the most likely."},
               {"against", integer | text, "Subtract the value of this token."},
               {"steps", integer, "Points of integrated gradients; 0: skip them. Default: 64.", Use::honored, 0, 256},
               {"baseline", text, "mean (the default) or zero: where integrated gradients start."}}}),
      attribute_answer};
}

}  // namespace vitrine
