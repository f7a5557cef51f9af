// POST /v1/score: prompts are read for the log-probabilities of their tokens, as streams that make no text.
#include <cmath>

#include "serve/answer.h"
#include "serve/endpoints.h"
#include "serve/inside.h"
#include "serve/lora.h"
#include "serve/openai_answer.h"

namespace vitrine::serve {
namespace {

class ScoreAnswer final : public Answer {
 public:
  ScoreAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, Fields fields)
      : Answer(service, std::move(exchange), false), fields_(std::move(fields)) {}

 private:
  OrderedJson whole() override {
    OrderedJson results = OrderedJson::array();
    for (const Choice& choice : choices()) results.push_back(score_json(choice));
    OrderedJson json = {
        {"results", std::move(results)},
        {"definition", "nll: the mean of -log p of all tokens but the first, each given those before it; perplexity: exp(nll)"}};
    add_ignored(fields_, json);
    return json;
  }

  OrderedJson score_json(const Choice& choice) {
    OrderedJson json = tokens_json(service().engine(), choice.prompt_ids);
    json["logprobs"] = OrderedJson::array();
    double sum = 0;
    for (const PromptToken& token : choice.scored) {
      json["logprobs"].push_back(json_of(token.logprob));
      sum += static_cast<double>(token.logprob.value_or(0));
    }
    const bool any = choice.scored.size() > 1;
    const double nll = any ? -sum / static_cast<double>(choice.scored.size() - 1) : 0;
    json["nll"] = any ? json_of(nll) : OrderedJson(nullptr);
    json["perplexity"] = any ? json_of(std::exp(nll)) : OrderedJson(nullptr);
    return json;
  }

  const Fields fields_;
};

}  // namespace

const std::vector<Field>& score_fields() {
  static const std::vector<Field> table =
      joined({inside_prompt_fields(),
              lora_fields(),
              {{"prompts", type::list, "Several prompts, texts or lists of ids, instead of one."}}});
  return table;
}

void score(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, score_fields(), service.options().strict_fields);
  std::vector<InsidePrompt> prompts;
  const OrderedJson* several = fields.find("prompts");
  if (several == nullptr) {
    prompts.push_back(read_prompt(fields, service));
  } else {
    for (const char* name : {"prompt", "messages"})
      if (fields.has(name)) throw invalid(name, "\"" + std::string(name) + "\" and \"prompts\" are both there; give one of them");
    if (several->empty()) throw invalid("prompts", "\"prompts\" is an empty list; give texts or lists of ids");
    check_streams(service, several->size(), "prompts");
    service.model_named(fields.text("model"));
    const bool special = fields.boolean("add_special", true);
    for (size_t i = 0; i < several->size(); ++i)
      prompts.push_back(read_one_prompt((*several)[i], special, service, "prompts[" + std::to_string(i) + "]"));
  }
  const ScaledAdapters adapters = read_adapters(fields, service);
  const auto answer = std::make_shared<ScoreAnswer>(service, exchange, std::move(fields));
  for (size_t i = 0; i < prompts.size(); ++i) {
    Work work;
    work.prompt = std::move(prompts[i].ids);
    work.options.max_tokens = 0;
    work.prompt_top = 0;
    work.adapters = adapters;
    answer->add(std::move(work), i);
  }
  answer->start();
}

}  // namespace vitrine::serve
