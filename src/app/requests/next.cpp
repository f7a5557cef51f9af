// next: the next token's distribution, and what sampling leaves of it.
#include "generate/sampler.h"
#include "ops/listening.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

RequestAnswer next_answer(const Host& host, Fields& fields) {
  const std::vector<int32_t> ids = read_prompt(host, fields).ids;
  const SamplingOptions sampling = read_drawn(fields);
  Sampler sampler(sampling, host.engine.shape().vocab_size, breakers_of(host.engine, sampling));
  std::vector<float> logits;
  host.run([&](Engine& engine) {
    const std::unique_ptr<Interventions> edits = planned_edits(engine, fields.find("edits"), ids);
    const std::unique_ptr<KvCache> cache = engine.make_cache(std::ssize(ids));
    CacheSequence sequence = cache->sequence();
    const auto frame = engine.context().frame();
    std::optional<Listening> listening;
    if (edits != nullptr) listening.emplace(engine.context(), *edits);
    const Tensor z = engine.prefill(ids, sequence);
    logits.assign(z.data<float>(), z.data<float>() + z.count());
  });
  const Candidates& left = sampler.process(logits, ids, {});
  const std::vector<TokenLogprob> top = top_logprobs(logits, static_cast<size_t>(fields.integer("top").value_or(20)));
  const std::vector<double> kept = drawn_probabilities(left, top);
  RequestAnswer answer{tokens_json(host.engine, ids)};
  answer.json["next"] = json_of(top, speller_of(host.engine));
  for (size_t i = 0; i < top.size(); ++i) answer.json["next"][i]["kept"] = kept[i];
  answer.json["left"] = left.token.size();
  return answer;
}

}  // namespace

Request next_request() {
  return {
      "next",
      "`next: [{token, piece, logprob, prob, kept}]` and `left`: the most likely tokens, the sampling probability of each (0: "
      "excluded), how many tokens can be sampled.",
      joined({prompt_fields(), {edits_field()}, drawn_fields(), {top_field("Number of most likely tokens. Default: 20.", 1e6)}}),
      next_answer};
}

}  // namespace vitrine
