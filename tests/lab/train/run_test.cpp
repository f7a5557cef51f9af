// Whole runs: metrics, checkpoints, resuming to the same bits, and what is refused before it starts.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "io/safetensors.h"
#include "model/fingerprint.h"
#include "runtime/engine.h"
#include "tokenizer/load.h"
#include "train/data/prepare.h"
#include "train/data/token_data.h"
#include "train/run_support.h"
#include "train/train.h"

namespace vitrine {
namespace {

class TrainRun : public testing::Test {
 protected:
  void SetUp() override {
    small_data(scratch, "data", 40, 1);
    small_data(scratch, "valid", 6, 2);
  }
  TrainConfig config(const std::string& out, const std::string& extra = "") {
    return parse_train_config(small_config(scratch, scratch / out, extra), "config.yaml");
  }
  // Stops after the given step, as Ctrl-C does.
  static TrainEvents until(int64_t step) {
    auto done = std::make_shared<int64_t>(0);
    TrainEvents events;
    events.stepped = [done](const StepReport& r, const TrainEvents::Rate&) { *done = r.step; };
    events.stop = [done, step] { return *done >= step; };
    return events;
  }
  // Stops in the validation of the given step, after so many of its batches.
  static TrainEvents in_validation(int64_t step, int batches) {
    auto done = std::make_shared<int64_t>(0);
    auto asked = std::make_shared<int>(0);
    TrainEvents events;
    events.stepped = [done](const StepReport& r, const TrainEvents::Rate&) { *done = r.step; };
    events.stop = [=] { return *done == step && ++*asked > batches; };
    return events;
  }
  // A run that continues prompts every six steps, with a model of more rows than its tokenizer has pieces.
  TrainConfig sampling(const std::string& out, const std::string& prompts) {
    const std::string tokenizer = std::string(VITRINE_GOLDEN) + "/models/gpt2_a/model";
    const auto pieces = load_tokenizer(tokenizer);
    if (!std::filesystem::exists(scratch / "named")) small_data(scratch, "named", 40, 1, tokenizer_fingerprint(*pieces));
    std::string text = small_config(
        scratch, scratch / out, "sample_every: 6\nsample_prompts: " + prompts + "\nsample_tokens: 30\nsample_temperature: 100\n");
    text.replace(text.find("vocab_size: 61"), 14, "vocab_size: " + std::to_string(4 * pieces->vocab_size()));
    text.replace(text.find("  config:"), 9, "  tokenizer: " + tokenizer + "\n  config:");
    for (const std::string& name : {scratch / "data", scratch / "valid"})
      text.replace(text.find(name), name.size(), scratch / "named");
    return parse_train_config(text, "config.yaml");
  }
  Scratch scratch;
};

TEST_F(TrainRun, LearnsAndLeavesADirectoryThatRuns) {
  const TrainResult result = train(config("run", "layers_every: 5\n"), false);
  EXPECT_EQ(result.step, 12);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.checkpoint, scratch / "run/step-12");
  const std::vector<Json> metrics = metrics_of(scratch / "run");
  ASSERT_EQ(metrics.size(), 13u);  // with the validation before the first step
  EXPECT_EQ(metrics[0].at("step"), 0);
  EXPECT_LT(metrics[12].at("val_loss").get<double>(), metrics[0].at("val_loss").get<double>() - 0.1);
  const TokenData valid = TokenData::open(scratch / "valid");
  const auto scored = static_cast<double>(valid.tokens() - valid.documents()), bytes = static_cast<double>(valid.text_bytes());
  EXPECT_NEAR(metrics[0].at("val_bits_per_byte").get<double>(),
              metrics[0].at("val_loss").get<double>() * scored / bytes / std::log(2.0), 1e-9);
  EXPECT_NEAR(metrics[1].at("lr").get<double>(), 0.0025, 1e-12);
  EXPECT_TRUE(metrics[4].contains("val_loss"));
  EXPECT_FALSE(metrics[5].contains("val_loss"));
  EXPECT_EQ(metrics[5].at("layer_grad_norm").size(), 2u + 4u);  // blocks, W_E, W_pos, ln_final's two
  EXPECT_GT(metrics[5].at("layer_update_ratio").at("blocks.1").get<double>(), 0);
  double squares = 0;
  for (const auto& [name, norm] : metrics[5].at("layer_grad_norm").items()) squares += norm.get<double>() * norm.get<double>();
  EXPECT_NEAR(std::sqrt(squares), metrics[5].at("grad_norm").get<double>(), 1e-9);
  Engine engine(scratch / "run/last");
  EXPECT_EQ(engine.shape().n_layers, 2);
  EXPECT_EQ(engine.predict(std::vector<int32_t>{3, 6}, 3, false).size(), 1u);
  EXPECT_EQ(std::filesystem::read_symlink(scratch / "run/last"), "step-12");
  EXPECT_EQ(std::filesystem::read_symlink(scratch / "run/best"), "step-" + std::to_string(result.best_step));
}

TEST_F(TrainRun, KeepsTheNewestAndTheBest) {
  // The rate is so high at the end that the best is early.
  const std::string text = small_config(scratch, scratch / "run");
  std::string wild = text;
  wild.replace(wild.find("lr: 1e-2"), 8, "lr: 3.00");
  const TrainResult result = train(parse_train_config(wild, "config.yaml"), false);
  ASSERT_GT(result.best_step, 0);
  std::vector<std::string> expected = {"best", "config.yaml", "last", "metrics.jsonl", "step-12", "step-9"};
  const std::string best = "step-" + std::to_string(result.best_step);
  if (std::find(expected.begin(), expected.end(), best) == expected.end()) expected.push_back(best);
  std::sort(expected.begin(), expected.end());
  const std::vector<std::string> names = names_under(scratch / "run");
  EXPECT_EQ(names, expected);
}

TEST_F(TrainRun, TheNewestCountsOnceWhereItIsTheBest) {
  std::string text = small_config(scratch, scratch / "run");
  text.replace(text.find("keep: 2"), 7, "keep: 1");
  ASSERT_EQ(train(parse_train_config(text, "config.yaml"), false).best_step, 12);
  EXPECT_EQ(names_under(scratch / "run"), (std::vector<std::string>{"best", "config.yaml", "last", "metrics.jsonl", "step-12"}));
}

// Documents of one token have nothing to score: steps of them alone are passed over, and the same ones after --resume.
TEST_F(TrainRun, PassesOverWhatHasNothingToLearnFrom) {
  const auto write = [&](const std::string& name, int long_documents, int of_one) {
    std::filesystem::create_directories(scratch / name);
    TokenDataWriter writer(scratch / name, {.vocab_size = 61, .tokenizer = 1});
    for (int d = 0; d < long_documents + of_one; ++d) {
      const std::vector<int32_t> ids(d < long_documents ? 30 : 1, d % 61);
      writer.add(ids, ids.size());
      writer.end_document();
    }
    writer.finish();
  };
  write("mixed", 8, 90);
  write("ones", 0, 50);
  std::string text = small_config(scratch, scratch / "whole");
  text.replace(text.find("batch: 3\naccumulate: 2"), 22, "batch: 1\naccumulate: 1");
  text.replace(text.find(scratch / "data"), (scratch / "data").size(), scratch / "mixed");
  EXPECT_EQ(train(parse_train_config(text, "config.yaml"), false).step, 12);
  std::string cut = text;
  cut.replace(cut.find(scratch / "whole"), (scratch / "whole").size(), scratch / "cut");
  train(parse_train_config(cut, "config.yaml"), false, until(5));
  train(parse_train_config(cut, "config.yaml"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));

  const auto refusal = [&](const std::string& instead_of, const std::string& out) {
    std::string of_ones = small_config(scratch, scratch / out);
    of_ones.replace(of_ones.find(instead_of), instead_of.size(), scratch / "ones");
    try {
      train(parse_train_config(of_ones, "config.yaml"), false);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal(scratch / "data", "a").find("no token of a whole epoch is scored"), std::string::npos);
  EXPECT_NE(refusal(scratch / "valid", "b").find("no token of the validation data is scored"), std::string::npos);
}

// Of data of a few sequences, too: batches go on across the end of an epoch.
// By tokens, the same weights have the same validation loss whatever a batch is.
TEST_F(TrainRun, AValidationCountedInTokensDoesNotDependOnTheBatch) {
  const auto loss = [&](const std::string& batch, const std::string& accumulate) {
    std::string text = small_config(scratch, scratch / ("of" + batch), "eval_tokens: 100\n");
    text.replace(text.find("batch: 3\naccumulate: 2"), 22, "batch: " + batch + "\naccumulate: " + accumulate);
    train_up_to(parse_train_config(text, "config.yaml"), 1);
    return metrics_of(scratch / ("of" + batch)).at(0).at("val_loss").get<double>();
  };
  ASSERT_GT(TokenData::open(scratch / "valid").tokens(), 150u);
  const double wanted = loss("2", "4");
  EXPECT_NEAR(loss("8", "1"), wanted, 1e-6);
  EXPECT_NEAR(loss("100", "1"), wanted, 1e-6);
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "eval_tokens: 8\neval_batches: 2\n"); }), "expected one of them");
}

TEST_F(TrainRun, EndsWhereValidationGetsNoBetter) {
  std::string text = small_config(scratch, scratch / "early", "early_stopping: {patience: 2}\n");
  text.replace(text.find("lr: 1e-2"), 8, "lr: 1e-1");  // too high
  text.replace(text.find("warmup: 3, minimum: 1e-3"), 24, "decay: constant");
  text.replace(text.find("steps: 12"), 9, "steps: 400");
  const TrainConfig c = parse_train_config(text, "config.yaml");
  const TrainResult result = train(c, false);
  EXPECT_TRUE(result.early);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.step, result.best_step + 8);
  EXPECT_EQ(result.checkpoint, scratch / "early/step-" + std::to_string(result.step));
  EXPECT_EQ(train(c, true).step, result.step);  // and stays ended
  EXPECT_CONTAINS(message_of<FileError>([&] { config("no", "early_stopping: {}\n"); }), "\"early_stopping\" lacks \"patience\"");
}

TEST_F(TrainRun, WarmsUpForAShareOfTheSteps) {
  std::string text = small_config(scratch, scratch / "ratio");
  text.replace(text.find("warmup: 3"), 9, "warmup_ratio: 0.21");  // 2.52 of 12 steps: 3
  train_up_to(parse_train_config(text, "config.yaml"), 1);
  EXPECT_NEAR(metrics_of(scratch / "ratio").at(1).at("lr").get<double>(), 0.0025, 1e-12);
}

TEST_F(TrainRun, AnEpochIsEverySequenceOnce) {
  const auto steps = [&](const std::string& batch) {
    std::string text = small_config(scratch, scratch / ("of" + batch));
    text.replace(text.find("steps: 12"), 9, "epochs: 3");
    text.replace(text.find("warmup: 3"), 9, "warmup: 0");
    text.replace(text.find("batch: 3\naccumulate: 2"), 22, "batch: " + batch + "\naccumulate: 1");
    return train(parse_train_config(text, "config.yaml"), false).step;
  };
  const uint64_t windows = (TokenData::open(scratch / "data").tokens() - 16) / 16;
  ASSERT_GT(windows, 60u);
  EXPECT_EQ(steps("40"), std::llround(3.0 * static_cast<double>(windows) / 40));
  EXPECT_EQ(steps("400"), 1);
}

TEST_F(TrainRun, NullInTheModelsConfigurationIsWhatItIsInAFile) {
  std::string text = small_config(scratch, scratch / "run");
  const size_t begin = text.find("model:"), end = text.find("data:");
  text.replace(
      begin, end - begin,
      "model: {config: {model_type: gemma2, vocab_size: 61, hidden_size: 16, intermediate_size: 16, num_hidden_layers: 2,\n"
      "  num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, max_position_embeddings: 32, sliding_window: null,\n"
      "  attn_logit_softcapping: null, final_logit_softcapping: null}}\n");
  train(parse_train_config(text, "config.yaml"), false, until(3));
  const Json written = read_json(scratch / "run/last/config.json");
  for (const char* key : {"sliding_window", "attn_logit_softcapping", "final_logit_softcapping"})
    EXPECT_TRUE(written.contains(key) && written.at(key).is_null()) << key;
  const Engine engine(scratch / "run/last");
  EXPECT_EQ(engine.model().head().softcap, 0);
}

TEST_F(TrainRun, AContinuationMayGainAndLoseMomentum) {
  const auto with = [&](const std::string& momentum) {
    std::string text = small_config(scratch, scratch / "run");
    text.replace(text.find("optimizer: {name: adamw, lr: 1e-2}"), 34,
                 "optimizer: {name: sgd, lr: 1e-2, momentum: " + momentum + "}");
    return parse_train_config(text, "config.yaml");
  };
  train(with("0"), false, until(3));
  EXPECT_EQ(train(with("0.9"), true, until(6)).step, 6);
  EXPECT_EQ(train(with("0"), true).step, 12);
}

// As a killed run leaves it, and as a copy of the folder has it.
TEST_F(TrainRun, LinksAreSetAgainAndAreNoReasonToStop) {
  const TrainResult whole = train(config("whole"), false);
  std::filesystem::remove(scratch / "whole/last");
  std::filesystem::remove(scratch / "whole/best");
  train(config("whole"), true);  // which learns nothing more
  EXPECT_EQ(std::filesystem::read_symlink(scratch / "whole/last"), "step-12");
  EXPECT_EQ(std::filesystem::read_symlink(scratch / "whole/best"), "step-" + std::to_string(whole.best_step));
  train(config("run"), false, until(5));
  std::filesystem::remove(scratch / "run/last");
  scratch.write("run/last/config.json", "{}");
  TrainEvents events;
  std::string unlinked;
  events.saved = [&](int64_t, const std::string&, const std::string& why) { unlinked = why; };
  EXPECT_EQ(train(config("run"), true, events).step, 12);
  EXPECT_CONTAINS(unlinked, "/run/last cannot be pointed at step-12: ");
  EXPECT_EQ(read_file(scratch / "run/last/config.json"), "{}");
  EXPECT_EQ(RunFolder(scratch / "run").steps().size(),
            std::filesystem::read_symlink(scratch / "run/best") == "step-12" ? 2u : 3u);
}

// A loss is compared with others on the same data alone.
TEST_F(TrainRun, TheBestBeginsAnewWithOtherValidationData) {
  small_data(scratch, "other", 6, 3);
  train(config("run"), false, until(6));
  const std::string path = scratch / "run/last/training/progress.json";
  Json progress = read_json(path);
  const auto before = progress.at("best_step").get<int64_t>();
  progress["best_loss"] = -1;  // which no loss comes below
  progress.erase("files");     // and with them the checksums
  std::ofstream(path) << progress;
  std::filesystem::copy(scratch / "run", scratch / "batches", std::filesystem::copy_options::recursive);
  std::filesystem::copy(scratch / "run", scratch / "moved", std::filesystem::copy_options::recursive);
  EXPECT_EQ(train(config("run"), true).best_step, before);
  EXPECT_GT(train(config("batches", "eval_batches: 1\n"), true).best_step, 6);
  std::string text = small_config(scratch, scratch / "moved");
  text.replace(text.find(scratch / "valid"), (scratch / "valid").size(), scratch / "other");
  EXPECT_GT(train(parse_train_config(text, "config.yaml"), true).best_step, 6);
}

TEST_F(TrainRun, TheBestStaysWhereItIsNoLongerKept) {
  std::string text = small_config(scratch, scratch / "run");
  text.replace(text.find("lr: 1e-2"), 8, "lr: 3.00");
  text.replace(text.find("keep: 2"), 7, "keep: 1");
  train(parse_train_config(text, "config.yaml"), false, until(5));
  const auto best = std::filesystem::read_symlink(scratch / "run/best");
  text.replace(text.find("keep: 1"), 7, "keep: 1, best: false");
  train(parse_train_config(text, "config.yaml"), true);
  EXPECT_EQ(std::filesystem::read_symlink(scratch / "run/best"), best);
  EXPECT_TRUE(std::filesystem::exists(scratch / "run/best/config.json"));
}

// Padded vocabularies: nothing is spelled by the rows behind the tokenizer's pieces.
TEST_F(TrainRun, SamplesOfAModelWithMoreRowsThanPieces) {
  TrainEvents events;
  int samples = 0;
  events.sampled = [&](int64_t, const std::string&, const std::string&) { ++samples; };
  EXPECT_EQ(train(sampling("run", "[once]"), false, events).step, 12);
  EXPECT_EQ(samples, 2);
}

TEST_F(TrainRun, AStopBetweenSamplesEndsTheRunWithTheirStep) {
  TrainEvents events;
  int samples = 0;
  events.sampled = [&](int64_t, const std::string&, const std::string&) { ++samples; };
  events.stop = [&] { return samples > 0; };
  const TrainResult cut = train(sampling("cut", "[once, twice]"), false, events);
  EXPECT_TRUE(cut.stopped);
  EXPECT_EQ(cut.step, 6);
  EXPECT_EQ(samples, 1);
  EXPECT_EQ(train(sampling("cut", "[once, twice]"), true).step, 12);
  train(sampling("whole", "[once, twice]"), false);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
}

TEST_F(TrainRun, ResumesToTheSameBitsFromEveryStep) {
  train(config("whole", "threads: 1\n"), false);
  const std::string weights = weights_bytes(scratch / "whole/step-12");
  for (const int64_t step : {1, 3, 4, 7, 11}) {
    SCOPED_TRACE(step);
    const std::string out = "cut" + std::to_string(step);
    const TrainResult first = train(config(out, "threads: 2\n"), false, until(step));
    EXPECT_TRUE(first.stopped);
    EXPECT_EQ(first.step, step);
    const TrainResult second = train(config(out), true);
    EXPECT_EQ(second.step, 12);
    EXPECT_EQ(weights_bytes(scratch / (out + "/step-12")), weights);
    EXPECT_EQ(metrics_of(scratch / out), metrics_of(scratch / "whole"));
  }
}

// What was learned is saved at once; the validation is made up for.
TEST_F(TrainRun, AStopInValidationIsHeardBetweenItsBatches) {
  train(config("whole"), false);
  for (const int64_t step : {4, 12}) {
    SCOPED_TRACE(step);
    const std::string out = "cut" + std::to_string(step);
    const auto expect_unmeasured = [&](const TrainResult& result) {
      EXPECT_TRUE(result.stopped);
      EXPECT_EQ(result.step, step);
      EXPECT_EQ(result.checkpoint, scratch / (out + "/step-" + std::to_string(step)));
      const std::vector<Json> metrics = metrics_of(scratch / out);
      EXPECT_EQ(metrics.size(), static_cast<size_t>(step + 1));
      EXPECT_EQ(metrics.back().at("step"), step);
      EXPECT_FALSE(metrics.back().contains("val_loss"));
      std::error_code none;
      EXPECT_NE(std::filesystem::read_symlink(scratch / (out + "/best"), none), "step-" + std::to_string(step));
    };
    train(config(out), false, until(step == 12 ? 8 : 3));
    expect_unmeasured(train(config(out), true, in_validation(step, 2)));
    expect_unmeasured(train(config(out), true, in_validation(0, 1)));  // told of no step so far
    if (step == 4) {
      EXPECT_EQ(train(config(out), true, until(5)).step, 5);
      EXPECT_EQ(std::filesystem::read_symlink(scratch / (out + "/best")), "step-4");
    }
    const TrainResult rest = train(config(out), true);
    EXPECT_FALSE(rest.stopped);
    EXPECT_EQ(rest.step, 12);
    EXPECT_EQ(weights_bytes(scratch / (out + "/step-12")), weights_bytes(scratch / "whole/step-12"));
    EXPECT_EQ(metrics_of(scratch / out), metrics_of(scratch / "whole"));
    for (const char* link : {"/best", "/last"})
      EXPECT_EQ(std::filesystem::read_symlink(scratch / (out + link)),
                std::filesystem::read_symlink(scratch / (std::string("whole") + link)));
  }
}

TEST_F(TrainRun, AStopInTheFirstValidationEndsTheRunBeforeItBegins) {
  const TrainResult cut = train(config("cut"), false, in_validation(0, 2));
  EXPECT_TRUE(cut.stopped);
  EXPECT_EQ(cut.step, 0);
  EXPECT_EQ(cut.checkpoint, "");
  train(config("whole"), false);
  EXPECT_EQ(train(config("cut"), true).step, 12);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
}

// What is to be measured may be left out, or be measured otherwise, when the run goes on.
TEST_F(TrainRun, AValidationThatIsDueFollowsTheConfiguration) {
  train(config("run"), false, in_validation(4, 2));
  std::filesystem::copy(scratch / "run", scratch / "none", std::filesystem::copy_options::recursive);
  std::string text = small_config(scratch, scratch / "none");
  text.erase(text.find("eval_every: 4\n"), 14);
  text.erase(text.find(", validation: "), (", validation: " + scratch / "valid").size());
  EXPECT_EQ(train(parse_train_config(text, "config.yaml"), true).step, 12);
  EXPECT_FALSE(metrics_of(scratch / "none").at(4).contains("val_loss"));
  const std::string path = scratch / "run/step-4/training/progress.json";
  Json progress = read_json(path);
  progress.erase("files");
  progress["validation_due"] = "{}";
  std::ofstream(path) << progress;
  EXPECT_CONTAINS(message_of<FileError>([&] { train(config("run"), true); }),
                  "\"validation_due\" is \"{}\"; expected the line of metrics.jsonl of step 4");
}

TEST_F(TrainRun, ResumesToTheSameBitsWithMomentsInBf16) {
  const auto with = [&](const std::string& out, const std::string& moments) {
    std::string text = small_config(scratch, scratch / out);
    text.replace(text.find("optimizer: {name: adamw, lr: 1e-2}"), 34, "optimizer: {lr: 1e-2, moments: " + moments + "}");
    return parse_train_config(text, "config.yaml");
  };
  train(with("whole", "bf16"), false);
  train(with("cut", "bf16"), false, until(5));
  EXPECT_EQ(train(with("cut", "bf16"), true).step, 12);
  EXPECT_EQ(weights_bytes(scratch / "cut/step-12"), weights_bytes(scratch / "whole/step-12"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
  // A run may go on with the other kind, from moments that are rounded once or as they were.
  train(with("changed", "f32"), false, until(5));
  EXPECT_EQ(train(with("changed", "bf16"), true, until(8)).step, 8);
  EXPECT_EQ(train(with("changed", "f32"), true).step, 12);
}

TEST_F(TrainRun, ResumesToTheSameBitsWithMuon) {
  const auto with = [&](const std::string& out, const std::string& optimizer) {
    std::string text = small_config(scratch, scratch / out);
    text.replace(text.find("optimizer: {name: adamw, lr: 1e-2}"), 34, "optimizer: {name: " + optimizer + ", lr: 1e-2}");
    return parse_train_config(text, "config.yaml");
  };
  train(with("whole", "muon"), false);
  train(with("cut", "muon"), false, until(5));
  EXPECT_EQ(train(with("cut", "muon"), true).step, 12);
  EXPECT_EQ(weights_bytes(scratch / "cut/step-12"), weights_bytes(scratch / "whole/step-12"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
  // One moment of what Muon learns, two of the rest.
  const Checkpoint state = open_safetensors(scratch / "whole/step-12/training/optimizer.safetensors");
  EXPECT_NE(state.find("momentum/transformer.h.0.attn.c_attn.weight"), nullptr);
  EXPECT_EQ(state.find("second_moment/transformer.h.0.attn.c_attn.weight"), nullptr);
  EXPECT_NE(state.find("second_moment/transformer.wte.weight"), nullptr);
  EXPECT_THROW(train(with("cut", "adamw"), true), InputError);
}

TEST_F(TrainRun, ResumesToTheSameBitsWithCyclesAndFrozenLayers) {
  const auto cycled = [&](const std::string& out) {
    std::string text = small_config(scratch, scratch / out);
    text.replace(text.find("lr: 1e-2}"), 9, "lr: 1e-2, lr_groups: {\"transformer.h.0.*\": 0, \"*mlp*\": 2}}");
    text.replace(text.find("minimum: 1e-3}"), 14, "minimum: 1e-3, cycles: 3}");
    return parse_train_config(text, "config.yaml");
  };
  train(cycled("whole"), false);
  train_up_to(cycled("cut"), 5);
  train(cycled("cut"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/step-12"), weights_bytes(scratch / "whole/step-12"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
  std::string text = small_config(scratch, scratch / "refused");
  text.replace(text.find("minimum: 1e-3}"), 14, "minimum: 1e-3, cycles: 10}");
  EXPECT_CONTAINS(message_of<InputError>([&] { train(parse_train_config(text, "config.yaml"), false); }),
                  "config.yaml: schedule.cycles is 10; expected at most the 9 steps that the schedule has after its warmup");
}

TEST_F(TrainRun, ResumesWithSgdAcrossEpochsAndWithoutDocuments) {
  const auto text = [&](const std::string& out) {
    std::string t = small_config(scratch, scratch / out);
    t.replace(t.find("optimizer: {name: adamw, lr: 1e-2}"), 34, "optimizer: {name: sgd, lr: 1e-2, momentum: 0.9}");
    t.replace(t.find("steps: 12"), 9, "epochs: 2");
    t.replace(t.find("data: {"), 7, "data: {documents: false, ");
    return parse_train_config(t, "config.yaml");
  };
  const TrainResult whole = train(text("whole"), false);
  EXPECT_GT(whole.step, 20);  // two epochs
  train(text("cut"), false, until(whole.step - 5));
  const TrainResult cut = train(text("cut"), true);
  EXPECT_EQ(cut.step, whole.step);
  EXPECT_EQ(weights_bytes(cut.checkpoint), weights_bytes(whole.checkpoint));
}

TEST_F(TrainRun, IgnoresAndClearsWhatAKilledRunLeft) {
  train(config("whole"), false);
  train(config("cut"), false, until(4));
  // Half a checkpoint, half a removal, half a line.
  scratch.write("cut/.unfinished-step-6/model.safetensors", "half");
  scratch.write("cut/.unfinished-removed-3/config.json", "{}");
  scratch.write("cut/metrics.jsonl.tmp.123.0", "{\"st");
  std::ofstream(scratch / "cut/metrics.jsonl", std::ios::app) << R"({"step": 5, "loss": 1.0})" << "\n" << R"({"step": 6, "lo)";
  const TrainResult result = train(config("cut"), true);
  EXPECT_EQ(weights_bytes(result.checkpoint), weights_bytes(scratch / "whole/step-12"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
  EXPECT_EQ(names_under(scratch / "cut"), names_under(scratch / "whole"));
}

// "optimizer" was spelled "optimiser" once, in configurations and checkpoints.
TEST_F(TrainRun, ResumesACheckpointOfTheSpellingBefore) {
  const auto before = [](std::string text) {
    for (size_t at = 0; (at = text.find("optimizer", at)) != std::string::npos;) text.replace(at, 9, "optimiser");
    return text;
  };
  train(config("whole"), false);
  train(config("cut"), false, until(6));
  for (const int64_t step : RunFolder(scratch / "cut").steps()) {
    const std::string folder = scratch / ("cut/step-" + std::to_string(step) + "/training/");
    std::filesystem::rename(folder + "optimizer.safetensors", folder + "optimiser.safetensors");
    Json progress = Json::parse(before(read_file(folder + "progress.json")));
    progress["files"].erase("training/progress.json");
    const std::string rest = progress.dump();  // what the file's own checksum is of
    progress["files"]["training/progress.json"] = hexadecimal(add_to_fingerprint(0, std::as_bytes(std::span(rest))));
    std::ofstream(folder + "progress.json") << progress.dump();
  }
  const std::string text = before(small_config(scratch, scratch / "cut"));
  EXPECT_EQ(train(parse_train_config(text, "config.yaml"), true).step, 12);
  EXPECT_EQ(weights_bytes(scratch / "cut/step-12"), weights_bytes(scratch / "whole/step-12"));
  EXPECT_CONTAINS(message_of<FileError>([&] { parse_train_config(text + "optimizer: {name: sgd, lr: 1}\n", "config.yaml"); }),
                  "called \"optimizer\" now");
}

TEST_F(TrainRun, AFolderOfAnotherNameIsNoCheckpoint) {
  train(config("run"), false, until(6));
  std::filesystem::copy(scratch / "run/step-6", scratch / "run/step-007", std::filesystem::copy_options::recursive);
  EXPECT_EQ(RunFolder(scratch / "run").steps().back(), 6);
  EXPECT_EQ(train(config("run"), true).step, 12);
}

// One bit of any file, a file of another checkpoint, or one that is gone: each is named, with what to do.
TEST_F(TrainRun, ADamagedCheckpointIsRefused) {
  train(config("run", "ema: 0.9\n"), false, until(6));
  ASSERT_EQ(RunFolder(scratch / "run").steps().back(), 6);
  const int64_t earlier = *(RunFolder(scratch / "run").steps().rbegin() + 1);
  const std::string advice = "/run/step-6 away: then --resume continues from step " + std::to_string(earlier);
  const auto refusal = [&] { return message_of<InputError>([&] { train(config("run", "ema: 0.9\n"), true); }); };
  for (const std::string name : {"model.safetensors", "config.json", "training/optimizer.safetensors", "ema/model.safetensors"}) {
    const std::string file = "run/step-6/" + name, content = read_file(scratch / file);
    std::string flipped = content;
    flipped[flipped.size() - 3] ^= 1;
    scratch.write(file, flipped);
    const std::string message = refusal();
    EXPECT_CONTAINS(message, scratch / file + ": has the checksum ");
    EXPECT_CONTAINS(message, advice);
    scratch.write(file, read_file(scratch / ("run/step-" + std::to_string(earlier) + "/" + name)) + " ");
    EXPECT_CONTAINS(refusal(), scratch / file + ": has the checksum ");
    std::filesystem::remove(scratch / file);
    EXPECT_CONTAINS(refusal(), scratch / file + ": is missing");
    scratch.write(file, content);
  }
  std::filesystem::rename(scratch / "run/step-6/ema", scratch / "ema");
  EXPECT_CONTAINS(refusal(), "/run/step-6/ema/");
  std::filesystem::rename(scratch / "ema", scratch / "run/step-6/ema");

  const std::string progress = "run/step-6/training/progress.json", written = read_file(scratch / progress);
  Json changed = Json::parse(written);
  changed["tokens"] = changed["tokens"].get<int64_t>() ^ 1;
  scratch.write(progress, changed.dump());
  EXPECT_CONTAINS(refusal(), scratch / progress + ": has the checksum ");
  scratch.write(progress, read_file(scratch / ("run/step-" + std::to_string(earlier) + "/training/progress.json")));
  EXPECT_CONTAINS(refusal(), scratch / progress + ": \"step\" is " + std::to_string(earlier) + "; expected 6");
  scratch.write(progress, "{");
  EXPECT_CONTAINS(refusal(), advice);
  scratch.write(progress, written);

  train(config("whole", "ema: 0.9\n"), false);
  train(config("run", "ema: 0.9\n"), true);
  EXPECT_EQ(weights_bytes(scratch / "run/step-12"), weights_bytes(scratch / "whole/step-12"));
}

TEST_F(TrainRun, AlsoTheOnlyCheckpointIsRefusedIfDamaged) {
  train(config("run"), false, until(3));
  std::filesystem::remove(scratch / "run/step-3/config.json");
  const std::string message = message_of<InputError>([&] { train(config("run"), true); });
  EXPECT_CONTAINS(message, "/run/step-3/config.json: is missing");
  EXPECT_CONTAINS(message, "There is no earlier checkpoint");
}

TEST_F(TrainRun, BeginsAnewWhereNothingWasSavedYet) {
  train(config("whole"), false);
  scratch.write("cut/metrics.jsonl", "{\"step\": 1}\n");
  const TrainResult result = train(config("cut"), true);
  EXPECT_EQ(weights_bytes(result.checkpoint), weights_bytes(scratch / "whole/step-12"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
}

// What was saved and is gone is a history that is not written over.
TEST_F(TrainRun, KeepsTheMetricsOfARunWhoseCheckpointsAreGone) {
  train(config("run"), false, until(6));
  const std::string metrics = read_file(scratch / "run/metrics.jsonl");
  for (const char* name : {"step-3", "step-4", "step-6"}) std::filesystem::remove_all(scratch / ("run/" + std::string(name)));
  const auto refusal = [&] { return message_of<InputError>([&] { train(config("run"), true); }); };
  const std::string message = refusal();
  EXPECT_CONTAINS(message, "/run has no checkpoint, and its metrics.jsonl goes up to step 6, although that of step 6 was saved");
  EXPECT_CONTAINS(message, "Put the checkpoints back");
  std::filesystem::remove(scratch / "run/last");
  std::filesystem::remove(scratch / "run/best");
  EXPECT_CONTAINS(refusal(), "goes up to step 6, although that of step 4 was saved");  // as step 5's line says
  EXPECT_EQ(read_file(scratch / "run/metrics.jsonl"), metrics);
  std::filesystem::remove(scratch / "run/metrics.jsonl");
  EXPECT_EQ(train(config("run"), true).step, 12);
}

// Although by the interval of now one would be due.
TEST_F(TrainRun, BeginsAnewWhereTheIntervalBecameShorter) {
  const std::string lines = "{\"step\": 3}\n{\"step\": 4, \"loss\": 1}\n";
  scratch.write("run/metrics.jsonl", lines);
  EXPECT_EQ(train(config("run"), true).step, 12);
}

TEST_F(TrainRun, AFullDiskLeavesTheLastCheckpointIntact) {
  train(config("run"), false, until(3));
  const std::string before = weights_bytes(scratch / "run/step-3");
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{20'000, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of<RunError>([&] { train(config("run"), true); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, ignored);
  EXPECT_CONTAINS(message, "model.safetensors");
  EXPECT_CONTAINS(
      message, "The checkpoint of step 4 was not written; that of step 3 is intact. Free some space and continue with --resume");
  EXPECT_EQ(weights_bytes(scratch / "run/step-3"), before);
  for (const std::string& name : names_under(scratch / "run")) EXPECT_FALSE(name.starts_with(".")) << name;
  train(config("whole"), false);
  train(config("run"), true);
  EXPECT_EQ(weights_bytes(scratch / "run/step-12"), weights_bytes(scratch / "whole/step-12"));
}

// A rate that makes NaN of the first step's weights.
TrainConfig runs_away(const Scratch& scratch, const std::string& eval_every) {
  std::string text = small_config(scratch, scratch / "run");
  text.replace(text.find("lr: 1e-2"), 8, "lr: 1e30");
  text.replace(text.find("minimum: 1e-3"), 13, "minimum: 1e30");
  text.replace(text.find("eval_every: 4"), 13, "eval_every: " + eval_every);
  return parse_train_config(text, "config.yaml");
}

TEST_F(TrainRun, NanStopsWithTheLayerAndKeepsTheCheckpoint) {
  train(config("run"), false, until(3));
  const auto bytes = [&] { return read_file(scratch / "run/step-3/model.safetensors"); };
  const std::string before = bytes();
  const std::string message = message_of<RunError>([&] { train(runs_away(scratch, "9"), true); });
  EXPECT_CONTAINS(message, "step 5: NaN or infinity appeared first in ");
  EXPECT_CONTAINS(message, "no checkpoint was written from it");
  EXPECT_EQ(RunFolder(scratch / "run").steps(), std::vector<int64_t>{3});
  EXPECT_EQ(bytes(), before);
}

TEST_F(TrainRun, NanInValidationIsNoStepsAndKeepsTheStepsLine) {
  const std::string message = message_of<RunError>([&] { train(runs_away(scratch, "1"), false); });
  EXPECT_CONTAINS(message, "validation after step 1: NaN or infinity appeared first in ");
  EXPECT_EQ(message.find("Nothing was learned"), std::string::npos) << message;
  const std::vector<Json> metrics = metrics_of(scratch / "run");
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[1].at("step"), 1);
  EXPECT_TRUE(metrics[1].contains("loss"));
  EXPECT_FALSE(metrics[1].contains("val_loss"));
}

// Where text ends is the model's to say; the folder of another tokenizer may hold another model's settings. What a model draws
// ends there, so that a run which learns from that goes on to the same bits only with the same settings.
TEST_F(TrainRun, CheckpointsKeepTheModelsSettingsOfGeneration) {
  const std::string golden = std::string(VITRINE_GOLDEN) + "/models/gpt2_a/model/";
  const auto pieces = load_tokenizer(golden);
  small_data(scratch, "named", 40, 1, tokenizer_fingerprint(*pieces));
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    const std::string name = entry.path().filename();
    if (name != "generation_config.json")
      scratch.link((name.starts_with("model") || name == "config.json" ? "own/" : "other/") + name, golden + name);
  }
  std::string ends = "[";
  for (int64_t id = 0; id < pieces->vocab_size(); id += 3) ends += std::to_string(id) + ", ";
  const std::string many = R"({"eos_token_id": )" + ends + "1]}", one = R"({"eos_token_id": 1})";
  for (const bool has : {false, true}) {
    SCOPED_TRACE(has);
    scratch.write(has ? "own/generation_config.json" : "other/generation_config.json", many);
    if (has) scratch.write("other/generation_config.json", one);
    const auto run = [&](const std::string& out) {
      std::string text = small_config(scratch, scratch / out, "distill: {teacher: " + golden + ", alpha: 0, on_policy: 1}\n");
      text.replace(text.find("  config:"), text.find("data:") - text.find("  config:"),
                   "  path: " + scratch / "own" + "\n  tokenizer: " + scratch / "other" + "\n");
      for (const std::string& name : {scratch / "data", scratch / "valid"})
        text.replace(text.find(name), name.size(), scratch / "named");
      return parse_train_config(text, "config.yaml");
    };
    const std::string whole = has ? "whole-has" : "whole", cut = has ? "cut-has" : "cut";
    train(run(whole), false);
    train(run(cut), false, until(3));
    train(run(cut), true);
    EXPECT_TRUE(weights_bytes(scratch / (cut + "/step-12")) == weights_bytes(scratch / (whole + "/step-12")));
    const std::string settings = scratch / (whole + "/step-12/generation_config.json");
    ASSERT_EQ(std::filesystem::exists(settings), has);
    EXPECT_TRUE(!has || read_file(settings) == many);
  }
}

TEST_F(TrainRun, AFolderHoldsOneRun) {
  train(config("run"), false, until(3));
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("run"), false); }),
                  "holds a run already, up to step 3. Go on with it by --resume");
  const RunFolder held(scratch / "run");
  EXPECT_CONTAINS(message_of<UsageError>([&] { train(config("run"), true); }), "another process trains in ");
}

TEST_F(TrainRun, AContinuationMayNotChangeWhatThePositionMeans) {
  train(config("run"), false, until(3));
  std::string text = small_config(scratch, scratch / "run");
  text.replace(text.find("batch: 3"), 8, "batch: 4");
  const std::string message = message_of<InputError>([&] { train(parse_train_config(text, "config.yaml"), true); });
  EXPECT_CONTAINS(message, "the run has batch 3, and the configuration now says 4");
  EXPECT_CONTAINS(message, "/run/step-3");
}

// Of the same length, too, where every place in them has a meaning.
TEST_F(TrainRun, AContinuationMayNotChangeTheData) {
  const auto data = [&](const std::string& name, int32_t last, size_t tokens = 600) {
    const std::string path = scratch / name;
    std::filesystem::create_directories(path);
    TokenDataWriter writer(path, {.vocab_size = 61, .tokenizer = 1});
    std::vector<int32_t> ids(tokens);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % 61);
    ids.back() = last;
    writer.add(ids, ids.size());
    writer.finish();
    return path;
  };
  const auto on = [&](const std::string& path) {
    std::string text = small_config(scratch, scratch / "run");
    text.replace(text.find(scratch / "data"), (scratch / "data").size(), path);
    return parse_train_config(text, "config.yaml");
  };
  train(on(data("one", 3)), false, until(3));
  const std::string message = message_of<InputError>([&] { train(on(data("other", 4)), true); });
  EXPECT_CONTAINS(message, "/run/step-3/training/progress.json: the run has learned from data with the checksum ");
  EXPECT_CONTAINS(message, ", and " + scratch / "other" + " has ");
  EXPECT_CONTAINS(message, "Set data.train back, or begin a new run from ");
  EXPECT_CONTAINS(message_of<InputError>([&] { train(on(data("longer", 3, 700)), true); }),
                  "the run has learned from data of 600 tokens, and " + scratch / "longer" +
                      " has 700, so the run cannot be "
                      "resumed");
  EXPECT_EQ(train(on(data("copy", 3)), true).step, 12);  // the same under another name
}

TEST_F(TrainRun, AContinuationMayNotChangeTheModelsConfiguration) {
  train(config("run"), false, until(3));
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = small_config(scratch, scratch / "run");
    text.replace(text.find(from), from.size(), to);
    return message_of<InputError>([&] { train(parse_train_config(text, "config.yaml"), true); });
  };
  const std::string message = refused("n_layer: 2", "n_layer: 3");
  EXPECT_CONTAINS(message,
                  "/run/step-3/training/progress.json: the run has model.config.n_layer 2, and the configuration now "
                  "says 3");
  EXPECT_CONTAINS(message, "Set it back, or begin a new run with another out:");
  EXPECT_CONTAINS(refused("n_layer: 2,", "n_layer: 2, n_inner: 8,"),
                  "the run has model.config.n_inner as the family has it, and the configuration now says 8");
  EXPECT_CONTAINS(refused("embd_pdrop: 0.1, ", ""),
                  "the run has model.config.embd_pdrop 0.1, and the configuration now leaves it out");
  EXPECT_EQ(train(config("run", "dropout: 0.2\n"), true).step, 12);  // this may change
  EXPECT_EQ(read_json(scratch / "run/last/config.json").at("embd_pdrop"), 0.2);
}

// The file is read where it is still there.
TEST_F(TrainRun, AContinuationComparesTheModelsConfigurationInAFile) {
  const auto write = [&](int layers) {
    return scratch.write("shape.json", R"({"model_type": "gpt2", "n_embd": 16, "n_head": 2, "vocab_size": 61, "n_positions": 32,
                                           "n_layer": )" +
                                           std::to_string(layers) + "}");
  };
  std::string text = small_config(scratch, scratch / "run");
  const size_t begin = text.find("model:"), end = text.find("data:");
  text.replace(begin, end - begin, "model: {config: " + write(2) + "}\n");
  const TrainConfig from_file = parse_train_config(text, "config.yaml");
  train(from_file, false, until(3));
  write(1);
  const std::string message = message_of<InputError>([&] { train(from_file, true); });
  EXPECT_CONTAINS(message, "the run has model.config.n_layer 2, and the configuration now says 1");
  std::filesystem::remove(scratch / "shape.json");
  train(from_file, true, until(5));
  write(1);
  EXPECT_EQ(message_of<InputError>([&] { train(from_file, true); }).substr(message.find("the run has")),
            message.substr(message.find("the run has")));
  write(2);
  EXPECT_EQ(train(from_file, true).step, 12);
}

TEST_F(TrainRun, GoesOnWithoutTheFolderThatSaidTheModelsConfiguration) {
  std::filesystem::create_directory(scratch / "shape");
  scratch.write("shape/config.json",
                R"({"model_type": "gpt2", "n_embd": 16, "n_head": 2, "vocab_size": 61, "n_positions": 32, "n_layer": 2})");
  std::string text = small_config(scratch, scratch / "run");
  const size_t begin = text.find("model:"), end = text.find("data:");
  text.replace(begin, end - begin, "model: {config: " + scratch / "shape" + "}\n");
  const TrainConfig from_folder = parse_train_config(text, "config.yaml");
  train(from_folder, false, until(3));
  std::filesystem::remove(scratch / "shape/config.json");
  EXPECT_EQ(train(from_folder, true).step, 12);
}

TEST_F(TrainRun, APositionThatIsNoneIsRefused) {
  train(config("run"), false, until(3));
  const std::string progress = scratch / "run/step-3/training/progress.json";
  Json written = read_json(progress);
  written.erase("files");  // and with them the checksums
  for (const char* key : {"tokens", "epoch", "next"})
    for (const double number : {1e300, -1.0, 1.5}) {
      Json wrong = written;
      wrong[key] = number;
      scratch.write("run/step-3/training/progress.json", wrong.dump());
      EXPECT_CONTAINS(message_of<FileError>([&] { train(config("run"), true); }), "expected a whole number from 0 to 2^53");
    }
}

TEST_F(TrainRun, GoesOnFromACheckpointThatNamesNeitherFilesDataNorModel) {
  train(config("whole"), false);
  train(config("run"), false, until(3));
  const std::string progress = scratch / "run/step-3/training/progress.json";
  Json older = read_json(progress);
  EXPECT_EQ(older.erase("files"), 1u);
  EXPECT_EQ(older["run"].erase("data_checksum"), 1u);
  EXPECT_EQ(older["run"].erase("model_config"), 1u);
  scratch.write("run/step-3/training/progress.json", older.dump());
  train(config("run"), true);
  EXPECT_EQ(weights_bytes(scratch / "run/step-12"), weights_bytes(scratch / "whole/step-12"));
  const Json newer = read_json(scratch / "run/step-12/training/progress.json").at("run");
  EXPECT_TRUE(newer.contains("data_checksum"));
  EXPECT_FALSE(newer.contains("model_config"));  // nobody knows what the run began with
}

TEST_F(TrainRun, GoesOnFromAnExistingModel) {
  train(config("first"), false);
  std::string text = small_config(scratch, scratch / "second", "dropout: 0\n");
  const size_t begin = text.find("model:"), end = text.find("data:");
  text.replace(begin, end - begin, "model: " + scratch / "first/last" + "\n");
  const TrainConfig next = parse_train_config(text, "config.yaml");
  train(next, false, until(1));
  const double start = metrics_of(scratch / "second").front().at("val_loss").get<double>();
  EXPECT_NEAR(start, metrics_of(scratch / "first").back().at("val_loss").get<double>(), 1e-12);
  EXPECT_EQ(read_json(scratch / "second/last/config.json").at("attn_pdrop"), 0.0);
}

TEST_F(TrainRun, ARunOfAnExistingModelDoesNotGoOnWithAnotherConfiguration) {
  train(config("first"), false);
  std::string text = small_config(scratch, scratch / "second");
  const size_t begin = text.find("model:"), end = text.find("data:");
  text.replace(begin, end - begin, "model: " + scratch / "first/last" + "\n");
  train(parse_train_config(text, "config.yaml"), false, until(3));
  const auto refusal = [&] { return message_of<InputError>([&] { train(config("second"), true); }); };
  const std::string wanted = "/second/step-3/training/progress.json: the run began from the model " + scratch / "first/last" +
                             ", and the configuration now has model.config for fresh weights";
  EXPECT_CONTAINS(refusal(), wanted);
  EXPECT_EQ(train(parse_train_config(text, "config.yaml"), true, until(4)).step, 4);
  EXPECT_CONTAINS(refusal(), "the run began from the model " + scratch / "first/last");
  EXPECT_EQ(train(parse_train_config(text, "config.yaml"), true).step, 12);
}

TEST_F(TrainRun, CompanionsOutliveTheCheckpointThatARunGoesOnFrom) {
  train(config("first"), false);
  write_file_atomically(scratch / "first/step-12/chat_template.jinja", "{{ messages }}");
  std::string text = small_config(scratch, scratch / "second", "checkpoint: {every: 1, keep: 1, best: false}\n");
  const size_t begin = text.find("model:"), end = text.find("data:");
  text.replace(begin, end - begin, "model: " + scratch / "first/last" + "\n");
  text.erase(text.find("checkpoint: {every: 3"), std::string("checkpoint: {every: 3, keep: 2}\n").size());
  const TrainConfig next = parse_train_config(text, "config.yaml");
  train(next, false, until(3));
  std::filesystem::remove_all(scratch / "first");
  train(next, true);
  EXPECT_FALSE(std::filesystem::exists(scratch / "second/step-3"));
  EXPECT_EQ(read_file(scratch / "second/last/chat_template.jinja"), "{{ messages }}");
}

TEST_F(TrainRun, MemoryDecidesWhatIsRecomputedAndNoResult) {
  const auto run = [&](const std::string& name, const std::string& extra, TrainEvents events = {}) {
    std::string text = small_config(scratch, scratch / name, "layers_every: 6\n" + extra);
    text.replace(text.find("n_layer: 2"), 10, "n_layer: 6");
    train(parse_train_config(text, "config.yaml"), false, events);
  };
  std::string message = message_of<InputError>([&] { run("refused", "memory: 10 KiB\n"); });
  EXPECT_CONTAINS(message, "config.yaml: memory is 1 MiB, and the run takes ");
  EXPECT_CONTAINS(message, " with every block recomputed: ");
  EXPECT_CONTAINS(message, "Raise memory to that, or lower batch or sequence_length");
  message = message_of<InputError>([&] { run("refused", "memory: much\n"); });
  EXPECT_CONTAINS(message, "expected bytes, as 6 GiB, 500 MB or 1.5G");
  message = message_of<InputError>([&] { run("refused", "memory: 1 GiB\nrecompute: true\n"); });
  EXPECT_CONTAINS(message, "recompute is true, which runs every block again");

  double least = 0;
  int64_t recomputed = -1;
  TrainEvents events;
  events.started = [&](const TrainEvents::Start& s) {
    least = s.state_bytes + s.activation_bytes;
    recomputed = s.recomputed_layers;
  };
  run("recomputed", "recompute: true\n", events);
  EXPECT_EQ(recomputed, 6);
  const std::string within = "memory: " + std::to_string(static_cast<int64_t>(least) + 1) + "\n";
  run("enough", "memory: 1 GiB\n", events);
  EXPECT_EQ(recomputed, 0);
  EXPECT_EQ(metrics_of(scratch / "enough")[6].count("layer_stream_grad_norm"), 1U);
  run("within", within, events);
  EXPECT_GT(recomputed, 0);
  for (const char* other : {"recomputed", "within"}) {
    EXPECT_EQ(weights_bytes(scratch / (std::string(other) + "/last")), weights_bytes(scratch / "enough/last")) << other;
    EXPECT_EQ(metrics_of(scratch / std::string(other))[6].count("layer_stream_grad_norm"), 0U);
  }
}

TEST_F(TrainRun, AveragesItsNewestCheckpoints) {
  const std::string text = small_config(scratch, scratch / "run", "average: {last: 3}\n");
  std::vector<int64_t> steps;
  TrainEvents events;
  events.averaged = [&](const std::vector<int64_t>& of, const std::string&) { steps = of; };
  const TrainResult result = train(parse_train_config(text, "config.yaml"), false, events);
  EXPECT_EQ(result.average, scratch / "run/average");
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps.back(), 12);
  const Checkpoint average = open_safetensors(scratch / "run/average/model.safetensors");
  std::vector<Checkpoint> files;
  for (const int64_t step : steps)
    files.push_back(open_safetensors(scratch / ("run/step-" + std::to_string(step) + "/model.safetensors")));
  EXPECT_EQ(average.tensors().size(), files[0].tensors().size());
  for (const auto& [name, tensor] : average.tensors())
    for (size_t i = 0; i < tensor.bytes / sizeof(float); ++i) {
      double sum = 0;
      for (const Checkpoint& file : files) sum += static_cast<double>(reinterpret_cast<const float*>(file.find(name)->data)[i]);
      ASSERT_EQ(reinterpret_cast<const float*>(tensor.data)[i], static_cast<float>(sum / 3)) << name;
    }
  EXPECT_FALSE(std::filesystem::exists(scratch / "run/average/training"));
  EXPECT_EQ(open_model(scratch / "run/average").model->shape().n_layers, 2);
  // A finished run gets another one from what it kept.
  std::string two = text;
  two.replace(two.find("last: 3"), 7, "last: 2");
  train(parse_train_config(two, "config.yaml"), true, events);
  EXPECT_EQ(steps.size(), 2u);
  EXPECT_CONTAINS(message_of<InputError>([&] {
                    std::string once = text;
                    once.erase(once.find("every: 3, "), 10);
                    parse_train_config(once, "config.yaml");
                  }),
                  "there would be one checkpoint alone: set checkpoint.every too");
}

TEST_F(TrainRun, RefusesBeforeItStartsWithNumbers) {
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = small_config(scratch, scratch / "run");
    text.replace(text.find(from), from.size(), to);
    return message_of<InputError>([&] { train(parse_train_config(text, "config.yaml"), false); });
  };
  std::string message = refused("batch: 3\naccumulate: 2", "batch: 2000000000\naccumulate: 200");
  EXPECT_CONTAINS(message, "the activations and tokens of batches of 2000000000 sequences of 16 tokens take about ");
  EXPECT_CONTAINS(message, " MiB of memory, and the machine has ");
  EXPECT_CONTAINS(message, "Lower batch or sequence_length, or set recompute: true");
  message = refused("n_embd: 16", "n_embd: 400000");
  EXPECT_CONTAINS(message, "weights, gradients and the optimizer's state take about ");
  EXPECT_CONTAINS(refused("sequence_length: 16", "sequence_length: 33"),
                  "sequence_length is 33; the context of the model holds 32");
  EXPECT_CONTAINS(refused("vocab_size: 61", "vocab_size: 60"), "has token ids below 61, and the model's vocabulary has 60");
  EXPECT_CONTAINS(refused("warmup: 3", "warmup: 12"), "schedule.warmup is 12; expected fewer than the 12 steps");
  EXPECT_CONTAINS(refused("n_head: 2", "n_heed: 2"), "n_head");
  for (const char* range : {"-1", "1e39"})
    EXPECT_CONTAINS(refused("n_head: 2", "n_head: 2, initializer_range: " + std::string(range)),
                    "; is the standard deviation of fresh weights; expected a number from 0 to 1e30");
  EXPECT_CONTAINS(refused("n_head: 2", "n_head: 2, initializer_range: wide"), "\"initializer_range\" is \"wide\"");
  EXPECT_CONTAINS(refused("model_type: gpt2", "model_type: [gpt2]"), "\"model_type\" is [\"gpt2\"]; expected a string");
  EXPECT_CONTAINS(refused("n_head: 2", "n_head: 2, eos_token_id: [1, end]"), "\"eos_token_id\"");
  EXPECT_CONTAINS(refused("train: " + scratch / "data", "train: ''"), "\"data.train\" is \"\"; expected a folder made by");
  EXPECT_CONTAINS(
      refused("eval_every: 4", "eval_every: 4\nsample_every: 1\nsample_prompts: [a]"),
      "config.yaml: sample_prompts are texts, and the model has no tokenizer. Set model.tokenizer, or leave them out");
  // A tokenizer beside the model, and data that was not made with it.
  message = refused("  config:", "  tokenizer: " + std::string(VITRINE_GOLDEN) + "/models/gpt2_a/model\n  config:");
  EXPECT_CONTAINS(message, "/data was made with another tokenizer than the model's, so its ids stand for other pieces");
  // A folder of anything else would leave every checkpoint without one, and nobody would know before the run's end.
  std::filesystem::create_directories(scratch / "nothing");
  message = refused("  config:", "  tokenizer: " + scratch / "nothing" + "\n  config:");
  EXPECT_CONTAINS(message, "config.yaml: model.tokenizer is " + scratch / "nothing" +
                               ", which holds no tokenizer; expected a folder with tokenizer.json, tokenizer.model or vocab.json "
                               "and merges.txt");
  for (const char* model : {"model: ''\n", "model: {path: ''}\n", "model: {config: ''}\n"})
    EXPECT_CONTAINS(message_of<FileError>([&] { parse_train_config(model, "config.yaml"); }), "is \"\"; expected a path")
        << model;
  EXPECT_CONTAINS(refused("seed: 5", "seed: 5\nema_decay: 0.9"), "the key is not known; here it is \"ema\"");
  // No dropout is no dropout beside a GGUF file, too, and the data are looked at next.
  const auto beside_gguf = [&](const std::string& dropout) {
    const std::string text = "model: " + std::string(VITRINE_GOLDEN) + "/gguf/llama.gguf\nlora: {rank: 2, targets: [q_proj]}\n" +
                             "data: {train: none}\nsequence_length: 8\nbatch: 1\nsteps: 1\nout: " + scratch / "run" +
                             "\noptimizer: {name: sgd, lr: 1}\ndropout: " + dropout + "\n";
    return message_of<InputError>([&] { train(parse_train_config(text, "config.yaml"), false); });
  };
  EXPECT_CONTAINS(beside_gguf("0.1"), "is a GGUF file, whose models have none beside an adapter");
  EXPECT_CONTAINS(beside_gguf("0"), "none holds no token data");
  small_data(scratch, "tiny", 0, 3);
  EXPECT_CONTAINS(refused("train: " + scratch / "data", "train: " + scratch / "tiny"), "holds 0 tokens");
  EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
}

}  // namespace
}  // namespace vitrine
