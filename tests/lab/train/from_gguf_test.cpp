// Full fine-tuning that begins with a GGUF file: the same numbers as from the directory that the file was made of, and
// checkpoints that are directories.
#include <gtest/gtest.h>

#include "generate/chat.h"
#include "runtime/model_tokenizer.h"
#include "support/changed_gguf.h"
#include "train/data/prepare.h"
#include "train/run_support.h"
#include "train/train.h"

namespace vitrine {
namespace {

std::string golden(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/" + name; }

class TrainFromGguf : public testing::Test {
 protected:
  TrainConfig config(const std::string& model, const std::string& out, const std::string& extra = "",
                     const std::string& tokenizer = "") {
    const std::string data = out + "-data";
    const std::string from = tokenizer.empty() ? model : tokenizer;
    small_data(scratch, data, 20, 1, tokenizer_fingerprint(*open_tokenizer(from)));
    return parse_train_config(
        (tokenizer.empty() ? "model: " + model : "model: {path: " + model + ", tokenizer: " + tokenizer + "}") +
            "\ndata: {train: " + scratch / data +
            "}\nsequence_length: 16\nbatch: 3\nsteps: 6\nseed: 5\n"
            "optimizer: {name: adamw, lr: 1e-3}\nschedule: {warmup: 2}\ncheckpoint: {every: 2, keep: 2}\n"
            "threads: 2\nout: " +
            scratch / out + "\n" + extra,
        "config.yaml");
  }
  std::vector<double> losses(const std::string& out) {
    std::vector<double> all;
    for (const Json& line : metrics_of(scratch / out)) all.push_back(line.at("loss").get<double>());
    return all;
  }
  Scratch scratch;
};

TEST_F(TrainFromGguf, GivesTheWeightsThatTheDirectoryGives) {
  for (const std::string name : {"gpt2_a", "llama"}) {  // Gemma's norms are rounded in GGUF
    SCOPED_TRACE(name);
    train(config(golden("gguf/" + name + ".gguf"), name), false);
    train(config(golden("models/" + name + "/model"), name + "-directory"), false);
    EXPECT_EQ(losses(name).size(), 6u);
    EXPECT_EQ(losses(name), losses(name + "-directory"));
    EXPECT_EQ(weights_bytes(scratch / name + "/last"), weights_bytes(scratch / name + "-directory/last"));
  }
  train(config(golden("gguf/gemma2.gguf"), "gemma2"), false);
  train(config(golden("models/gemma2/model"), "gemma2-directory"), false);
  const std::vector<double> got = losses("gemma2"), want = losses("gemma2-directory");
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got.at(i), want.at(i), 1e-4 * want[i]);
}

TEST_F(TrainFromGguf, GoesOnFromItsCheckpointsToTheSameBits) {
  const std::string model = golden("gguf/llama_q4_0.gguf"), extra = "ema: {decay: 0.9}\ndropout: {attention: 0.1}\n";
  train(config(model, "whole", extra), false);
  int64_t done = 0;
  TrainEvents events;
  events.stepped = [&](const StepReport& r, const TrainEvents::Rate&) { done = r.step; };
  events.stop = [&] { return done >= 3; };
  EXPECT_TRUE(train(config(model, "parts", extra), false, events).stopped);
  EXPECT_EQ(train(config(model, "parts", extra), true).step, 6);
  EXPECT_EQ(weights_bytes(scratch / "whole/last"), weights_bytes(scratch / "parts/last"));
  for (const char* file : {"config.json", "tokenizer.model", "tokenizer_config.json", "generation_config.json"})
    EXPECT_EQ(read_file(scratch / "whole/last/" + file), read_file(scratch / "parts/last/" + file)) << file;
  EXPECT_EQ(read_json(scratch / "parts/last/config.json").at("attention_dropout"), 0.1);
  Engine average(scratch / "parts/last/ema");
  EXPECT_TRUE(average.has_tokenizer());
}

TEST_F(TrainFromGguf, CheckpointsSpeakAsTheFileDoes) {
  const std::string model = changed_gguf(scratch, golden("gguf/gemma2.gguf"),
                                         {{"tokenizer.chat_template", std::string("{{ bos_token }}{{ messages[0].content }}")},
                                          {"tokenizer.ggml.eot_token_id", uint32_t{5}},
                                          {"tokenizer.ggml.padding_token_id", uint32_t{0}}});
  int samples = 0;
  TrainEvents events;
  events.sampled = [&](int64_t, const std::string&, const std::string&) { ++samples; };
  train(config(model, "run", "sample_every: 3\nsample_tokens: 4\nsample_prompts: [once upon]\n"), false, events);
  EXPECT_EQ(samples, 2);
  const Engine file(model), checkpoint(scratch / "run/last");
  for (const char* text : {"once upon a time", "  two  \xE2\x96\x81 \xF0\x9F\x98\x80\n", ""})
    EXPECT_EQ(checkpoint.tokenizer().encode(text), file.tokenizer().encode(text)) << text;
  EXPECT_EQ(checkpoint.tokenizer().padding(), 0);
  EXPECT_EQ(checkpoint.end_tokens(), (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(file.end_tokens(), checkpoint.end_tokens());
  EXPECT_EQ(chat_template_of(checkpoint.opened()), "{{ bos_token }}{{ messages[0].content }}");
  EXPECT_EQ(ChatFormat(checkpoint).ids({{"user", "a"}}, true), ChatFormat(file).ids({{"user", "a"}}, true));
  EXPECT_EQ(read_json(scratch / "run/last/config.json").at("pad_token_id"), 0);
}

// A file without a vocabulary, and a folder that has one.
TEST_F(TrainFromGguf, TakesTheTokenizerThatIsNamed) {
  const std::string tokenizer = golden("tokenizers/bpe512");
  train(config(golden("gguf/qwen2.gguf"), "run", "", tokenizer), false);
  EXPECT_EQ(read_file(scratch / "run/last/tokenizer.json"), read_file(tokenizer + "/tokenizer.json"));
  EXPECT_EQ(train(config(golden("gguf/qwen2.gguf"), "run", "", tokenizer), true).step, 6);
}

TEST_F(TrainFromGguf, WhatCannotBeADirectoryIsRefusedBeforeTheRun) {
  const auto refused = [&](const std::vector<std::pair<std::string, std::optional<GgufValue>>>& changes) {
    const std::string model = changed_gguf(scratch, golden("gguf/llama.gguf"), changes);
    const std::string message = message_of<FileError>([&] { train(config(model, "run"), false); });
    EXPECT_FALSE(std::filesystem::exists(scratch / "run"));
    return message;
  };
  EXPECT_CONTAINS(refused({{"llama.rope.dimension_count", uint32_t{4}}}), "the rotating components of a head");
  EXPECT_CONTAINS(refused({{"tokenizer.ggml.bos_token_id", uint32_t{300}}}), "whose token_type is not 3 (control)");
}

}  // namespace
}  // namespace vitrine
