// Distillation, the anchor and the averaged weights: against torch, learning, resuming to the same bits, what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "generate/generate.h"
#include "support/random_model.h"
#include "train/continuation.h"
#include "train/data/prepare.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/target_cache.h"
#include "train/train.h"

namespace vitrine {
namespace {

Json golden_distillation() { return read_json(std::string(VITRINE_GOLDEN) + "/distillation/distillation.json"); }

DivergenceSpec::Kind kind_of(const std::string& name) {
  using Kind = DivergenceSpec::Kind;
  return name == "forward_kl" ? Kind::forward_kl : name == "reverse_kl" ? Kind::reverse_kl : Kind::jensen_shannon;
}

TEST(DistillationGolden, AStepEqualsTorch) {
  const Json golden = golden_distillation();
  Batch batch;
  for (const Json& sequence : golden.at("sequences")) {
    const auto ids = sequence.get<std::vector<int32_t>>();
    batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.end() - 1);
    batch.labels.insert(batch.labels.end(), ids.begin() + 1, ids.end());
    batch.lengths.push_back(static_cast<int64_t>(ids.size()) - 1);
  }
  const OpenedModel teacher = open_model(Golden::open("gemma2").model()), anchor = open_model(Golden::open("gpt2_a").model());
  for (const Json& c : golden.at("cases")) {
    SCOPED_TRACE(c.at("divergence").get<std::string>());
    LearnerOptions options;
    options.threads = 2;
    Learner learner(open_model(Golden::open("llama").model()), options);
    const double alpha = c.at("alpha"), temperature = c.at("temperature"), weight = c.at("kl_weight");
    std::vector<TeacherSpec> teachers = {{"kl",
                                          teacher.model.get(),
                                          {kind_of(c.at("divergence")), c.at("beta").get<double>(), temperature},
                                          (1 - alpha) * temperature * temperature,
                                          false}};
    if (weight > 0) teachers.push_back({"kl_to", anchor.model.get(), {DivergenceSpec::Kind::reverse_kl, 0.5, 1}, weight, false});
    learner.set_teachers(teachers, alpha);
    const StepReport report = learner.step(std::span(&batch, 1), 1e-3);
    EXPECT_NEAR(report.loss, c.at("loss").get<double>(), 1e-4 * c.at("loss").get<double>());
    EXPECT_NEAR(report.cross_entropy.value(), c.at("ce").get<double>(), 1e-4 * c.at("ce").get<double>());
    EXPECT_NEAR(report.divergences.at(0), c.at("kl").get<double>(), 1e-4 * c.at("kl").get<double>());
    if (weight > 0) {
      EXPECT_NEAR(report.divergences.at(1), c.at("kl_to").get<double>(), 1e-4 * c.at("kl_to").get<double>());
    }
    for (size_t i = 0; i < learner.parameters().list().size(); ++i) {
      const std::string& name = learner.parameters().list()[i].name;
      const double wanted = c.at("gradient_norms").at(name);
      EXPECT_NEAR(report.gradient_norms[i], wanted, 1e-4 * wanted) << name;
    }
  }
}

TEST(Ema, EqualsTorchsAverage) {
  const Json golden = golden_distillation().at("ema");
  OpenedModel opened = open_model(Golden::open("llama").model());
  Parameters learned(*opened.model);
  const auto set = [&](const Json& numbers) {
    for (size_t i = 0; i < numbers.size(); ++i) learned.weights()[i] = numbers[i].get<float>();
  };
  set(golden.at("weights")[0]);
  Ema ema(model_from_config(opened.files), learned, golden.at("decay").get<double>());
  ThreadPool pool(2);
  for (size_t step = 1; step < golden.at("weights").size(); ++step) {
    set(golden.at("weights")[step]);
    ema.update(pool);
    const float* got = ema.weights(learned.list()[0]);
    for (size_t i = 0; i < golden.at("averages")[step].size(); ++i)
      EXPECT_NEAR(got[i], golden.at("averages")[step][i].get<double>(), 1e-6);
    EXPECT_EQ(got[100], learned.weights()[100]);  // what does not change is its own average
  }
}

class Distill : public testing::Test {
 protected:
  void SetUp() override {
    small_data(scratch, "data", 40, 1);
    small_data(scratch, "valid", 6, 2);
    teacher("teacher", 61, 3);
  }
  // A Llama of another width than the student's.
  void teacher(const std::string& name, int vocab, uint64_t seed) {
    std::filesystem::create_directories(scratch / name);
    write_random_model(scratch / name,
                       {{"model_type", "llama"},
                        {"vocab_size", vocab},
                        {"hidden_size", 24},
                        {"intermediate_size", 40},
                        {"num_hidden_layers", 1},
                        {"num_attention_heads", 2},
                        {"num_key_value_heads", 1},
                        {"max_position_embeddings", 32},
                        {"rms_norm_eps", 1e-5}},
                       seed);
  }
  std::string distill(const std::string& more = "") { return "distill: {teacher: " + scratch / "teacher" + more + "}\n"; }
  TrainConfig config(const std::string& out, const std::string& extra) {
    return parse_train_config(small_config(scratch, scratch / out, extra), "config.yaml");
  }
  static TrainEvents until(int64_t step) {
    auto done = std::make_shared<int64_t>(0);
    TrainEvents events;
    events.stepped = [done](const StepReport& r, const TrainEvents::Rate&) { *done = r.step; };
    events.stop = [done, step] { return *done >= step; };
    return events;
  }
  std::string ema_bytes(const std::string& out) const { return read_file(scratch / (out + "/step-12/ema/model.safetensors")); }
  Scratch scratch;
};

TEST_F(Distill, AStudentComesNearToItsTeacher) {
  for (const char* divergence : {"forward_kl", "reverse_kl", "jensen_shannon"}) {
    SCOPED_TRACE(divergence);
    std::string text = small_config(scratch, scratch / divergence,
                                    "dropout: 0\n" + distill(std::string(", alpha: 0, divergence: ") + divergence));
    text.replace(text.find("n_embd: 16"), 10, "n_embd: 48");
    text.replace(text.find("steps: 12"), 9, "steps: 500");
    text.replace(text.find("eval_every: 4"), 13, "eval_every: 500");
    text.replace(text.find("every: 3"), 8, "every: 500");
    train(parse_train_config(text, "config.yaml"), false);
    const std::vector<Json> metrics = metrics_of(scratch / divergence);
    const auto mean = [&](size_t first) {  // over ten steps, since a batch is small
      double sum = 0;
      for (size_t i = first; i < first + 10; ++i) sum += metrics[i].at("kl").get<double>();
      return sum / 10;
    };
    EXPECT_LT(mean(metrics.size() - 10), 0.6 * mean(1));
    EXPECT_NEAR(metrics.back().at("loss").get<double>(), metrics.back().at("kl").get<double>(), 1e-6);
    EXPECT_TRUE(metrics.back().contains("ce"));
  }
}

TEST_F(Distill, TheLossIsTheSumOfItsParts) {
  train(config("run", "ema: {decay: 0.5}\nkl_to: ema\nkl_weight: 0.25\n" + distill(", alpha: 0.4, temperature: 2")), false);
  for (const Json& line : metrics_of(scratch / "run")) {
    if (line.at("step") == 0) continue;
    const double ce = line.at("ce"), kl = line.at("kl"), anchor = line.at("kl_to");
    EXPECT_NEAR(line.at("loss").get<double>(), 0.4 * ce + 0.6 * 4 * kl + 0.25 * anchor, 1e-5);
    EXPECT_GT(anchor, 1e-4);  // at step 1, too, where the weights are the same: the anchor's pass has no dropout
  }
}

TEST_F(Distill, ResumesToTheSameBits) {
  const auto all = [&](const std::string& out) {
    return "ema: 0.9\nkl_to: ema\nkl_weight: 0.3\n" +
           distill(", on_policy: 0.4, temperature: 1.5, cache: {folder: " + scratch / "cache-" + out + ", top_k: 7}");
  };
  train(config("whole", "threads: 1\n" + all("whole")), false);
  const std::string weights = weights_bytes(scratch / "whole/step-12"), average = ema_bytes("whole");
  const std::vector<Json> metrics = metrics_of(scratch / "whole");
  EXPECT_TRUE(std::any_of(metrics.begin(), metrics.end(), [](const Json& line) { return line.value("on_policy", 0.0) > 0; }));
  EXPECT_TRUE(std::any_of(metrics.begin(), metrics.end(), [](const Json& line) { return line.value("on_policy", 1.0) < 1; }));
  for (const int64_t step : {1, 4, 7}) {
    SCOPED_TRACE(step);
    const std::string out = "cut" + std::to_string(step);
    train(config(out, "threads: 2\n" + all(out)), false, until(step));
    train(config(out, all(out)), true);
    EXPECT_EQ(weights_bytes(scratch / (out + "/step-12")), weights);
    EXPECT_EQ(ema_bytes(out), average);
    EXPECT_EQ(metrics_of(scratch / out), metrics);
  }
}

TEST_F(Distill, TheSpaceOfACacheIsSaidInUnitsThatFit) {
  const TargetCache cache(scratch / "cache", Json::object(), 1, 1, "c.yaml");  // 24 bytes for a sequence
  EXPECT_CONTAINS(message_of<InputError>([&] { cache.check_space(uint64_t{1} << 44); }),
                  " sequences take 384.0 TiB, and the disk");
}

// The weights that learning begins from and the text are the same by every seed: what the model draws differs alone.
TEST_F(Distill, SamplesByTheSeed) {
  teacher("student", 61, 4);
  std::filesystem::create_directories(scratch / "same");
  TokenDataWriter writer(scratch / "same", {.vocab_size = 61, .tokenizer = 1});
  const std::vector<int32_t> ids(600, 7);
  writer.add(ids, ids.size());
  writer.end_document();
  writer.finish();
  const auto weights = [&](const std::string& out, const std::string& seed, const std::string& on_policy) {
    std::string text = small_config(scratch, scratch / out, "threads: 2\n" + distill(on_policy + ", alpha: 0"));
    text.replace(text.find("seed: 5"), 7, "seed: " + seed);
    text.replace(text.find("data: {"), 7, "data: {documents: false, ");
    text.replace(text.find(scratch / "data"), (scratch / "data").size(), scratch / "same");
    const size_t begin = text.find("model:"), end = text.find("data:");
    text.replace(begin, end - begin, "model: " + scratch / "student" + "\n");
    train(parse_train_config(text, "config.yaml"), false);
    return weights_bytes(scratch / (out + "/step-12"));
  };
  EXPECT_EQ(weights("plain5", "5", ""), weights("plain6", "6", ""));
  EXPECT_EQ(weights("a", "5", ", on_policy: 1"), weights("b", "5", ", on_policy: 1"));
  EXPECT_NE(weights("c", "6", ", on_policy: 1"), weights("d", "7", ", on_policy: 1"));
  for (const Json& line : metrics_of(scratch / "a")) {
    if (line.at("step") == 0) continue;
    EXPECT_EQ(line.at("on_policy"), 1.0);
    EXPECT_FALSE(line.contains("ce"));  // the model's own words are no labels
  }
}

TEST_F(Distill, AContinuationKeepsTheBeginningAndScoresWhatWasDrawn) {
  Engine engine(scratch / "teacher", {.threads = 2});
  Batch batch;
  for (const int32_t length : {9, 1, 6}) {
    batch.lengths.push_back(length);
    for (int32_t i = 0; i < length; ++i) {
      batch.tokens.push_back((7 * i + length) % 61);
      batch.labels.push_back(0);
    }
  }
  DistillOptions options;
  options.sample_temperature = 0;
  const Batch greedy = continued_by(engine, batch, options, 1, 0);
  EXPECT_TRUE(greedy.sampled);
  EXPECT_EQ(greedy.lengths, (std::vector<int64_t>{9, 6}));  // a sequence of one token has nothing to draw
  const std::vector<int32_t> prompt(batch.tokens.begin(), batch.tokens.begin() + 4);
  GenerateOptions generating;
  generating.max_tokens = 5;
  std::vector<int32_t> expected = prompt;
  for (const int32_t token : generate(engine, prompt, generating).tokens) expected.push_back(token);
  EXPECT_EQ(std::vector<int32_t>(greedy.tokens.begin(), greedy.tokens.begin() + 9), expected);
  const std::vector<int32_t> labels = {kNotScored,  kNotScored,  kNotScored,  expected[4], expected[5],
                                       expected[6], expected[7], expected[8], kNotScored};
  EXPECT_EQ(std::vector<int32_t>(greedy.labels.begin(), greedy.labels.begin() + 9), labels);
  options.sample_temperature = 1;
  const Batch drawn = continued_by(engine, batch, options, 1, 0), again = continued_by(engine, batch, options, 1, 0),
              other = continued_by(engine, batch, options, 1, 1);
  EXPECT_EQ(drawn.tokens, again.tokens);
  EXPECT_NE(drawn.tokens, other.tokens);
  std::vector<int32_t> of_ranks;  // each draws for its own sequences what one rank draws for them
  for (const int rank : {0, 1, 2}) {
    const Batch part = continued_by(engine, part_of(batch, rank, 3), options, 1, 0);
    EXPECT_TRUE(part.sampled);
    of_ranks.insert(of_ranks.end(), part.tokens.begin(), part.tokens.end());
  }
  EXPECT_EQ(of_ranks, drawn.tokens);
  const Batch none = continued_by(engine, part_of(batch, 1, 3), options, 1, 0);  // one token: the data's label is not learned
  EXPECT_TRUE(none.tokens.empty() && none.labels.empty() && none.lengths.empty());
}

// Many windows hold documents of one token alone: nothing is drawn there, and the data's labels stay out of it.
TEST_F(Distill, WindowsWithNothingToDrawArePassedOver) {
  std::filesystem::create_directories(scratch / "short");
  TokenDataWriter writer(scratch / "short", {.vocab_size = 61, .tokenizer = 1});
  for (int32_t d = 0; d < 60; ++d) {
    const std::vector<int32_t> ids = {d, d / 2, d / 3};
    const size_t n = d % 2 == 0 ? 1 : 3;
    writer.add(std::span(ids).first(n), n);
    writer.end_document();
  }
  writer.finish();
  std::string text = small_config(scratch, scratch / "run", distill(", on_policy: 1"));
  for (const auto& [from, to] : {std::pair<std::string, std::string>{scratch / "data", scratch / "short"},
                                 {"batch: 3\naccumulate: 2", "batch: 1"},
                                 {"sequence_length: 16", "sequence_length: 2"}})
    text.replace(text.find(from), from.size(), to);
  train(parse_train_config(text, "config.yaml"), false);
  size_t steps = 0;
  for (const Json& line : metrics_of(scratch / "run")) {
    if (line.at("step") == 0) continue;
    ++steps;
    EXPECT_EQ(line.at("on_policy"), 1.0);
    EXPECT_FALSE(line.contains("ce"));
  }
  EXPECT_EQ(steps, 12u);
}

TEST_F(Distill, TheCacheHoldsWhatTheTeacherExpects) {
  const auto cached = [&](int k) {
    return distill(", cache: {folder: " + scratch / "cache" + std::to_string(k) + ", top_k: " + std::to_string(k) + "}");
  };
  train(config("plain", "dropout: 0\n" + distill()), false);
  train(config("whole", "dropout: 0\n" + cached(61)), false);
  const std::vector<Json> plain = metrics_of(scratch / "plain"), whole = metrics_of(scratch / "whole");
  ASSERT_EQ(plain.size(), whole.size());
  for (size_t i = 1; i < plain.size(); ++i) {  // the whole vocabulary is stored: only f32's rounding differs
    EXPECT_NEAR(plain[i].at("kl").get<double>(), whole[i].at("kl").get<double>(), 1e-4 * plain[i].at("kl").get<double>());
    EXPECT_NEAR(plain[i].at("loss").get<double>(), whole[i].at("loss").get<double>(), 1e-4 * plain[i].at("loss").get<double>());
  }
  // A second run reads what the first one stored, to the same bits, and stores nothing.
  train(config("first", cached(5)), false);
  const std::string stored = read_file(scratch / "cache5/targets.bin");
  train(config("second", cached(5)), false);
  EXPECT_EQ(read_file(scratch / "cache5/targets.bin"), stored);
  EXPECT_EQ(weights_bytes(scratch / "first/step-12"), weights_bytes(scratch / "second/step-12"));
  for (size_t i = 1; i < plain.size(); ++i)
    EXPECT_LT(metrics_of(scratch / "first")[i].at("kl"), plain[1].at("kl"));  // joining tokens loses divergence
  // Damage and what was not reached are computed again.
  std::string damaged = stored.substr(0, stored.size() * 2 / 3);
  damaged[stored.size() / 3] = static_cast<char>(damaged[stored.size() / 3] + 1);
  scratch.write("cache5/targets.bin", damaged);
  train(config("third", cached(5)), false);
  EXPECT_EQ(read_file(scratch / "cache5/targets.bin"), stored);
  EXPECT_EQ(weights_bytes(scratch / "first/step-12"), weights_bytes(scratch / "third/step-12"));
}

TEST_F(Distill, BatchesOfSeveralPassesFindTheirTargets) {
  const auto run = [&](const std::string& out, const std::string& cache) {
    std::string text = small_config(scratch, scratch / out, "dropout: 0\n" + distill(cache));
    const std::string small = "batch: 3\naccumulate: 2\nsteps: 12";
    text.replace(text.find(small), small.size(), "batch: 160\naccumulate: 1\nsteps: 4");  // 2,560 rows
    train(parse_train_config(text, "config.yaml"), false);
    return metrics_of(scratch / out);
  };
  const std::string cache = ", cache: {folder: " + scratch / "cache" + ", top_k: 61}";
  const std::vector<Json> plain = run("plain", ""), first = run("first", cache), second = run("second", cache);
  ASSERT_EQ(plain.size(), first.size());
  for (size_t i = 1; i < plain.size(); ++i)
    EXPECT_NEAR(plain[i].at("kl").get<double>(), first[i].at("kl").get<double>(), 1e-4 * plain[i].at("kl").get<double>());
  EXPECT_EQ(first, second);  // what was stored is read
}

TEST_F(Distill, ACacheServesWhatItWasComputedFor) {
  const std::string cached = distill(", cache: {folder: " + scratch / "cache" + ", top_k: 5}");
  train(config("first", cached), false, until(1));
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = small_config(scratch, scratch / "other", cached);
    text.replace(text.find(from), from.size(), to);
    return message_of<InputError>([&] { train(parse_train_config(text, "config.yaml"), false); });
  };
  EXPECT_CONTAINS(refused("seed: 5", "seed: 6"), "config.yaml: distill.cache: ");
  EXPECT_CONTAINS(refused("seed: 5", "seed: 6"), "was computed for something else: seed is 5 there and 6 in this run");
  EXPECT_CONTAINS(refused("top_k: 5", "top_k: 6"), "top_k is 5 there and 6 in this run");
  EXPECT_CONTAINS(refused("sequence_length: 16", "sequence_length: 8"), "sequence_length is 16 there and 8 in this run");
  EXPECT_CONTAINS(refused("top_k: 5", "top_k: 62"), "distill.cache.top_k is 62; the vocabulary has 61 tokens");
  scratch.write("full/file", "");
  EXPECT_CONTAINS(refused(scratch / "cache", scratch / "full"), "holds other things and no index.json");
  teacher("teacher", 61, 4);  // other weights under the same name
  EXPECT_CONTAINS(refused("seed: 5", "seed: 5"), "teacher is \"");
  small_data(scratch, "data", 40, 9);
  teacher("teacher", 61, 3);
  EXPECT_CONTAINS(refused("seed: 5", "seed: 5"), "data is \"");
}

TEST_F(Distill, OtherVocabulariesAreRefused) {
  teacher("other", 62, 3);
  const auto refused = [&](const std::string& extra) {
    return message_of<InputError>([&] { train(config("run", extra), false); });
  };
  std::string message = refused("distill: {teacher: " + scratch / "other" + "}\n");
  EXPECT_CONTAINS(message, "config.yaml: distill.teacher: " + scratch / "other" +
                               " has a vocabulary of 62 tokens, the model that learns one of 61");
  EXPECT_CONTAINS(message, "Take a model of the same vocabulary");
  EXPECT_CONTAINS(refused("kl_to: " + scratch / "other" + "\nkl_weight: 1\n"), "config.yaml: kl_to: ");
  std::string text = small_config(scratch, scratch / "run", distill());
  text.replace(text.find("n_positions: 32"), 15, "n_positions: 64");
  text.replace(text.find("sequence_length: 16"), 19, "sequence_length: 33");
  EXPECT_CONTAINS(message_of<InputError>([&] { train(parse_train_config(text, "config.yaml"), false); }),
                  "has a context of 32 tokens, and sequence_length is 33");
  EXPECT_FALSE(RunFolder(scratch / "run").used());
}

// The same size, other pieces: Llama's vocabulary against GPT-2's of the golden models.
TEST_F(Distill, OtherPiecesAreRefused) {
  const std::string models = std::string(VITRINE_GOLDEN) + "/models/";
  for (const bool tokenizer : {true, false}) {
    std::filesystem::create_directories(scratch / "tokens");
    const Engine llama(models + "llama/model", {.threads = 1});
    TokenDataWriter writer(scratch / "tokens", {.vocab_size = 512, .tokenizer = tokenizer_fingerprint(llama.tokenizer())});
    const std::vector<int32_t> ids(100, 7);
    writer.add(ids, 100);
    writer.finish();
    const std::string text =
        "model: {config: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, vocab_size: 512, n_positions: 32}" +
        std::string(tokenizer ? ", tokenizer: " + models + "llama/model" : "") + "}\ndata: {train: " + scratch / "tokens" +
        "}\nsequence_length: 16\nbatch: 1\nsteps: 2\noptimizer: {lr: 1e-3}\nout: " + scratch / "run";
    const auto attempt = [&](const std::string& teacher) {
      train(parse_train_config(text + "\ndistill: {teacher: " + teacher + "}\n", "config.yaml"), false);
    };
    const std::string message = message_of<InputError>([&] { attempt(models + "gpt2_a/model"); });
    EXPECT_CONTAINS(message, tokenizer ? "has another vocabulary than the model that learns: token "
                                       : "has another tokenizer than the one that made ");
    attempt(models + "gemma2/model");  // has Llama's pieces
    std::filesystem::remove_all(scratch / "run");
    attempt(std::string(VITRINE_GOLDEN) + "/gguf/llama_q4_0.gguf");  // quantized
    std::filesystem::remove_all(scratch / "run");
  }
}

TEST_F(Distill, TheAverageIsAModelOfItsOwn) {
  train(config("run", "ema: 0.9\n"), false);
  const std::vector<Json> metrics = metrics_of(scratch / "run");
  EXPECT_EQ(metrics[0].at("val_loss_ema"), metrics[0].at("val_loss"));
  EXPECT_NE(metrics.back().at("val_loss_ema"), metrics.back().at("val_loss"));
  EXPECT_LT(metrics.back().at("val_loss_ema"), metrics[0].at("val_loss_ema"));
  Engine average(scratch / "run/last/ema"), newest(scratch / "run/last");
  const std::vector<int32_t> ids = {3, 6};
  EXPECT_NE(average.predict(ids, 1, false)[0].top[0].logprob, newest.predict(ids, 1, false)[0].top[0].logprob);
  // Learning is that of a run without it, and a run without it can begin one.
  train(config("without", ""), false, until(6));
  EXPECT_FALSE(std::filesystem::exists(scratch / "without/step-6/ema"));
  train(config("without", "ema: 0.9\n"), true);
  EXPECT_EQ(weights_bytes(scratch / "run/step-12"), weights_bytes(scratch / "without/step-12"));
  EXPECT_NE(ema_bytes("run"), ema_bytes("without"));
  // Another model's average is refused.
  Json progress = read_json(scratch / "without/step-12/training/progress.json");
  progress.erase("files");  // and with them the checksums
  scratch.write("without/step-12/training/progress.json", progress.dump());
  std::filesystem::copy_file(scratch / "teacher/model.safetensors", scratch / "without/step-12/ema/model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  TrainConfig longer = config("without", "ema: 0.9\n");
  longer.steps = 14;
  EXPECT_CONTAINS(message_of<FileError>([&] { train(longer, true); }), "step-12/ema/model.safetensors: lacks the f32 tensor");
}

TEST_F(Distill, AFrozenAnchorHoldsLearningBack) {
  train(config("first", "dropout: 0\n"), false);
  const auto last = [&](const std::string& out, const std::string& weight) {
    std::string text =
        small_config(scratch, scratch / out, "dropout: 0\nkl_to: " + scratch / "first/last" + "\nkl_weight: " + weight + "\n");
    const size_t begin = text.find("model:"), end = text.find("data:");
    text.replace(begin, end - begin, "model: " + scratch / "first/last" + "\n");
    train(parse_train_config(text, "config.yaml"), false);
    EXPECT_NEAR(metrics_of(scratch / out)[1].at("kl_to").get<double>(), 0, 1e-6);  // it begins there
    return metrics_of(scratch / out).back().at("kl_to").get<double>();
  };
  EXPECT_LT(last("held", "10"), 0.5 * last("free", "1e-6"));
}

TEST(DistillConfig, RefusesWhatCannotBe) {
  const std::string least =
      "model: m\ndata: {train: d}\nsequence_length: 8\nbatch: 2\nsteps: 10\noptimizer: {lr: 1e-3}\nout: o\n";
  const auto refusal = [&](const std::string& extra) {
    return message_of<FileError>([&] { parse_train_config(least + extra, "c.yaml"); });
  };
  EXPECT_CONTAINS(refusal("ema: 1\n"), "expected a decay from 0 to below 1");
  EXPECT_CONTAINS(refusal("ema: {decya: 0.9}\n"), "\"ema.decya\" is not known");
  EXPECT_CONTAINS(refusal("kl_to: ema\nkl_weight: 1\n"), "there is no average to hold to: set ema too");
  EXPECT_CONTAINS(refusal("kl_to: m\n"), "kl_weight");
  EXPECT_CONTAINS(refusal("kl_weight: 1\n"), "set kl_to too");
  EXPECT_CONTAINS(refusal("distill: {}\n"), "teacher");
  EXPECT_CONTAINS(refusal("distill: {teacher: t, divergence: forward}\n"), "did you mean \"forward_kl\"?");
  EXPECT_CONTAINS(refusal("distill: {teacher: t, beta: 0.5}\n"), "it belongs to divergence: jensen_shannon");
  EXPECT_CONTAINS(refusal("distill: {teacher: t, alpha: 1}\n"), "the teacher would not count");
  EXPECT_CONTAINS(refusal("distill: {teacher: t, temperature: 0}\n"), "expected a temperature from 0.01 to 1000");
  EXPECT_CONTAINS(refusal("distill: {teacher: t, prompt: 0.5}\n"), "set on_policy too");
  EXPECT_CONTAINS(refusal("distill: {teacher: t, on_policy: 1, cache: {folder: f}}\n"), "it would never be read");
  EXPECT_CONTAINS(refusal("distill: {teacher: t, cache: {top_k: 3}}\n"), "folder");
  const TrainConfig c =
      parse_train_config(least +
                             "ema: {decay: 0.5}\nkl_to: m\nkl_weight: 2\ndistill: {teacher: t, divergence: jensen_shannon, beta: "
                             "0.1, temperature: 3, "
                             "alpha: 0.2, on_policy: 0.3, prompt: 0.4, sample_temperature: 0.6, cache: {folder: f, top_k: 7}}\n",
                         "c.yaml");
  EXPECT_EQ(c.ema, 0.5);
  EXPECT_EQ(c.kl_to, "m");
  EXPECT_EQ(c.kl_weight, 2);
  EXPECT_EQ(c.distill->spec.kind, DivergenceSpec::Kind::jensen_shannon);
  EXPECT_EQ(c.distill->spec.beta, 0.1);
  EXPECT_EQ(c.distill->spec.temperature, 3);
  EXPECT_EQ(c.distill->alpha, 0.2);
  EXPECT_EQ(c.distill->on_policy, 0.3);
  EXPECT_EQ(c.distill->prompt, 0.4);
  EXPECT_EQ(c.distill->sample_temperature, 0.6);
  EXPECT_EQ(c.distill->cache, "f");
  EXPECT_EQ(c.distill->top_k, 7);
}

}  // namespace
}  // namespace vitrine
