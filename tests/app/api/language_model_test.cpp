// The public library, through its header alone.
#include <gtest/gtest.h>
#include <vitrine/vitrine.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

namespace {

using vitrine::HookView;
using vitrine::LanguageModel;

const std::string kTales = std::string(VITRINE_SOURCE) + "/models/tales9m";
const std::string kGemma2 = std::string(VITRINE_GOLDEN) + "/models/gemma2/model";
const std::string kNoTokenizer = std::string(VITRINE_GOLDEN) + "/models/classic_pre/model";
constexpr char kPrompt[] = "Once upon a time";

template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "threw nothing";
  return "";
}
#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

// What transformers computed for the prompt.
const nlohmann::json& gold() {
  static const nlohmann::json all = nlohmann::json::parse(std::ifstream(std::string(VITRINE_GOLDEN) + "/tales9m/golden.json"));
  if (all.at(0).at("text") != kPrompt) throw std::logic_error("the first golden text is another");
  return all.at(0);
}

TEST(LanguageModel, DescribesItself) {
  const vitrine::ModelDescription d = LanguageModel(kTales, {.threads = 1}).description();
  EXPECT_EQ(d.family, "gemma2");
  EXPECT_EQ(d.n_layers, 8);
  EXPECT_EQ(d.d_model, 256);
  EXPECT_EQ(d.vocab_size, 6144);
  EXPECT_GT(d.parameters, 8'000'000);
  EXPECT_TRUE(d.tied);
  EXPECT_FALSE(d.tokenizer.empty());
  EXPECT_FALSE(d.kernels.empty());
  EXPECT_EQ(d.hooks.back(), "hook_logits");
  EXPECT_STREQ(vitrine::version(), VITRINE_VERSION);
}

TEST(LanguageModel, TokenizesAndBack) {
  const LanguageModel model(kTales, {.threads = 1});
  const std::vector<int32_t> ids = model.tokenize(kPrompt), bare = model.tokenize(kPrompt, false);
  EXPECT_EQ(ids, gold().at("ids").get<std::vector<int32_t>>());  // as SentencePiece, BOS in front
  EXPECT_EQ(bare, std::vector<int32_t>(ids.begin() + 1, ids.end()));
  EXPECT_EQ(model.detokenize(bare), kPrompt);
  EXPECT_THROW(model.detokenize(std::vector<int32_t>{6144}), vitrine::InputError);
}

TEST(LanguageModel, PredictsWhatTheReferencePredicts) {
  LanguageModel model(kTales, {.threads = 2, .compute_f32 = true});
  const auto next = model.predict(kPrompt, {.top = 3});
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].position, static_cast<int64_t>(gold().at("ids").size()) - 1);
  ASSERT_EQ(next[0].top.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const nlohmann::json& expected = gold().at("top10_next").at(i);
    EXPECT_EQ(next[0].top[i].token, expected.at(0).get<int32_t>());
    EXPECT_EQ(next[0].top[i].piece, expected.at(1).get<std::string>());
    EXPECT_NEAR(next[0].top[i].probability(), expected.at(2).get<double>(), 1e-4);
    EXPECT_NEAR(std::exp(next[0].top[i].logprob), expected.at(2).get<double>(), 1e-4);
  }
}

// A position among many rows and the same one at the end of a short prompt go through different kernels: equal to rounding in
// f32, to the bit if exact.
TEST(LanguageModel, ComputesAsItWasOpened) {
  for (const bool exact : {false, true}) {
    LanguageModel model(kTales, {.threads = 2, .compute_f32 = !exact, .exact = exact});
    const std::vector<int32_t> ids = model.tokenize("Once upon a time there was a king who had three sons, and the eldest said");
    ASSERT_GT(ids.size(), 16u);
    constexpr size_t kShort = 4;
    const auto by_token = [](const vitrine::NextTokens& p) {
      std::map<int32_t, float> found;
      for (const vitrine::NextToken& next : p.top) found[next.token] = next.logprob;
      return found;
    };
    const auto among_many = by_token(model.predict(ids, {.top = 1 << 20, .all_positions = true}).at(kShort - 1));
    const auto alone = by_token(model.predict(std::vector(ids.begin(), ids.begin() + kShort), {.top = 1 << 20}).at(0));
    ASSERT_EQ(among_many.size(), alone.size());
    for (const auto& [token, logprob] : alone) {
      if (exact) {
        ASSERT_EQ(among_many.at(token), logprob) << token;
      } else {
        ASSERT_NEAR(among_many.at(token), logprob, 1e-4) << token;
      }
    }
  }
}

TEST(LanguageModel, PredictsAfterEveryPosition) {
  LanguageModel model(kTales, {.threads = 2, .exact = true});
  const std::vector<int32_t> ids = model.tokenize(kPrompt);
  const auto all = model.predict(ids, {.top = 1 << 20, .all_positions = true});
  ASSERT_EQ(all.size(), ids.size());
  for (size_t t = 0; t < ids.size(); ++t) {
    EXPECT_EQ(all[t].position, static_cast<int64_t>(t));
    ASSERT_EQ(all[t].top.size(), 6144u);  // the whole vocabulary: probabilities add up to one
    const double total = std::accumulate(all[t].top.begin(), all[t].top.end(), 0.0,
                                         [](double sum, const vitrine::NextToken& n) { return sum + n.probability(); });
    EXPECT_NEAR(total, 1, 1e-4);
    const auto alone = model.predict(std::span(ids).first(t + 1), {.top = 1});
    EXPECT_EQ(alone[0].top[0].token, all[t].top[0].token);
    EXPECT_EQ(alone[0].top[0].logprob, all[t].top[0].logprob);  // exact: the same bits
  }
}

TEST(LanguageModel, GeneratesAndStreams) {
  LanguageModel model(kTales, {.threads = 2, .compute_f32 = true});
  std::string streamed;
  const auto made = model.generate(kPrompt, {.max_tokens = 12, .on_text = [&](std::string_view piece) { streamed += piece; }});
  std::vector<int32_t> expected = gold().at("greedy_new_ids").get<std::vector<int32_t>>();
  expected.resize(12);
  EXPECT_EQ(made.tokens, expected);
  EXPECT_EQ(made.logprobs.size(), expected.size());
  EXPECT_EQ(made.finish_reason, "length");
  EXPECT_FALSE(made.text.empty());
  EXPECT_EQ(streamed, made.text);
  const auto stopped = model.generate(kPrompt, {.max_tokens = 12, .stops = {","}});
  EXPECT_EQ(stopped.finish_reason, "stop");
  EXPECT_EQ(stopped.text, made.text.substr(0, made.text.find(',')));
  const auto ended = model.generate(kPrompt, {.max_tokens = 12, .end_tokens = {{expected[1]}}});
  const auto end = std::find(expected.begin(), expected.end(), expected[1]);
  EXPECT_EQ(ended.tokens, std::vector<int32_t>(expected.begin(), end + 1));
  EXPECT_EQ(ended.finish_reason, "stop");
}

TEST(LanguageModel, DraftsChangeNoToken) {
  LanguageModel model(kTales, {.threads = 2}), same(kTales, {.threads = 1});
  const auto plain = model.generate(kPrompt, {.max_tokens = 41});
  EXPECT_EQ(plain.drafted_tokens, 0);
  const auto lookup = model.generate(kPrompt, {.max_tokens = 41, .lookup = 4});
  EXPECT_EQ(lookup.tokens, plain.tokens);
  EXPECT_EQ(lookup.logprobs, plain.logprobs);
  EXPECT_GT(lookup.drafted_tokens, 0);
  const auto drafted = model.generate(kPrompt, {.max_tokens = 41, .draft = &same});
  EXPECT_EQ(drafted.tokens, plain.tokens);
  EXPECT_EQ(drafted.drafted_tokens, 32);  // the model drafts for itself: 40 tokens in steps of 5
  EXPECT_EQ(drafted.accepted_tokens, 32);
  EXPECT_EQ(model.generate(kPrompt, {.max_tokens = 41, .draft = &same, .draft_tokens = 7}).accepted_tokens, 35);
  const auto refused = [](auto&& f) { return message_of<vitrine::InputError>(f); };
  EXPECT_HAS(refused([&] { model.generate(kPrompt, {.lookup = 2, .draft = &same}); }), "lookup and draft are both set");
  EXPECT_HAS(refused([&] { model.generate(kPrompt, {.lookup = 8}); }), "expected 1 to 7");
  EXPECT_HAS(refused([&] { model.generate(kPrompt, {.draft = &same, .draft_tokens = 0}); }), "expected 1 to 7");
}

TEST(LanguageModel, CachesKeysAndValuesInOtherTypes) {
  LanguageModel wide(kTales, {.threads = 1});
  LanguageModel narrow(kTales, {.threads = 1, .cache_type_k = "q8_0", .cache_type_v = "f16"});
  const auto expected = wide.generate(kPrompt, {.max_tokens = 20}), got = narrow.generate(kPrompt, {.max_tokens = 20});
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_NE(got.logprobs, expected.logprobs);
  for (size_t i = 0; i < got.logprobs.size(); ++i) EXPECT_NEAR(got.logprobs[i], expected.logprobs[i], 0.02);
}

TEST(LanguageModel, DrawsTheSameTextForTheSameSeed) {
  LanguageModel model(kTales, {.threads = 2});
  const auto draw = [&](uint64_t seed) {
    return model.generate(kPrompt, {.max_tokens = 24, .sampling = {.temperature = 1.2, .top_k = 50, .seed = seed}}).tokens;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

TEST(LanguageModel, TracesIntermediatesByNameAliasAndSlice) {
  LanguageModel model(kGemma2, {.threads = 2});
  const std::vector<int32_t> ids = {135, 15, 171, 459, 386};
  const auto seen = model.trace(ids, {"blocks.*.attn.hook_pattern", "resid_post.3[positions=-1]", "hook_logits"});
  EXPECT_EQ(seen.size(), 6u);
  const auto& pattern = seen.at("blocks.1.attn.hook_pattern");
  EXPECT_EQ(pattern.shape, (std::vector<int64_t>{4, 5, 5}));
  for (size_t row = 0; row < pattern.values.size(); row += 5)
    EXPECT_NEAR(std::accumulate(pattern.values.begin() + static_cast<ptrdiff_t>(row),
                                pattern.values.begin() + static_cast<ptrdiff_t>(row + 5), 0.0),
                1, 1e-5);
  EXPECT_EQ(pattern.values[1], 0);  // the first token sees itself alone
  EXPECT_EQ(seen.at("blocks.3.hook_resid_post").shape, (std::vector<int64_t>{1, 48}));
  EXPECT_EQ(seen.at("hook_logits").shape, (std::vector<int64_t>{5, 512}));
}

// Sets every number of a hook.
vitrine::HookEdit fill(const std::string& hook, float value) {
  return {hook, [value](const HookView& view) { std::fill(view.values.begin(), view.values.end(), value); }};
}

TEST(LanguageModel, EditsFlowOn) {
  LanguageModel model(kGemma2, {.threads = 2});
  const std::vector<int32_t> ids = {135, 15, 171, 459, 386};
  // With layer 2 adding nothing, what leaves it is what entered it.
  const auto silent =
      model.trace(ids, {"resid_pre.2", "resid_post.2", "attn_out.2"}, {fill("attn_out.2", 0), fill("mlp_out.2", 0)});
  EXPECT_EQ(silent.at("blocks.2.hook_resid_post").values, silent.at("blocks.2.hook_resid_pre").values);
  EXPECT_EQ(silent.at("blocks.2.hook_attn_out").values, vitrine::FloatVector(5 * 48, 0.0f));  // the edited value is kept
  // And the prediction is that of the edited run.
  const auto plain = model.predict(ids, {.top = 512}),
             edited = model.predict(ids, {.top = 512, .edits = {fill("attn_out.2", 0)}});
  EXPECT_NE(plain[0].top[0].logprob, edited[0].top[0].logprob);
  const auto again = model.predict(ids, {.top = 512});
  EXPECT_EQ(plain[0].top[0].logprob, again[0].top[0].logprob);  // the edit is gone
}

TEST(LanguageModel, EditsOfTheLogitsDecideWhatIsWritten) {
  LanguageModel model(kTales, {.threads = 2});
  const vitrine::HookEdit only_comma{"hook_logits", [](const HookView& view) {
                                       const auto vocab = static_cast<size_t>(view.shape[1]);
                                       for (size_t row = 0; row < view.values.size(); row += vocab) view.values[row + 4058] = 100;
                                     }};
  EXPECT_EQ(model.generate(kPrompt, {.max_tokens = 3, .edits = {only_comma}}).tokens, std::vector<int32_t>(3, 4058));
}

TEST(LanguageModel, EditsKnowThePosition) {
  LanguageModel model(kGemma2, {.threads = 2});
  std::vector<std::pair<int64_t, int64_t>> steps;  // first position, rows
  const vitrine::HookEdit watch{"resid_pre.0", [&](const HookView& view) {
                                  EXPECT_EQ(view.name, "blocks.0.hook_resid_pre");
                                  steps.emplace_back(view.first_position, view.shape[0]);
                                }};
  model.generate(std::vector<int32_t>{135, 15, 171}, {.max_tokens = 3, .end_tokens = std::vector<int32_t>{}, .edits = {watch}});
  EXPECT_EQ(steps, (std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 1}, {4, 1}}));
}

TEST(LanguageModel, AThrowingEditLeavesTheModelUsable) {
  LanguageModel model(kGemma2, {.threads = 2});
  const std::vector<int32_t> ids = {135, 15, 171};
  const auto before = model.predict(ids);
  const vitrine::HookEdit broken{"resid_pre.1", [](const HookView&) { throw std::runtime_error("mine"); }};
  EXPECT_EQ(message_of<std::runtime_error>([&] { model.predict(ids, {.edits = {broken}}); }), "mine");
  EXPECT_EQ(message_of<std::runtime_error>([&] { model.trace(ids, {"logits"}, {broken}); }), "mine");
  EXPECT_EQ(model.predict(ids)[0].top[0].logprob, before[0].top[0].logprob);
}

TEST(LanguageModel, RunsWithoutATokenizerOnTokens) {
  LanguageModel model(kNoTokenizer, {.threads = 1});
  EXPECT_TRUE(model.description().tokenizer.empty());
  const auto next = model.predict(std::vector<int32_t>{5, 3, 7});
  EXPECT_EQ(next[0].top.size(), 10u);
  EXPECT_TRUE(next[0].top[0].piece.empty());
  EXPECT_THROW(model.tokenize("text"), vitrine::InputError);
  EXPECT_THROW(model.predict("text"), vitrine::InputError);
  EXPECT_EQ(model.generate(std::vector<int32_t>{5, 3}, {.max_tokens = 2}).tokens.size(), 2u);
}

TEST(LanguageModel, RefusesWrongInputByName) {
  EXPECT_HAS(message_of<vitrine::FileError>([] { LanguageModel("no/such/model"); }), "no/such/model");
  EXPECT_HAS(message_of<vitrine::InputError>([] { LanguageModel(kTales, {.threads = -1}); }), "threads is -1");
  EXPECT_HAS(message_of<vitrine::InputError>([] { LanguageModel(kTales, {.cache_type_v = "q5_1"}); }),
             "cache_type_v is \"q5_1\"; expected f32, f16, q8_0 or q4_0");
  LanguageModel model(kGemma2, {.threads = 1});
  const std::vector<int32_t> ids = {135, 15};
  const auto refused = [](auto&& f) { return message_of<vitrine::InputError>(f); };
  EXPECT_HAS(refused([&] { model.predict(std::vector<int32_t>{}); }), "no tokens");
  EXPECT_HAS(refused([&] { model.predict(std::vector<int32_t>{512}); }), "token 512 at place 0");
  EXPECT_HAS(refused([&] { model.predict(std::vector<int32_t>(100000, 1)); }), "the context of");
  EXPECT_HAS(refused([&] { model.predict(ids, {.top = 0}); }), "top is 0");
  EXPECT_HAS(refused([&] { model.generate(ids, {.sampling = {.temperature = -1.0}}); }), "temperature");
  EXPECT_HAS(refused([&] { model.generate(ids, {.max_tokens = -1}); }), "max_tokens is -1");
  EXPECT_HAS(refused([&] { model.generate(ids, {.end_tokens = std::vector<int32_t>{512}}); }), "the end token 512 is outside");
  EXPECT_HAS(refused([&] { model.trace(ids, {"atn_out"}); }), "Did you mean \"attn_out\"?");
  EXPECT_HAS(refused([&] { model.predict(ids, {.edits = {fill("nonsense", 0)}}); }), "no hook of this gemma2 model");
  EXPECT_HAS(refused([&] { model.predict(ids, {.edits = {fill("pattern[heads=0]", 0)}}); }), "names slices");
  EXPECT_HAS(refused([&] { model.predict(ids, {.edits = {{"pattern", {}}}}); }), "no function");
}

TEST(LanguageModel, SaysWhereNanBegins) {
  LanguageModel model(kGemma2, {.threads = 1});
  const auto poisoned = fill("mlp_out.1", std::numeric_limits<float>::quiet_NaN());
  const std::string message =
      message_of<vitrine::RunError>([&] { model.predict(std::vector<int32_t>{135, 15}, {.edits = {poisoned}}); });
  EXPECT_HAS(message, "NaN or infinity appeared first in blocks.1.hook_mlp_out at position 0 (token 135)");
  EXPECT_NO_THROW(model.predict(std::vector<int32_t>{135, 15}));
}

TEST(LanguageModel, MovesAndRunsBesideAnother) {
  LanguageModel a(kGemma2, {.threads = 1}), b(kTales, {.threads = 1});
  const std::vector<int32_t> ids = {135, 15, 171};
  const auto before = a.predict(ids);
  LanguageModel c = std::move(a);
  b.predict(kPrompt);
  EXPECT_EQ(c.predict(ids)[0].top[0].logprob, before[0].top[0].logprob);
  b = std::move(c);
  EXPECT_EQ(b.description().n_layers, 4);
}

}  // namespace
