// Speculative decoding changes no token: every drafter, right, wrong and in between, against decoding without one.
#include "generate/speculate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "generate/generate.h"
#include "ops/recorder.h"
#include "quantize/encoding.h"
#include "runtime/model_tokenizer.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

using Tokens = std::vector<int32_t>;

std::string shipped_model() { return std::string(VITRINE_SOURCE) + "/models/tales9m"; }

std::vector<std::string> models_that_go_back() {
  std::vector<std::string> names = Golden::all();
  std::erase(names, "qwen3_5");
  for (const char* recurrent : {"mamba2", "falcon_h1", "nemotron_h"}) std::erase(names, recurrent);
  return names;
}

Tokens prompt_of(const std::string& model) {
  const Golden gold = Golden::open(model);
  const std::vector<std::string> names = gold.prompts();
  return gold.prompt(std::find(names.begin(), names.end(), "repeat") != names.end() ? "repeat" : names.front()).ids[0];
}

/// Knows the whole text. Of each draft the first `right` tokens are those of the text, the others are not.
class Prophet final : public Drafter {
 public:
  Prophet(Tokens text, int64_t n_tokens, int64_t right, int32_t vocab_size)
      : text_(std::move(text)), n_tokens_(n_tokens), right_(right), vocab_size_(vocab_size) {}
  Tokens draft(std::span<const int32_t> text, int64_t most) override {
    EXPECT_LE(most, kMostDrafts);
    Tokens drafts;
    for (size_t i = text.size(); i < text_.size() && std::ssize(drafts) < std::min(most, n_tokens_); ++i)
      drafts.push_back(std::ssize(drafts) < right_ ? text_[i] : (text_[i] + 1) % vocab_size_);
    return drafts;
  }

 private:
  Tokens text_;
  int64_t n_tokens_, right_;
  int32_t vocab_size_;
};

/// Proposes one token whatever the text is.
class Stubborn final : public Drafter {
 public:
  explicit Stubborn(int32_t token) : token_(token) {}
  Tokens draft(std::span<const int32_t>, int64_t most) override {
    return Tokens(static_cast<size_t>(std::max<int64_t>(most, 0)), token_);
  }

 private:
  int32_t token_;
};

std::shared_ptr<const Engine> borrowed(const Engine& engine) { return {std::shared_ptr<void>(), &engine}; }

/// With the drafter and without it: the same tokens, log-probabilities, text, stream and end. Returns what was made with it.
Generation expect_same(Engine& engine, const Tokens& prompt, GenerateOptions options, std::shared_ptr<Drafter> drafter) {
  std::string plain_stream, stream;
  options.drafter = nullptr;
  const Generation plain = generate(engine, prompt, options, [&](std::string_view text) { plain_stream += text; });
  options.drafter = std::move(drafter);
  Generation made = generate(engine, prompt, options, [&](std::string_view text) { stream += text; });
  EXPECT_EQ(made.tokens, plain.tokens);
  EXPECT_EQ(made.logprobs, plain.logprobs);
  EXPECT_EQ(made.text, plain.text);
  EXPECT_EQ(stream, plain_stream);
  EXPECT_EQ(made.finish_reason, plain.finish_reason);
  EXPECT_EQ(made.timings.prompt_tokens, plain.timings.prompt_tokens);
  EXPECT_EQ(made.timings.decode_tokens, plain.timings.decode_tokens);
  EXPECT_EQ(plain.timings.drafted_tokens, 0);
  EXPECT_LE(made.timings.accepted_tokens, made.timings.drafted_tokens);
  return made;
}

/// A prophet for what the options make of the prompt.
std::shared_ptr<Drafter> prophet(Engine& engine, const Tokens& prompt, const GenerateOptions& options, int64_t n_tokens,
                                 int64_t right) {
  Tokens text = prompt;
  const Generation plain = generate(engine, prompt, options);
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  return std::make_shared<Prophet>(text, n_tokens, right, static_cast<int32_t>(engine.shape().vocab_size));
}

/// Logits of each of `tokens` behind `prompt`, in steps of `rows`.
std::vector<std::vector<float>> logits_in_steps(Engine& engine, const Tokens& prompt, const Tokens& tokens, size_t rows) {
  const auto cache = engine.make_cache(std::ssize(prompt) + std::ssize(tokens));
  CacheSequence sequence = cache->sequence();
  {
    const auto frame = engine.context().frame();
    engine.prefill(prompt, sequence);
  }
  std::vector<std::vector<float>> result;
  for (size_t begin = 0; begin < tokens.size(); begin += rows) {
    const auto frame = engine.context().frame();
    const size_t n = std::min(rows, tokens.size() - begin);
    Step step;
    step.add(std::span(tokens).subspan(begin, n), &sequence);
    std::vector<int64_t> wanted;
    for (size_t i = 0; i < n; ++i) wanted.push_back(static_cast<int64_t>(i));
    const Tensor z = engine.run(step, wanted);
    for (size_t i = 0; i < n; ++i) {
      const float* row = z.row<float>(static_cast<int64_t>(i));
      result.emplace_back(row, row + z.row_size());
    }
    step.commit();
  }
  return result;
}

void expect_bits_of_single_rows(Engine& engine, const Tokens& prompt, const Tokens& tokens) {
  const auto alone = logits_in_steps(engine, prompt, tokens, 1);
  for (const size_t rows : {2, 3, 5, 8}) {
    const auto together = logits_in_steps(engine, prompt, tokens, rows);
    ASSERT_EQ(together.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_EQ(std::memcmp(together[i].data(), alone[i].data(), alone[i].size() * sizeof(float)), 0)
          << "row " << i << " of steps of " << rows;
  }
}

// The rows of a step -----------------------------------------------------------------------------------------------------
class EveryModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryModel, UpToEightRowsHaveTheBitsOfStepsOfOne) {
  Engine engine(Golden::open(GetParam()).model(), {.threads = 2});
  const Tokens text = prompt_of(GetParam());
  Tokens tokens;
  for (int64_t i = 0; i < 16; ++i) tokens.push_back(static_cast<int32_t>((text[0] + 37 * i) % engine.shape().vocab_size));
  expect_bits_of_single_rows(engine, text, tokens);
}

// Over the border of a block of keys; bf16 weights and two mixtures of block types.
TEST(Speculate, UpToEightRowsHaveTheBitsOfStepsOfOneInEveryPrecision) {
  const Scratch scratch;
  ThreadPool pool(2);
  OpenedModel opened = open_model(shipped_model());
  std::vector<std::string> files = {shipped_model()};
  for (const std::string mixture : {"f32", "q8_0", "q4_k_m"}) {
    const GgufEncoding encoding = mixture_encoding(opened, *find_mixture(mixture));
    files.push_back(scratch / (mixture + ".gguf"));
    write_gguf(opened, plan_gguf(opened, vocabulary_keys(opened), encoding), encoding, files.back(), pool);
  }
  for (const std::string& file : files) {
    SCOPED_TRACE(file);
    Engine engine(file, {.threads = 2});
    Tokens text;
    for (int32_t i = 0; i < 300; ++i) text.push_back(3 + (i * 37 + i * i) % 6000);
    expect_bits_of_single_rows(engine, {text.begin(), text.begin() + 249}, {text.begin() + 249, text.begin() + 273});
  }
}

// Every drafter on every family -------------------------------------------------------------------------------------------
TEST_P(EveryModel, DraftsChangeNoToken) {
  Engine engine(Golden::open(GetParam()).model(), {.threads = 2});
  const Tokens prompt = prompt_of(GetParam());
  for (const bool draws : {false, true}) {
    SCOPED_TRACE(draws ? "drawn" : "greedy");
    GenerateOptions options;
    options.max_tokens = 30;
    if (draws) options.sampling.temperature = 0.8;
    options.sampling.seed = 11;
    for (const int64_t right : {0, 1, 3, 7}) {
      SCOPED_TRACE("right: " + std::to_string(right));
      const Timings timings = expect_same(engine, prompt, options, prophet(engine, prompt, options, 7, right)).timings;
      EXPECT_GT(timings.drafted_tokens, 0);
      if (right == 0) {
        EXPECT_EQ(timings.accepted_tokens, 0);
      } else {
        EXPECT_GT(timings.accepted_tokens, 0);
      }
      if (right == 7) {  // 29 tokens in steps of 8: 8 + 8 + 8 + 5, and each step's last is none of the drafts
        EXPECT_EQ(timings.drafted_tokens, 25);
        EXPECT_EQ(timings.accepted_tokens, 25);
      }
    }
    expect_same(engine, prompt, options, std::make_shared<LookupDrafter>(5));
    const Timings timings =
        expect_same(engine, prompt, options, std::make_shared<ModelDrafter>(engine, borrowed(engine), 4)).timings;
    if (!draws) {  // the model drafts for itself: 29 tokens in steps of 5: 5 * 5 + 4
      EXPECT_EQ(timings.drafted_tokens, 23);
      EXPECT_EQ(timings.accepted_tokens, 23);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, EveryModel, testing::ValuesIn(models_that_go_back()),
                         [](const auto& test) { return test.param; });

// A window of 4 in pages of 256: the ring of either cache comes round.
TEST(Speculate, WindowsWhoseRingsComeRound) {
  const Scratch folder;
  write_random_model(folder.path(), small_mistral(61));
  Engine engine(folder.path(), {.threads = 1});
  const Tokens prompt = {5, 6, 7, 8, 5, 6};
  GenerateOptions options;
  options.max_tokens = 1500;
  options.sampling.temperature = 0.7;
  for (const int64_t right : {2, 7}) expect_same(engine, prompt, options, prophet(engine, prompt, options, 7, right));
  const Timings timings =
      expect_same(engine, prompt, options, std::make_shared<ModelDrafter>(engine, borrowed(engine), 3)).timings;
  EXPECT_GT(timings.accepted_tokens, 50);
  EXPECT_LT(timings.accepted_tokens, timings.drafted_tokens);
  EXPECT_GT(expect_same(engine, prompt, options, std::make_shared<LookupDrafter>(7)).timings.accepted_tokens, 0);
}

// What else decides the text ----------------------------------------------------------------------------------------------
class Tales : public testing::Test {
 protected:
  Engine engine{shipped_model(), {.threads = 2}};
  Tokens prompt = engine.prompt_ids("Once upon a time there was a king who had a daughter, and the king");

  // With lookup, with the model itself and with a prophet who is sometimes right.
  void expect_same_with_all(const GenerateOptions& options) {
    expect_same(engine, prompt, options, std::make_shared<LookupDrafter>(4));
    expect_same(engine, prompt, options, std::make_shared<ModelDrafter>(engine, borrowed(engine), 6));
    expect_same(engine, prompt, options, prophet(engine, prompt, options, 5, 3));
  }
};

TEST_F(Tales, SeedsAndRules) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    GenerateOptions options;
    options.max_tokens = 60;
    options.sampling.seed = seed;
    options.sampling.temperature = 0.9;
    expect_same_with_all(options);
    options.sampling.top_k = 12;
    options.sampling.top_p = 0.8;
    options.sampling.repetition_penalty = 1.2;
    options.sampling.frequency_penalty = 0.4;
    options.sampling.presence_penalty = 0.3;
    expect_same_with_all(options);
  }
}

TEST_F(Tales, PenaltiesOverWhatWasGenerated) {
  GenerateOptions options;
  options.max_tokens = 60;
  options.sampling.repetition_penalty = 1.3;
  options.sampling.frequency_penalty = 0.5;
  expect_same_with_all(options);
  // The penalties are felt: the model without them proposes what they refuse.
  const Timings timings =
      expect_same(engine, prompt, options, std::make_shared<ModelDrafter>(engine, borrowed(engine), 6)).timings;
  EXPECT_LT(timings.accepted_tokens, timings.drafted_tokens);
}

TEST_F(Tales, StopsEndsAndLengths) {
  GenerateOptions options;
  options.max_tokens = 48;
  const Generation free = generate(engine, prompt, options);
  for (const size_t first : {7u, 20u, 41u}) {
    options.stops = {free.text.substr(first, 9)};
    SCOPED_TRACE("stop \"" + options.stops[0] + "\"");
    expect_same_with_all(options);
    EXPECT_EQ(expect_same(engine, prompt, options, prophet(engine, prompt, options, 7, 7)).finish_reason, "stop");
  }
  options.stops.clear();
  for (const size_t place : {1u, 6u, 17u, 30u}) {  // an end token among the drafts
    options.eos = {free.tokens[place]};
    SCOPED_TRACE("end token " + std::to_string(place));
    expect_same_with_all(options);
    // The prophet goes on behind the end.
    Tokens text = prompt;
    text.insert(text.end(), free.tokens.begin(), free.tokens.end());
    const Generation made = expect_same(engine, prompt, options, std::make_shared<Prophet>(text, 7, 7, 6144));
    EXPECT_EQ(made.tokens.back(), free.tokens[place]);
    options.ignore_eos = true;
    expect_same_with_all(options);
    options.ignore_eos = false;
  }
  options.eos.clear();
  for (int64_t length = 0; length < 12; ++length) {
    options.max_tokens = length;
    expect_same_with_all(options);
  }
}

TEST(Speculate, UpToTheEndOfTheContext) {
  Engine engine(Golden::open("gpt2_a").model());
  const auto context = static_cast<size_t>(engine.shape().context_length);
  GenerateOptions options;
  for (const size_t left : {0u, 1u, 3u, 9u}) {
    Tokens prompt;
    for (size_t i = 0; i < context - left; ++i) prompt.push_back(static_cast<int32_t>(5 + i % 3));
    options.max_tokens = 100;
    EXPECT_EQ(expect_same(engine, prompt, options, std::make_shared<LookupDrafter>(7)).tokens.size(), left + 1);
    expect_same(engine, prompt, options, std::make_shared<ModelDrafter>(engine, borrowed(engine), 7));
  }
}

// The drafters ------------------------------------------------------------------------------------------------------------
TEST(LookupDrafter, ProposesWhatFollowedBefore) {
  LookupDrafter lookup(4);
  const auto draft = [&](const Tokens& text, int64_t most = 7) { return lookup.draft(text, most); };
  EXPECT_EQ(draft({1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3}), (Tokens{9, 8, 7, 6}));
  EXPECT_EQ(draft({1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3}, 2), (Tokens{9, 8}));
  EXPECT_EQ(draft({1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3}, 0), Tokens());
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}), (Tokens{5, 1, 2, 3}));  // the most recent place
  EXPECT_EQ(draft({1, 2, 3, 4, 0, 2, 3, 5, 1, 2, 3}), (Tokens{4, 0, 2, 3}));  // three tokens before two
  EXPECT_EQ(draft({2, 3, 4, 0, 3, 5, 1, 2, 3}), (Tokens{4, 0, 3, 5}));        // two before one
  EXPECT_EQ(draft({3, 4, 0, 3, 5, 1, 2, 3}), (Tokens{5, 1, 2, 3}));           // one
  EXPECT_EQ(draft({7, 7, 7, 7}), (Tokens{7}));                                // places may overlap
  EXPECT_EQ(draft({7, 7}), (Tokens{7}));
  EXPECT_EQ(draft({1, 2, 3, 4}), Tokens());
  EXPECT_EQ(draft({1}), Tokens());
}

TEST(ModelDrafter, ProposesWhatItsModelFindsLikeliest) {
  Engine engine(Golden::open("gemma2").model(), {.threads = 2});
  ModelDrafter drafter(engine, borrowed(engine), 5);
  const auto expect_greedy = [&](const Tokens& text, int64_t most, int64_t n) {
    GenerateOptions options;
    options.max_tokens = n;
    EXPECT_EQ(drafter.draft(text, most), generate(engine, text, options).tokens) << text.size();
  };
  Tokens text = prompt_of("gemma2");
  expect_greedy(text, 7, 5);
  expect_greedy(text, 7, 5);  // the same again
  text.push_back(9);          // the draft was refused
  expect_greedy(text, 2, 2);
  text.insert(text.end(), {10, 11, 12, 13});
  expect_greedy(text, 7, 5);
  expect_greedy({2, 90, 41}, 7, 5);  // another text
  expect_greedy(text, 3, 3);
  expect_greedy({text.begin(), text.begin() + 5}, 7, 5);  // a text cut short
  EXPECT_TRUE(drafter.draft(text, 0).empty());
  EXPECT_TRUE(drafter.draft(text, -1).empty());
}

TEST(ModelDrafter, ProposesNothingBehindItsContext) {
  const Scratch folder;
  write_random_model(folder.path(), small_mistral(61));
  Engine engine(folder.path(), {.threads = 1});
  const auto draft = std::make_shared<const Engine>(std::string(VITRINE_GOLDEN) + "/variants/llama_head_dim");  // 64 positions
  ModelDrafter drafter(engine, draft, 4);
  EXPECT_EQ(drafter.draft(Tokens(62, 5), 7).size(), 3u);
  EXPECT_EQ(drafter.draft(Tokens(64, 5), 7).size(), 1u);
  EXPECT_EQ(drafter.draft(Tokens(65, 5), 7).size(), 0u);
  GenerateOptions options;
  options.max_tokens = 100;
  const Timings timings = expect_same(engine, {5, 6, 7}, options, std::make_shared<ModelDrafter>(engine, draft, 4)).timings;
  EXPECT_GT(timings.drafted_tokens, 0);
  EXPECT_LT(timings.drafted_tokens, 64 * 4);
}

TEST(ModelDrafter, ReadsALongTextInSeveralCalls) {
  Engine engine(Golden::open("llama").model(), {.threads = 1});
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 50; ++i) text.push_back(3 + i * 7 % 40);
  ModelDrafter whole(engine, borrowed(engine), 4), parts(engine, borrowed(engine), 4, 20);
  const std::vector<int32_t> drafts = whole.draft(text, 4);
  ASSERT_EQ(drafts.size(), 4U);
  EXPECT_TRUE(parts.draft(text, 4).empty());
  EXPECT_TRUE(parts.draft(text, 4).empty());
  EXPECT_EQ(parts.draft(text, 4), drafts);
  EXPECT_EQ(parts.another(2)->draft(std::span(text).first(15), 4).size(), 2U);
}

TEST(ModelDrafter, IsNotHeardByTheTargetsListener) {
  Engine engine(shipped_model(), {.threads = 2});
  GenerateOptions options;
  options.max_tokens = 21;
  options.drafter = std::make_shared<ModelDrafter>(engine, borrowed(engine), 4);
  class Steps final : public Listener {
   public:
    int steps = 0;
    bool wants(std::string_view name) const override { return name == "hook_embed"; }
    Tensor see(Context&, std::string_view, const Tensor&) override {
      ++steps;
      return {};
    }
  } heard;
  engine.context().listen(&heard);
  generate(engine, engine.prompt_ids("Once upon a time"), options);
  EXPECT_EQ(engine.context().listener(), &heard);
  engine.context().listen(nullptr);
  EXPECT_EQ(heard.steps, 5);  // the prompt, and 20 tokens in steps of 5
}

// A NaN behind a wrong draft ----------------------------------------------------------------------------------------------
TEST(Speculate, NaNBehindAWrongDraftIsNotOfTheText) {
  const Scratch folder;
  write_random_model(folder.path(), small_mistral(61));
  const std::string file = folder / "model.safetensors";
  std::string bytes = read_file(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const Json entry = parse_json(bytes.substr(8, header), file).at("model.embed_tokens.weight");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + 8 + header + entry.at("data_offsets")[0].get<size_t>() + 7 * 8 * sizeof(float), &nan, sizeof(nan));
  write_file_atomically(file, bytes);
  Engine engine(folder.path(), {.threads = 1});
  GenerateOptions options;
  options.max_tokens = 20;
  options.sampling.logit_bias = {{7, -std::numeric_limits<double>::infinity()}};
  const Timings timings = expect_same(engine, {5, 6, 8}, options, std::make_shared<Stubborn>(7)).timings;
  EXPECT_GT(timings.drafted_tokens, 0);
  EXPECT_EQ(timings.accepted_tokens, 0);
  options.sampling.logit_bias = {{7, 1000.0}};  // now it is of the text
  options.drafter = std::make_shared<Stubborn>(7);
  EXPECT_CONTAINS(message_of<RunError>([&] { generate(engine, Tokens{5, 6, 8}, options); }),
                  "NaN or infinity appeared first in ");
}

// Refusals ----------------------------------------------------------------------------------------------------------------
TEST(Speculate, ModelsThatCannotGoBackAreRefused) {
  Engine engine(Golden::open("qwen3_5").model());
  GenerateOptions options;
  options.drafter = std::make_shared<LookupDrafter>(3);
  EXPECT_CONTAINS(message_of<InputError>([&] { generate(engine, Tokens{5, 6}, options); }),
                  "has recurrent layers, whose state cannot be rolled back after a rejected draft");
  EXPECT_CONTAINS(message_of<InputError>([&] { ModelDrafter(engine, borrowed(engine), 3); }), "has recurrent layers");
}

TEST(Speculate, CountsAndVocabulariesThatDoNotFitAreRefused) {
  EXPECT_CONTAINS(message_of<UsageError>([] { LookupDrafter(0); }), "0 tokens cannot be drafted at a time; expected 1 to 7");
  EXPECT_CONTAINS(message_of<UsageError>([] { LookupDrafter(8); }), "8 tokens cannot be drafted at a time; expected 1 to 7");
  Engine llama(Golden::open("llama").model()), gemma2(Golden::open("gemma2").model());
  EXPECT_CONTAINS(message_of<UsageError>([&] { ModelDrafter(llama, borrowed(llama), 8); }), "expected 1 to 7");
  Engine tales(shipped_model());
  const std::string sizes = message_of<InputError>([&] { ModelDrafter(tales, borrowed(gemma2), 4); });
  EXPECT_CONTAINS(sizes, "has a vocabulary of 512 tokens, ");
  EXPECT_CONTAINS(sizes, " one of 6144. Take a draft model of the same vocabulary");

  // Two vocabularies of one size.
  const Scratch folder;
  write_random_model(folder.path(), small_mistral(512));
  std::filesystem::copy(std::string(VITRINE_GOLDEN) + "/tokenizers/bpe512/tokenizer.json", folder / "tokenizer.json");
  const Engine other(folder.path());
  ASSERT_TRUE(gemma2.has_tokenizer() && other.has_tokenizer());
  const std::string pieces = message_of<InputError>([&] { ModelDrafter(gemma2, borrowed(other), 4); });
  EXPECT_CONTAINS(pieces, " has another vocabulary than " + gemma2.name() + ": token 0 is \"");
  EXPECT_CONTAINS(pieces, "\" there and \"" + gemma2.tokenizer().piece(0) + "\" here. Take a draft model of the same vocabulary");
}

}  // namespace
}  // namespace vitrine
