// Learning an adapter beside a model that stays as it is: against PEFT and torch, and through whole runs.
#include "support/lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "model/adapter.h"
#include "support/close.h"
#include "train/data/token_data_writer.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/train.h"

namespace vitrine {
namespace {

// The three sequences that PEFT learned from; the last token of each predicts nothing.
Batch lora_batch(const Checkpoint& gold) {
  const GoldenTensor ids = golden_tensor(gold, "ids");
  Batch batch;
  for (size_t s = 0; s < static_cast<size_t>(ids.shape[0]); ++s) {
    const GoldenTensor row = ids.at(s);
    batch.tokens.insert(batch.tokens.end(), row.begin(), row.end());
    batch.labels.insert(batch.labels.end(), row.begin() + 1, row.end());
    batch.labels.push_back(kNotScored);
    batch.lengths.push_back(static_cast<int64_t>(row.size()));
  }
  return batch;
}

OpenedModel with_adapter(const std::string& model, const std::string& adapter) {
  OpenedModel opened = open_model(model);
  open_adapter(opened, adapter);
  return opened;
}

Tolerance of_largest(const GoldenTensor& want) {
  double largest = 0;
  for (const float value : want) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return {.abs = 1e-4 * largest, .rel = 0};
}

std::vector<float> values_of(const Learner& learner, const Parameter& p) {
  return {learner.parameters().weights(p), learner.parameters().weights(p) + p.count};
}

// A and B of experts that PEFT takes for [out, in] although they are stored [in, out]: [experts · rank, in] of its B
// [in, rank · experts], and [experts · out, rank] of its A [experts · rank, out].
GoldenTensor of_exchanged_experts(const Checkpoint& gold, const std::string& what, const Parameter& p, size_t rank) {
  std::string other = p.name;
  const bool is_a = p.name.ends_with("lora_A.weight");
  other[other.size() - std::string_view("A.weight").size()] = is_a ? 'B' : 'A';
  const GoldenTensor from = golden_tensor(gold, what + other);
  const auto width = static_cast<size_t>(is_a ? from.shape[0] : from.shape[1]), experts = from.size() / width / rank;
  GoldenTensor transposed{p.shape, std::vector<float>(from.size())};
  for (size_t e = 0; e < experts; ++e)
    for (size_t r = 0; r < rank; ++r)
      for (size_t i = 0; i < width; ++i) {
        const size_t in_a = (e * rank + r) * width + i, beside = (i * rank + r) * experts + e;
        if (is_a) transposed.values[in_a] = from.values[beside];
        if (!is_a) transposed.values[(e * width + i) * rank + r] = from.values[in_a];
      }
  return transposed;
}

// PEFT's B of experts, [out, rank · experts], as ours lies: [experts · out, rank]. A and B of an embedding transposed and
// exchanged. Everything else as it is.
GoldenTensor as_ours(const Checkpoint& gold, const std::string& what, const Parameter& p) {
  if (const size_t at = p.name.find("lora_embedding_"); at != std::string::npos) {
    std::string other = p.name;
    other.back() = other.back() == 'A' ? 'B' : 'A';
    const GoldenTensor from = golden_tensor(gold, what + other);
    GoldenTensor transposed{p.shape, std::vector<float>(from.size())};
    const auto rows = static_cast<size_t>(from.shape[0]), columns = static_cast<size_t>(from.shape[1]);
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c) transposed.values[c * rows + r] = from.values[r * columns + c];
    return transposed;
  }
  if (p.name.find(".feed_forward.experts.") != std::string::npos) return of_exchanged_experts(gold, what, p, 2);
  GoldenTensor tensor = golden_tensor(gold, what + p.name);
  if (tensor.shape == p.shape) return tensor;
  const auto out = static_cast<size_t>(tensor.shape[0]), rank = static_cast<size_t>(p.shape[1]);
  const size_t experts = static_cast<size_t>(p.shape[0]) / out;
  GoldenTensor transposed{p.shape, std::vector<float>(tensor.size())};
  for (size_t e = 0; e < experts; ++e)
    for (size_t o = 0; o < out; ++o)
      for (size_t r = 0; r < rank; ++r) transposed.values[(e * out + o) * rank + r] = tensor.values[(o * rank + r) * experts + e];
  return transposed;
}

class LoraGolden : public testing::TestWithParam<std::string> {};

// A step of plain descent at rate 1 takes the gradient away from the weights.
TEST_P(LoraGolden, GradientsMatchTorch) {
  const Checkpoint gold = open_safetensors(lora_folder(GetParam()) + "/golden.safetensors");
  LearnerOptions options;
  options.optimizer = {.kind = OptimizerOptions::Kind::sgd, .weight_decay = 0};
  options.threads = 2;
  Learner learner(with_adapter(lora_base(GetParam()), lora_folder(GetParam()) + "/adapter"), options);
  std::vector<std::vector<float>> before;
  for (const Parameter& p : learner.parameters().list()) before.push_back(values_of(learner, p));
  const Batch batch = lora_batch(gold);
  learner.step(std::span(&batch, 1), 1.0);
  ASSERT_EQ(learner.parameters().list().size(), Golden::names_in(gold, "grad/").size());
  for (size_t i = 0; i < before.size(); ++i) {
    const Parameter& p = learner.parameters().list()[i];
    SCOPED_TRACE(p.name);
    const GoldenTensor want = as_ours(gold, "grad/", p);
    ASSERT_EQ(p.shape, want.shape);
    std::vector<float> got = values_of(learner, p);
    for (size_t k = 0; k < got.size(); ++k) got[k] = before[i][k] - got[k];
    EXPECT_CLOSE(got, want, of_largest(want));
  }
}

// Elements whose true gradient is zero (biases of keys that do not rotate) are left out: Adam makes steps of their rounding.
std::vector<float> with_gradient(const std::vector<float>& values, const GoldenTensor& gradient) {
  double largest = 0;
  for (const float g : gradient) largest = std::max(largest, std::abs(static_cast<double>(g)));
  std::vector<float> kept;
  for (size_t i = 0; i < values.size(); ++i)
    if (std::abs(static_cast<double>(gradient.values[i])) > 1e-6 * largest) kept.push_back(values[i]);
  return kept;
}

TEST_P(LoraGolden, TenAdamWSteps) {
  const Checkpoint gold = open_safetensors(lora_folder(GetParam()) + "/golden.safetensors");
  const auto losses = read_json(lora_folder(GetParam()) + "/losses.json").get<std::vector<double>>();
  LearnerOptions options;
  options.optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay = {"*"}};
  options.threads = 2;
  Learner learner(with_adapter(lora_base(GetParam()), lora_folder(GetParam()) + "/adapter"), options);
  const Batch batch = lora_batch(gold);
  for (size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(learner.step(std::span(&batch, 1), 1e-3).loss, losses.at(i), 1e-4 * losses.at(i)) << "before step " << i + 1;
  for (const Parameter& p : learner.parameters().list()) {
    SCOPED_TRACE(p.name);
    const GoldenTensor want = as_ours(gold, "adamw10/", p);
    if (p.matrix) {
      EXPECT_CLOSE(values_of(learner, p), want, of_largest(want));
      continue;
    }
    const GoldenTensor gradient = as_ours(gold, "grad/", p);
    EXPECT_CLOSE(with_gradient(values_of(learner, p), gradient), with_gradient({want.begin(), want.end()}, gradient),
                 of_largest(want));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, LoraGolden, testing::ValuesIn(golden_adapters()), [](const auto& test) { return test.param; });

// The base model --------------------------------------------------------------------------------------------------------

// Where each tensor lies, its bytes, and whether anybody wants its gradient.
struct BaseView {
  explicit BaseView(const Model& model) {
    for (const TensorLine& line : model.tensors()) line.weight != nullptr ? add(*line.weight) : add(*line.vector);
  }
  void add(const Weight& w) {
    for (int64_t row = 0; row < (w.by_columns ? w.in : w.out); ++row)
      bytes.append(reinterpret_cast<const char*>(w.stored_row(row)),
                   row_bytes(w.dtype, static_cast<size_t>(w.by_columns ? w.out : w.in)));
    places.push_back(w.data);
    values += w.in * w.out;
    gradients += w.grad.data != nullptr ? 1 : 0;
  }
  void add(const Vector& v) {
    places.push_back(v.data);
    gradients += v.grad.data != nullptr ? 1 : 0;
  }
  std::string bytes;
  int64_t values = 0, gradients = 0;
  std::vector<const void*> places;
};

// Quantized, 16-bit and f32 files alike: mapped where they were, no byte changed, no gradient and no moment beside them.
TEST(Lora, TheBaseModelStaysWhereAndAsItIs) {
  const Checkpoint gold = open_safetensors(lora_folder("llama") + "/golden.safetensors");
  for (const std::string file : {"llama.gguf", "llama_f16.gguf", "llama_q8_0.gguf", "llama_q4_0.gguf"}) {
    SCOPED_TRACE(file);
    OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/gguf/" + file);
    const BaseView before(*opened.model);
    add_fresh_adapter(opened, {.rank = 2, .alpha = 4, .targets = {"q_proj", "v_proj"}}, 3);
    const int64_t adapted = opened.adapter->parameter_count();
    LearnerOptions options;
    options.optimizer = {.weight_decay = 0};
    options.threads = 2;
    Learner learner(std::move(opened), options);
    const Batch batch = lora_batch(gold);
    const double first = learner.step(std::span(&batch, 1), 1e-2).loss;
    double last = first;
    for (int i = 0; i < 15; ++i) last = learner.step(std::span(&batch, 1), 1e-2).loss;
    EXPECT_LT(last, 0.95 * first);
    const BaseView after(learner.engine().model());
    EXPECT_EQ(after.places, before.places);
    EXPECT_TRUE(after.bytes == before.bytes);
    EXPECT_EQ(after.gradients, 0);
    EXPECT_EQ(learner.parameters().count(), adapted);
    // Every buffer of the trainer (weights, gradients, two moments) is as long as the adapter, up to its borders.
    EXPECT_LT(learner.parameters().size(), static_cast<size_t>(adapted) + 16 * learner.parameters().list().size());
    EXPECT_LT(static_cast<int64_t>(learner.parameters().size()), after.values / 4);
  }
}

// GGUF has no word for dropout, and transformers' default of 0.1 is not the file's: a fresh adapter changes nothing.
TEST(Lora, AGgufModelLearnsWithoutDropout) {
  OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/gguf/gpt2_a.gguf");
  add_fresh_adapter(opened, {.rank = 2, .alpha = 4, .targets = {"c_attn"}}, 3);
  LearnerOptions options;
  options.threads = 2;
  Learner learner(std::move(opened), options);
  const Batch batch = lora_batch(open_safetensors(lora_folder("gpt2_a") + "/golden.safetensors"));
  const Learner::Sum plain = learner.evaluate(batch);
  EXPECT_NEAR(learner.step(std::span(&batch, 1), 0).loss, plain.loss / static_cast<double>(plain.tokens), 1e-6);
}

// With dropout, so that its mask counts too.
TEST(Lora, ThreadsAndRecomputationChangeNoBit) {
  for (const std::string model : {"gpt2_a", "gemma2"}) {
    SCOPED_TRACE(model);
    const Checkpoint gold = open_safetensors(lora_folder(model) + "/golden.safetensors");
    std::vector<std::vector<float>> results;
    for (const auto& [threads, recompute] : {std::pair{1, false}, std::pair{2, false}, std::pair{2, true}}) {
      OpenedModel opened = open_model(Golden::open(model).model());
      add_fresh_adapter(opened, {.rank = 4, .alpha = 8, .dropout = 0.3, .targets = {"all-linear"}}, 3);
      LearnerOptions options;
      options.threads = threads;
      options.recomputed_layers = recompute ? Tape::kAllBlocks : 0;
      Learner learner(std::move(opened), options);
      const Batch batch = lora_batch(gold);
      for (int i = 0; i < 3; ++i) learner.step(std::span(&batch, 1), 1e-2);
      std::vector<float>& all = results.emplace_back();
      for (const Parameter& p : learner.parameters().list()) {
        const std::vector<float> numbers = values_of(learner, p);
        all.insert(all.end(), numbers.begin(), numbers.end());
      }
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

// Runs --------------------------------------------------------------------------------------------------------------------

// A small model to stand beside, from one run, and the configuration of an adapter's run.
std::string base_model(const Scratch& scratch) {
  train(parse_train_config(small_config(scratch, scratch / "base"), "base.yaml"), false);
  return scratch / "base/last";
}

std::string lora_config(const Scratch& scratch, const std::string& out, int steps, const std::string& lora,
                        const std::string& extra = "") {
  return "model: " + scratch / "base/last" + "\nlora: " + lora + "\ndata: {train: " + scratch / "data" +
         "}\nsequence_length: 16\nbatch: 3\nsteps: " + std::to_string(steps) +
         "\nseed: 5\nschedule: {decay: constant}\noptimizer: {name: adamw, lr: 1e-2}\ncheckpoint: {every: 4, keep: 9}\nout: " +
         out + "\n" + extra;
}

constexpr const char* kLora = "{rank: 3, alpha: 6, dropout: 0.2, targets: [c_attn, c_fc]}";

std::string adapter_bytes(const std::string& checkpoint) {
  return read_file(checkpoint + "/adapter_model.safetensors") + read_file(checkpoint + "/adapter_config.json") +
         read_file(checkpoint + "/training/optimizer.safetensors");
}

TEST(LoraRun, CheckpointsAreAdaptersAndResumingChangesNoBit) {
  const Scratch scratch;
  small_data(scratch, "data", 60, 1);
  small_data(scratch, "valid", 20, 2);
  const std::string base = base_model(scratch);
  train(parse_train_config(lora_config(scratch, scratch / "whole", 12, kLora), "a.yaml"), false);
  train(parse_train_config(lora_config(scratch, scratch / "broken", 4, kLora), "a.yaml"), false);
  train(parse_train_config(lora_config(scratch, scratch / "broken", 12, kLora, "threads: 1\n"), "a.yaml"), true);
  EXPECT_EQ(adapter_bytes(scratch / "whole/last"), adapter_bytes(scratch / "broken/last"));
  EXPECT_EQ(metrics_of(scratch / "whole"), metrics_of(scratch / "broken"));
  EXPECT_EQ(names_under(scratch / "whole/last"),
            (std::vector<std::string>{"adapter_config.json", "adapter_model.safetensors", "training"}));
  const Checkpoint adapter = open_safetensors(scratch / "whole/last/adapter_model.safetensors");
  EXPECT_NE(adapter.find("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"), nullptr);
  EXPECT_EQ(adapter.find("base_model.model.transformer.h.1.attn.c_attn.lora_B.weight")->shape, (std::vector<int64_t>{48, 3}));
  const Json config = read_json(scratch / "whole/last/adapter_config.json");
  EXPECT_EQ(config.at("base_model_name_or_path"), base);
  EXPECT_EQ(config.at("fan_in_fan_out"), true);
  EXPECT_EQ(config.at("lora_alpha"), 6);
  Engine engine(with_adapter(base, scratch / "whole/last"));  // what it learned is what runs
  EXPECT_EQ(engine.predict(std::vector<int32_t>{1, 2, 3}, 1, false).size(), 1u);
}

// What learns beside A and B is in the checkpoint, and a run that goes on from it is the run that was not broken off.
TEST(LoraRun, EverythingThatLearnsGoesOnWithoutADifference) {
  const Scratch scratch;
  small_data(scratch, "data", 60, 1);
  small_data(scratch, "valid", 20, 2);
  base_model(scratch);
  for (const std::string lora :
       {"{rank: 2, targets: [c_attn], dora: true, dropout: 0.2, bias: all, modules_to_save: [ln_f, wpe]}",
        "{rank: 2, targets: [c_attn, wte], modules_to_save: [ln_f], bias: lora_only}",
        "{rank: 2, targets: [c_attn], modules_to_save: [wte], ensure_weight_tying: true}",
        "{rank: 2, targets: [c_fc], trainable_token_indices: [3, 9]}"}) {
    SCOPED_TRACE(lora);
    const std::string whole = scratch / "whole", broken = scratch / "broken";
    std::filesystem::remove_all(whole);
    std::filesystem::remove_all(broken);
    train(parse_train_config(lora_config(scratch, whole, 4, lora), "a.yaml"), false);
    train(parse_train_config(lora_config(scratch, broken, 2, lora), "a.yaml"), false);
    train(parse_train_config(lora_config(scratch, broken, 4, lora, "threads: 1\n"), "a.yaml"), true);
    EXPECT_EQ(adapter_bytes(whole + "/last"), adapter_bytes(broken + "/last"));
    EXPECT_EQ(metrics_of(whole), metrics_of(broken));
  }
}

// Two runs, the second of which goes on with the adapter of the first, are one run where the optimizer remembers nothing.
TEST(LoraRun, AnAdapterGoesOnLearningInAnotherRun) {
  const Scratch scratch;
  small_data(scratch, "data", 60, 1);
  small_data(scratch, "valid", 20, 2);
  base_model(scratch);
  std::filesystem::create_directories(scratch / "one");
  TokenDataWriter writer(scratch / "one", {.vocab_size = 61, .tokenizer = 1});  // one batch, the same in each step
  const std::vector<int32_t> ids = {1, 2, 5, 11, 23, 47, 35, 10, 21, 43, 27, 55, 50, 40, 20, 41, 22};
  writer.add(ids, ids.size());
  writer.end_document();
  writer.finish();
  const auto config = [&](const std::string& out, int steps, const std::string& lora) {
    return parse_train_config(
        "model: " + scratch / "base/last" + "\nlora: " + lora + "\ndata: {train: " + scratch / "one" +
            "}\nsequence_length: 16\nbatch: 1\nsteps: " + std::to_string(steps) +
            "\nschedule: {decay: constant}\ndropout: 0\noptimizer: {name: sgd, lr: 0.5, momentum: 0}\nout: " + out + "\n",
        "a.yaml");
  };
  for (const std::string lora :
       {"{rank: 2, alpha: 4, targets: [c_attn, mlp.c_proj], dora: true, bias: all}",
        "{rank: 2, rslora: true, targets: [wte, c_fc]}", "{rank: 2, targets: [lm_head], modules_to_save: [ln_f, wpe]}",
        "{rank: 2, targets: [c_attn], modules_to_save: [lm_head], ensure_weight_tying: true}",
        "{rank: 2, targets: [lm_head], ensure_weight_tying: true}",
        "{rank: 2, targets: [c_fc], trainable_token_indices: [2, 11]}"}) {
    SCOPED_TRACE(lora);
    const std::string whole = scratch / "whole", first = scratch / "first", second = scratch / "second";
    for (const std::string& run : {whole, first, second}) std::filesystem::remove_all(run);
    train(config(whole, 5, lora), false);
    train(config(first, 2, lora), false);
    const std::string path = "{path: " + first + "/last}";
    train(config(second, 1, path), false);
    train(config(second, 3, path), true);
    const Checkpoint want = open_safetensors(whole + "/last/adapter_model.safetensors"),
                     got = open_safetensors(second + "/last/adapter_model.safetensors"),
                     before = open_safetensors(first + "/last/adapter_model.safetensors");
    ASSERT_EQ(got.tensors().size(), want.tensors().size());
    bool moved = false;
    for (const auto& [name, tensor] : want.tensors()) {
      ASSERT_NE(got.find(name), nullptr) << name;
      EXPECT_EQ(as_floats(*got.find(name)).values, as_floats(tensor).values) << name;
      moved = moved || as_floats(*before.find(name)).values != as_floats(tensor).values;
    }
    EXPECT_TRUE(moved);
    EXPECT_EQ(read_json(second + "/last/adapter_config.json"), read_json(whole + "/last/adapter_config.json"));
    const std::vector<Json> all = metrics_of(whole), rest = metrics_of(second);
    for (size_t step = 0; step < 3; ++step) EXPECT_EQ(rest.at(step).at("loss"), all.at(step + 2).at("loss"));
  }
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config(scratch / "second", 4, "{path: elsewhere}"), true); }),
                  "the run has lora \"of " + scratch / "first/last, beside a model");
}

TEST(LoraRun, AdaptersThatCannotGoOnAreRefused) {
  const Scratch scratch;
  small_data(scratch, "data", 60, 1);
  small_data(scratch, "valid", 20, 2);
  base_model(scratch);
  const auto refused = [&](const std::string& lora) {
    return message_of<InputError>(
        [&] { train(parse_train_config(lora_config(scratch, scratch / "none", 1, lora), "a.yaml"), false); });
  };
  EXPECT_CONTAINS(refused("{path: " + scratch / "base/last}"), "give it as --model");
  EXPECT_CONTAINS(refused("{path: " + scratch / "base/last, rank: 4}"),
                  "\"lora.rank\" is \"4\"; the adapter in lora.path has its own");
  EXPECT_CONTAINS(refused("{path: \"\"}"), "expected a path");
  OpenedModel opened = open_model(scratch / "base/last");
  add_fresh_adapter(opened, {.rank = 2, .targets = {"lm_head"}}, 1);
  write_adapter(*opened.adapter, scratch / ".", "base");
  Json config = read_json(scratch / "adapter_config.json");
  config["lora_dropout"] = 0.1;
  scratch.write("adapter_config.json", config.dump());
  EXPECT_CONTAINS(refused("{path: " + scratch / ".}"), "is the output matrix, for which dropout is not supported");
}

// Dropout may change, and the model beside the adapter may move.
TEST(LoraRun, GoesOnWithAnotherDropoutBesideAMovedModel) {
  const Scratch scratch;
  small_data(scratch, "data", 60, 1);
  small_data(scratch, "valid", 20, 2);
  base_model(scratch);
  train(parse_train_config(lora_config(scratch, scratch / "run", 2, kLora), "a.yaml"), false);
  std::filesystem::rename(scratch / "base", scratch / "moved");
  std::string text = lora_config(scratch, scratch / "run", 4, kLora, "dropout: 0.3\n");
  text.replace(text.find(scratch / "base"), (scratch / "base").size(), scratch / "moved");
  EXPECT_EQ(train(parse_train_config(text, "a.yaml"), true).step, 4);
}

TEST(LoraRun, ConfigurationsThatDoNotFitAreRefused) {
  const Scratch scratch;
  small_data(scratch, "data", 60, 1);
  small_data(scratch, "valid", 20, 2);
  base_model(scratch);
  const auto refusal = [&](const std::string& text, bool resume = false) -> std::string {
    try {
      train(parse_train_config(text, "a.yaml"), resume);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto of = [&](const std::string& lora) { return refusal(lora_config(scratch, scratch / "none", 1, lora)); };
  EXPECT_EQ(of("{targets: [q_proj]}").find("a.yaml: lora.targets: "), 0u);
  EXPECT_NE(of("{targets: [q_proj]}").find("There are c_attn, c_proj, c_fc, wte, lm_head, wpe, and all-linear"),
            std::string::npos);
  EXPECT_NE(of("{rank: 4}").find("targets"), std::string::npos);
  EXPECT_NE(of("{rank: 0, targets: all-linear}").find("lora.rank"), std::string::npos);
  EXPECT_NE(of("{rank: 17, targets: [c_attn]}").find("beyond 16 an adapter is larger"), std::string::npos);
  EXPECT_NE(of("{dropout: 1, targets: all-linear}").find("lora.dropout"), std::string::npos);
  EXPECT_NE(of("{ranks: 1, targets: all-linear}").find("rank"), std::string::npos);
  EXPECT_NE(refusal(small_config(scratch, scratch / "none", "lora: {targets: all-linear}\n")).find("set model.path"),
            std::string::npos);
  train(parse_train_config(lora_config(scratch, scratch / "run", 2, kLora), "a.yaml"), false);
  const std::string other = refusal(lora_config(scratch, scratch / "run", 4, "{rank: 4, targets: [c_attn]}"), true);
  EXPECT_NE(other.find("the run has lora \"rank 3, alpha 6.0"), std::string::npos) << other;
  const std::string whole = refusal(small_config(scratch, scratch / "run"), true);
  EXPECT_NE(whole.find("learns an adapter, and the configuration has no lora"), std::string::npos) << whole;
  const std::string adapter = refusal(lora_config(scratch, scratch / "base", 4, kLora), true);
  EXPECT_NE(adapter.find("learns a whole model, and the configuration has lora"), std::string::npos) << adapter;
  // A file that is lost says nothing about what the run learns, be its loss known from progress.json or, in older ones, not.
  const std::string lost = scratch / "run/step-2/adapter_config.json", content = read_file(lost);
  const std::string progress = scratch / "run/step-2/training/progress.json", written = read_file(progress);
  std::filesystem::remove(lost);
  const std::string listed = refusal(lora_config(scratch, scratch / "run", 4, kLora), true);
  EXPECT_EQ(listed.find(lost + ": is missing"), 0u) << listed;
  Json older = Json::parse(written);
  older.erase("files");
  scratch.write("run/step-2/training/progress.json", older.dump());
  const std::string opened = refusal(lora_config(scratch, scratch / "run", 4, kLora), true);
  EXPECT_EQ(opened.find(scratch / "run/step-2: holds no adapter_config.json"), 0u) << opened;
  scratch.write("run/step-2/training/progress.json", written);
  scratch.write("run/step-2/adapter_config.json", content);
  // The model under the same path is another one now.
  std::fstream weights(scratch / "base/last/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-1, std::ios::end).put('\x3e');
  weights.close();
  const std::string changed = refusal(lora_config(scratch, scratch / "run", 4, kLora), true);
  EXPECT_NE(changed.find("with the numbers"), std::string::npos) << changed;
}

}  // namespace
}  // namespace vitrine
