// verify: the golden references hold, a disturbed one is found at its place, and what cannot be compared is refused.
#include "inspect/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hooks/trace.h"
#include "inspect/reference.h"
#include "support.h"

namespace vitrine {
namespace {

const VerifiedQuantity* find(const VerifyReport& report, const std::string& quantity, int64_t layer = -1) {
  for (const VerifiedQuantity& q : report.quantities)
    if (q.quantity == quantity && q.layer.value_or(-1) == layer) return &q;
  return nullptr;
}

class VerifyEveryFamily : public testing::TestWithParam<std::string> {
 protected:
  Golden gold = Golden::open(GetParam());
  Engine engine{gold.model(), {2, {}}};
};

TEST_P(VerifyEveryFamily, HoldsItsGoldenFolder) {
  const VerifyReport report = verify(engine, gold.dir());
  EXPECT_EQ(verify(engine, gold.dir() + "/golden").quantities.size(), report.quantities.size());  // either folder will do
  int64_t sequences = 0, tokens = 0;
  for (const std::string& name : gold.prompts())
    for (const auto& mask : gold.prompt(name).mask) {
      ++sequences;
      tokens += std::count(mask.begin(), mask.end(), 1);
    }
  EXPECT_EQ(report.sequences, sequences);
  EXPECT_EQ(report.tokens, tokens);
  EXPECT_TRUE(report.not_compared.empty());
  EXPECT_TRUE(report.note.empty());
  EXPECT_DOUBLE_EQ(report.tolerance_abs, gold.tolerance().abs);
  EXPECT_TRUE(report.held);
  for (const VerifiedQuantity& q : report.quantities) {
    EXPECT_TRUE(q.held) << q.name() << ": " << q.max_abs << " at " << q.worst.at;
    EXPECT_LE(q.worst.share_of_tolerance, 1);
    EXPECT_GT(q.cosine, 0.999999) << q.quantity;
    EXPECT_LE(q.mean_abs, q.max_abs);
  }
  const int64_t n_layers = engine.shape().n_layers;
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    ASSERT_NE(find(report, "residual before the block", layer), nullptr);
    EXPECT_EQ(find(report, "attention pattern", layer) != nullptr, gold.has("long/attn." + std::to_string(layer)));
  }
  for (const char* name : {"logits", "logits through the cache"}) {
    const VerifiedQuantity* logits = find(report, name);
    ASSERT_NE(logits, nullptr);
    EXPECT_EQ(logits->numbers, tokens * engine.shape().vocab_size);
    EXPECT_EQ(*logits->top1_agreement, 1);
    EXPECT_LT(*logits->kl_max, 1e-7);
  }
}

TEST_P(VerifyEveryFamily, ItsOwnTraceIsEqualToTheLastBit) {
  const Scratch scratch;
  const std::vector<std::vector<int32_t>> ids = {{5, 3, 7, 9, 1}, {2, 8}};
  trace(engine, ids, {.hooks = {"*"}}, scratch / "trace.safetensors");
  const VerifyReport report = verify(engine, scratch / "trace.safetensors");
  EXPECT_EQ(report.sequences, 2);
  std::vector<std::string> hooks;
  for (const VerifiedQuantity& q : report.quantities) {
    if (q.quantity != "logits through the cache") hooks.push_back(q.hook);
    EXPECT_TRUE(q.held) << q.hook << " " << q.max_abs << " at " << q.worst.at;
  }
  EXPECT_EQ(hooks, engine.model().hook_names());
  int64_t layer = 0;
  while (layer < engine.shape().n_layers && !engine.model().layer(layer).has_attention()) ++layer;
  EXPECT_EQ(find(report, "hook_embed")->max_abs, 0);
  if (layer == engine.shape().n_layers) return;
  for (const char* inside : {"attention pattern", "attn.hook_attn_scores", "attn.hook_result"}) {
    const VerifiedQuantity* first = find(report, inside, layer);  // both runs compute it in steps
    ASSERT_NE(first, nullptr) << inside;
    EXPECT_LT(first->max_abs, 2e-6) << inside;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, VerifyEveryFamily, testing::ValuesIn(Golden::all()),
                         [](const auto& test) { return test.param; });

TEST(VerifyTales9m, HoldsItsGoldenNumbers) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", {2, {.f32 = true, .exact = false}});
  const VerifyReport report = verify(engine, std::string(VITRINE_GOLDEN) + "/tales9m");
  EXPECT_EQ(report.sequences, 5);
  EXPECT_TRUE(report.f32);
  EXPECT_EQ(report.dtypes, std::vector<std::string>{"bf16"});
  EXPECT_TRUE(report.note.empty());
  for (const VerifiedQuantity& q : report.quantities)
    EXPECT_TRUE(q.held) << q.name() << ": " << q.worst.ours << " for " << q.worst.reference << " at " << q.worst.at;
}

TEST(VerifyTales9m, SaysWhy16BitArithmeticMayMiss) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", {2, {}});
  const VerifyReport report = verify(engine, std::string(VITRINE_GOLDEN) + "/tales9m");
  EXPECT_FALSE(report.f32);
  EXPECT_CONTAINS(report.note, "weights are stored as bf16");
  EXPECT_CONTAINS(report.note, "--compute f32");
  EXPECT_LT(*find(report, "logits")->kl_max, 0.01);
  EXPECT_GT(*find(report, "logits")->top1_agreement, 0.95);
}

class VerifyFiles : public testing::Test {
 protected:
  Golden gold = Golden::open("llama");
  Engine engine{gold.model(), {2, {}}};
  Scratch scratch;
  std::vector<int32_t> ids = gold.prompt("short").ids[0];
  GoldenTensor logits = gold["short/logits"].at(0);
  std::string refused(const std::string& path) {
    return message_of<FileError>([&] { verify(engine, path); });
  }
  std::string write(const std::string& name, const std::vector<OwnedTensor>& tensors, const Checkpoint::Metadata& metadata = {}) {
    write_tensors(scratch / name, tensors, metadata);
    return scratch / name;
  }
  std::string tokens_text() const {
    std::string text;
    for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
    return text;
  }
};

TEST_F(VerifyFiles, FindsTheOneNumberThatIsWrong) {
  GoldenTensor wrong = logits;
  const auto vocab = static_cast<size_t>(wrong.shape[1]);
  wrong.values[2 * vocab + 7] += 0.25f;
  const std::string path =
      write("wrong.safetensors", {owned("hook_logits", wrong.shape, wrong.values)}, {{"tokens", tokens_text()}});
  const VerifyReport report = verify(engine, path);
  EXPECT_FALSE(report.held);
  const VerifiedQuantity* q = find(report, "logits");
  ASSERT_NE(q, nullptr);
  EXPECT_FALSE(q->held);
  EXPECT_EQ(q->worst.at, "sequence 0, [2, 7]");
  EXPECT_NEAR(q->max_abs, 0.25, 1e-4);
  EXPECT_NEAR(q->worst.reference - q->worst.ours, 0.25, 1e-4);
  EXPECT_NEAR(q->mean_abs, 0.25 / static_cast<double>(q->numbers), 1e-5);
  EXPECT_GT(*q->kl_max, 1e-6);
  EXPECT_LT(q->cosine, 1);
  const Json json = to_json(report);
  EXPECT_FALSE(json.at("held").get<bool>());
  EXPECT_EQ(json.at("quantities").at(0).at("worst").at("at"), "sequence 0, [2, 7]");
  EXPECT_EQ(json.at("kernels"), report.kernels);
}

TEST_F(VerifyFiles, DivergenceIsThatOfTheTwoDistributions) {
  // Reference logits ours + log 2 for one token: KL has a closed form in ours' probability p of that token.
  const std::vector<std::string> hooks = {"logits"};
  const Recorder::Value ours = trace_to_memory(engine, ids, hooks).values().at("hook_logits");
  std::vector<float> shifted(ours.values.begin(), ours.values.end());
  const auto vocab = static_cast<size_t>(ours.shape[1]);
  for (size_t t = 0; t < ids.size(); ++t) shifted[t * vocab + 3] += std::log(2.0f);
  double sum = 0;
  for (size_t t = 0; t < ids.size(); ++t) {
    double total = 0;
    for (size_t i = 0; i < vocab; ++i) total += std::exp(static_cast<double>(ours.values[t * vocab + i]));
    const double p = std::exp(static_cast<double>(ours.values[t * vocab + 3])) / total;
    const double other = (1 - p) / (1 + p), mine = 2 * p / (1 + p);  // the reference's probabilities
    sum += mine * std::log(mine / p) + other * std::log(other / (1 - p));
  }
  const std::string path = write("kl.safetensors", {owned("logits", ours.shape, shifted)}, {{"tokens", tokens_text()}});
  EXPECT_NEAR(*find(verify(engine, path), "logits")->kl_mean, sum / static_cast<double>(ids.size()), 1e-6);
}

TEST_F(VerifyFiles, ReadsWhatAScriptWrites) {
  // float64 logits and int64 tokens, a prompt's name in front.
  OwnedTensor wide{"greeting/logits", DType::f64, {1, logits.shape[0], logits.shape[1]}, {}};
  for (const float value : logits) {
    const auto number = static_cast<double>(value);
    wide.bytes.insert(wide.bytes.end(), reinterpret_cast<const std::byte*>(&number),
                      reinterpret_cast<const std::byte*>(&number) + sizeof number);
  }
  OwnedTensor tokens{"greeting/tokens", DType::i64, {1, static_cast<int64_t>(ids.size())}, {}};
  for (const int64_t id : ids)
    tokens.bytes.insert(tokens.bytes.end(), reinterpret_cast<const std::byte*>(&id),
                        reinterpret_cast<const std::byte*>(&id) + sizeof id);
  const OwnedTensor strange = owned("greeting/entropy", {1}, {0.5f});
  write("script.safetensors", {wide, tokens, strange});
  const VerifyReport report = verify(engine, scratch.path());  // the folder
  EXPECT_TRUE(report.held);
  EXPECT_EQ(report.sequences, 1);
  EXPECT_EQ(report.not_compared, std::vector<std::string>{"greeting/entropy"});
  EXPECT_CONTAINS(report.quantities.at(0).worst.at, "greeting, sequence 0");
}

TEST(VerifyAliases, MeanWhatTheyMeanInTheModel) {
  Engine gated(Golden::open("llama").model(), {1, {}}), normed(Golden::open("gemma2").model(), {1, {}});
  Scratch scratch;
  const std::vector<int32_t> ids = {5, 6, 7};
  const auto report = [&](Engine& engine, const std::string& alias, const std::string& hook) {
    const std::vector<std::string> hooks = {hook, "hook_logits"};
    const Recorder trace = trace_to_memory(engine, ids, hooks);
    const Recorder::Value &value = trace.values().at(hook), &logits = trace.values().at("hook_logits");
    write_tensors(scratch / "aliases.safetensors",
                  {owned(alias, value.shape, std::vector<float>(value.values.begin(), value.values.end())),
                   owned("logits", logits.shape, std::vector<float>(logits.values.begin(), logits.values.end()))},
                  {{"tokens", "5,6,7"}});
    return verify(engine, scratch / "aliases.safetensors");
  };
  for (const auto& [alias, hook] : {std::pair("attn.o.hook_in", "attn.hook_z"), std::pair("mlp.gate.hook_out", "mlp.hook_pre")}) {
    const VerifyReport found = report(gated, std::string("blocks.1.") + alias, std::string("blocks.1.") + hook);
    EXPECT_TRUE(found.not_compared.empty()) << alias;
    EXPECT_TRUE(found.held) << alias;
  }
  const std::string behind_a_norm = "blocks.1.mlp.out.hook_out";  // no hook of a Gemma 2 is before that norm
  EXPECT_EQ(report(normed, behind_a_norm, "blocks.1.hook_mlp_out").not_compared, std::vector<std::string>{behind_a_norm});
}

TEST_F(VerifyFiles, MaskedPositionsAreNotCompared) {
  // A padded batch with nonsense in the padding.
  const GoldenPrompt prompt = gold.prompt("batch_left");
  Scratch padded;
  GoldenTensor z = gold["batch_left/logits"];
  const auto row = static_cast<size_t>(z.shape[2]), length = static_cast<size_t>(z.shape[1]);
  size_t hidden = 0;
  for (size_t i = 0; i < prompt.mask.size(); ++i)
    for (size_t t = 0; t < length; ++t) {
      if (prompt.mask[i][t] == 1) continue;
      ++hidden;
      for (size_t j = 0; j < row; ++j) z.values[(i * length + t) * row + j] = 1000;
    }
  ASSERT_GT(hidden, 0u);
  write_tensors(padded / "forward.safetensors", {owned("batch_left/logits", z.shape, z.values)});
  padded.write("prompts.json", read_all(gold.dir() + "/golden/prompts.json"));
  EXPECT_TRUE(verify(engine, padded.path()).held);
}

TEST_F(VerifyFiles, RefusesWhatCannotBeCompared) {
  EXPECT_CONTAINS(refused(scratch / "nowhere"), "does not exist");
  std::filesystem::create_directory(scratch / "empty");
  EXPECT_CONTAINS(refused(scratch / "empty"), "holds no .safetensors file");
  EXPECT_CONTAINS(refused(write("a.safetensors", {owned("logits", logits.shape, logits.values)})), "has no tokens");
  EXPECT_CONTAINS(refused(write("b.safetensors", {owned("x/logits", logits.shape, logits.values)})), "of the prompt \"x\"");
  EXPECT_CONTAINS(refused(write("c.safetensors", {owned("strange", {1}, {1})}, {{"tokens", "5"}})),
                  "\"strange\" is no hook of this llama model");
  const std::string shape = refused(write("d.safetensors", {owned("logits", logits.shape, logits.values)}, {{"tokens", "5,3"}}));
  EXPECT_CONTAINS(shape, "tensor \"logits\" is " + shape_text(logits.shape));
  EXPECT_CONTAINS(shape, "expected [2, " + std::to_string(logits.shape[1]) + "] for hook_logits");
  EXPECT_CONTAINS(refused(write("e.safetensors", {owned("logits", logits.shape, logits.values)}, {{"tokens", "5,x"}})),
                  "is no list of ids");
  EXPECT_CONTAINS(refused(write("f.safetensors", {owned("logits", logits.shape, logits.values)}, {{"tokens", "5;3"}})),
                  "call it \"logits#0\"");
  EXPECT_CONTAINS(refused(write("g.safetensors", {owned("logits#7", logits.shape, logits.values)}, {{"tokens", "5"}})),
                  "there are tokens for 1");
  EXPECT_CONTAINS(
      message_of<InputError>([&] {
        verify(engine, write("h.safetensors",
                             {owned("logits", {1, logits.shape[1]}, std::vector<float>(static_cast<size_t>(logits.shape[1])))},
                             {{"tokens", "1000000"}}));
      }),
      "token 1000000");
}

TEST_F(VerifyFiles, RefusesBrokenPrompts) {
  const std::string path = write("forward.safetensors", {owned("p/logits", logits.shape, logits.values)});
  const auto with = [&](const std::string& prompts) {
    scratch.write("prompts.json", prompts);
    return refused(scratch.path());
  };
  EXPECT_CONTAINS(with("[1]"), "expected an object of prompts");
  EXPECT_CONTAINS(with(R"({"p": {"ids": [1]}})"), "lacks \"input_ids\"");
  EXPECT_CONTAINS(with(R"({"p": ["a"]})"), "whole numbers; found \"a\"");
  EXPECT_CONTAINS(with(R"({"p": [-3]})"), "out of range");
  EXPECT_CONTAINS(with(R"({"p": [[1], 2]})"), "expected lists");
  EXPECT_CONTAINS(with(R"({"p": []})"), "expected a list");
  EXPECT_CONTAINS(with(R"({"p": {"input_ids": [[1, 2]], "attention_mask": [[1]]}})"), "another shape");
}

}  // namespace
}  // namespace vitrine
