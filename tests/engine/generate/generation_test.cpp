// The generation loop against transformers: every golden model greedily, with an end token and by beams; the really trained
// models from text to text.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "generate/generate.h"
#include "ops/recorder.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::vector<std::string> generating_models() {
  std::vector<std::string> names;
  for (const std::string& name : Golden::all())
    if (std::filesystem::exists(Golden::open(name).dir() + "/golden/generate.json")) names.push_back(name);
  return names;
}

// Sequence i without its padding.
std::vector<int32_t> unpadded(const GoldenPrompt& prompt, size_t i) {
  std::vector<int32_t> ids;
  for (size_t t = 0; t < prompt.ids[i].size(); ++t)
    if (prompt.mask[i][t] == 1) ids.push_back(prompt.ids[i][t]);
  return ids;
}

std::vector<float> last_logits(Engine& engine, const std::vector<int32_t>& ids) {
  const auto cache = engine.make_cache(static_cast<int64_t>(ids.size()));
  CacheSequence sequence = cache->sequence();
  const auto frame = engine.context().frame();
  const Tensor z = engine.prefill(ids, sequence);
  return {z.data<float>(), z.data<float>() + z.count()};
}

GenerateOptions up_to(int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  return options;
}

std::vector<int32_t> greedy(Engine& engine, const std::vector<int32_t>& prompt, size_t max_tokens) {
  return generate(engine, prompt, up_to(static_cast<int64_t>(max_tokens))).tokens;
}

class Generated : public testing::TestWithParam<std::string> {
 protected:
  Golden gold = Golden::open(GetParam());
  Json expected = gold.json("generate");
  std::vector<int32_t> prompt(const std::string& name) const { return unpadded(gold.prompt(name), 0); }
};

TEST_P(Generated, GreedyIdsMatch) {
  for (const bool exact : {false, true}) {
    SCOPED_TRACE(exact ? "exact" : "fast");
    Engine engine(gold.model(), {.threads = 2, .numerics = {.exact = exact}});
    for (const std::string name : {"short", "mid", "repeat"}) {
      SCOPED_TRACE(name);
      const auto want = expected.at("greedy").at(name).at("new_ids").get<std::vector<int32_t>>();
      const Generation got = generate(engine, prompt(name), up_to(static_cast<int64_t>(want.size())));
      EXPECT_EQ(got.tokens, want);
      EXPECT_EQ(got.finish_reason, "length");
      EXPECT_EQ(got.logprobs.size(), want.size());
    }
    const auto batch = expected.at("greedy").at("batch_left").at("new_ids").get<std::vector<std::vector<int32_t>>>();
    for (size_t i = 0; i < batch.size(); ++i) {
      SCOPED_TRACE("batch_left " + std::to_string(i));
      EXPECT_EQ(greedy(engine, unpadded(gold.prompt("batch_left"), i), batch[i].size()), batch[i]);
    }
  }
}

TEST_P(Generated, EndTokenEndsTheText) {
  const Json& at = expected.at("greedy_with_eos");
  const auto want = at.at("new_ids").get<std::vector<int32_t>>();
  const auto eos = at.at("eos_token_id").get<int32_t>();
  ASSERT_EQ(want.back(), eos);
  Engine engine(gold.model(), {.threads = 2});
  GenerateOptions options = up_to(32);
  options.eos = {eos};
  const Generation got = generate(engine, prompt(at.at("prompt")), options);
  EXPECT_EQ(got.tokens, want);
  EXPECT_EQ(got.finish_reason, "stop");
  options.ignore_eos = true;
  EXPECT_EQ(generate(engine, prompt(at.at("prompt")), options).tokens.size(), 32u);
}

TEST_P(Generated, BeamsAndTheirScoresMatch) {
  Engine engine(gold.model(), {.threads = 2});
  for (const Json& at : expected.at("beam")) {
    SCOPED_TRACE(at.dump().substr(0, 160));
    BeamOptions options;
    options.n_beams = at.at("num_beams");
    options.n_return = 4;
    options.max_new_tokens = at.at("max_new_tokens");
    options.length_penalty = at.at("length_penalty");
    options.early_stopping = at.at("early_stopping").get<bool>() ? EarlyStopping::yes : EarlyStopping::no;
    if (!at.at("eos_token_id").is_null()) options.eos = {at.at("eos_token_id").get<int32_t>()};
    const std::vector<Hypothesis> got = generate_beams(engine, prompt(at.at("prompt")), options);
    const auto want = at.at("new_ids").get<std::vector<std::vector<int32_t>>>();
    const auto scores = at.at("scores").get<std::vector<double>>();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].tokens, want[i]) << "hypothesis " << i;
      EXPECT_NEAR(static_cast<double>(got[i].score), scores[i], 1e-4) << "hypothesis " << i;
    }
  }
}

TEST_P(Generated, LogitsThatSamplingStartsFromMatch) {
  Engine engine(gold.model(), {.threads = 2});
  EXPECT_CLOSE(last_logits(engine, prompt("repeat")), golden_tensor(gold.sampling(), "raw").at(0), gold.tolerance());
}

TEST_P(Generated, ThreadsChangeNoBit) {
  for (const bool exact : {false, true}) {
    Engine one(gold.model(), {.threads = 1, .numerics = {.exact = exact}}),
        two(gold.model(), {.threads = 2, .numerics = {.exact = exact}}),
        three(gold.model(), {.threads = 3, .numerics = {.exact = exact}});
    for (const std::string name : {"one", "short", "long"}) {
      SCOPED_TRACE(name);
      const std::vector<float> alone = last_logits(one, prompt(name));
      EXPECT_EQ(alone, last_logits(two, prompt(name)));
      EXPECT_EQ(alone, last_logits(three, prompt(name)));
    }
    EXPECT_EQ(greedy(one, prompt("mid"), 12), greedy(two, prompt("mid"), 12));
  }
}

// Under --exact the logits after decoding are the bits of one pass over everything.
TEST_P(Generated, ExactDecodingGivesTheBitsOfOnePass) {
  Engine engine(gold.model(), {.threads = 2, .numerics = {.exact = true}});
  std::vector<int32_t> ids = prompt("mid");
  const auto cache = engine.make_cache(0);
  CacheSequence sequence = cache->sequence();
  for (int i = 0; i < 6; ++i) {
    std::vector<float> stepped;
    {
      const auto frame = engine.context().frame();
      const Tensor z = i == 0 ? engine.prefill(ids, sequence) : engine.prefill(std::span(&ids.back(), 1), sequence);
      stepped.assign(z.data<float>(), z.data<float>() + z.count());
    }
    EXPECT_EQ(stepped, last_logits(engine, ids)) << "after " << ids.size() << " tokens";
    ids.push_back(static_cast<int32_t>(std::max_element(stepped.begin(), stepped.end()) - stepped.begin()));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Generated, testing::ValuesIn(generating_models()), [](const auto& test) { return test.param; });

TEST(Generation, NothingToGenerate) {
  Engine engine(Golden::open("llama").model());
  const std::vector<int32_t> prompt = {5, 6, 7};
  const Generation got = generate(engine, prompt, up_to(0));
  EXPECT_TRUE(got.tokens.empty());
  EXPECT_TRUE(got.logprobs.empty());
  EXPECT_EQ(got.finish_reason, "length");
  EXPECT_CONTAINS(message_of<UsageError>([&] { generate(engine, prompt, up_to(-1)); }), "max_tokens is -1; expected 0 or more");
}

TEST(Generation, ContextThatFills) {
  Engine engine(Golden::open("gpt2_a").model());
  const auto context = static_cast<size_t>(engine.shape().context_length);
  std::vector<int32_t> prompt(context - 2, 7);
  const Generation got = generate(engine, prompt, up_to(100));
  EXPECT_EQ(got.tokens.size(), 3u);  // two more positions, and the last token needs none
  EXPECT_EQ(got.finish_reason, "length");
  prompt.resize(context, 7);
  EXPECT_EQ(greedy(engine, prompt, 5).size(), 1u);
  prompt.resize(context + 1, 7);
  const std::string message = message_of<InputError>([&] { generate(engine, prompt, {}); });
  EXPECT_CONTAINS(message, "the prompt has " + std::to_string(context + 1) + " tokens; the context of ");
  EXPECT_CONTAINS(message, "holds " + std::to_string(context));
  EXPECT_CONTAINS(message_of<InputError>([&] { generate_beams(engine, prompt, {}); }), "the context of ");
  prompt.resize(context - 2);
  BeamOptions beams;
  beams.max_new_tokens = 50;
  const Hypothesis best = generate_beams(engine, prompt, beams).at(0);
  EXPECT_EQ(best.tokens.size(), 3u);
  BeamOptions many;  // more than there are continuations of one token
  many.max_new_tokens = 1;
  many.n_beams = many.n_return = static_cast<int>(engine.shape().vocab_size) + 9;
  const std::vector<Hypothesis> all = generate_beams(engine, prompt, many);
  EXPECT_EQ(all.size(), static_cast<size_t>(engine.shape().vocab_size));
  for (const Hypothesis& h : all) EXPECT_EQ(h.tokens.size(), 1u);
  prompt.insert(prompt.end(), best.tokens.begin(), best.tokens.end());  // one more than the context holds
  EXPECT_EQ(engine.token_logprobs(prompt).size(), context);
  prompt.push_back(7);
  EXPECT_CONTAINS(message_of<InputError>([&] { engine.token_logprobs(prompt); }), "the context of ");
  EXPECT_TRUE(engine.token_logprobs({}).empty());
  EXPECT_TRUE(engine.token_logprobs(std::vector<int32_t>{7}).empty());
}

// The beams that a listener is shown, with the log-probabilities that a run of all their tokens gives.
TEST(Generation, AListenerSeesTheBeams) {
  Engine engine(Golden::open("llama").model(), {2, {.f32 = true, .exact = false}});
  const std::vector<int32_t> prompt = {5, 3, 7, 9};
  BeamOptions options;
  options.n_beams = 3;
  options.max_new_tokens = 4;
  std::vector<std::vector<int32_t>> beams = {{}};
  size_t steps = 0;
  generate_beams(engine, prompt, options, nullptr, [&](std::span<const BeamChoice> choices, std::span<const float> logprobs) {
    std::vector<std::vector<int32_t>> next;
    for (const BeamChoice& choice : choices) {
      next.push_back(beams[beams.size() == 1 ? 0 : static_cast<size_t>(choice.parent)]);
      next.back().push_back(choice.token);
    }
    if (!choices.empty()) beams = std::move(next);
    const size_t vocab = logprobs.size() / beams.size();
    for (size_t i = 0; i < beams.size(); ++i) {
      std::vector<int32_t> ids = prompt;
      ids.insert(ids.end(), beams[i].begin(), beams[i].end());
      std::vector<float> expected = last_logits(engine, ids);
      log_softmax(expected);
      EXPECT_CLOSE(std::vector<float>(logprobs.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                                      logprobs.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab)),
                   expected, Tolerance(2e-5, 1e-4));
    }
    ++steps;
  });
  EXPECT_EQ(steps, 4u);
}

// Sinusoidal positions have no end.
TEST(Generation, AsManyTokensAsCanBeAskedFor) {
  Engine engine(Golden::open("classic_pre").model());
  GenerateOptions options = up_to(INT64_MAX);
  options.eos.resize(static_cast<size_t>(engine.shape().vocab_size));
  std::iota(options.eos.begin(), options.eos.end(), 0);
  EXPECT_EQ(generate(engine, std::vector<int32_t>{5, 6}, options).tokens.size(), 1u);
}

// More beams than the vocabulary has tokens: after two steps every pair of tokens has been compared.
TEST(Generation, MoreBeamsThanTokensFindTheBestPair) {
  Engine engine(std::string(VITRINE_GOLDEN) + "/variants/llama_head_dim");
  const auto vocab = static_cast<int32_t>(engine.shape().vocab_size);
  const std::vector<int32_t> prompt = {5, 6, 7};
  BeamOptions beams;
  beams.n_beams = vocab + 9;
  beams.max_new_tokens = 2;
  const Hypothesis found = generate_beams(engine, prompt, beams).at(0);
  std::vector<int32_t> best;
  double best_score = -INFINITY;
  for (int32_t first = 0; first < vocab; ++first)
    for (int32_t second = 0; second < vocab; ++second) {
      const std::vector<float> logprobs = engine.token_logprobs(std::vector<int32_t>{5, 6, 7, first, second});
      const double score = (static_cast<double>(logprobs[2]) + static_cast<double>(logprobs[3])) / 2;
      if (score <= best_score) continue;
      best_score = score;
      best = {first, second};
    }
  EXPECT_EQ(found.tokens, best);
  EXPECT_NEAR(static_cast<double>(found.score), best_score, 1e-5);
}

TEST(Generation, IdsThatAreNone) {
  Engine engine(Golden::open("mistral").model());
  const auto message = [&](const std::vector<int32_t>& ids) {
    return message_of<InputError>([&] { generate(engine, ids, up_to(1)); });
  };
  EXPECT_CONTAINS(message({5, 256}), "token 256 at place 1 is outside the vocabulary of ");
  EXPECT_CONTAINS(message({5, 256}), "(0 to 255)");
  EXPECT_CONTAINS(message({-1}), "token -1 at place 0 is outside");
  EXPECT_CONTAINS(message({}), "there are no tokens to run");
  EXPECT_CONTAINS(message_of<InputError>([&] { engine.tokenizer(); }), "has no tokenizer");
  EXPECT_CONTAINS(message_of<UsageError>([&] {
                    GenerateOptions options;
                    options.stops = {"x"};
                    generate(engine, std::vector<int32_t>{5}, options);
                  }),
                  "stop strings need a tokenizer");
}

TEST(Generation, LogprobsAreOfTheUnmodifiedLogits) {
  Engine engine(Golden::open("qwen2").model());
  const std::vector<int32_t> prompt = {9, 8, 7, 6, 5};
  GenerateOptions options = up_to(6);
  options.sampling.repetition_penalty = 1.7;
  const Generation got = generate(engine, prompt, options);
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), got.tokens.begin(), got.tokens.end());
  const std::vector<float> logprobs = engine.token_logprobs(all);
  EXPECT_CLOSE(got.logprobs, std::vector<float>(logprobs.end() - 6, logprobs.end()), (Tolerance{.abs = 2e-5, .rel = 0}));
}

TEST(Generation, GgufReadsAndContinuesTextAsItsDirectoryDoes) {
  for (const std::string name : {"gpt2_a", "gemma", "gemma2", "llama"}) {
    SCOPED_TRACE(name);
    const Golden gold = Golden::open(name);
    Engine from_gguf(std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"), from_directory(gold.model());
    for (const std::string text : {"Once upon a time", "  two  spaces\nand a line", "na\xc3\xafve caf\xc3\xa9 42!"})
      EXPECT_EQ(from_gguf.prompt_ids(text), from_directory.prompt_ids(text)) << text;
    EXPECT_EQ(from_gguf.end_tokens(), from_directory.end_tokens());
    EXPECT_EQ(greedy(from_gguf, gold.prompt("repeat").ids[0], 32),
              gold.json("generate").at("greedy").at("repeat").at("new_ids").get<std::vector<int32_t>>());
  }
}

// Tokenizers of Llama's kind take the space off the first piece of a text; what follows a prompt is none. The expected texts are
// what decode() gives for the whole without what it gives for the prompt, and decode() is compared with sentencepiece and
// Hugging Face's tokenizers elsewhere.
TEST(Generation, TheTextGoesOnWhereThePromptEnds) {
  const std::string tokenizers = std::string(VITRINE_GOLDEN) + "/tokenizers/variants/";
  for (const std::string from : {"spm_llama.model", "words_metaspace_always.json"}) {
    SCOPED_TRACE(from);
    const Scratch folder;
    std::filesystem::copy(tokenizers + from, folder.path() + (from.ends_with(".model") ? "/tokenizer.model" : "/tokenizer.json"));
    const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(folder.path());
    write_random_model(folder.path(), small_mistral(tokenizer->vocab_size()));
    Engine engine(folder.path(), {2, {}});
    const std::vector<int32_t> prompt = engine.prompt_ids("the");
    const int32_t spaced = tokenizer->find("\u2581the").value();
    GenerateOptions options = up_to(3);
    options.sampling.logit_bias = {{spaced, 1000.0}};
    const std::vector<int32_t> made(3, spaced);
    const Generation got = generate(engine, prompt, options);
    ASSERT_EQ(got.tokens, made);
    EXPECT_EQ(got.text, " the the the");
    EXPECT_EQ(engine.text_behind(prompt, made), " the the the");
    std::vector<int32_t> whole = prompt;
    whole.insert(whole.end(), made.begin(), made.end());
    EXPECT_EQ(tokenizer->decode(whole), tokenizer->decode(prompt) + got.text);

    options.stops = {" t"};
    EXPECT_EQ(generate(engine, prompt, options).text, "");
    EXPECT_EQ(generate(engine, prompt, options).tokens.size(), 1u);

    options.stops.clear(), options.alone = true;  // an answer of a chat
    EXPECT_EQ(generate(engine, prompt, options).text, "the the the");
  }
}

// The shipped model -------------------------------------------------------------------------------------------------------
std::string tales_model() { return std::string(VITRINE_SOURCE) + "/models/tales9m"; }

TEST(Generation, StopStringsEndTheTextWhereverTokenBordersLie) {
  Engine engine(tales_model());
  const std::vector<int32_t> prompt =
      engine.prompt_ids("In the middle of the forest there stood a house, and in the house lived");
  GenerateOptions options = up_to(40);
  const Generation free = generate(engine, prompt, options);
  ASSERT_GT(free.text.size(), 60u);
  for (const size_t first : {size_t{0}, size_t{7}, size_t{23}, size_t{40}})
    for (const size_t length : {size_t{1}, size_t{3}, size_t{12}}) {
      const std::string stop = free.text.substr(first, length);
      SCOPED_TRACE("stop \"" + stop + "\"");
      options.stops = {"never in this text", stop};
      std::string streamed;
      const Generation got = generate(engine, prompt, options, [&](std::string_view piece) { streamed += piece; });
      EXPECT_EQ(got.text, free.text.substr(0, free.text.find(stop)));
      EXPECT_EQ(got.text, streamed);
      EXPECT_EQ(got.finish_reason, "stop");
      EXPECT_LE(got.tokens.size(), free.tokens.size());
    }
  options.stops = {"never in this text"};
  EXPECT_EQ(generate(engine, prompt, options).text, free.text);
}

struct Trained {
  std::string directory;
  Json rows;
  Checkpoint forward;
  Numerics numerics;
  Tolerance tolerance;
};

// Ids, loss, most likely next tokens, logits, hidden states, greedy tokens of a really trained model.
void expect_trained(const Trained& trained) {
  Engine engine(trained.directory, {.threads = 2, .numerics = trained.numerics});
  for (size_t n = 0; n < trained.rows.size(); ++n) {
    const Json& row = trained.rows[n];
    SCOPED_TRACE(row.at("text").get<std::string>());
    const auto ids = row.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(engine.prompt_ids(row.at("text").get<std::string>()), ids);

    const std::vector<float> logprobs = engine.token_logprobs(ids);
    ASSERT_EQ(logprobs.size() + 1, ids.size());
    if (!logprobs.empty()) {
      const double mean = std::accumulate(logprobs.begin(), logprobs.end(), 0.0) / static_cast<double>(logprobs.size());
      EXPECT_NEAR(-mean, row.at("mean_nll_of_tokens_1..").get<double>(), 1e-4);
    }
    const std::vector<Prediction> next = engine.predict(ids, 10, false);
    ASSERT_EQ(next.size(), 1u);
    ASSERT_EQ(next[0].top.size(), 10u);
    for (size_t i = 0; i < 10; ++i) {
      const Json& want = row.at("top10_next")[i];
      EXPECT_EQ(next[0].top[i].token, want[0].get<int32_t>());
      EXPECT_EQ(engine.tokenizer().piece(next[0].top[i].token), want[1].get<std::string>());
      EXPECT_NEAR(std::exp(static_cast<double>(next[0].top[i].logprob)), want[2].get<double>(), 1e-5);
    }
    const std::string prefix = std::to_string(n) + "/";
    Recorder seen({{"*hook_resid_pre"}, {"*hook_pattern"}, {"hook_logits"}});
    Context& ctx = engine.context();
    const auto frame = ctx.frame();
    ctx.listen(&seen);
    const Step step = Step::of(ids);
    const Tensor x = engine.model().residual(ctx, step);
    const int64_t last = step.rows() - 1;
    logits(ctx, x, engine.model().head(), std::span(&last, 1));
    ctx.listen(nullptr);
    EXPECT_CLOSE(seen.values().at("hook_logits").values, golden_tensor(trained.forward, prefix + "logits"), trained.tolerance);
    const int64_t n_layers = engine.shape().n_layers;
    for (int64_t layer = 0; layer < n_layers; ++layer) {
      SCOPED_TRACE("layer " + std::to_string(layer));
      const std::string block = "blocks." + std::to_string(layer) + ".";
      EXPECT_CLOSE(seen.values().at(block + "hook_resid_pre").values,
                   golden_tensor(trained.forward, prefix + "hidden." + std::to_string(layer)), trained.tolerance);
      const std::string pattern = prefix + "attn." + std::to_string(layer);
      if (trained.forward.find(pattern) != nullptr) {
        EXPECT_CLOSE(seen.values().at(block + "attn.hook_pattern").values, golden_tensor(trained.forward, pattern),
                     trained.tolerance);
      }
    }
    EXPECT_CLOSE(std::vector<float>(x.data<float>(), x.data<float>() + x.count()),
                 golden_tensor(trained.forward, prefix + "hidden." + std::to_string(n_layers)), trained.tolerance);

    const auto want = row.at("greedy_new_ids").get<std::vector<int32_t>>();
    EXPECT_EQ(greedy(engine, ids, want.size()), want);
  }
}

TEST(Generation, ShippedModelGivesItsGoldenNumbers) {
  const std::string golden = std::string(VITRINE_GOLDEN) + "/tales9m";
  for (const bool exact : {false, true})
    expect_trained({tales_model(),
                    read_json(golden + "/golden.json"),
                    open_safetensors(golden + "/forward.safetensors"),
                    {.f32 = true, .exact = exact},
                    {.abs = 2e-5, .rel = 1e-4}});
}

class Stories : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("VITRINE_DATA");
    if (data == nullptr)
      GTEST_SKIP() << "stories260K is not part of the repository; set VITRINE_DATA to the folder that holds "
                      "checkpoints/stories260K and corpora/tinystories_sample.txt to run this";
    data_ = data;
    directory_ = data_ + "/checkpoints/stories260K";
  }
  std::string data_, directory_;
};

TEST_F(Stories, GoldenNumbersHold) {
  expect_trained({directory_,
                  read_json(directory_ + "/golden/golden.json"),
                  open_safetensors(directory_ + "/golden/forward.safetensors"),
                  {},
                  {.abs = 2e-5, .rel = 1e-4}});
}

TEST_F(Stories, PerplexityMatches) {
  const Json want = read_json(directory_ + "/golden/perplexity.json");
  Engine engine(directory_, {.threads = 2});
  std::ifstream file(data_ + "/corpora/tinystories_sample.txt");
  std::string line;
  double sum = 0;
  size_t n = 0, scored = 0;
  while (std::getline(file, line)) {
    if (line.ends_with('\r')) line.pop_back();  // the file has Windows line ends, which are no part of the lines
    std::vector<int32_t> ids = engine.prompt_ids(line);
    ids.resize(std::min<size_t>(ids.size(), 512));
    const std::vector<float> logprobs = engine.token_logprobs(ids);
    const double total = std::accumulate(logprobs.begin(), logprobs.end(), 0.0);
    const Json& expected = want.at("lines").at(n++);
    EXPECT_EQ(logprobs.size(), expected.at("tokens_scored").get<size_t>());
    EXPECT_NEAR(-total / static_cast<double>(logprobs.size()), expected.at("mean_nll").get<double>(), 1e-5);
    sum -= total;
    scored += logprobs.size();
  }
  EXPECT_EQ(n, want.at("lines").size());
  EXPECT_EQ(scored, want.at("tokens").get<size_t>());
  EXPECT_NEAR(std::exp(sum / static_cast<double>(scored)), want.at("perplexity").get<double>(), 1e-4);
}

}  // namespace
}  // namespace vitrine
