// score: log-probabilities of prompts' tokens.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/shell_word.h"
#include "requests/shared.h"

namespace vitrine {

std::vector<std::string> score_words(const Engine& engine, const std::vector<std::vector<int32_t>>& prompts) {
  std::string tokens;
  for (const std::vector<int32_t>& ids : prompts) tokens += (tokens.empty() ? "" : ";") + fmt::format("{}", fmt::join(ids, ","));
  std::vector<std::string> words = {"predict", "--score", "--json", "--tokens", shell_word(tokens)};
  const CacheTypes types = engine.decoding_types();
  if (types.keys != DType::f32 || types.values != DType::f32)
    words.insert(words.end(),
                 {"--cache-type-k", std::string(name_of(types.keys)), "--cache-type-v", std::string(name_of(types.values))});
  return words;
}

namespace {

RequestAnswer score_answer(const Host& host, Fields& fields) {
  const std::vector<std::vector<int32_t>> prompts = read_prompts(host, fields);
  std::vector<std::vector<float>> logprobs;
  for (const std::vector<int32_t>& ids : prompts)
    host.run([&](Engine& engine) { logprobs.push_back(engine.token_logprobs(ids)); });
  return {scores_json(host.engine, prompts, logprobs)};
}

}  // namespace

Request score_request() {
  return {"score", "Log-probabilities of a text's tokens, and its perplexity.",
          joined({prompt_fields(), {{"prompts", type::list, "Several prompts, texts or lists of ids, instead of one."}}}),
          score_answer};
}

}  // namespace vitrine
