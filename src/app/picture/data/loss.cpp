// Pictures of the loss: what each token of the prompt costs, and its gradient at the logits.
#include <algorithm>
#include <cmath>

#include "picture/data/studio.h"

namespace vitrine {

PictureJson data_of_token_loss(Studio& studio) {
  if (studio.tokens() < 2) return absent("One token predicts nothing that is there to compare with; give a longer prompt.");
  const Observation& seen = studio.seen;
  const size_t scored = seen.next_logprob.size();
  // The token whose gradient is shown: after the chosen position, or the one that costs most.
  size_t at =
      static_cast<size_t>(std::min_element(seen.next_logprob.begin(), seen.next_logprob.end()) - seen.next_logprob.begin());
  if (studio.options.position && *studio.options.position >= 0 && *studio.options.position < static_cast<int64_t>(scored))
    at = static_cast<size_t>(*studio.options.position);
  double sum = 0;
  PictureJson tokens = PictureJson::array();
  for (size_t i = 0; i < scored; ++i) {
    sum -= seen.next_logprob[i];
    tokens.push_back({{"id", studio.mention(studio.prompt.ids[i + 1])},
                      {"prob", number(std::exp(seen.next_logprob[i]))},
                      {"loss", number(-seen.next_logprob[i])},
                      {"rank", seen.next_rank[i] + 1}});
  }
  const double loss = sum / static_cast<double>(scored), uniform = std::log(static_cast<double>(studio.facts.shape.vocab_size));
  PictureJson p = present(
      "The loss of each token of the prompt: −ln of the probability that the model gave it after the tokens before it. And "
      "the "
      "gradient of one of these losses at the logits, which is p − 1 for the token that came and p for every other: a step "
      "against it raises the one and lowers all others.",
      fmt::format("The mean loss of {} is {:.3f} nats; guessing evenly among {} tokens would cost {:.3f}.",
                  plural(scored, "token"), loss, studio.facts.shape.vocab_size, uniform));
  p["tokens"] = std::move(tokens);
  p["loss"] = number(loss);
  p["uniform"] = number(uniform);
  p["perplexity"] = number(std::exp(loss));
  p["position"] = at;
  const int32_t actual = studio.prompt.ids[at + 1];
  const double prob = std::exp(seen.next_logprob[at]);
  std::vector<TokenLogprob> top = seen.next[at];
  if (std::none_of(top.begin(), top.end(), [&](const TokenLogprob& t) { return t.token == actual; }))
    top.push_back({actual, static_cast<float>(seen.next_logprob[at])});
  PictureJson gradient = PictureJson::array();
  double listed = 0;
  for (const TokenLogprob& t : top) {
    const bool came = t.token == actual;
    const double p_t = came ? prob : t.prob();
    listed += p_t;
    gradient.push_back({{"id", studio.mention(t.token)},
                        {"prob", number(p_t)},
                        {"came", came ? 1 : 0},
                        {"gradient", number(p_t - (came ? 1 : 0))}});
  }
  p["gradient"] = std::move(gradient);
  p["others"] = {{"tokens", studio.facts.shape.vocab_size - std::ssize(top)}, {"gradient", number(std::max(0.0, 1 - listed))}};
  p["came"] = {{"id", actual}, {"prob", number(prob)}, {"gradient", number(prob - 1)}};
  p["prose"] = {{"loss", number(loss)},
                {"uniform", number(uniform)},
                {"piece", studio.piece(actual)},
                {"probability", number(prob)},
                {"gradient", number(prob - 1)}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "loss {loss|.4f}, the mean; perplexity {perplexity|.2f}", "columns": [["at", "#0"], ["after", "#0", "at"], ["came", "tokens.*.id", "token"],
       ["probability", "tokens.*.prob", "%"], ["rank", "tokens.*.rank"], ["loss", "tokens.*.loss", ".3f"]]},
    {"note": "gradient at the logits after {position|place}", "columns": [["token", "gradient.*.id", "token"], ["p", "gradient.*.prob", ".5f"],
       ["came", "gradient.*.came"], ["gradient", "gradient.*.gradient", "+.5f"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "bars", "title": "Loss of each token, in nats", "label": "Loss of each token.", "name": "{tokens.*.id|token}", "value": "tokens.*.loss",
     "note": "{tokens.*.loss|.2f}", "hint": "{tokens.*.id|token} after {#0|place}\nprobability {tokens.*.prob|%}, rank {tokens.*.rank}\nloss {tokens.*.loss}"},
    {"kind": "remark", "text": "Mean {loss|.3f}. Guessing evenly would cost ln of the vocabulary: {uniform|.3f}."},
    {"kind": "bars", "title": "Gradient at the logits after {position|place}", "label": "Gradient of one token's loss at the logits.", "name": "{gradient.*.id|token}",
     "value": "gradient.*.gradient", "note": "{gradient.*.gradient|+.3f}", "hint": "{gradient.*.id|token}\np {gradient.*.prob}\ncame: {gradient.*.came}\ngradient {gradient.*.gradient}"},
    {"kind": "remark", "text": "The {others.tokens|count} tokens that are not listed share a gradient of {others.gradient|.4f}; all of them together add up to 0."}
  ])json");
  return p;
}

}  // namespace vitrine
