// --adapter on the commands that run a model, and vitrine convert.
#include <cmath>

#include "cli/program.h"

namespace vitrine {
namespace {

std::string golden_adapter(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/lora/" + name + "/adapter"; }

// What runs beside the model says what the merged model says, in every command that shows the model's inside another way.
TEST(AdapterCommand, BesideAndMergedAgree) {
  const Scratch scratch;
  const std::string model = golden_model("llama"), merged = scratch / "merged";
  const Outcome made = vitrine({"convert", model, merged, "--adapter", golden_adapter("llama"), "--dtype", "f32", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.json()["dtype"], "f32");
  EXPECT_EQ(made.json()["merged_matrices"], 21);  // 7 in each of 3 layers
  const auto top = [&](std::vector<std::string> line) {
    line.insert(line.end(), {"--tokens", "5,3,7,9,11,2,40,17,21,8", "--top", "3", "--json"});
    const Outcome outcome = vitrine(line);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["predictions"].at(0)["top"];
  };
  const Json beside = top({"predict", "--model", model, "--adapter", golden_adapter("llama")});
  const Json together = top({"predict", "--model", merged}), plain = top({"predict", "--model", model});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(beside[i]["token"], together[i]["token"]);
    EXPECT_NEAR(beside[i]["logprob"].get<double>(), together[i]["logprob"].get<double>(), 1e-4);
  }
  EXPECT_GT(std::abs(beside[0]["logprob"].get<double>() - plain[0]["logprob"].get<double>()), 1e-3);

  const auto generated = [&](std::vector<std::string> line) {
    line.insert(line.end(), {"--tokens", "5,3,7", "--max-tokens", "8", "--ignore-eos", "--json"});
    return vitrine(line).json()["tokens"];
  };
  EXPECT_EQ(generated({"generate", "--model", model, "--adapter", golden_adapter("llama")}),
            generated({"generate", "--model", merged}));
}

TEST(AdapterCommand, WhatIsWrongIsSaid) {
  const Scratch scratch;
  const std::string model = golden_model("gpt2_a"), adapter = golden_adapter("gpt2_a");
  expect_refused({"predict", "--tokens", "1", "--model", model, "--adapter", model}, {"it is a model", "--model"});
  expect_refused({"predict", "--tokens", "1", "--model", adapter}, {"it holds an adapter", "--adapter"});
  expect_refused({"predict", "--tokens", "1", "--model", model, "--adapter", ""}, {"--adapter", "is empty"});
  expect_refused({"predict", "--tokens", "1", "--model", golden_model("llama"), "--adapter", adapter},
                 {"adapter_model.safetensors", "belongs to no matrix"});
  expect_refused({"trace", "--tokens", "1", "--model", model, "--adapter", adapter, "--hooks", "hook_logits", "--out",
                  adapter + "/adapter_model.safetensors"},
                 {"a file that this run reads"});
  expect_refused({"convert", model, scratch.path()}, {"is there already"});
  expect_refused({"convert", model, scratch / "out.gguf"}, {"GGUF files are not written yet"});
  expect_refused({"convert", model, scratch / "out", "--dtype", "q8_0"}, {"none of f32|f16|bf16"});
  expect_refused({"convert", std::string(VITRINE_GOLDEN) + "/gguf/llama.gguf", scratch / "out"}, {"is a GGUF file"});
}

}  // namespace
}  // namespace vitrine
