// Perplexity: against transformers, lm-evaluation-harness and llama.cpp's definition, and its breakdowns against plain sums.
#include "evaluate/perplexity.h"

#include <cmath>
#include <map>

#include "evaluate/score.h"
#include "evaluate/support.h"

namespace vitrine {
namespace {

const Json& perplexity_golden() {
  static const Json json = read_json(evaluate_golden("perplexity.json"));
  return json;
}

WindowOptions golden_windows(Protocol like) {
  WindowOptions options{.like = like, .context = perplexity_golden()["context"]};
  if (like == Protocol::transformers) options.stride = perplexity_golden()["stride"];
  return options;
}

TEST(Perplexity, IsTheHarness) {
  Engine engine = open_f32(tales());
  const PerplexityResult result = perplexity(engine, std::vector{golden_text()}, golden_windows(Protocol::harness));
  const double loglikelihood = perplexity_golden()["harness"]["loglikelihood"];
  EXPECT_EQ(result.tokens, perplexity_golden()["harness"]["tokens"]);
  EXPECT_EQ(result.bytes, perplexity_golden()["bytes"]);
  EXPECT_NEAR(-result.nll * static_cast<double>(result.tokens), loglikelihood, 2e-3);
  EXPECT_NEAR(result.bits_per_byte, -loglikelihood / std::log(2.0) / perplexity_golden()["bytes"].get<double>(), 2e-6);
}

TEST(Perplexity, IsLlamaCppsAndTransformers) {
  Engine engine = open_f32(tales());
  for (const auto& [like, name] : {std::pair(Protocol::llama_cpp, "llama.cpp"), {Protocol::transformers, "transformers"}}) {
    const PerplexityResult result = perplexity(engine, std::vector{golden_text()}, golden_windows(like));
    EXPECT_EQ(result.tokens, perplexity_golden()[name]["tokens"]) << name;
    EXPECT_NEAR(result.nll, perplexity_golden()[name]["nll"].get<double>(), 5e-6) << name;
    EXPECT_NEAR(result.nll_error, perplexity_golden()[name]["error"].get<double>(), 5e-6) << name;
    EXPECT_NEAR(result.perplexity, std::exp(perplexity_golden()[name]["nll"].get<double>()), 2e-4) << name;
    EXPECT_NEAR(result.perplexity_error, result.perplexity * result.nll_error, 1e-12) << name;
  }
}

TEST(Perplexity, EachTokenIsTransformers) {
  Engine engine = open_f32(tales());
  const PerplexityResult result = perplexity(engine, std::vector{golden_text()}, {.context = 256});
  const std::vector<double> expected = perplexity_golden()["logprobs"];  // behind BOS
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(result.texts[0].logprobs[i], expected[i], 2e-5 + 1e-4 * -expected[i]) << i;
  EXPECT_EQ(result.texts[0].before[0], 1u);
  EXPECT_EQ(result.texts[0].before[100], 101u);
}

// What the breakdowns say, by plain sums over the tokens.
TEST(Perplexity, BucketsAndBytes) {
  Engine engine = open_f32(tales());
  const std::vector<std::string> texts = {golden_text().substr(0, 700), "", "The old king — and the old queen.", "a"};
  const PerplexityResult result = perplexity(engine, texts, {.context = 32, .stride = 9});
  ASSERT_EQ(result.texts.size(), 4u);
  EXPECT_TRUE(result.texts[1].tokens.empty());
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  EXPECT_EQ(result.bytes, static_cast<int64_t>(bytes));
  double sum = 0;
  int64_t tokens = 0, in_bucket = 0;
  double bucket = 0;
  std::map<int32_t, int> occurrences;
  for (const ScoredText& text : result.texts)
    for (const TokenPiece& token : text.tokens) ++occurrences[token.id];
  for (const ScoredText& text : result.texts)
    for (size_t i = 0; i < text.tokens.size(); ++i) {
      sum -= static_cast<double>(text.logprobs[i]);
      ++tokens;
      if (text.before[i] >= 4 && text.before[i] <= 7) ++in_bucket, bucket -= static_cast<double>(text.logprobs[i]);
      EXPECT_LE(text.before[i], 31u);
    }
  EXPECT_EQ(result.tokens, tokens);
  EXPECT_NEAR(result.nll, sum / static_cast<double>(tokens), 1e-9);
  EXPECT_NEAR(result.bits_per_byte, sum / std::log(2.0) / static_cast<double>(bytes), 1e-9);
  const LossBucket& four = result.by_position[2];
  EXPECT_EQ(four.from, 4);
  EXPECT_EQ(four.to, 7);
  EXPECT_EQ(four.tokens, in_bucket);
  EXPECT_NEAR(four.nll, bucket / static_cast<double>(in_bucket), 1e-9);
  int64_t once = 0;
  for (const auto& [id, count] : occurrences) once += count == 1 ? 1 : 0;
  EXPECT_EQ(result.by_frequency[0].from, 1);
  EXPECT_EQ(result.by_frequency[0].tokens, once);
}

// Whatever is run together, a text's numbers stay.
TEST(Perplexity, TextsDoNotChangeEachOther) {
  Engine engine(tales(), {2, {.f32 = true, .exact = true}});
  const std::string text = golden_text();
  const std::vector<std::string> texts = {text.substr(0, 300), text.substr(300, 900), "Once", text.substr(1200)};
  const PerplexityResult together = perplexity(engine, texts, {.context = 64});
  for (size_t t = 0; t < texts.size(); ++t) {
    const PerplexityResult alone = perplexity(engine, std::span(texts).subspan(t, 1), {.context = 64});
    EXPECT_EQ(alone.texts[0].logprobs, together.texts[t].logprobs) << t;
  }
}

// A sequence longer than a step goes through a cache.
TEST(Perplexity, LikelyTokensAreThoseOfThePrediction) {
  for (const CacheTypes cache : {CacheTypes{}, CacheTypes{DType::q8_0, DType::q8_0}}) {  // a narrow cache takes another way
    Engine engine(tales(), {2, {.f32 = true, .exact = false}, cache});
    const std::vector<std::string> texts = {golden_text().substr(0, 700), "The old king and the old queen."};
    const PerplexityResult result = perplexity(engine, texts, {.context = 1024}, {}, {.top = 20, .tokens = 100000});
    size_t found = 0;
    for (const ScoredText& text : result.texts) {
      ASSERT_EQ(text.likely.size(), text.tokens.size());
      for (size_t i = 0; i < text.tokens.size(); ++i) {
        ASSERT_EQ(text.likely[i].size(), 20u);
        for (size_t k = 0; k < 20; ++k) {
          EXPECT_LE(text.likely[i][k].logprob, text.likely[i][k == 0 ? 0 : k - 1].logprob);
          if (text.likely[i][k].token != text.tokens[i].id) continue;
          EXPECT_NEAR(text.likely[i][k].logprob, text.logprobs[i], 1e-5);  // its own place in the list
          ++found;
        }
        EXPECT_LE(text.logprobs[i], text.likely[i][0].logprob + 1e-5F);
      }
    }
    EXPECT_GT(found, result.texts[0].tokens.size() / 2);
  }
  Engine engine = open_f32(tales());
  std::string text;
  while (text.size() < 12000) text += golden_text();
  const PerplexityResult few = perplexity(engine, std::vector{text}, {.context = 64}, {}, {.top = 3, .tokens = 10});
  EXPECT_EQ(few.texts[0].likely.size(), few.texts[0].tokens.size());
  EXPECT_EQ(few.texts[0].likely.front().size(), 3u);
  EXPECT_TRUE(few.texts[0].likely.back().empty());  // the first step was enough
  EXPECT_TRUE(perplexity(engine, std::vector{golden_text()}, {.context = 64}).texts[0].likely.empty());
}

TEST(ScoreSequences, LongSequencesAreCut) {
  const Scratch scratch;
  std::filesystem::copy(golden_llama(), scratch / "model", std::filesystem::copy_options::recursive);
  Json config = read_json(golden_llama() + "/config.json");
  config["max_position_embeddings"] = 2000;
  std::filesystem::permissions(scratch / "model/config.json", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  scratch.write("model/config.json", config.dump());
  Engine engine = open_f32(scratch / "model");
  ScoredSequence sequence;
  for (int i = 0; i < kScoredRows + 200; ++i) sequence.read.push_back(3 + (i * 37) % 200);
  for (int i = 0; i < kScoredRows + 100; ++i) sequence.labels.push_back(3 + ((i + 101) * 37) % 200);
  const std::vector<LabelScore> scores = score_sequences(engine, std::span(&sequence, 1));
  ASSERT_EQ(scores.size(), sequence.labels.size());
  std::vector<int32_t> ids = sequence.read;
  ids.push_back(sequence.labels.back());
  const std::vector<float> expected = engine.token_logprobs(ids);
  for (size_t i = 0; i < scores.size(); ++i) ASSERT_NEAR(scores[i].logprob, expected[i + 100], 1e-4) << i;
  const std::vector<Prediction> last = engine.predict(sequence.read, 1, false);
  EXPECT_EQ(scores.back().most_likely, last[0].top[0].token);
}

TEST(ScoreSequences, RefusesWhatTheModelLacks) {
  Engine engine = open_f32(golden_llama());
  const auto refused = [&](ScoredSequence sequence, const std::string& part) {
    EXPECT_CONTAINS(message_of<InputError>([&] { score_sequences(engine, std::span(&sequence, 1)); }), part);
  };
  refused({{5, 100000}, {3}}, "100000");
  refused({{5, 6}, {-1}}, "-1");
  refused({std::vector<int32_t>(129, 5), {3}}, "129 tokens");
}

TEST(Perplexity, NothingToScore) {
  Engine engine = open_f32(tales());
  EXPECT_CONTAINS(message_of<InputError>([&] { perplexity(engine, std::vector<std::string>{""}, {}); }), "too few tokens");
  Engine ids_only = open_f32(std::string(VITRINE_GOLDEN) + "/models/classic_pre/model");
  EXPECT_CONTAINS(message_of<InputError>([&] { perplexity(ids_only, std::vector<std::string>{"a"}, {}); }), "no tokenizer");
}

TEST(Perplexity, SpansAreTheWholeText) {
  Engine engine = open_f32(tales());
  const std::string text = "Die Bäume — 木 — stehen.\n\nÉl  dijo 😀.";
  const PerplexityResult result = perplexity(engine, std::vector{text}, {});
  std::string joined;
  size_t tokens = 0;
  double sum = 0;
  for (const LossSpan& span : spans_of(result.texts[0], text)) {
    const std::string part = text.substr(span.begin, span.end - span.begin);
    EXPECT_NE(static_cast<unsigned char>(part.empty() ? 'a' : part[0]) & 0xc0, 0x80) << part;  // begins with a character
    joined += part;
    tokens += span.tokens;
    sum += span.nll;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(tokens, result.texts[0].tokens.size());
  EXPECT_NEAR(sum, result.nll * static_cast<double>(result.tokens), 1e-6);
}

TEST(Perplexity, DifferenceOfTwoModels) {
  Engine a = open_f32(tales()), b(tales(), {2, {}});
  const std::vector<std::string> texts = {golden_text()};
  const PerplexityResult x = perplexity(a, texts, {.context = 128}), y = perplexity(b, texts, {.context = 128});
  const auto difference = difference_of(x, y);
  ASSERT_TRUE(difference);
  EXPECT_NEAR(difference->nll, y.nll - x.nll, 1e-9);
  EXPECT_LT(difference->nll_error, x.nll_error);
  EXPECT_EQ(difference_of(x, x)->nll_error, 0);
  Engine other = open_f32(golden_llama());
  EXPECT_FALSE(difference_of(x, perplexity(other, texts, {.context = 128})));
}

}  // namespace
}  // namespace vitrine
