// POST /v1/score: prompts are read for the log-probabilities of their tokens, as streams that make no text.
#include "requests/shared.h"
#include "serve/answer.h"
#include "serve/endpoints.h"
#include "serve/inside.h"
#include "serve/lora.h"
#include "serve/openai_answer.h"

namespace vitrine::serve {
namespace {

class ScoreAnswer final : public Answer {
 public:
  ScoreAnswer(Service& service, std::shared_ptr<http::Exchange> exchange, Fields fields, ScaledAdapters adapters)
      : Answer(service, std::move(exchange), false), fields_(std::move(fields)), adapters_(std::move(adapters)) {}

 private:
  std::string whole_text() override { return RequestAnswer{whole()}.text(fields_); }
  OrderedJson whole() override {
    std::vector<std::vector<int32_t>> prompts;
    std::vector<std::vector<float>> logprobs;
    for (const Choice& choice : choices()) {
      prompts.push_back(choice.prompt_ids);
      logprobs.emplace_back();
      for (const PromptToken& token : choice.scored)
        if (token.logprob) logprobs.back().push_back(*token.logprob);
    }
    OrderedJson json = scores_json(service().engine(), prompts, logprobs);
    json["command"] = command_line(service(), score_words(service().engine(), prompts), adapters_);
    return json;
  }

  const Fields fields_;
  const ScaledAdapters adapters_;
};

}  // namespace

void score(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  Fields fields(exchange->request().body, endpoint_fields("score"), service.options().strict_fields);
  service.model_named(fields.text("model"));
  if (const OrderedJson* several = fields.find("prompts")) check_streams(service, several->size(), "prompts");
  std::vector<std::vector<int32_t>> prompts = read_prompts(host_of(service), fields);
  const ScaledAdapters adapters = read_adapters(fields, service);
  const auto answer = std::make_shared<ScoreAnswer>(service, exchange, std::move(fields), adapters);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Work work;
    work.prompt = std::move(prompts[i]);
    work.options.max_tokens = 0;
    work.prompt_top = 0;
    work.adapters = adapters;
    answer->add(std::move(work), i);
  }
  answer->start();
}

}  // namespace vitrine::serve
