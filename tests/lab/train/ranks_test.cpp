// Several ranks learn what one learns: gradients, norms, clipping, moments, and what is said when one of them fails.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "support/scratch.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/thread_ranks.h"
#include "train/train.h"

namespace vitrine {
namespace {

LearnerOptions adamw(Comm* comm = nullptr) {
  LearnerOptions options;
  options.optimizer.weight_decay = 0.1;
  options.optimizer.eps = 1e-5;  // above gradients of rounding alone (1e-9 beside 1e-3), which AdamW would divide by themselves
  options.threads = 1;
  options.clip = 0.5;
  options.comm = comm;
  return options;
}

// Sequences whose tokens are scored in part only, so that ranks score unequally many; the third has none scored.
Batch uneven_batch(uint64_t seed) {
  Batch batch;
  for (const int64_t length : {24, 5, 9, 17}) {
    batch.lengths.push_back(length);
    for (int64_t i = 0; i < length; ++i) {
      const auto words = philox(seed, batch.tokens.size(), 0);
      batch.tokens.push_back(static_cast<int32_t>(words[0] % 97));
      const bool scored = length != 9 && (length != 24 || i % 8 == 0);
      batch.labels.push_back(scored ? static_cast<int32_t>(words[1] % 97) : kNotScored);
    }
  }
  return batch;
}

// Every rank ends, and those that were not ended by another say so.
void expect_refused(const std::vector<std::exception_ptr>& thrown, const std::string& words) {
  bool said = false;
  for (const std::exception_ptr& error : thrown) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const InputError& refused) {
      EXPECT_CONTAINS(refused.what(), words);
      said = true;
    } catch (const ThreadRanks::Ended&) {
      continue;
    }
  }
  EXPECT_TRUE(said);
}

// Everything of a run that must not depend on the number of ranks.
struct Seen {
  std::vector<double> losses, norms;
  std::vector<int64_t> tokens;
  std::vector<double> layer_norms, changes;  // of the last step
  std::map<size_t, std::vector<float>> state;
  std::vector<float> weights;
};

Seen some_steps(Comm& comm, uint64_t steps, bool bf16_moments) {
  LearnerOptions options = adamw(&comm);
  options.optimizer.bf16_moments = bf16_moments;
  Learner learner(open_model(Golden::open("gemma2").model()), options);
  Seen seen;
  for (uint64_t step = 0; step < steps; ++step) {
    std::vector<Batch> batches;  // accumulated
    for (uint64_t i = 0; i < 2; ++i) batches.push_back(part_of(uneven_batch(10 * step + i), comm.rank(), comm.size()));
    const StepReport report = learner.step(batches, 1e-2, true);
    seen.losses.push_back(report.loss);
    seen.norms.push_back(report.gradient_norm);
    seen.tokens.push_back(report.tokens);
    seen.layer_norms = report.gradient_norms;
    seen.changes = report.update.change;
  }
  const size_t n = learner.parameters().size();
  learner.each_state([&](size_t which, const float* whole) { seen.state[which].assign(whole, whole + n); });
  seen.weights.assign(learner.parameters().weights(), learner.parameters().weights() + n);
  for (const Parameter& p : learner.parameters().list())
    for (size_t i = 0; i < p.count && learner.parameters().begins_with_zeros(p); ++i)
      EXPECT_EQ(learner.parameters().gradients(p)[i], 0.0f);
  return seen;
}

TEST(Ranks, LearnWhatOneLearns) {
  Comm alone;
  const Seen one = some_steps(alone, 5, false);
  EXPECT_EQ(one.tokens[0], 2 * (3 + 5 + 17));
  EXPECT_GT(one.norms[0], 0.5);  // so that clipping acts
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::vector<Seen> all(static_cast<size_t>(ranks));
    ThreadRanks::run_all(ranks, [&](Comm& comm) { all[static_cast<size_t>(comm.rank())] = some_steps(comm, 5, false); });
    for (const Seen& seen : all) {  // every rank is told the same, and has the same weights
      EXPECT_EQ(seen.tokens, one.tokens);
      EXPECT_EQ(seen.losses, all[0].losses);
      EXPECT_EQ(seen.layer_norms, all[0].layer_norms);
      EXPECT_EQ(seen.weights, all[0].weights);
    }
    const Seen& many = all[0];
    EXPECT_CLOSE(many.losses, one.losses, (Tolerance{.abs = 0, .rel = 1e-5}));
    EXPECT_CLOSE(many.norms, one.norms, (Tolerance{.abs = 0, .rel = 1e-4}));
    EXPECT_CLOSE(many.layer_norms, one.layer_norms, (Tolerance{.abs = 1e-6, .rel = 1e-4}));
    EXPECT_CLOSE(many.changes, one.changes, (Tolerance{.abs = 1e-6, .rel = 1e-3}));
    EXPECT_CLOSE(many.weights, one.weights, (Tolerance{.abs = 1e-4, .rel = 1e-4}));
    ASSERT_EQ(many.state.size(), 2u);
    for (const auto& [which, numbers] : one.state)
      EXPECT_CLOSE(many.state.at(which), numbers, (Tolerance{.abs = 1e-6, .rel = 1e-3}));
    EXPECT_TRUE(all[1].state.empty());
  }
}

// The chance that rounds a moment falls by its place in the whole, on whichever rank that is kept.
TEST(Ranks, RoundMomentsInBf16AsOneDoes) {
  Comm alone;
  const Seen one = some_steps(alone, 2, true);
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::vector<Seen> all(static_cast<size_t>(ranks));
    ThreadRanks::run_all(ranks, [&](Comm& comm) { all[static_cast<size_t>(comm.rank())] = some_steps(comm, 2, true); });
    EXPECT_CLOSE(all[0].losses, one.losses, (Tolerance{.abs = 0, .rel = 1e-4}));
    for (size_t which : {0, 1}) {
      size_t other = 0;  // sums of gradients differ in their last bits, which seldom turns a rounding; more steps multiply that
      const std::vector<float>&a = all[0].state.at(which), &b = one.state.at(which);
      for (size_t i = 0; i < b.size(); ++i) other += a[i] != b[i];
      EXPECT_LT(static_cast<double>(other), 0.005 * static_cast<double>(b.size())) << which;
    }
  }
}

// Large enough for several buckets, most of which are summed while backward goes on.
TEST(Ranks, LearnInManyBuckets) {
  const auto two_steps = [](Comm& comm, bool recompute) {
    LearnerOptions options = adamw(&comm);
    options.recomputed_layers = recompute ? Tape::kAllBlocks : 0;
    Learner learner(open_model(std::string(VITRINE_SOURCE) + "/models/tales9m"), options);
    std::vector<double> numbers;
    for (uint64_t step = 0; step < 2; ++step) {
      const std::vector<Batch> batches = {part_of(uneven_batch(step), comm.rank(), comm.size()),
                                          part_of(uneven_batch(step + 5), comm.rank(), comm.size())};
      const StepReport report = learner.step(batches, 1e-3);
      numbers.push_back(report.loss);
      numbers.insert(numbers.end(), report.gradient_norms.begin(), report.gradient_norms.end());
    }
    return numbers;
  };
  Comm alone;
  const std::vector<double> wanted = two_steps(alone, false);
  for (const bool recompute : {false, true})
    ThreadRanks::run_all(3, [&](Comm& comm) {
      const std::vector<double> got = two_steps(comm, recompute);
      if (comm.rank() == 0) {
        EXPECT_CLOSE(got, wanted, (Tolerance{.abs = 1e-6, .rel = 1e-4}));
      }
    });
}

TEST(Ranks, EachKeepsItsShareOfTheState) {
  for (const int ranks : {1, 2, 5}) {
    std::vector<std::vector<Shards::Range>> kept(static_cast<size_t>(ranks));
    size_t size = 0;
    std::vector<Parameter> list;
    ThreadRanks::run_all(ranks, [&](Comm& comm) {
      OpenedModel opened = open_model(Golden::open("llama").model());
      const Parameters parameters(*opened.model);
      const Shards shards(parameters, comm);
      kept[static_cast<size_t>(comm.rank())] = shards.mine();
      if (comm.rank() == 0) size = parameters.size(), list = parameters.list();
    });
    std::vector<int> keepers(size);
    std::vector<size_t> counts;
    for (const auto& ranges : kept) {
      counts.push_back(0);
      for (const auto& [begin, end] : ranges)
        for (size_t i = begin; i < end; ++i) ++keepers[i], ++counts.back();
    }
    for (const Parameter& p : list)  // each number has one keeper
      for (size_t i = p.begin; i < p.begin + p.count; ++i) ASSERT_EQ(keepers[i], 1) << p.name;
    for (const size_t count : counts)
      EXPECT_LE(static_cast<double>(count), static_cast<double>(size) / ranks + 16.0 * static_cast<double>(list.size())) << ranks;
  }
  const OptimizerOptions options;
  EXPECT_EQ(Optimizer::bytes(options, 1000, 1), 16000);
  EXPECT_EQ(Optimizer::bytes(options, 1000, 4), 10000);
}

TEST(Ranks, TheOneWithNanNamesThePlace) {
  const std::vector<std::exception_ptr> thrown = ThreadRanks::run(3, [&](Comm& comm) {
    Learner learner(open_model(Golden::open("gemma2").model()), adamw(&comm));
    const Batch batch = part_of(uneven_batch(1), comm.rank(), 2);  // the third has none
    learner.step(std::span(&batch, 1), 1e-3);
    if (comm.rank() == 1)
      for (const Parameter& p : learner.parameters().list())
        if (p.ours == "blocks.2.mlp.W_in") learner.parameters().weights(p)[5] = std::numeric_limits<float>::quiet_NaN();
    learner.step(std::span(&batch, 1), 1e-3);
  });
  EXPECT_THROW(std::rethrow_exception(thrown[0]), ThreadRanks::Ended);
  EXPECT_CONTAINS(message_of<RunError>([&] { std::rethrow_exception(thrown[1]); }),
                  "step 2: NaN or infinity appeared first in blocks.2.mlp.hook_pre");
  EXPECT_THROW(std::rethrow_exception(thrown[2]), ThreadRanks::Ended);
}

TEST(Ranks, RefuseToBeginWithDifferentWeights) {
  const std::vector<std::exception_ptr> thrown = ThreadRanks::run(2, [&](Comm& comm) {
    const Learner learner(open_model(Golden::open(comm.rank() == 0 ? "gpt2_a" : "gpt2_b").model()), adamw(&comm));
  });
  expect_refused(thrown, "the processes begin with different weights");
}

// Whole runs, in one folder: rank 0 writes what a single process writes.
class RanksRun : public testing::Test {
 protected:
  void SetUp() override {
    small_data(scratch, "data", 40, 1);
    small_data(scratch, "valid", 6, 2);
  }
  TrainConfig config(const std::string& out, const std::string& extra = "") {
    std::string text = small_config(scratch, scratch / out, "threads: 1\ndropout: 0.2\nlayers_every: 5\n" + extra);
    text.replace(text.find("batch: 3"), 8, "batch: 4");
    return parse_train_config(text, "config.yaml");
  }
  Scratch scratch;
};

TEST_F(RanksRun, GoesOnWithOthersInNumber) {
  const TrainResult alone = train(config("alone"), false);
  const auto until = [&](const std::string& out, int ranks, bool resume, int64_t stop) {
    std::vector<TrainResult> results(static_cast<size_t>(ranks));
    ThreadRanks::run_all(ranks, [&](Comm& comm) {
      TrainEvents events;
      auto done = std::make_shared<int64_t>(0);
      events.stepped = [done](const StepReport& r, const TrainEvents::Rate&) { *done = r.step; };
      events.stop = [done, stop] { return *done >= stop; };  // rank 0 alone is told of steps, and so asks for all
      results[static_cast<size_t>(comm.rank())] = train(config(out), resume, events, &comm);
    });
    for (const TrainResult& result : results) EXPECT_EQ(result.step, results[0].step);
    return results[0];
  };
  until("cut", 2, false, 4);
  EXPECT_EQ(names_under(scratch / "cut/last/training"), names_under(scratch / "alone/last/training"));
  until("cut", 1, true, 7);
  const TrainResult cut = until("cut", 4, true, 100);
  EXPECT_EQ(cut.step, alone.step);
  EXPECT_EQ(cut.tokens, alone.tokens);
  EXPECT_EQ(names_under(scratch / "cut/last"), names_under(scratch / "alone/last"));
  const std::vector<Json> wanted = metrics_of(scratch / "alone"), got = metrics_of(scratch / "cut");
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(got[i].at("step"), wanted[i].at("step"));
    EXPECT_EQ(got[i].at("tokens"), wanted[i].at("tokens"));
    for (const char* key : {"loss", "grad_norm", "val_loss"})
      if (wanted[i].contains(key)) {
        const double want = wanted[i].at(key).get<double>();
        EXPECT_NEAR(got[i].at(key).get<double>(), want, (std::string(key) == "grad_norm" ? 1e-4 : 1e-5) * want)
            << key << " " << i;
      }
    EXPECT_EQ(got[i].contains("layer_grad_norm"), wanted[i].contains("layer_grad_norm"));
  }
  // The same number again: the same bits.
  until("a", 2, false, 100);
  until("b", 2, false, 5);
  until("b", 2, true, 100);
  EXPECT_EQ(weights_bytes(scratch / "a/last"), weights_bytes(scratch / "b/last"));
}

// Whichever rank hears it, in the validation before the first step, in a step, or in the validation of step 4.
TEST_F(RanksRun, AStopIsHeardByAll) {
  const auto run = [&](const std::string& out, bool resume, int asked) {
    std::vector<TrainResult> results(2);
    ThreadRanks::run_all(2, [&](Comm& comm) {
      TrainEvents events;
      int left = asked;
      if (comm.rank() == 1) events.stop = [&] { return --left == 0; };
      results[static_cast<size_t>(comm.rank())] = train(config(out), resume, events, &comm);
    });
    EXPECT_EQ(results[0].step, results[1].step);
    EXPECT_EQ(results[0].checkpoint, results[1].checkpoint);
    return results[0];
  };
  run("whole", false, 0);
  for (const auto& [asked, step] : std::map<int, int64_t>{{2, 0}, {6, 2}, {10, 4}}) {
    SCOPED_TRACE(asked);
    const std::string out = "cut" + std::to_string(asked);
    EXPECT_EQ(run(out, false, asked).step, step);
    if (step > 0) {
      EXPECT_FALSE(metrics_of(scratch / out).back().contains("val_loss"));
    }
    EXPECT_EQ(run(out, true, 0).step, 12);
    EXPECT_EQ(weights_bytes(scratch / (out + "/last")), weights_bytes(scratch / "whole/last"));
    std::vector<Json> got = metrics_of(scratch / out), wanted = metrics_of(scratch / "whole");
    for (std::vector<Json>* lines : {&got, &wanted})
      for (Json& line : *lines) line.erase("comm_share");
    EXPECT_EQ(got, wanted);
  }
}

TEST_F(RanksRun, RefuseABatchThatDoesNotDivide) {
  expect_refused(ThreadRanks::run(3, [&](Comm& comm) { train(config("run"), false, {}, &comm); }),
                 "config.yaml: batch is 4; expected a multiple of the 3 processes that share it");
}

TEST_F(RanksRun, RefuseToTrainByDifferentConfigurations) {
  expect_refused(
      ThreadRanks::run(2, [&](Comm& comm) { train(config("run", comm.rank() == 0 ? "" : "clip: 2\n"), false, {}, &comm); }),
      "config.yaml: the text of the configuration (a checksum): one process has ");
}

}  // namespace
}  // namespace vitrine
