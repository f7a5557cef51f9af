// Runs that learn from rewards of what the model writes.
#include "train/rollouts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "schedule/scheduler.h"
#include "support/golden.h"
#include "train/data/conversations.h"
#include "train/run_support.h"
#include "train/thread_ranks.h"

namespace vitrine {
namespace {

std::string rollouts_model() { return std::string(VITRINE_GOLDEN) + "/models/llama/model"; }

void prepare_prompts(const Scratch& scratch, const std::string& lines, const std::string& out) {
  const auto engine = std::make_shared<const Engine>(rollouts_model(), EngineOptions{.threads = 1});
  ThreadPool pool(1);
  const PrepareOptions options{.files = {scratch.write("lines.jsonl", lines)},
                               .content = DataContent::prompts,
                               .encode_line = read_lines(engine, {.content = DataContent::prompts}).encode};
  prepare_data(engine->tokenizer(), pool, options, scratch / out);
}

TEST(Prompts, KeepTheLinesThatRewardsRead) {
  const Scratch scratch;
  const std::string first = R"({"prompt": "The fox saw a", "answer": 3})", second = R"({"prompt": "Why?", "answer": [1, "x"]})";
  prepare_prompts(scratch, first + "\n\n" + second + "\n", "prompts");
  const TokenData data = TokenData::open(scratch / "prompts/train");
  EXPECT_EQ(data.content(), DataContent::prompts);
  ASSERT_EQ(data.documents(), 2u);
  EXPECT_EQ(data.line(0), first);
  EXPECT_EQ(data.line(1), second);
  data.verify();
  BatchSource source(data, {.sequence_length = 32, .batch = 2, .shuffle = false});
  const Batch batch = source.next();
  EXPECT_EQ(batch.prompts, (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(scored_in(batch.labels), 0);
  const Engine engine(rollouts_model(), EngineOptions{.threads = 1});
  EXPECT_EQ(std::vector<int32_t>(batch.tokens.begin(), batch.tokens.begin() + batch.lengths[0]),
            engine.prompt_ids("The fox saw a"));
  EXPECT_CONTAINS(message_of<InputError>([&] { BatchSource(data, {.sequence_length = 3, .batch = 1}); }), "sequence_length is 3");

  const auto refused = [&](const std::string& line) {
    return message_of<InputError>([&] { prepare_prompts(scratch, line + "\n", "no"); });
  };
  EXPECT_CONTAINS(refused(R"({"text": "a"})"), "line 1: has the keys \"text\"; expected {\"prompt\": …}");
  EXPECT_CONTAINS(refused(R"({"prompt": "a", "completion": "b"})"),
                  "has \"completion\", under which a reward gets what the model wrote");
  EXPECT_CONTAINS(refused(R"({"prompt": [{"role": "user", "content": "a"}]})"), "the model has no chat template");

  const std::string lines = scratch / "prompts/train/lines.jsonl";
  std::ofstream(lines, std::ios::app) << "more";
  EXPECT_CONTAINS(message_of<FileError>([&] { TokenData::open(scratch / "prompts/train"); }),
                  "and an unfinished one; expected 2");
  std::ofstream(lines) << first << "\n" << R"({"prompt": "Why?", "answer": [1, "y"]})" << "\n";
  EXPECT_CONTAINS(message_of<FileError>([&] { TokenData::open(scratch / "prompts/train").verify(); }), "lines.jsonl");
}

TEST(Prompts, MessagesGoThroughTheTemplate) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}";
  const auto engine = std::make_shared<const Engine>(rollouts_model(), EngineOptions{.threads = 1});
  const auto documents = read_lines(engine, {.content = DataContent::prompts, .chat_template = source})
                             .encode(R"({"prompt": [{"role": "user", "content": "a"}]})");
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_CONTAINS(engine->tokenizer().decode(documents[0].ids), "<user>a<answer>");
  EXPECT_EQ(documents[0].scored, std::vector<uint8_t>(documents[0].ids.size(), 0));
}

class GrpoRun : public testing::Test {
 protected:
  void SetUp() override {
    prepare_prompts(scratch,
                    R"({"prompt": "The fox saw", "more": 1})"
                    "\n"
                    R"({"prompt": "Once upon a time"})"
                    "\n"
                    R"({"prompt": "Why did the crow"})"
                    "\n",
                    "prompts");
  }
  // Rewards count the letter e.
  TrainConfig config(const std::string& out, const std::string& grpo = "", const std::string& extra = "") {
    return parse_train_config("model: " + rollouts_model() + "\ndata: {train: " + scratch / "prompts/train" +
                                  "}\nsequence_length: 40\nbatch: 8\nsteps: 6\noptimizer: {lr: 3e-3}\nseed: 3\n" +
                                  "schedule: {decay: constant}\ncheckpoint: {every: 2}\nout: " + scratch / out +
                                  "\ngrpo:\n  reward: \"awk '{ print gsub(/e/, \\\"\\\") }'\"\n  group: 4\n" +
                                  (grpo.find("max_tokens") == std::string::npos ? "  max_tokens: 8\n" : "") + grpo + extra,
                              "c.yaml");
  }
  Scratch scratch;
};

TEST_F(GrpoRun, LearnsAndGoesOnToTheSameBits) {
  const std::string more = "  iterations: 2\n  beta: 0.01\n", extra = "sample_every: 3\n";
  train(config("whole", more, extra), false);
  const std::vector<Json> lines = metrics_of(scratch / "whole");
  ASSERT_EQ(lines.size(), 6u);
  for (const char* key :
       {"reward", "reward_std", "same_rewards", "completion_length", "completion_cut", "entropy", "kl", "clipped"})
    EXPECT_TRUE(lines[0].contains(key)) << key;
  EXPECT_NEAR(lines[0].at("kl").get<double>(), 0, 1e-9);
  EXPECT_GT(lines[5].at("kl").get<double>(), 0);
  EXPECT_EQ(lines[0].at("clipped"), 0.0);
  EXPECT_EQ(lines[0].at("reward"), lines[1].at("reward"));
  EXPECT_NE(lines[0].at("reward"), lines[2].at("reward"));
  ASSERT_EQ(lines[2].at("samples").size(), 4u);
  EXPECT_TRUE(lines[2].at("samples")[0].at("completion").is_string());
  EXPECT_FALSE(lines[0].contains("samples"));
  const TrainResult cut = train_up_to(config("cut", more, extra), 3);
  EXPECT_EQ(cut.step, 4);  // the completions of step 3 are learned from before it stops
  train(config("cut", more, extra + "threads: 1\n"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), lines);
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("cut", more + "  temperature: 0.5\n", extra), true); }),
                  "the run has grpo \"grpo, group 4, max_tokens 8, temperature 1.0");
}

// More steps raise the reward, which chance does not.
TEST_F(GrpoRun, EveryLossRaisesTheReward) {
  for (const char* loss : {"grpo", "dapo", "dr_grpo", "rloo"}) {
    SCOPED_TRACE(loss);
    TrainConfig c = config(loss, std::string("  loss_type: ") + loss + "\n");
    c.steps = 30;
    c.batch = 48;
    c.policy->group = 16;
    train(c, false);
    const std::vector<Json> lines = metrics_of(scratch / loss);
    const auto mean = [&](size_t first) {
      double sum = 0;
      for (size_t i = first; i < first + 5; ++i) sum += lines[i].at("reward").get<double>() / 5;
      return sum;
    };
    EXPECT_GT(mean(25), mean(0) + 1);
  }
}

TEST_F(GrpoRun, ARewardThatFailsLosesNothing) {
  const auto failing = [&](const std::string& out) {
    TrainConfig c = config(out);
    c.save_every = 5;
    c.policy->reward = "test -e " + scratch / "broken" + " && exit 7; " + c.policy->reward;
    return c;
  };
  train(failing("whole"), false);
  TrainEvents events;
  events.stepped = [&](const StepReport& r, const TrainEvents::Rate&) {
    if (r.step == 3) scratch.write("broken", "");
  };
  const std::string message = message_of<RunError>([&] { train(failing("cut"), false, events); });
  EXPECT_CONTAINS(message, "returned 7 after 0 of 8 answers");
  EXPECT_CONTAINS(message, "The run is saved at step 3: continue with --resume");
  EXPECT_CONTAINS(message_of<RunError>([&] { train(failing("cut"), true); }), "returned 7");
  std::filesystem::remove(scratch / "broken");
  train(failing("cut"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
}

TEST_F(GrpoRun, ProcessesLearnTogetherWhatOneLearns) {
  const std::string more = "  scale_rewards: batch\n", extra = "accumulate: 2\n";
  train(config("alone", more, extra), false);
  ThreadRanks::run_all(2, [&](Comm& comm) { train(config("together", more, extra), false, {}, &comm); });
  const std::vector<Json> want = metrics_of(scratch / "alone"), got = metrics_of(scratch / "together");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < 2; ++i)  // later, another last bit may draw another token
    for (const char* key : {"loss", "reward", "reward_std", "completion_length", "entropy", "grad_norm"}) {
      const double wanted = want[i].at(key).get<double>();
      EXPECT_NEAR(got[i].at(key).get<double>(), wanted, 1e-3 * std::max(1.0, std::abs(wanted))) << key << " " << i;
    }
}

TEST_F(GrpoRun, AnAdapterLearnsToo) {
  train(config("adapter", "  beta: 0.1\n", "lora: {rank: 2, alpha: 4, targets: [q_proj, v_proj]}\n"), false);
  EXPECT_GT(metrics_of(scratch / "adapter").back().at("kl").get<double>(), 0);
}

// The reference is the model with the adapter as it was.
TEST_F(GrpoRun, AnAdapterGoesOnFromAnotherRun) {
  train(config("before", "", "lora: {rank: 2, alpha: 4, targets: [q_proj, v_proj]}\n"), false);
  train(config("after", "  beta: 0.1\n", "lora: {path: " + scratch / "before/last" + "}\n"), false);
  const std::vector<Json> lines = metrics_of(scratch / "after");
  EXPECT_NEAR(lines.front().at("kl").get<double>(), 0, 1e-9);
  EXPECT_GT(lines.back().at("kl").get<double>(), 0);
}

TEST_F(GrpoRun, AStepWithoutAnEndedAnswerSaysSo) {
  const TrainConfig c = config("cut", "  drop_cut: true\n  max_tokens: 1\n");
  EXPECT_CONTAINS(message_of<RunError>([&] { train(c, false); }), "max_tokens cut every answer of a step");
}

// What the scheduler draws from is what the learner scores.
TEST_F(GrpoRun, SamplingAndScoringAgree) {
  Learner learner(open_model(rollouts_model()), {.threads = 2});
  Engine& engine = learner.engine();
  engine.context().numerics.exact = true;
  struct Kept : Sink {
    Completion completion;
    std::vector<float> logprobs;
    std::promise<void> done;
    void token(TokenEvent&& event) override {
      completion.ids.push_back(event.token);
      logprobs.push_back(event.logprob);
    }
    void ended(EndEvent&&) override { done.set_value(); }
  };
  std::vector<std::shared_ptr<Kept>> kept;
  {
    Scheduler scheduler(engine, {.positions = 40});
    for (uint64_t i = 0; i < 12; ++i) {
      kept.push_back(std::make_shared<Kept>());
      kept.back()->completion.prompt = engine.prompt_ids("The fox saw a crow in a tree");
      scheduler.submit({.prompt = kept.back()->completion.prompt, .options = {.max_tokens = 10}, .stream = i}, kept.back());
    }
    for (const auto& one : kept) one->done.get_future().wait();
  }
  engine.context().numerics.exact = false;
  std::vector<Completion> completions;
  for (const auto& one : kept) completions.push_back(one->completion);
  const Batch batch = batch_of(completions, {});
  const std::vector<float> scored = learner.label_logprobs(batch, engine.model());
  size_t row = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    row += completions[i].prompt.size() - 1;
    for (const float logprob : kept[i]->logprobs) EXPECT_NEAR(scored[row++], logprob, 2e-6);
  }
  EXPECT_EQ(row, scored.size());
}

TEST_F(GrpoRun, RefusesWhatDoesNotGoTogether) {
  const auto refused = [&](const std::string& grpo, const std::string& extra = "") {
    return message_of<FileError>([&] { config("no", grpo, extra); });
  };
  EXPECT_CONTAINS(refused("  beta: -1\n"), "grpo.beta");
  EXPECT_CONTAINS(refused("  loss_type: ppo\n"), "dr_grpo");
  EXPECT_CONTAINS(refused("  loss_type: rloo\n  scale_rewards: group\n"), "and not scaled");
  EXPECT_CONTAINS(refused("  iterations: 4\n"), "expected a multiple of grpo.iterations, 4");
  EXPECT_CONTAINS(refused("", "dpo: {}\n"), "leave dpo, cpo, orpo, kto, reward_model, masked, distill and kl_to out");
  TrainConfig c = config("no");
  c.batch = 6;
  EXPECT_CONTAINS(message_of<InputError>([&] { train(c, false); }),
                  "batch is 6; expected a multiple of grpo.group, 4: it counts completions");
  c = config("no");
  c.sequence_length = 12;
  EXPECT_CONTAINS(message_of<InputError>([&] { train(c, false); }),
                  "and max_tokens is 8; sequence_length is 12, which does not hold both");
  c = config("no");
  c.policy.reset();
  EXPECT_CONTAINS(message_of<InputError>([&] { train(c, false); }), "holds prompts. Set grpo");
}

}  // namespace
}  // namespace vitrine
