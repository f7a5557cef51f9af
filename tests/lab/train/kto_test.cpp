// KTO against TRL's KTOTrainer (tests/golden/train/make_kto.py), and what a run must do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/mapped_file.h"
#include "support/close.h"
#include "support/golden.h"
#include "train/data/conversations.h"
#include "train/learner.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/thread_ranks.h"
#include "train/train.h"

namespace vitrine::kto_test {  // tests are compiled together
namespace {

std::string folder() { return std::string(VITRINE_GOLDEN) + "/train/"; }
std::string llama() { return std::string(VITRINE_GOLDEN) + "/models/llama/model"; }
std::shared_ptr<const Engine> llama_engine() { return std::make_shared<const Engine>(llama(), EngineOptions{.threads = 1}); }

LineEncoder unpaired_encoder(const std::optional<std::string>& source = {}) {
  return read_lines(llama_engine(), {.content = DataContent::unpaired, .chat_template = source}).encode;
}

std::string lines_of(const Json& gold) {
  std::string lines;
  for (const Json& example : gold.at("examples")) lines += example.dump() + "\n";
  return lines;
}

Prepared prepare(const Scratch& scratch, const std::string& lines, const std::string& out) {
  const auto engine = llama_engine();
  ThreadPool pool(1);
  const PrepareOptions options{
      .files = {scratch.write("lines.jsonl", lines)}, .content = DataContent::unpaired, .encode_line = unpaired_encoder()};
  return prepare_data(engine->tokenizer(), pool, options, scratch / out);
}

TrainConfig config_of(const std::string& section) {
  return parse_train_config(
      "model: m\ndata: {train: d}\nsequence_length: 64\nbatch: 6\nsteps: 10\nout: o\noptimizer: {lr: 1e-3}\n" + section + "\n",
      "c.yaml");
}

TEST(UnpairedPreferences, LinesBecomeTheIdsOfTrl) {
  const Json gold = read_json(folder() + "kto.json");
  const Scratch scratch;
  const Prepared made = prepare(scratch, lines_of(gold), "examples");
  const TokenData data = TokenData::open(scratch / "examples/train");
  ASSERT_EQ(data.documents(), gold.at("examples").size());
  EXPECT_EQ(data.content(), DataContent::unpaired);
  std::vector<uint64_t> starts = data.document_starts(0, data.tokens());
  starts.push_back(data.tokens());
  uint64_t scored_ids = 0;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const Json& want = gold.at("runs")[0].at("ids")[i];
    std::vector<int32_t> ids = want[0];
    std::vector<uint8_t> marks(ids.size(), 0);
    for (const Json& id : want[1]) ids.push_back(id.get<int32_t>());
    marks.resize(ids.size(), 1);
    std::vector<int32_t> got(starts[i + 1] - starts[i]);
    std::vector<uint8_t> scored(got.size());
    data.read(starts[i], got);
    data.read_scored(starts[i], scored);
    EXPECT_EQ(got, ids);
    EXPECT_EQ(scored, marks);
    EXPECT_EQ(data.desirable(starts[i]), gold.at("examples")[i].at("label").get<bool>());
    scored_ids += want[1].size();
  }
  EXPECT_EQ(made.train.scored, scored_ids);  // labels are none of them
}

TEST(UnpairedPreferences, PairsBecomeTwoExamples) {
  const LineEncoder encode = unpaired_encoder();
  const auto both = encode(R"({"prompt": "Why", "chosen": "? So.", "rejected": "! 12"})");
  ASSERT_EQ(both.size(), 2u);
  const auto good = encode(R"({"prompt": "Why", "completion": "? So.", "label": true})"),
             bad = encode(R"({"prompt": "Why", "completion": "! 12", "label": false})");
  EXPECT_EQ(both[0].ids, good[0].ids);
  EXPECT_EQ(both[0].scored, good[0].scored);
  EXPECT_EQ(both[1].ids, bad[0].ids);
  EXPECT_EQ(both[1].scored, bad[0].scored);
  EXPECT_EQ(good[0].scored[0], 1);
  EXPECT_EQ(bad[0].scored[0], 0);
  const LineEncoder chat = unpaired_encoder(
      "{% for m in messages %}{{ m.role }}:\n{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}");
  const auto messages = chat(R"({"prompt": [{"role": "user", "content": "a"}],)"
                             R"( "completion": [{"role": "assistant", "content": "good"}], "label": false})");
  std::vector<int32_t> said;
  for (size_t i = 1; i < messages[0].ids.size(); ++i)
    if (messages[0].scored[i] != 0) said.push_back(messages[0].ids[i]);
  EXPECT_EQ(llama_engine()->tokenizer().decode(said), "good\n");
}

TEST(UnpairedPreferences, RefusesOtherLines) {
  const LineEncoder encode = unpaired_encoder();
  const auto refused = [&](const std::string& line) { return message_of<InputError>([&] { encode(line); }); };
  EXPECT_CONTAINS(refused(R"({"prompt": "a", "completion": "b", "label": "yes"})"),
                  "\"label\" is \"yes\"; expected true for a desirable completion, false for another");
  EXPECT_CONTAINS(refused(R"({"prompt": "a", "completion": "b"})"),
                  "has the keys \"prompt\", \"completion\"; expected one of these forms: {\"prompt\": …, \"completion\": …, "
                  "\"label\": true}, or {\"prompt\": …, \"chosen\": …, \"rejected\": …}");
}

// Whole batches, batches of a part of the data, and the loss without a divergence.
TEST(KtoGolden, TenSteps) {
  const Json gold = read_json(folder() + "kto.json");
  const Scratch scratch;
  prepare(scratch, lines_of(gold), "examples");
  const TokenData data = TokenData::open(scratch / "examples/train");
  for (const Json& run : gold.at("runs")) {
    const auto section = run.at("section").get<std::string>();
    SCOPED_TRACE(section);
    const PreferenceOptions preference = *config_of(section).preference;
    const bool divergence = preference.loss == PreferenceOptions::Loss::kto;
    const int64_t size = run.at("batch").get<int64_t>();
    BatchSource source(
        data, {.sequence_length = 64, .batch = size, .shuffle = false, .together = divergence ? static_cast<uint64_t>(size) : 0});
    LearnerOptions options;
    options.optimizer = {.weight_decay = 0};
    options.threads = 2;
    Learner learner(open_model(llama()), options);
    learner.set_preference(preference);
    const size_t each = divergence ? 2 : 1;
    std::vector<Batch> epoch;
    for (size_t i = 0; i < data.documents(); i += static_cast<size_t>(size)) {
      Batch& batch = epoch.emplace_back(source.next());
      batch.reference = learner.answer_logprobs(batch);
      ASSERT_EQ(batch.reference.size(), each * static_cast<size_t>(size));
      for (size_t k = 0; k < batch.reference.size(); ++k) {
        const double want = run.at("reference")[i + k / each][k % each].get<double>();
        EXPECT_NEAR(batch.reference[k], want, 1e-5 * std::abs(want)) << i << " " << k;
      }
    }
    for (size_t step = 0; step < 10; ++step) {
      const Batch& batch = epoch[step % epoch.size()];
      const Learner::Sum before = learner.evaluate(batch);
      const StepReport report = learner.step(std::span(&batch, 1), gold.at("lr").get<double>());
      const auto near = [&](double got, const char* key) {
        const double want = run.at(key)[step].get<double>();
        EXPECT_NEAR(got, want, 1e-4 * std::max(1.0, std::abs(want))) << key << " " << step;
      };
      near(report.loss, "losses");
      near(before.loss / static_cast<double>(before.tokens), "losses");
      ASSERT_TRUE(report.preference);
      near(report.preference->kl, "kl");
      near(report.preference->chosen_reward, "reward_chosen");
      EXPECT_EQ(report.preference->rejected > 0, !run.at("reward_rejected")[step].is_null());
      if (report.preference->rejected > 0) near(report.preference->rejected_reward, "reward_rejected");
    }
    if (&run != &gold.at("runs")[0]) continue;
    EXPECT_EQ(expect_golden_weights(learner, folder() + "kto.safetensors"),
              open_safetensors(folder() + "kto.safetensors").tensors().size());
  }
}

// Each step has the prompts of its examples with the answers of the same examples, whatever the epoch and whoever reads it.
TEST(Kto, AStepComparesItsOwnExamples) {
  const Scratch scratch;
  prepare(scratch, lines_of(read_json(folder() + "kto.json")), "examples");
  const TokenData data = TokenData::open(scratch / "examples/train");
  const BatchOptions options{.sequence_length = 64, .batch = 4, .seed = 3, .together = 4};
  BatchSource source(data, options);
  EXPECT_EQ(source.windows_per_epoch(), 8u);  // six examples, and two of them again
  std::set<std::vector<uint64_t>> groups[3];
  for (int epoch = 0; epoch < 3; ++epoch)
    for (int step = 0; step < 2; ++step) {
      const Batch batch = source.next(), own = halves_of(batch, 0), other = halves_of(batch, 1);
      std::multiset<std::vector<int32_t>> answers[2];
      for (const size_t which : {0, 1}) {
        const Batch& half = which == 0 ? own : other;
        auto label = half.labels.begin();
        for (const int64_t length : half.lengths) {
          std::vector<int32_t> answer;
          std::copy_if(label, label + length, std::back_inserter(answer), [](int32_t id) { return id >= 0; });
          answers[which].insert(answer);
          label += length;
        }
      }
      EXPECT_EQ(answers[0], answers[1]);
      groups[epoch].insert(own.pairs);
    }
  EXPECT_EQ(groups[0], groups[1]);
  EXPECT_EQ(groups[0], groups[2]);
}

TEST(Kto, PartsOfAStepGiveTheLossOfTheWhole) {
  const Scratch scratch;
  prepare(scratch, lines_of(read_json(folder() + "kto.json")), "examples");
  const TokenData data = TokenData::open(scratch / "examples/train");
  const auto step = [&](int64_t batch) {
    BatchSource source(data, {.sequence_length = 64, .batch = batch, .seed = 3, .together = 6});
    LearnerOptions options;
    options.threads = 2;
    Learner learner(open_model(llama()), options);
    learner.set_preference(*config_of("kto: {}").preference);
    std::vector<Batch> batches;
    for (int64_t i = 0; i < 6; i += batch) {
      batches.push_back(source.next());
      batches.back().reference = learner.answer_logprobs(batches.back());
    }
    learner.step(batches, 1e-3);
    return learner.step(batches, 1e-3);
  };
  const StepReport at_once = step(6), in_parts = step(2);
  EXPECT_GT(at_once.preference->kl, 0.1);
  EXPECT_NEAR(in_parts.preference->kl, at_once.preference->kl, 1e-4 * at_once.preference->kl);
  EXPECT_NEAR(in_parts.loss, at_once.loss, 1e-5 * at_once.loss);
  EXPECT_NEAR(in_parts.gradient_norm, at_once.gradient_norm, 1e-4 * at_once.gradient_norm);
}

class KtoRun : public testing::Test {
 protected:
  void SetUp() override {
    prepare(scratch, lines_of(read_json(folder() + "kto.json")), "examples");
    prepare(scratch,
            R"({"prompt": "The bee", "chosen": " flew.", "rejected": " sat down."})"
            "\n",
            "held");
  }
  TrainConfig config(const std::string& out, const std::string& extra = "kto: {beta: 0.2}\n", int64_t batch = 4) {
    return parse_train_config(
        "model: " + llama() + "\ndata: {train: " + scratch / "examples/train" + ", validation: " + scratch / "held/train" +
            "}\nsequence_length: 48\nbatch: " + std::to_string(batch) + "\nsteps: 8\noptimizer: {lr: 1e-3}\neval_every: 4\n" +
            "schedule: {decay: constant}\ncheckpoint: {every: 2}\nout: " + scratch / out + "\n" + extra,
        "c.yaml");
  }
  Scratch scratch;
};

TEST_F(KtoRun, LearnsAndGoesOnToTheSameBits) {
  for (const char* section : {"kto: {beta: 0.2}\n", "kto: {beta: 0.2, loss_type: apo_zero_unpaired}\n"}) {
    SCOPED_TRACE(section);
    const bool divergence = std::string(section).find("apo") == std::string::npos;
    const std::string whole = divergence ? "whole" : "whole-apo", cut = divergence ? "cut" : "cut-apo";
    train(config(whole, section), false);
    const std::vector<Json> lines = metrics_of(scratch / whole);
    EXPECT_NEAR(lines[0].at("val_loss").get<double>(), 0.5, 1e-5);
    EXPECT_NEAR(lines[1].at("loss").get<double>(), 0.5, 1e-5);
    EXPECT_LT(lines.back().at("loss").get<double>(), 0.3);
    EXPECT_GT(lines.back().at("reward_margin").get<double>(), 0.5);
    EXPECT_FALSE(lines.back().contains("reward_accuracy"));
    EXPECT_EQ(lines.back().contains("kl"), divergence);
    EXPECT_EQ(lines.back().contains("val_kl"), divergence);
    train_up_to(config(cut, section), 3);
    train(config(cut, section), true);
    EXPECT_EQ(weights_bytes(scratch / cut + "/last"), weights_bytes(scratch / whole + "/last"));
    EXPECT_EQ(metrics_of(scratch / cut), lines);
  }
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("cut", "kto: {beta: 0.3}\n"), true); }),
                  "the run has kto \"beta 0.2, kto, weights 1.0 and 1.0\"");
}

// Two processes with two batches each, one process with one batch: the same step.
TEST_F(KtoRun, ProcessesAndBatchesLearnTogetherWhatOneLearns) {
  train(config("alone"), false);
  ThreadRanks::run_all(2,
                       [&](Comm& comm) { train(config("together", "kto: {beta: 0.2}\naccumulate: 2\n", 2), false, {}, &comm); });
  expect_near(metrics_of(scratch / "together"), metrics_of(scratch / "alone"),
              {"loss", "val_loss", "kl", "val_kl", "reward_margin", "grad_norm"});
}

TEST_F(KtoRun, AnAdapterLearnsToo) {
  train(config("adapter", "kto: {}\nlora: {rank: 2, alpha: 4, targets: [q_proj, v_proj]}\n"), false);
  EXPECT_LT(metrics_of(scratch / "adapter").back().at("loss").get<double>(), 0.5);
}

TEST_F(KtoRun, RefusesWhatDoesNotGoTogether) {
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("no", ""), false); }),
                  "holds unpaired preferences. Set kto: {beta: 0.1} to learn from them");
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("no", "dpo: {}\n"), false); }),
                  "holds unpaired preferences, and dpo learns from preferences");
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "kto: {}\n", 1); }), "expected 2 or more");
  EXPECT_NO_THROW(config("no", "kto: {loss_type: apo_zero_unpaired}\n", 1));
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "kto: {loss_type: bco}\n"); }), "apo_zero_unpaired");
  EXPECT_CONTAINS(message_of<FileError>([&] {
                    parse_train_config(
                        "model: m\ndata: {train: [a, b]}\nsequence_length: 8\nbatch: 4\nsteps: 1\nout: o\n"
                        "optimizer: {lr: 1e-3}\nkto: {}\n",
                        "c.yaml");
                  }),
                  "kto learns from one folder, and data.train names 2");
}

}  // namespace
}  // namespace vitrine::kto_test
