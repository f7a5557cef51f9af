// Masked language modeling against transformers (tests/golden/train/make_masked.py), and what a run of it must do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "support/close.h"
#include "support/golden.h"
#include "train/data/prepare.h"
#include "train/learner.h"
#include "train/masking.h"
#include "train/run_support.h"
#include "train/support.h"
#include "train/thread_ranks.h"
#include "train/train.h"

namespace vitrine {
namespace {

std::string golden_file(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/" + name; }

TEST(MaskedGolden, TenSteps) {
  const Json gold = read_json(golden_file("train/masked.json"));
  LearnerOptions options;
  options.optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay = {"*"}};
  options.threads = 2;
  options.dropout = false;
  options.masked = true;
  Learner learner(open_model(golden_file("roformer/masked")), options);
  for (size_t step = 0; step < 10; ++step) {
    Batch batch;
    for (size_t i = 0; i < 4; ++i) {
      const auto ids = gold.at("steps")[step].at("ids")[i].get<std::vector<int32_t>>();
      const auto labels = gold.at("steps")[step].at("labels")[i].get<std::vector<int32_t>>();
      batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.end());
      batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
      batch.lengths.push_back(static_cast<int64_t>(ids.size()));
    }
    const double want = gold.at("losses")[step].get<double>();
    EXPECT_NEAR(learner.step(std::span(&batch, 1), gold.at("lr").get<double>()).loss, want, 1e-4 * want) << step;
  }
  EXPECT_GT(expect_golden_weights(learner, golden_file("train/masked.safetensors")), 30u);
}

Batch batch_of(int64_t rows, int32_t vocab_size) {
  Batch batch;
  for (int64_t row = 0; row < rows; ++row) batch.tokens.push_back(static_cast<int32_t>(row % vocab_size));
  batch.labels.assign(batch.tokens.size(), 0);
  batch.lengths = {rows};
  return batch;
}

TEST(TokenMasker, HidesTheSharesThatBertDoes) {
  constexpr int32_t kVocab = 1000, kMask = 1000;
  constexpr int64_t kRows = 200'000;
  std::vector<bool> special(kVocab + 1);
  special[7] = true;
  const TokenMasker masker({}, kMask, kVocab, special, 3);
  const Batch before = batch_of(kRows, kVocab);
  Batch batch = before;
  masker.hide(batch, 0, 0);
  double scored = 0, masked = 0, same = 0;
  std::vector<int64_t> drawn(kVocab);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    if (batch.labels[i] == kNotScored) {
      EXPECT_EQ(batch.tokens[i], before.tokens[i]);
      continue;
    }
    EXPECT_EQ(batch.labels[i], before.tokens[i]);
    EXPECT_NE(before.tokens[i], 7);
    ++scored;
    if (batch.tokens[i] == kMask)
      ++masked;
    else if (batch.tokens[i] == before.tokens[i])
      ++same;
    else
      ++drawn.at(static_cast<size_t>(batch.tokens[i]));
  }
  // Five standard deviations of what is counted.
  const auto near = [](double share, double of, double p) { EXPECT_NEAR(share / of, p, 5 * std::sqrt(p * (1 - p) / of)); };
  near(scored, 0.999 * kRows, 0.15);
  near(masked, scored, 0.8);
  near(same, scored, 0.1 + 0.1 / kVocab);
  EXPECT_GT(std::count_if(drawn.begin(), drawn.end(), [](int64_t n) { return n > 0; }), 900);
}

TEST(TokenMasker, DependsOnSeedStreamAndRowAlone) {
  const MaskingOptions options{.share = 0.4, .mask = 0.5, .random = 0.3};
  const auto hidden = [&](uint64_t seed, uint64_t stream, int64_t first, int64_t rows) {
    Batch batch = batch_of(rows, 60);
    for (int32_t& token : batch.tokens) token = static_cast<int32_t>((token + first) % 60);
    TokenMasker(options, 60, 60, {}, seed).hide(batch, stream, static_cast<uint64_t>(first));
    return std::pair(batch.tokens, batch.labels);
  };
  const auto whole = hidden(5, 9, 0, 240);
  EXPECT_EQ(hidden(5, 9, 0, 240), whole);
  auto halves = hidden(5, 9, 0, 120);
  const auto second = hidden(5, 9, 120, 120);
  halves.first.insert(halves.first.end(), second.first.begin(), second.first.end());
  halves.second.insert(halves.second.end(), second.second.begin(), second.second.end());
  EXPECT_EQ(halves, whole);
  EXPECT_NE(hidden(6, 9, 0, 240), whole);
  EXPECT_NE(hidden(5, 10, 0, 240), whole);
}

class MaskedRun : public testing::Test {
 protected:
  void SetUp() override {
    small_data(scratch, "data", 60, 1);
    small_data(scratch, "valid", 12, 2);
  }
  // Ids of the data are below 61, and 61 is the mask.
  TrainConfig config(const std::string& out, const std::string& extra = "masked: {token: 61}\n",
                     const std::string& model =
                         "{config: {model_type: roformer, hidden_size: 16, num_hidden_layers: 2, "
                         "num_attention_heads: 2, intermediate_size: 32, vocab_size: 62, "
                         "max_position_embeddings: 32}}") {
    return parse_train_config("model: " + model + "\ndata: {train: " + scratch / "data" + ", validation: " + scratch / "valid" +
                                  "}\nsequence_length: 16\nbatch: 4\naccumulate: 2\nsteps: 12\nseed: 5\n" +
                                  "optimizer: {lr: 1e-2}\nschedule: {warmup: 3}\neval_every: 4\ncheckpoint: {every: 3}\n" +
                                  "out: " + scratch / out + "\n" + extra,
                              "c.yaml");
  }
  std::string refused(const std::string& extra) {
    return message_of<InputError>([&] { train(config("no", extra), false); });
  }
  Scratch scratch;
};

TEST_F(MaskedRun, LearnsAndGoesOnToTheSameBits) {
  train(config("whole"), false);
  const std::vector<Json> lines = metrics_of(scratch / "whole");
  EXPECT_NEAR(lines[0].at("val_loss").get<double>(), std::log(62.0), 0.3);
  EXPECT_FALSE(lines[0].contains("val_bits_per_byte"));
  // 12 steps of two batches of four sequences of 16 tokens, of which the boundaries of documents are scored too.
  EXPECT_NEAR(lines.back().at("tokens").get<double>(), 0.15 * 12 * 2 * 4 * 16, 5 * std::sqrt(0.15 * 0.85 * 1536));
  train_up_to(config("cut"), 7);
  train(config("cut"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), lines);
  EXPECT_CONTAINS(message_of<InputError>([&] { train(config("cut", "masked: {token: 61, share: 0.3}\n"), true); }),
                  "the run has masked \"share 0.15, mask 0.8, random 0.1, by token 61\", and the configuration now says "
                  "\"share 0.3, mask 0.8, random 0.1, by token 61\"");
}

TEST_F(MaskedRun, FillsInWhatBothSidesTell) {
  TrainConfig c = config("long", "masked: {token: 61, share: 0.3}\ndropout: 0\n");
  c.steps = c.eval_every = 400;
  c.batch = 16;
  c.accumulate = 1;
  c.save_every = 0;
  train(c, false);
  EXPECT_LT(metrics_of(scratch / "long").back().at("val_loss").get<double>(), std::log(61.0) - 0.5);
}

TEST_F(MaskedRun, ValidationHidesTheSameTokensEachTime) {
  TrainConfig c = config("still");
  c.schedule.peak = 0;
  c.optimizer.weight_decay = 0;
  c.schedule.minimum = 0;
  train(c, false);
  std::vector<Json> losses;
  for (const Json& line : metrics_of(scratch / "still"))
    if (line.contains("val_loss")) losses.push_back(line.at("val_loss"));
  ASSERT_EQ(losses.size(), 4u);
  for (const Json& loss : losses) EXPECT_EQ(loss, losses[0]);
  // Nor does it depend on the batch.
  TrainConfig wide = c;
  wide.batch = 2;
  wide.out = scratch / "wide";
  train(wide, false);
  EXPECT_NEAR(metrics_of(scratch / "wide")[0].at("val_loss").get<double>(), losses[0].get<double>(), 1e-5);
}

TEST_F(MaskedRun, ProcessesLearnTogetherWhatOneLearns) {
  const std::string still = "masked: {token: 61}\ndropout: 0\n";
  train(config("alone", still), false);
  for (const int ranks : {2, 4}) {
    const std::string out = "together-" + std::to_string(ranks);
    ThreadRanks::run_all(ranks, [&](Comm& comm) { train(config(out, still), false, {}, &comm); });
    const std::vector<Json> want = metrics_of(scratch / "alone"), got = metrics_of(scratch / out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].at("tokens"), want[i].at("tokens"));
      for (const char* key : {"loss", "val_loss", "grad_norm"})
        if (want[i].contains(key)) {
          const double wanted = want[i].at(key).get<double>();
          EXPECT_NEAR(got[i].at(key).get<double>(), wanted, 1e-4 * wanted) << key << " " << i;
        }
    }
  }
}

TEST_F(MaskedRun, TheMaskIsTheOneOfTheTokenizer) {
  const std::string model = golden_file("roformer/masked");
  TrainConfig c = config("fine-tuned", "masked: {}\n", model);
  c.eval_every = 0;
  c.train_data = {{.path = scratch / "words"}};
  const auto engine = std::make_shared<const Engine>(model, EngineOptions{.threads = 1});
  std::filesystem::create_directories(scratch / "words");
  TokenDataWriter writer(scratch / "words", {.vocab_size = 31, .tokenizer = tokenizer_fingerprint(engine->tokenizer())});
  for (int32_t d = 0; d < 20; ++d) {
    const std::vector<int32_t> ids = {2, 5 + d % 20, 6, 7, 8, 9, 10, 11, 12, 3};  // [CLS] … [SEP]
    writer.add(ids, ids.size());
    writer.end_document();
  }
  writer.finish();
  train(c, false);
  EXPECT_EQ(metrics_of(scratch / "fine-tuned").size(), 12u);
  for (const auto& [out, extra] :
       {std::pair("adapter", "lora: {rank: 2, alpha: 4, targets: all-linear}\n"), std::pair("average", "ema: 0.9\n")}) {
    TrainConfig other = config(out, std::string("masked: {}\n") + extra, model);
    other.eval_every = 0;
    other.train_data = c.train_data;
    EXPECT_EQ(train(other, false).step, 12) << out;
  }
  EXPECT_CONTAINS(message_of<InputError>([&] {
                    TrainConfig named = config("no", "masked: {token: \"<blank>\"}\n", model);
                    named.eval_every = 0;
                    named.train_data = c.train_data;
                    train(named, false);
                  }),
                  "c.yaml: masked: token is \"<blank>\", which the vocabulary does not have");
}

TEST_F(MaskedRun, RefusesWhatDoesNotGoTogether) {
  EXPECT_CONTAINS(refused(""), "reads a text in both directions, so it cannot learn next tokens, which it sees. Set masked: {}");
  EXPECT_CONTAINS(refused("masked: {}\n"), "c.yaml: masked: the model has no tokenizer, which would name its mask");
  EXPECT_CONTAINS(refused("masked: {token: 62}\n"), "the mask is token 62, and the model's vocabulary has 62 (0 to 61)");
  const TrainConfig causal = config("no", "masked: {token: 60}\n",
                                    "{config: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, vocab_size: 61, "
                                    "n_positions: 32}}");
  EXPECT_CONTAINS(message_of<InputError>([&] { train(causal, false); }),
                  "(gpt2) predicts the next token of a text from what stands before it, and masked tokens are filled in from "
                  "both sides. Train a model in both directions, such as model_type: roformer");
  const auto wrong = [&](const std::string& extra) { return message_of<FileError>([&] { config("no", extra); }); };
  EXPECT_CONTAINS(wrong("masked: {share: 0}\n"), "expected a share of the tokens from 1e-6 to 1");
  EXPECT_CONTAINS(wrong("masked: {mask: 0.8, random: 0.3}\n"), "at most 1 together; here they are 1.1");
  EXPECT_CONTAINS(wrong("masked: {chance: 1}\n"), "\"masked.chance\"");
  EXPECT_CONTAINS(wrong("masked: {}\ndpo: {}\n"), "leave dpo, distill and kl_to out");
  EXPECT_CONTAINS(wrong("masked: {}\nsample_every: 2\nsample_prompts: [a]\n"), "with masked the model learns to fill masks");
  EXPECT_CONTAINS(wrong("mlm_probability: 0.2\n"), "here it is \"masked.share\"");
}

}  // namespace
}  // namespace vitrine
