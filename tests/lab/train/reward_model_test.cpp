// Reward models against transformers' classes and TRL's RewardTrainer (tests/golden/train/make_reward.py), and what a run must
// do.
#include "model/reward_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/mapped_file.h"
#include "generate/generate.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/registry.h"
#include "support/close.h"
#include "support/golden.h"
#include "train/data/conversations.h"
#include "train/learner.h"
#include "train/reward_lines.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/thread_ranks.h"
#include "train/train.h"

namespace vitrine::reward_model_test {  // tests are compiled together
namespace {

std::string folder() { return std::string(VITRINE_GOLDEN) + "/train/"; }
std::string golden_model(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/models/" + name + "/model"; }

// A language model as a reward model with the score of the golden runs.
OpenedModel with_score(const std::string& name) {
  ModelFiles files = resolve_model(golden_model(name));
  set_config_rewards(files.config, name);
  files.rewards = files.fresh_score = true;
  OpenedModel opened = open_model(std::move(files));
  const Weight& score = *opened.model->head().weight;
  for (const auto& own : opened.widened)
    if (reinterpret_cast<const std::byte*>(own.get()) == score.data)
      for (int64_t i = 0; i < score.in; ++i) own[static_cast<size_t>(i)] = static_cast<float>(std::sin(i + 1.0) / 8);
  return opened;
}

std::string lines_of(const Json& pairs) {
  std::string lines;
  for (const Json& pair : pairs) lines += pair.dump() + "\n";
  return lines;
}

void prepare(const Scratch& scratch, const std::string& lines, const std::string& out) {
  const auto engine = std::make_shared<const Engine>(golden_model("llama"), EngineOptions{.threads = 1});
  ThreadPool pool(1);
  const PrepareOptions options{.files = {scratch.write("lines.jsonl", lines)},
                               .content = DataContent::preferences,
                               .encode_line = read_lines(engine, {.content = DataContent::preferences}).encode};
  prepare_data(engine->tokenizer(), pool, options, scratch / out);
}

TEST(RewardModel, EveryFamilyGivesTheRewardsOfTransformers) {
  const Json gold = read_json(folder() + "reward.json");
  const std::vector<std::vector<int32_t>> texts = gold.at("sequences");
  for (const Json& one : gold.at("families")) {
    const auto name = one.at("model").get<std::string>();
    SCOPED_TRACE(name);
    OpenedModel opened = with_score(name);
    EXPECT_EQ(opened.files.config.at("architectures")[0], one.at("architecture"));
    Engine engine(std::move(opened), {.threads = 2, .numerics = {.f32 = true}});
    const std::vector<double> got = rewards_of(engine, texts);
    ASSERT_EQ(got.size(), texts.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], one.at("rewards")[i].get<double>(), 1e-4) << i;
  }
  for (const auto& [type, name] : gold.at("classes").items()) {  // by the rule, and no other
    if (type == "roformer") continue;
    const Family* const family = family_of(Json{{"model_type", type}});
    ASSERT_NE(family, nullptr) << type;
    EXPECT_EQ(reward_architecture(*family), name.get<std::string>()) << type;
  }
}

TEST(RewardModel, IsReadOffTheLastTokenThatFillsNothingUp) {
  const std::vector<int32_t> tokens = {5, 0, 0, 7, 8, 0, 0};
  const std::vector<int64_t> lengths = {3, 2, 2};
  EXPECT_EQ(reward_rows(tokens, lengths, 0), (std::vector<int64_t>{0, 4, 5}));
  EXPECT_EQ(reward_rows(tokens, lengths, -1), (std::vector<int64_t>{2, 4, 6}));
}

class RewardGolden : public testing::TestWithParam<bool> {};

TEST_P(RewardGolden, TenSteps) {
  const Json gold = read_json(folder() + "reward.json"), &run = gold.at(GetParam() ? "centered" : "steps");
  const Scratch scratch;
  prepare(scratch, lines_of(read_json(folder() + "dpo.json").at("pairs")), "pairs");
  const TokenData data = TokenData::open(scratch / "pairs/train");
  BatchSource source(data, {.sequence_length = 64, .batch = 4, .shuffle = false, .whole = true});
  const Batch batch = source.next();
  size_t row = 0;
  for (size_t i = 0; i < 8; ++i) {
    const std::vector<int32_t> want = run.at("ids")[i / 2][i % 2];
    const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(row);
    EXPECT_EQ(std::vector<int32_t>(begin, begin + batch.lengths[i]), want);
    row += static_cast<size_t>(batch.lengths[i]);
  }
  LearnerOptions options;
  options.optimizer = {.eps = 1e-6, .weight_decay = 0};
  options.threads = 2;
  OpenedModel opened = with_score("llama");
  const int32_t padding = padding_of(opened.files);
  Learner learner(std::move(opened), options);
  learner.set_preference({.section = "reward_model",
                          .loss = PreferenceOptions::Loss::reward,
                          .reference = false,
                          .center = GetParam() ? 0.05 : 0,
                          .padding = padding});
  EXPECT_NEAR(learner.evaluate(batch).loss / 4, run.at("losses")[0].get<double>(), 1e-4);
  for (size_t step = 0; step < 10; ++step) {
    const StepReport report = learner.step(std::span(&batch, 1), gold.at("lr").get<double>());
    const auto near = [&](double got, const char* key) {
      const double want = run.at(key)[step].get<double>();
      EXPECT_NEAR(got, want, 1e-4 * std::max(1.0, std::abs(want))) << key << " " << step;
    };
    near(report.loss, "losses");
    ASSERT_TRUE(report.preference);
    near(report.preference->accuracy, "accuracy");
    near(report.preference->chosen_reward - report.preference->rejected_reward, "margin");
    near((report.preference->chosen_reward + report.preference->rejected_reward) / 2, "mean_reward");
  }
  if (GetParam()) return;
  EXPECT_EQ(expect_golden_weights(learner, folder() + "reward.safetensors"),
            open_safetensors(folder() + "reward.safetensors").tensors().size());
}
INSTANTIATE_TEST_SUITE_P(Centered, RewardGolden, testing::Bool());

class RewardRun : public testing::Test {
 protected:
  void SetUp() override {
    pairs = read_json(folder() + "dpo.json").at("pairs");
    prepare(scratch, lines_of(pairs), "pairs");
    prepare(scratch,
            R"({"prompt": "The bee", "chosen": " flew.", "rejected": " sat down."})"
            "\n",
            "held");
  }
  TrainConfig config(const std::string& out, const std::string& extra = "", const std::string& model = golden_model("llama")) {
    return parse_train_config(
        "model: " + model + "\ndata: {train: " + scratch / "pairs/train" + ", validation: " + scratch / "held/train" +
            "}\nsequence_length: 48\nbatch: 2\nsteps: 8\noptimizer: {lr: 1e-3}\neval_every: 4\n" +
            "schedule: {decay: constant}\ncheckpoint: {every: 2}\nreward_model: {}\nout: " + scratch / out + "\n" + extra,
        "c.yaml");
  }
  // Of all chosen answers, and of all rejected ones.
  std::vector<double> rewards(OpenedModel opened) {
    std::vector<std::string> lines;
    for (const char* answer : {"chosen", "rejected"})
      for (const Json& pair : pairs) lines.push_back(Json{{"prompt", pair.at("prompt")}, {"completion", pair.at(answer)}}.dump());
    RewardLines scored(std::make_shared<Engine>(std::move(opened), EngineOptions{.threads = 1}));
    return scored.rewards(lines, "lines");
  }
  static OpenedModel open_reward(const std::string& path) {
    ModelFiles files = resolve_model(path);
    files.rewards = true;
    return open_model(std::move(files));
  }
  void expect_preferred(const std::vector<double>& r) {
    ASSERT_EQ(r.size(), 2 * pairs.size());
    for (size_t i = 0; i < pairs.size(); ++i) EXPECT_GT(r[i], r[i + pairs.size()]) << i;
  }
  Scratch scratch;
  Json pairs;
};

TEST_F(RewardRun, LearnsAndGoesOnToTheSameBits) {
  train(config("whole"), false);
  const std::vector<Json> lines = metrics_of(scratch / "whole");
  EXPECT_LT(lines.back().at("loss").get<double>(), 0.5);
  EXPECT_EQ(lines.back().at("reward_accuracy"), 1.0);
  EXPECT_GT(lines.back().at("reward_margin").get<double>(), 0.5);
  EXPECT_TRUE(lines.back().contains("val_reward_margin"));
  train_up_to(config("cut"), 3);
  train(config("cut"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), lines);
  const Json written = read_json(scratch / "whole/last/config.json");
  EXPECT_EQ(written.at("architectures"), Json::array({"LlamaForSequenceClassification"}));
  EXPECT_EQ(written.at("id2label").size(), 1u);
  expect_preferred(rewards(open_reward(scratch / "whole/last")));
  EXPECT_CONTAINS(message_of<FileError>([&] { open_model(scratch / "whole/last"); }),
                  "is a reward model or classifier, which has no next token: `vitrine reward` reads its rewards; expected "
                  "LlamaForCausalLM");
  EXPECT_CONTAINS(message_of<FileError>([&] { open_reward(golden_model("llama")); }),
                  "is not a reward model, which gives a number for a text; expected LlamaForSequenceClassification");
  // It goes on learning from its own directory, with the score that it has.
  train(config("again", "", scratch / "whole/last"), false);
  EXPECT_LT(metrics_of(scratch / "again")[1].at("loss").get<double>(), 0.5);
}

TEST_F(RewardRun, ProcessesLearnTogetherWhatOneLearns) {
  train(config("alone"), false);
  ThreadRanks::run_all(2, [&](Comm& comm) { train(config("together"), false, {}, &comm); });
  expect_near(metrics_of(scratch / "together"), metrics_of(scratch / "alone"),
              {"loss", "val_loss", "reward_margin", "grad_norm"});
}

TEST_F(RewardRun, AnAdapterLearnsWithTheScore) {
  const std::string lora = "lora: {rank: 2, alpha: 4, targets: [q_proj, v_proj]}\n";
  train(config("adapter", lora), false);
  train_up_to(config("cut", lora), 3);
  train(config("cut", lora), true);
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "adapter"));
  const Json written = read_json(scratch / "adapter/last/adapter_config.json");
  EXPECT_EQ(written.at("task_type"), "SEQ_CLS");
  EXPECT_EQ(written.at("modules_to_save"), Json::array({"score"}));
  EXPECT_NE(open_safetensors(scratch / "adapter/last/adapter_model.safetensors").find("base_model.model.score.weight"), nullptr);
  OpenedModel opened = with_score("llama");
  open_adapter(opened, scratch / "adapter/last");
  expect_preferred(rewards(std::move(opened)));
}

TEST_F(RewardRun, RefusesWhatDoesNotGoTogether) {
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("no", "", golden_model("granite")), false); }),
                  "c.yaml: reward_model: transformers has no reward models (…ForSequenceClassification) of the family granite");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "sample_every: 1\nsample_prompts: [a]\n"); }),
                  "a reward model has none");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "dpo: {}\n"); }), "is set too");
}

}  // namespace
}  // namespace vitrine::reward_model_test
