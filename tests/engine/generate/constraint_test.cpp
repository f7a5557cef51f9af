// What a constraint changes in a sequence and what it does not, with constraints that need no library.
#include "generate/constraint.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "generate/generate.h"
#include "generate/together.h"

namespace vitrine {
namespace {

Engine& engine() {
  static Engine shipped(std::string(VITRINE_SOURCE) + "/models/tales9m", {.threads = 2, .numerics = {.exact = true}});
  return shipped;
}

/// Tokens of even ids that are text, `least` to `most` of them.
class EvenTokens final : public Constraint {
 public:
  EvenTokens(int least, int most, int fails_at = -1) : least_(least), most_(most), fails_at_(fails_at) {
    const auto vocab = static_cast<size_t>(engine().shape().vocab_size);
    mask_.resize((vocab + 31) / 32);
    for (size_t t = 0; t < vocab; t += 2)
      if (!engine().tokenizer().token_bytes(static_cast<int32_t>(t)).empty()) mask_[t / 32] |= uint32_t{1} << t % 32;
  }
  void prepare() override { ++prepared; }
  std::span<const uint32_t> allowed() override {
    if (taken_ == fails_at_) throw RunError("the grammar allows nothing here");
    if (taken_ == most_) std::ranges::fill(mask_, 0);
    return mask_;
  }
  void accept(int32_t token) override {
    if (token % 2 != 0) throw RunError("an odd token");
    ++taken_;
  }
  bool may_end() const override { return taken_ >= least_; }
  bool must_end() const override { return ends_by_itself && taken_ == most_; }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<EvenTokens>(*this); }
  int prepared = 0;
  bool ends_by_itself = true;

 private:
  int least_, most_, fails_at_, taken_ = 0;
  std::vector<uint32_t> mask_;
};

const std::vector<int32_t>& prompt() {
  static const std::vector<int32_t> ids = engine().prompt_ids("Once upon a time");
  return ids;
}

GenerateOptions options_with(const EvenTokens& constraint, int64_t max_tokens = 40) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.eos = engine().end_tokens();
  options.constraint = std::make_shared<EvenTokens>(constraint);
  return options;
}

TEST(Constraint, MakesTheGreedyChoiceAmongWhatItAllows) {
  const GenerateOptions options = options_with(EvenTokens(3, 6));
  const Generation made = generate(engine(), prompt(), options);
  ASSERT_GE(made.tokens.size(), 3u);
  // By hand: the most likely even token behind each prefix, and its log-probability among all tokens.
  std::vector<int32_t> text = prompt();
  for (size_t i = 0; i < made.tokens.size(); ++i) {
    const auto all = engine().predict(text, engine().shape().vocab_size, false)[0].top;
    const auto best = std::ranges::find_if(all, [&](const TokenLogprob& t) {
      const bool is_end = std::ranges::find(options.eos, t.token) != options.eos.end();
      return is_end ? i >= 3 : t.token % 2 == 0 && !engine().tokenizer().token_bytes(t.token).empty();
    });
    EXPECT_EQ(made.tokens[i], best->token) << i;
    EXPECT_NEAR(made.logprobs[i], best->logprob, 1e-5) << i;
    text.push_back(made.tokens[i]);
  }
}

TEST(Constraint, TextIsTheBytesOfItsTokens) {
  GenerateOptions options = options_with(EvenTokens(100, 100), 12);
  for (const bool alone : {false, true}) {
    options.alone = alone;
    const Generation made = generate(engine(), prompt(), options);
    std::string bytes;
    for (const int32_t t : made.tokens) bytes += engine().tokenizer().token_bytes(t);
    EXPECT_EQ(made.text, bytes);
    EXPECT_EQ(made.finish_reason, "length");
    EXPECT_EQ(made.tokens.size(), 12u);
  }
}

TEST(Constraint, EndTokensComeOnlyWhereTheTextMayEnd) {
  ASSERT_FALSE(engine().end_tokens().empty());
  GenerateOptions options = options_with(EvenTokens(5, 1000), 30);
  options.sampling.logit_bias = {{options.eos[0], 1000.0}};  // it would come first
  const Generation made = generate(engine(), prompt(), options);
  EXPECT_EQ(made.tokens.size(), 6u);
  EXPECT_EQ(made.tokens.back(), options.eos[0]);
  EXPECT_EQ(made.finish_reason, "stop");
  options.ignore_eos = true;  // a control token is no text
  EXPECT_EQ(generate(engine(), prompt(), options).tokens.size(), 30u);
}

TEST(Constraint, EndsWithoutAnEndTokenWhereNothingMayFollow) {
  for (const bool by_itself : {true, false})  // or by a mask without tokens
    for (const bool with_eos : {true, false}) {
      EvenTokens constraint(4, 4);
      constraint.ends_by_itself = by_itself;
      GenerateOptions options = options_with(constraint);
      if (!with_eos) options.eos.clear();
      const Generation made = generate(engine(), prompt(), options);
      EXPECT_EQ(made.tokens.size(), by_itself || !with_eos ? 4u : 5u);
      EXPECT_EQ(made.finish_reason, "stop");
    }
}

TEST(Constraint, EmptyTextNeedsNoToken) {
  EvenTokens constraint(0, 0);
  GenerateOptions options = options_with(constraint);
  options.eos.clear();
  const Generation made = generate(engine(), prompt(), options);
  EXPECT_TRUE(made.tokens.empty());
  EXPECT_EQ(made.finish_reason, "stop");
}

TEST(Constraint, DraftsChangeNoToken) {
  GenerateOptions options = options_with(EvenTokens(20, 25));
  for (const double temperature : {0.0, 1.5}) {
    options.sampling.temperature = temperature;
    options.drafter = nullptr;
    const Generation plain = generate(engine(), prompt(), options);
    options.drafter = std::make_shared<LookupDrafter>(5);
    const Generation drafted = generate(engine(), prompt(), options);
    EXPECT_EQ(drafted.tokens, plain.tokens);
    EXPECT_EQ(drafted.logprobs, plain.logprobs);
    EXPECT_EQ(drafted.finish_reason, plain.finish_reason);
  }
}

TEST(Constraint, SamplingRulesActOnWhatIsAllowed) {
  GenerateOptions options = options_with(EvenTokens(100, 100), 15);
  options.sampling = {.temperature = 2.0, .top_k = 3, .repetition_penalty = 1.3, .frequency_penalty = 0.2, .seed = 7};
  const Generation made = generate(engine(), prompt(), options);
  for (const int32_t t : made.tokens) EXPECT_EQ(t % 2, 0);
  EXPECT_EQ(made.tokens.size(), 15u);
}

TEST(Constraint, ServesSeveralTextsAtOnce) {
  const std::vector<std::vector<int32_t>> prompts = {prompt(), engine().prompt_ids("The king"), engine().prompt_ids("A fox")};
  const GenerateOptions options = options_with(EvenTokens(4, 9));
  const std::vector<Generation> together = generate_together(engine(), prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(together[i].tokens, generate(engine(), prompts[i], options).tokens);
}

TEST(Constraint, FailsItsOwnSequence) {
  TokenSequence failing(engine(), prompt(), options_with(EvenTokens(9, 9, 2))),
      other(engine(), prompt(), options_with(EvenTokens(9, 9)));
  std::vector<float> logits(static_cast<size_t>(engine().shape().vocab_size));
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 97);
  for (int i = 0; i < 2; ++i) failing.push(logits);
  EXPECT_THROW(failing.push(logits), RunError);
  while (!other.done()) other.push(logits);
  EXPECT_EQ(other.made().tokens.size(), 9u);
}

TEST(Constraint, NeedsATokenizer) {
  Engine tiny(std::string(VITRINE_GOLDEN) + "/models/gpt2_b/model");
  ASSERT_FALSE(tiny.has_tokenizer());
  GenerateOptions options;
  options.constraint = std::make_shared<EvenTokens>(1, 1);
  EXPECT_THROW(TokenSequence(tiny, {1, 2}, options), UsageError);
}

TEST(Sampler, MasksOfTheWrongSizeAreRefused) {
  Sampler sampler({}, 40);
  const std::vector<float> logits(40, 1.0f);
  const std::vector<uint32_t> one = {1}, none = {0, 0}, beyond = {0, 0xFFFFFF00}, third = {8, 0};
  EXPECT_THROW(sampler.pick(logits, {}, {}, 0, one), ShapeError);
  EXPECT_THROW(sampler.pick(logits, {}, {}, 0, none), RunError);
  EXPECT_THROW(sampler.pick(logits, {}, {}, 0, beyond), RunError);  // bits behind the vocabulary
  EXPECT_EQ(sampler.pick(logits, {}, {}, 0, third).token, 3);
}

}  // namespace
}  // namespace vitrine
