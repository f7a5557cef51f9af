// The configuration: every key is checked, and what is wrong is named with its line.
#include "train/config.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "base/mapped_file.h"
#include "support/scratch.h"
#include "train/example.h"

namespace vitrine {
namespace {

const std::string kLeast =
    "model: some/model\ndata: {train: d}\nsequence_length: 8\nbatch: 2\nsteps: 10\noptimizer: {lr: 1e-3}\nout: o\n";

std::string refusal(const std::string& text) {
  return message_of<FileError>([&] { parse_train_config(text, "c.yaml"); });
}

// What stands there as a comment may be taken in.
TEST(TrainConfig, TheExampleReadsWithAndWithoutItsOptions) {
  const std::string example = example_train_config("some/model");
  EXPECT_FALSE(parse_train_config(example, "c.yaml").lora);
  const auto with = [&](const std::string& key) {
    std::string text = example;
    const size_t at = text.find("\n# " + key + ": ");
    return at == std::string::npos ? TrainConfig() : parse_train_config(text.erase(at + 1, 2), "c.yaml");
  };
  EXPECT_TRUE(with("compute").bf16);
  EXPECT_EQ(with("ema").ema, 0.999);
  const TrainConfig adapted = with("lora");
  ASSERT_TRUE(adapted.lora);
  EXPECT_EQ(adapted.lora->rank, 8);
  EXPECT_EQ(adapted.lora->targets, (std::vector<std::string>{"q_proj", "v_proj"}));
}

TEST(TrainConfig, TheLeastHasDefaults) {
  const TrainConfig c = parse_train_config(kLeast, "c.yaml");
  EXPECT_EQ(c.model, "some/model");
  EXPECT_EQ(c.accumulate, 1);
  EXPECT_TRUE(c.documents);
  EXPECT_EQ(c.optimizer.kind, OptimizerOptions::Kind::adamw);
  EXPECT_EQ(c.optimizer.weight_decay, 0.1);
  EXPECT_EQ(c.schedule.decay, Schedule::Decay::cosine);
  EXPECT_EQ(c.clip, 1);
  EXPECT_FALSE(c.dropout_attention.has_value());
}

// docs/training.md: the last step is one part of the decay above the minimum, and the step after it has it exactly.
TEST(Schedule, TheStepAfterTheLastHasTheMinimum) {
  for (const Schedule::Decay decay : {Schedule::Decay::cosine, Schedule::Decay::linear, Schedule::Decay::wsd}) {
    const Schedule s{.decay = decay, .peak = 1e-3, .minimum = 1e-5, .warmup = 2, .length = 60, .cooldown = 10};
    EXPECT_GT(s.at(59), 1e-5);
    EXPECT_EQ(s.at(60), 1e-5);
  }
}

// Against transformers and torch: tests/golden/train/make_schedule.py.
TEST(Schedule, CyclesBeginAtThePeakAgain) {
  const Json told = read_json(std::string(VITRINE_GOLDEN) + "/train/schedule.json");
  Schedule s{.peak = told.at("peak"), .length = told.at("length"), .cycles = told.at("cycles")};
  for (const bool to_zero : {true, false}) {
    s.minimum = to_zero ? 0 : told.at("minimum").get<double>();
    const Json& rates = told.at(to_zero ? "to_zero" : "to_minimum");
    for (int64_t done = 0; done < s.length; ++done)
      EXPECT_NEAR(s.at(done), rates.at(static_cast<size_t>(done)).get<double>(), 1e-12) << done;
    EXPECT_EQ(s.at(s.length), s.minimum);
  }
  const Schedule line{.decay = Schedule::Decay::linear, .peak = 1, .minimum = 0, .warmup = 2, .length = 8, .cycles = 2};
  const double wanted[] = {1.0 / 3, 2.0 / 3, 1, 2.0 / 3, 1.0 / 3, 1, 2.0 / 3, 1.0 / 3, 0, 0};
  for (int64_t done = 0; done < 10; ++done) EXPECT_NEAR(line.at(done), wanted[done], 1e-15) << done;
}

TEST(TrainConfig, ReadsCyclesAndRatesByGroup) {
  const TrainConfig c = parse_train_config(
      "model: m\ndata: {train: d}\nsequence_length: 8\nbatch: 2\nsteps: 10\nout: o\nschedule: {cycles: 3}\n"
      "optimizer: {lr: 1, lr_groups: {\"*embed*\": 0, \"model.layers.0.*\": 0.5, \"*gone*\": null}}\n",
      "c.yaml");
  EXPECT_EQ(c.schedule.cycles, 3);
  EXPECT_EQ(c.optimizer.lr_groups, (std::vector<std::pair<std::string, double>>{{"*embed*", 0}, {"model.layers.0.*", 0.5}}));
  EXPECT_EQ(refusal(kLeast + "schedule: {decay: wsd, cooldown: 2, cycles: 3}\n"),
            "c.yaml:8: \"schedule.cycles\" is \"3\"; it belongs to schedule.decay: cosine and linear");
  EXPECT_CONTAINS(refusal("extends: a.yaml\n" + kLeast), "it stands in a file alone");
}

TEST(TrainConfig, ReadsEveryKey) {
  const TrainConfig c = parse_train_config(R"(
model:
  config: {model_type: gpt2, n_embd: 16, scale: 1.5e0, shift: +0.5, flag: true, name: "7", list: [1, x, inf]}
  tokenizer: tok
  init: {rule: scale_preserving, norms: random}
data: {train: d, validation: v, documents: false}
sequence_length: 8
batch: 2
accumulate: 3
epochs: 1.5
optimizer: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.2, decay: ["*w*"], no_decay: "*b"}
schedule: {warmup: 4, decay: linear, minimum: 0.01, steps: 50}
clip: 0
dropout: {attention: 0.1, residual: 0.2}
recompute: true
compute: bf16
seed: 9
threads: 2
eval_every: 5
eval_batches: 6
sample_every: 7
sample_prompts: [a, b]
sample_tokens: 8
sample_temperature: 0
checkpoint: {every: 9, keep: 1, best: false}
layers_every: 10
out: o
)",
                                           "c.yaml");
  EXPECT_EQ(c.config, (Json{{"model_type", "gpt2"},
                            {"n_embd", 16},
                            {"scale", 1.5},
                            {"shift", 0.5},
                            {"flag", true},
                            {"name", "7"},
                            {"list", {1, "x", "inf"}}}));
  EXPECT_EQ(c.tokenizer, "tok");
  EXPECT_EQ(c.init.kind, InitRule::Kind::scale_preserving);
  EXPECT_TRUE(c.init.random_norms);
  EXPECT_FALSE(c.documents);
  EXPECT_EQ(c.validation_data, "v");
  EXPECT_EQ(c.accumulate, 3);
  EXPECT_EQ(c.epochs, 1.5);
  EXPECT_EQ(c.optimizer.kind, OptimizerOptions::Kind::sgd);
  EXPECT_EQ(c.optimizer.momentum, 0.9);
  EXPECT_EQ(c.optimizer.weight_decay, 0.2);
  EXPECT_EQ(c.optimizer.decay, std::vector<std::string>{"*w*"});
  EXPECT_EQ(c.optimizer.no_decay, std::vector<std::string>{"*b"});
  EXPECT_EQ(c.schedule.peak, 0.1);
  EXPECT_EQ(c.schedule.warmup, 4);
  EXPECT_EQ(c.schedule.decay, Schedule::Decay::linear);
  EXPECT_EQ(c.schedule.minimum, 0.01);
  EXPECT_EQ(c.schedule.length, 50);
  EXPECT_EQ(c.clip, 0);
  EXPECT_FALSE(c.dropout_embedding.has_value());
  EXPECT_EQ(c.dropout_attention, 0.1);
  EXPECT_EQ(c.dropout_residual, 0.2);
  EXPECT_TRUE(c.recompute);
  EXPECT_TRUE(c.bf16);
  EXPECT_EQ(c.seed, 9u);
  EXPECT_EQ(c.threads, 2);
  EXPECT_EQ(c.eval_every, 5);
  EXPECT_EQ(c.eval_batches, 6);
  EXPECT_EQ(c.sample_every, 7);
  EXPECT_EQ(c.sample_prompts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.sample_tokens, 8);
  EXPECT_EQ(c.sample_temperature, 0);
  EXPECT_EQ(c.save_every, 9);
  EXPECT_EQ(c.keep, 1);
  EXPECT_FALSE(c.best);
  EXPECT_EQ(c.layers_every, 10);
  EXPECT_EQ(c.out, "o");
}

// The recipes of the model that ships and of its student are what the program reads today.
TEST(TrainConfig, ReadsTheRecipesThatShip) {
  const std::string folder = std::string(VITRINE_SOURCE) + "/models/training/";
  const TrainConfig shipped = read_train_config(folder + "tales9m.yaml");
  const Json trained = read_json(std::string(VITRINE_SOURCE) + "/models/tales9m/config.json");
  for (const auto& [key, value] : shipped.config.items()) EXPECT_EQ(trained.at(key), value) << key;
  EXPECT_EQ(read_train_config(folder + "tales9m-long.yaml").model, "first");
  std::string student = read_file(folder + "student/student.yaml") + read_file(folder + "student/distill.yaml");
  for (const auto& [word, value] : {std::pair("MODEL", "models/tales9m"), {"SEED", "1"}, {"OUT", "out"}})
    for (size_t at = student.find(word); at != std::string::npos; at = student.find(word))
      student.replace(at, std::strlen(word), value);
  const TrainConfig distilled = parse_train_config(student, "student.yaml");
  EXPECT_EQ(distilled.config.at("vocab_size"), trained.at("vocab_size"));
  ASSERT_TRUE(distilled.distill.has_value());
  EXPECT_EQ(distilled.distill->teacher, "models/tales9m");
}

TEST(TrainConfig, NamesWhatIsWrong) {
  EXPECT_CONTAINS(refusal(kLeast + "learning_rate: 1\n"), "c.yaml:8: \"learning_rate\"");
  EXPECT_CONTAINS(refusal(kLeast + "learning_rate: 1\n"), "the key is not known; here it is \"optimizer.lr\"");
  EXPECT_CONTAINS(refusal(kLeast + "gradient_accumulation_steps: 4\n"), "here it is \"accumulate\"");
  EXPECT_CONTAINS(refusal(kLeast + "acumulate: 2\n"), "Did you mean \"accumulate\"?");
  EXPECT_CONTAINS(refusal(kLeast + "logging_dir: x\n"), "\"logging_dir\" is not known. Here can stand: model, ");
  EXPECT_CONTAINS(refusal(kLeast + "fp16: true\n"), "the key is not known; training is in f32, and compute: bf16 rounds");
  EXPECT_CONTAINS(refusal(kLeast + "logging_steps: 10\n"), "the key is not known; every step has a line in metrics.jsonl");
  EXPECT_CONTAINS(refusal(kLeast + "early_stopping_patience: 3\n"), "here it is \"early_stopping.patience\"");
  EXPECT_CONTAINS(refusal(kLeast + "schedule: {decay: exponential}\n"),
                  "\"schedule.decay\" is \"exponential\"; expected one of constant, linear, cosine");
  EXPECT_CONTAINS(refusal(kLeast + "epochs: 2\n"), "both \"steps\" and \"epochs\" are set; expected one of them");
  EXPECT_CONTAINS(refusal(kLeast + "eval_every: 2\n"), "set data.validation too");
  EXPECT_CONTAINS(refusal(kLeast + "sample_every: 2\n"), "set sample_prompts too");
  EXPECT_CONTAINS(refusal(kLeast + "sample_prompts: [a]\n"), "set sample_every too");
  EXPECT_CONTAINS(refusal(kLeast + "dropout: 1\n"), "\"dropout\" is \"1\"; expected a share from 0 to below 1");
  EXPECT_CONTAINS(refusal(kLeast + "dropout: {pattern: 0.1}\n"), "\"dropout.pattern\" is not known");
  EXPECT_CONTAINS(refusal(kLeast + "clip: null\n"), "expected a number (0: no clipping)");
  EXPECT_CONTAINS(refusal(kLeast + "dropout: ~\n"), "expected a number (0: none)");
  EXPECT_CONTAINS(refusal(kLeast + "schedule: {decay: constant, minimum: 0}\n"),
                  "\"schedule.minimum\" is \"0\"; it would never be read: schedule.decay is constant");
  EXPECT_CONTAINS(refusal(kLeast + "schedule: {decay: constant, steps: 9}\n"), "it would never be read");
  EXPECT_CONTAINS(refusal(kLeast + "clip: -1\n"), "expected a norm from 0 to 1e12 (0: no clipping)");
  EXPECT_CONTAINS(refusal(kLeast + "schedule: {minimum: 1}\n"), "expected a learning rate from 0 to optimizer.lr");
  EXPECT_CONTAINS(refusal(kLeast + "schedule: {decay: cosin}\n"), "did you mean \"cosine\"?");
  EXPECT_CONTAINS(refusal(kLeast + "checkpoint: {keep: 0}\n"), "expected a whole number from 1");
  EXPECT_CONTAINS(refusal("model: m\n"), "lacks \"data\"; expected {train: FOLDER");
  EXPECT_CONTAINS(refusal("model: {init: {rule: family}}\n"), "expected either \"path\"");
  EXPECT_CONTAINS(refusal("model: {path: p, init: {rule: family}}\n"), "expected none: the weights are those of model.path");
  std::string text = kLeast;
  text.replace(text.find("{lr: 1e-3}"), 10, "{lr: 1, momentum: 0.9}");
  EXPECT_CONTAINS(refusal(text), "\"optimizer.momentum\" is not known");
  text.replace(text.find("momentum: 0.9"), 13, "moments: bf61");
  EXPECT_CONTAINS(refusal(text), "did you mean \"bf16\"?");
  text.replace(text.find("bf61"), 4, "bf16");
  EXPECT_TRUE(parse_train_config(text, "c.yaml").optimizer.bf16_moments);
  text.replace(text.find("lr: 1"), 5, "name: sgd, lr: 1");
  EXPECT_CONTAINS(refusal(text), "\"optimizer.moments\" is not known");
}

TEST(TrainConfig, NamesBothBounds) {
  const auto with_optimizer = [](const std::string& what) {
    std::string text = kLeast;
    text.replace(text.find("{lr: 1e-3}"), 10, what);
    return refusal(text);
  };
  for (const char* rate : {"1e39", "-1"})
    EXPECT_CONTAINS(with_optimizer("{lr: " + std::string(rate) + "}"),
                    "\"optimizer.lr\" is \"" + std::string(rate) + "\"; expected a learning rate from 0 to 1e30");
  EXPECT_CONTAINS(with_optimizer("{lr: 1, weight_decay: 1e7}"), "expected a number from 0 to 1e6");
  EXPECT_CONTAINS(refusal(kLeast + "ema: 0.9\nkl_to: ema\nkl_weight: 1e10\n"), "expected a number from 1e-9 to 1e9");
}

TEST(TrainConfig, DropoutGoesWhereTheFamilyHasIt) {
  TrainConfig c = parse_train_config(kLeast + "dropout: 0.25\n", "c.yaml");
  EXPECT_EQ(with_dropout({{"model_type", "gpt2"}}, c),
            (Json{{"model_type", "gpt2"}, {"embd_pdrop", 0.25}, {"attn_pdrop", 0.25}, {"resid_pdrop", 0.25}}));
  EXPECT_EQ(with_dropout({{"model_type", "llama"}}, c), (Json{{"model_type", "llama"}, {"attention_dropout", 0.25}}));
  EXPECT_EQ(with_dropout({{"model_type", "classic_decoder"}}, c), (Json{{"model_type", "classic_decoder"}, {"dropout", 0.25}}));
  c = parse_train_config(kLeast + "dropout: {embedding: 0.25}\n", "c.yaml");
  EXPECT_CONTAINS(message_of<InputError>([&] { with_dropout({{"model_type", "llama"}}, c); }),
                  "\"dropout.embedding\" is set, and models of the family llama have no dropout there");
}

TEST(TrainConfig, ReadsMuonAndWsd) {
  const auto parse = [](const std::string& optimizer, const std::string& schedule) {
    return parse_train_config("model: m\ndata: {train: d}\nsequence_length: 8\nbatch: 2\nsteps: 10\nout: o\noptimizer: {" +
                                  optimizer + "}\nschedule: {" + schedule + "}\nmetrics: {csv: true}\n",
                              "c.yaml");
  };
  const auto refused = [&](const std::string& optimizer, const std::string& schedule) -> std::string {
    try {
      parse(optimizer, schedule);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  const TrainConfig plain = parse("name: muon, lr: 0.02", "decay: wsd, cooldown: 4");
  EXPECT_EQ(plain.optimizer.kind, OptimizerOptions::Kind::muon);
  EXPECT_EQ(plain.optimizer.momentum, 0.95);
  EXPECT_EQ(plain.optimizer.adamw_lr, 1);
  EXPECT_EQ(plain.schedule.decay, Schedule::Decay::wsd);
  EXPECT_EQ(plain.schedule.cooldown, 4);
  EXPECT_TRUE(plain.metrics.csv);
  EXPECT_FALSE(plain.metrics.tensorboard);
  const TrainConfig all =
      parse("name: muon, lr: 0.02, momentum: 0.9, nesterov: false, iterations: 3, scale: original, adamw_lr: 0.005", "warmup: 1");
  EXPECT_EQ(all.optimizer.momentum, 0.9);
  EXPECT_FALSE(all.optimizer.nesterov);
  EXPECT_EQ(all.optimizer.iterations, 3);
  EXPECT_EQ(all.optimizer.scale, OptimizerOptions::Scale::original);
  EXPECT_DOUBLE_EQ(all.optimizer.adamw_lr, 0.25);
  EXPECT_CONTAINS(refused("name: adamw, lr: 1, adamw_lr: 1", ""), "adamw_lr");
  EXPECT_CONTAINS(refused("name: muon, lr: 1, moments: bf16", ""), "moments");
  EXPECT_CONTAINS(refused("name: muon, lr: 0, adamw_lr: 1", ""), "it goes along with optimizer.lr, which is 0");
  EXPECT_CONTAINS(refused("lr: 1", "decay: wsd"), "set schedule.cooldown too");
  EXPECT_CONTAINS(refused("lr: 1", "cooldown: 3"), "it belongs to schedule.decay: wsd");
}

TEST(TrainConfig, ReadsTasks) {
  const TrainConfig c = parse_train_config(kLeast + "tasks: [a.jsonl, b.jsonl]\ntasks_every: 5\ntasks_limit: 20\n", "c.yaml");
  EXPECT_EQ(c.tasks, (std::vector<std::string>{"a.jsonl", "b.jsonl"}));
  EXPECT_EQ(c.tasks_every, 5);
  EXPECT_EQ(c.tasks_limit, 20);
  EXPECT_CONTAINS(refusal(kLeast + "tasks_every: 5\n"), "set tasks too");
  EXPECT_CONTAINS(refusal(kLeast + "tasks: [a]\n"), "set tasks_every too");
}

TEST(Schedule, RisesAndFalls) {
  Schedule s{.decay = Schedule::Decay::cosine, .peak = 1, .minimum = 0.1, .warmup = 4, .length = 14};
  EXPECT_DOUBLE_EQ(s.at(0), 0.2);
  EXPECT_DOUBLE_EQ(s.at(3), 0.8);
  EXPECT_DOUBLE_EQ(s.at(4), 1);
  EXPECT_DOUBLE_EQ(s.at(9), 0.55);
  EXPECT_DOUBLE_EQ(s.at(14), 0.1);
  EXPECT_DOUBLE_EQ(s.at(1000), 0.1);
  s.decay = Schedule::Decay::linear;
  EXPECT_DOUBLE_EQ(s.at(5), 0.91);
  s.decay = Schedule::Decay::wsd;
  s.cooldown = 4;
  EXPECT_DOUBLE_EQ(s.at(2), 0.6);
  EXPECT_EQ(s.at(4), 1);
  EXPECT_EQ(s.at(10), 1);
  EXPECT_DOUBLE_EQ(s.at(12), 0.55);
  EXPECT_EQ(s.at(14), 0.1);
  EXPECT_EQ(s.at(100), 0.1);
  s.decay = Schedule::Decay::constant;
  EXPECT_DOUBLE_EQ(s.at(3), 0.8);
  EXPECT_DOUBLE_EQ(s.at(1000), 1);
}

TEST(TrainConfig, ExtendsAFileAndTakesSettings) {
  const Scratch scratch;
  const std::string base = scratch.write("base.yaml", kLeast);
  const std::string top = scratch.write("top.yaml", "extends: base.yaml\noptimizer: {betas: [0.8, 0.9]}\nema: 0.5\n");
  const TrainConfig c = read_train_config(top, std::vector<std::string>{"optimizer.lr=2e-3", "steps=", "epochs=2", "ema=null"});
  EXPECT_EQ(c.schedule.peak, 2e-3);
  EXPECT_EQ(c.optimizer.beta1, 0.8);
  EXPECT_EQ(c.epochs, 2);
  EXPECT_FALSE(c.ema);
  const TrainConfig again = parse_train_config(c.text, "again.yaml");
  EXPECT_EQ(again.text, c.text);
  EXPECT_EQ(again.schedule.peak, 2e-3);
  const auto refused = [&](const std::string& setting) {
    return message_of<FileError>([&] { read_train_config(top, std::vector<std::string>{setting}); });
  };
  EXPECT_EQ(refused("batch=0"), "--set: \"batch\" is \"0\"; expected a whole number from 1 to 2147483647");
  EXPECT_CONTAINS(refused("optimizer.lrr=1"), "--set: \"optimizer.lrr\" is not known. Did you mean \"lr\"?");
  EXPECT_CONTAINS(refused("learning_rate=1"),
                  "--set: \"learning_rate\" is \"1\"; the key is not known; here it is \"optimizer.lr\"");
  EXPECT_EQ(refused("extends=base.yaml"),
            "--set: \"extends\" is \"base.yaml\"; it stands in a file alone, whose keys are merged over those of another");
  EXPECT_EQ(refused("optimizer.lr=null"), top + ":2: \"optimizer\" lacks \"lr\"; expected the learning rate, such as 1e-3");
}

TEST(TrainConfig, AFolderIsThatOfARun) {
  const Scratch scratch;
  EXPECT_EQ(message_of<InputError>([&] { read_train_config(scratch.path()); }),
            scratch.path() + ": has no config.yaml, so it is not the folder of a run. Give the configuration's file");
  scratch.write("config.yaml", kLeast);
  EXPECT_EQ(read_train_config(scratch.path()).out, scratch.path());
}

}  // namespace
}  // namespace vitrine
