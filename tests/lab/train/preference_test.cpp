// DPO and its relatives against TRL's trainers (tests/golden/train/make_dpo.py, make_preferences.py), and what a run must do.
#include "train/preference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/mapped_file.h"
#include "generate/chat.h"
#include "io/atomic_file.h"
#include "model/adapter.h"
#include "runtime/model_tokenizer.h"
#include "support/close.h"
#include "support/golden.h"
#include "train/data/conversations.h"
#include "train/learner.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/thread_ranks.h"
#include "train/train.h"

namespace vitrine {
namespace {

LineEncoder preference_encoder(std::shared_ptr<const Engine> engine, const std::optional<std::string>& source = {}) {
  return read_lines(std::move(engine), {.content = DataContent::preferences, .chat_template = source}).encode;
}

std::string folder() { return std::string(VITRINE_GOLDEN) + "/train/"; }
std::string llama() { return std::string(VITRINE_GOLDEN) + "/models/llama/model"; }

std::shared_ptr<const Engine> llama_engine() { return std::make_shared<const Engine>(llama(), EngineOptions{.threads = 1}); }

// The pairs of the golden run, as lines.
std::string lines_of(const Json& gold) {
  std::string lines;
  for (const Json& pair : gold.at("pairs")) lines += pair.dump() + "\n";
  return lines;
}

void prepare(const Scratch& scratch, const std::string& lines, const std::string& out) {
  const auto engine = llama_engine();
  ThreadPool pool(1);
  const PrepareOptions options{.files = {scratch.write("lines.jsonl", lines)},
                               .content = DataContent::preferences,
                               .encode_line = preference_encoder(engine)};
  prepare_data(engine->tokenizer(), pool, options, scratch / out);
}

TEST(Preferences, TextsBecomeTheIdsOfTrl) {
  const Json gold = read_json(folder() + "dpo.json");
  const LineEncoder encode = preference_encoder(llama_engine());
  for (size_t i = 0; i < gold.at("pairs").size(); ++i) {
    const std::vector<MaskedDocument> pair = encode(gold.at("pairs")[i].dump());
    ASSERT_EQ(pair.size(), 2u);
    for (size_t k = 0; k < 2; ++k) {
      std::vector<int32_t> want = gold.at("ids")[i].at("prompt");
      std::vector<uint8_t> scored(want.size(), 0);
      for (const Json& id : gold.at("ids")[i].at(k == 0 ? "chosen" : "rejected")) want.push_back(id.get<int32_t>());
      scored.resize(want.size(), 1);
      EXPECT_EQ(pair[k].ids, want);
      EXPECT_EQ(pair[k].scored, scored);
    }
  }
}

TEST(Preferences, MessagesGoThroughTheTemplate) {
  const std::string source =
      "{% for m in messages %}{{ m.role }}:\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}";
  const auto engine = llama_engine();
  const LineEncoder encode = preference_encoder(engine, source);
  const std::string user = R"({"role": "user", "content": "a"})", good = R"({"role": "assistant", "content": "good"})",
                    bad = R"({"role": "assistant", "content": "bad"})";
  const auto one = encode("{\"prompt\": [" + user + "], \"chosen\": [" + good + "], \"rejected\": [" + bad + "]}");
  const auto two =
      encode("{\"prompt\": \"a\", \"chosen\": [" + user + ", " + good + "], \"rejected\": [" + user + ", " + bad + "]}");
  ASSERT_EQ(one.size(), 2u);
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(one[k].ids, two[k].ids);
    EXPECT_EQ(one[k].scored, two[k].scored);
    std::vector<int32_t> said;
    for (size_t i = 0; i < one[k].ids.size(); ++i)
      if (one[k].scored[i] != 0) said.push_back(one[k].ids[i]);
    EXPECT_EQ(engine->tokenizer().decode(said), k == 0 ? "good\n" : "bad\n");
  }
  const auto refused = [&](const std::string& line) { return message_of<InputError>([&] { encode(line); }); };
  EXPECT_CONTAINS(refused(R"({"prompt": "a", "chosen": "b"})"),
                  "has the keys \"prompt\", \"chosen\"; expected {\"prompt\": …, \"chosen\": …, \"rejected\": …}");
  EXPECT_CONTAINS(refused("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": [" + bad + "]}"), "are of different kinds");
  EXPECT_CONTAINS(refused("{\"chosen\": [" + good + "], \"rejected\": [" + bad + "]}"), "the prompt that they answer is unknown");
  EXPECT_CONTAINS(
      message_of<InputError>([&] {
        preference_encoder(engine)("{\"prompt\": [" + user + "], \"chosen\": [" + good + "], \"rejected\": [" + bad + "]}");
      }),
      "the model has no chat template");
}

TEST(DpoGolden, TenSteps) {
  const Json gold = read_json(folder() + "dpo.json");
  const Scratch scratch;
  prepare(scratch, lines_of(gold), "pairs");
  const TokenData data = TokenData::open(scratch / "pairs/train");
  BatchSource source(data, {.sequence_length = 64, .batch = 4, .shuffle = false});
  Batch batch = source.next();
  ASSERT_EQ(batch.pairs, (std::vector<uint64_t>{0, 1, 2, 3}));
  LearnerOptions options;
  options.optimizer = {.weight_decay = 0};
  options.threads = 2;
  Learner learner(open_model(llama()), options);
  learner.set_preference({.beta = gold.at("beta").get<double>()});
  batch.reference = learner.answer_logprobs(batch);
  for (size_t i = 0; i < 8; ++i) {
    const double want = gold.at("reference")[i / 2][i % 2].get<double>();
    EXPECT_NEAR(batch.reference[i], want, 1e-5 * std::abs(want));
  }
  for (size_t step = 0; step < 10; ++step) {
    const StepReport report = learner.step(std::span(&batch, 1), gold.at("lr").get<double>());
    const auto near = [&](double got, const char* key) {
      const double want = gold.at(key)[step].get<double>();
      EXPECT_NEAR(got, want, 1e-4 * std::max(1.0, std::abs(want))) << key << " " << step;
    };
    const double want = gold.at("losses")[step].get<double>();
    EXPECT_NEAR(report.loss, want, 1e-4 * want) << step;
    ASSERT_TRUE(report.preference);
    near(report.preference->chosen_reward, "reward_chosen");
    near(report.preference->rejected_reward, "reward_rejected");
    if (step > 0) near(report.preference->accuracy, "reward_accuracy");  // before, all rewards are 0 but for rounding
  }
  EXPECT_EQ(expect_golden_weights(learner, folder() + "dpo.safetensors"), 5u);
}

// An adapter that goes on learning: what it was before is the reference (tests/golden/train/make_dpo_adapter.py).
TEST(DpoGolden, TenStepsOfAnAdapterThatGoesOn) {
  const Json gold = read_json(folder() + "dpo_adapter.json");
  const Scratch scratch;
  prepare(scratch, lines_of(read_json(folder() + "dpo.json")), "pairs");
  const TokenData data = TokenData::open(scratch / "pairs/train");
  BatchSource source(data, {.sequence_length = 64, .batch = 4, .shuffle = false});
  Batch batch = source.next();
  LearnerOptions options;
  options.optimizer = {.weight_decay = 0};
  options.threads = 2;
  OpenedModel opened = open_model(llama());
  continue_adapter(opened, std::string(VITRINE_GOLDEN) + "/lora/llama/adapter");
  Learner learner(std::move(opened), options);
  learner.set_preference({.beta = gold.at("beta").get<double>()});
  batch.reference = learner.answer_logprobs(batch);
  for (size_t i = 0; i < 8; ++i) {
    const double want = gold.at("reference")[i / 2][i % 2].get<double>();
    EXPECT_NEAR(batch.reference[i], want, 1e-5 * std::abs(want));
  }
  for (size_t step = 0; step < 10; ++step) {
    const StepReport report = learner.step(std::span(&batch, 1), gold.at("lr").get<double>());
    const double want = gold.at("losses")[step].get<double>();
    EXPECT_NEAR(report.loss, want, 1e-4 * want) << step;
  }
  EXPECT_EQ(expect_golden_weights(learner, folder() + "dpo_adapter.safetensors"),
            open_safetensors(folder() + "dpo_adapter.safetensors").tensors().size());
}

// Hinge and IPO, CPO with its losses (SimPO among them) and ORPO, against TRL's trainers (make_preferences.py).
TEST(PreferenceGolden, TenStepsOfEveryLoss) {
  const Json gold = read_json(folder() + "preferences.json");
  const Scratch scratch;
  prepare(scratch, lines_of(read_json(folder() + "dpo.json")), "pairs");
  const TokenData data = TokenData::open(scratch / "pairs/train");
  for (const Json& run : gold.at("runs")) {
    const auto section = run.at("section").get<std::string>();
    SCOPED_TRACE(section);
    const TrainConfig config = parse_train_config(
        "model: m\ndata: {train: d}\nsequence_length: 64\nbatch: 4\nsteps: 10\nout: o\n"
        "optimizer: {lr: 1e-3}\n" +
            section + "\n",
        "c.yaml");
    ASSERT_TRUE(config.preference);
    BatchSource source(data, {.sequence_length = 64, .batch = 4, .shuffle = false});
    Batch batch = source.next();
    LearnerOptions options;
    options.optimizer = {.weight_decay = 0};
    options.threads = 2;
    Learner learner(open_model(llama()), options);
    learner.set_preference(*config.preference);
    size_t row = 0;
    for (size_t i = 0; i < 8; ++i) {
      const std::vector<int32_t> want = run.at("ids")[i / 2][i % 2];
      const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(row);
      EXPECT_EQ(std::vector<int32_t>(begin, begin + batch.lengths[i]), std::vector<int32_t>(want.begin(), want.end() - 1));
      row += static_cast<size_t>(batch.lengths[i]);
    }
    if (config.preference->reference) batch.reference = learner.answer_logprobs(batch);
    EXPECT_NEAR(learner.evaluate(batch).loss / 4, run.at("losses")[0].get<double>(), 1e-4 * run.at("losses")[0].get<double>());
    for (size_t step = 0; step < 10; ++step) {
      const StepReport report = learner.step(std::span(&batch, 1), gold.at("lr").get<double>());
      const auto near = [&](double got, const char* key) {
        const double want = run.at(key)[step].get<double>();
        EXPECT_NEAR(got, want, 1e-4 * std::max(1.0, std::abs(want))) << key << " " << step;
      };
      near(report.loss, "losses");
      ASSERT_TRUE(report.preference);
      near(report.preference->chosen_reward, "reward_chosen");
      near(report.preference->rejected_reward, "reward_rejected");
    }
  }
}

// The cross-entropy beside the loss is a mean over all tokens of the step, not a mean of means.
TEST(Preferences, PartsOfAStepGiveTheLossOfTheWhole) {
  const Scratch scratch;
  prepare(scratch, lines_of(read_json(folder() + "dpo.json")), "pairs");
  const TokenData data = TokenData::open(scratch / "pairs/train");
  BatchSource source(data, {.sequence_length = 64, .batch = 4, .shuffle = false});
  const Batch whole = source.next();
  const std::vector<Batch> parts = parts_of(whole, 40);
  ASSERT_GT(parts.size(), 1u);
  const PreferenceOptions orpo{
      .section = "orpo", .loss = PreferenceOptions::Loss::odds, .reference = false, .nll = 1, .nll_prompt = true};
  const auto step = [&](std::span<const Batch> batches) {
    LearnerOptions options;
    options.threads = 2;
    Learner learner(open_model(llama()), options);
    learner.set_preference(orpo);
    return learner.step(batches, 1e-3);
  };
  const StepReport at_once = step(std::span(&whole, 1)), in_parts = step(parts);
  EXPECT_NEAR(in_parts.loss, at_once.loss, 1e-5 * at_once.loss);
  EXPECT_NEAR(in_parts.gradient_norm, at_once.gradient_norm, 1e-4 * at_once.gradient_norm);
}

// The gradient is that of the batch however it is cut into passes and whoever accumulates it.
TEST(Dpo, PartsKeepPairsTogether) {
  const Json gold = read_json(folder() + "dpo.json");
  const Scratch scratch;
  prepare(scratch, lines_of(gold), "pairs");
  const TokenData data = TokenData::open(scratch / "pairs/train");
  BatchSource source(data, {.sequence_length = 12, .batch = 4, .seed = 9});
  Batch batch = source.next();
  batch.reference.assign(8, -1.0);
  for (const int64_t most : {1, 20, 40, 1000}) {
    std::vector<uint64_t> pairs;
    for (const Batch& part : parts_of(batch, most)) {
      EXPECT_EQ(part.lengths.size(), 2 * part.pairs.size());
      EXPECT_EQ(part.reference.size(), part.lengths.size());
      pairs.insert(pairs.end(), part.pairs.begin(), part.pairs.end());
    }
    EXPECT_EQ(pairs, batch.pairs);
  }
  EXPECT_EQ(counted_in(batch), 4);
}

class DpoRun : public testing::Test {
 protected:
  void SetUp() override {
    prepare(scratch, lines_of(read_json(folder() + "dpo.json")), "pairs");
    prepare(scratch,
            R"({"prompt": "The bee", "chosen": " flew.", "rejected": " sat down."})"
            "\n",
            "held");
  }
  TrainConfig config(const std::string& out, const std::string& extra = "dpo: {beta: 0.2}\n") {
    return parse_train_config("model: " + llama() + "\ndata: {train: " + scratch / "pairs/train" +
                                  ", validation: " + scratch / "held/train" +
                                  "}\nsequence_length: 48\nbatch: 2\nsteps: 8\noptimizer: {lr: 1e-3}\neval_every: 4\n" +
                                  "schedule: {decay: constant}\ncheckpoint: {every: 2}\nout: " + scratch / out + "\n" + extra,
                              "c.yaml");
  }
  Scratch scratch;
};

TEST_F(DpoRun, LearnsAndGoesOnToTheSameBits) {
  train(config("whole"), false);
  const std::vector<Json> lines = metrics_of(scratch / "whole");
  EXPECT_NEAR(lines[0].at("val_loss").get<double>(), std::log(2.0), 1e-5);
  EXPECT_NEAR(lines[1].at("loss").get<double>(), std::log(2.0), 1e-5);
  EXPECT_LT(lines.back().at("loss").get<double>(), 0.5);
  EXPECT_GT(lines.back().at("reward_margin").get<double>(), 0.5);
  EXPECT_EQ(lines.back().at("reward_accuracy"), 1.0);
  EXPECT_TRUE(lines.back().contains("val_reward_accuracy"));
  train_up_to(config("cut"), 3);
  train(config("cut"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), lines);
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("cut", "dpo: {beta: 0.3}\n"), true); }),
                  "the run has dpo \"beta 0.2\", and the configuration now says \"beta 0.3\"");
  std::filesystem::remove(scratch / "cut/reference.safetensors");
  EXPECT_CONTAINS(message_of<FileError>([&] { train(config("cut"), true); }),
                  "is missing: it holds the log-probabilities of the reference model");
}

// Without a reference there is nothing to compute before the first step, and nothing to keep.
TEST_F(DpoRun, LossesWithoutAReferenceGoOnToTheSameBits) {
  for (const char* section : {"orpo: {beta: 0.2}\n", "cpo: {loss_type: simpo, beta: 2}\n"}) {
    SCOPED_TRACE(section);
    const std::string whole = std::string("whole-") + section[0], cut = std::string("cut-") + section[0];
    train(config(whole, section), false);
    EXPECT_FALSE(std::filesystem::exists(scratch / whole + "/reference.safetensors"));
    const std::vector<Json> lines = metrics_of(scratch / whole);
    EXPECT_LT(lines.back().at("loss").get<double>(), lines[1].at("loss").get<double>());
    train_up_to(config(cut, section), 3);
    train(config(cut, section), true);
    EXPECT_EQ(weights_bytes(scratch / cut + "/last"), weights_bytes(scratch / whole + "/last"));
    EXPECT_EQ(metrics_of(scratch / cut), lines);
  }
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("cut-o", "orpo: {beta: 0.3}\n"), true); }),
                  "the run has orpo \"beta 0.2, odds, cross-entropy times 1.0\"");
}

// A mean over all of its tokens, whatever the batches.
TEST_F(DpoRun, TheLossOfAValidationDoesNotDependOnItsBatches) {
  std::vector<double> losses;
  for (int64_t batch : {2, 4}) {
    TrainConfig c = config("batch-" + std::to_string(batch), "orpo: {beta: 0.2}\n");
    c.batch = batch;
    train(c, false);
    losses.push_back(metrics_of(c.out).front().at("val_loss").get<double>());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-6);
}

TEST_F(DpoRun, ProcessesLearnTogetherWhatOneLearns) {
  train(config("alone"), false);
  ThreadRanks::run_all(2, [&](Comm& comm) { train(config("together"), false, {}, &comm); });
  expect_near(metrics_of(scratch / "together"), metrics_of(scratch / "alone"),
              {"loss", "val_loss", "reward_margin", "grad_norm"});
}

TEST_F(DpoRun, AnAdapterLearnsToo) {
  train(config("adapter", "dpo: {}\nlora: {rank: 2, alpha: 4, targets: [q_proj, v_proj]}\n"), false);
  EXPECT_LT(metrics_of(scratch / "adapter").back().at("loss").get<double>(), std::log(2.0));
}

// What it had learned before is the reference.
TEST_F(DpoRun, AnAdapterGoesOnFromAnotherRun) {
  train(config("before", "dpo: {}\nlora: {rank: 2, alpha: 4, targets: [q_proj, v_proj]}\n"), false);
  train(config("after", "dpo: {beta: 0.2}\nlora: {path: " + scratch / "before/last" + "}\n"), false);
  const std::vector<Json> lines = metrics_of(scratch / "after");
  EXPECT_NEAR(lines[0].at("val_loss").get<double>(), std::log(2.0), 1e-5);
  EXPECT_NEAR(lines[1].at("loss").get<double>(), std::log(2.0), 1e-5);
  EXPECT_LT(lines.back().at("loss").get<double>(), std::log(2.0));
}

// Of the data that it learned from, beside the weights of every checkpoint.
TEST_F(DpoRun, TheChatTemplateOfTheDataIsKept) {
  const std::string lines = lines_of(read_json(folder() + "dpo.json")),
                    source = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const auto engine = llama_engine();
  ThreadPool pool(1);
  const PrepareOptions options{.files = {scratch.write("lines.jsonl", lines)},
                               .content = DataContent::preferences,
                               .encode_line = preference_encoder(engine)};
  for (int again = 0; again < 2; ++again)  // the folder is replaced as any other
    prepare_data(engine->tokenizer(), pool, options, scratch / "pairs", {{kTemplateName, source}});
  train_up_to(config("kept"), 3);
  train(config("kept"), true);
  for (const char* step : {"step-6", "step-8"}) EXPECT_EQ(read_file(scratch / "kept/" + step + "/chat_template.jinja"), source);
  train(config("adapter", "dpo: {}\nlora: {rank: 2, alpha: 4, targets: [q_proj]}\n"), false);
  EXPECT_EQ(read_file(scratch / "adapter/last/chat_template.jinja"), source);
  OpenedModel opened = open_model(llama());
  EXPECT_FALSE(chat_template_of(opened));
  open_adapter(opened, scratch / "adapter/last");
  EXPECT_EQ(chat_template_of(opened), source);
  EXPECT_EQ(companions_of(opened).at("chat_template.jinja"), source);
}

// Of an adapter that goes on with data that no template wrote.
TEST_F(DpoRun, TheChatTemplateOfAnAdapterIsKept) {
  train(config("before", "dpo: {}\nlora: {rank: 2, alpha: 4, targets: [q_proj]}\n"), false);
  write_file_atomically(scratch / "before/last/chat_template.jinja", "{{ messages }}");
  train(config("after", "dpo: {}\nlora: {path: " + scratch / "before/last" + "}\n"), false);
  EXPECT_EQ(read_file(scratch / "after/last/chat_template.jinja"), "{{ messages }}");
}

TEST_F(DpoRun, AStopBeforeTheReferenceIsThereLeavesNoRun) {
  TrainEvents events;
  events.stop = [] { return true; };
  const TrainResult result = train(config("early"), false, events);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.step, 0);
  EXPECT_EQ(train(config("early"), true).step, 8);
}

TEST_F(DpoRun, RefusesWhatDoesNotGoTogether) {
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("no", ""), false); }), "holds preferences. Set dpo: {beta: 0.1}");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "dpo: {beta: 0}\n"); }), "expected a number from 1e-6 to 1e6");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "dpo: {gamma: 1}\n"); }), "\"dpo.gamma\"");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "dpo: {}\nema: 0.9\nkl_to: ema\nkl_weight: 1\n"); }),
                  "leave distill and kl_to out");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "dpo: {loss_type: ppo}\n"); }), "sigmoid");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "cpo: {simpo_gamma: 1}\n"); }), "it belongs to loss_type: simpo");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "dpo: {}\norpo: {}\n"); }), "\"dpo\" is set too");
  TrainConfig c = config("no");
  c.documents = false;
  EXPECT_CONTAINS(message_of<InputError>([&] { train(c, false); }), "which never run into each other");
}

}  // namespace
}  // namespace vitrine
