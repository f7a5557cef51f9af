// --adapter on the commands that run a model, and vitrine convert.
#include <cmath>
#include <filesystem>

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

TEST(AdapterCommand, SeveralRunTogetherWithAScaleEach) {
  const std::string model = golden_model("llama"), first = golden_adapter("llama"),
                    second = std::string(VITRINE_GOLDEN) + "/lora/mixed/second";
  const auto made = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"generate",     "--model", model,          "--tokens", "5,3,7",
                                     "--max-tokens", "8",       "--ignore-eos", "--json"};
    line.insert(line.end(), more.begin(), more.end());
    return vitrine(line).json()["logprobs"];
  };
  const Json plain = made({});
  EXPECT_NE(made({"--lora", first}), plain);
  EXPECT_EQ(made({"--lora", first}), made({"--adapter", first}));
  EXPECT_EQ(made({"--lora", first + ":1", "--lora", second + ":0"}), made({"--adapter", first}));
  EXPECT_EQ(made({"--adapter", first, "--lora", second + ":0.5"}), made({"--lora", first, "--lora", second + ":5e-1"}));
  EXPECT_NE(made({"--lora", first, "--lora", second}), made({"--lora", first}));
  EXPECT_NE(made({"--lora", first + ":0.5"}), made({"--lora", first}));
  expect_refused({"generate", "--model", model, "--tokens", "5", "--lora", ":0.5"}, {"--lora is :0.5", "expected the folder"});
  expect_refused({"generate", "--model", model, "--tokens", "5", "--lora", first + ":nan"}, {"--lora is", ":nan"});
  expect_refused({"generate", "--model", model, "--tokens", "5", "--lora", first + ":much"}, {"adapter:much", "is no folder"});
  expect_refused({"serve", "--model", model, "--port", "0", "--lora-modules", "french"},
                 {"--lora-modules is french", "expected a name"});
}

TEST(AdapterCommand, ARecipeNamesTheAdapterThatRan) {
  const Scratch scratch;
  const std::string body = "prompt: {tokens: [5, 33, 7]}\ninterventions: [{attn: '*', do: zero}]\n",
                    recipe = scratch.write("r.yaml", body);
  const Json ran =
      vitrine({"intervene", recipe, "--json", "--model", golden_model("llama"), "--adapter", golden_adapter("llama")}).json();
  EXPECT_CONTAINS(ran["recipe"].get<std::string>(), "adapter: ");
  const std::string again = scratch.write("again.yaml", ran["recipe"].get<std::string>());
  EXPECT_EQ(vitrine({"intervene", again, "--json"}).json(), ran);
  // The adapter is that of the recipe's model, not of another.
  const Json without = vitrine({"intervene", again, "--json", "--model", golden_model("llama")}).json();
  EXPECT_EQ(without["kl"], vitrine({"intervene", recipe, "--json", "--model", golden_model("llama")}).json()["kl"]);
  EXPECT_NE(without["kl"], ran["kl"]);
}

TEST(ConvertCommand, AGgufFileBecomesADirectoryThatSaysTheSame) {
  const Scratch scratch;
  const std::string file = std::string(VITRINE_GOLDEN) + "/gguf/llama_q8_0.gguf";
  ASSERT_EQ(vitrine({"convert", file, scratch / "out", "--dtype", "f32"}).code, 0);
  const auto predicted = [](const std::string& model) {
    const Outcome outcome = vitrine({"predict", "once upon a time", "--model", model, "--compute", "f32", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  const Json before = predicted(file), after = predicted(scratch / "out");
  EXPECT_EQ(before["tokens"], after["tokens"]);
  EXPECT_EQ(before["pieces"], after["pieces"]);
  for (size_t i = 0; i < 10; ++i) {
    const Json &a = before["predictions"][0]["top"][i], &b = after["predictions"][0]["top"][i];
    EXPECT_EQ(a["token"], b["token"]);
    EXPECT_NEAR(a["logprob"].get<double>(), b["logprob"].get<double>(), 1e-4);
  }
}

TEST(ConvertCommand, ADirectoryBecomesAGgufFileThatSaysTheSame) {
  const Scratch scratch;
  const std::string model = golden_model("gemma2"), file = scratch / "out.gguf";
  const Outcome made = vitrine({"convert", model, file, "--dtype", "f32", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_CONTAINS(made.err, "out.gguf will take ");
  EXPECT_EQ(made.json()["dtype"], "f32");
  EXPECT_EQ(made.json()["bytes"], std::filesystem::file_size(file));
  const std::vector<std::string> predict = {"predict", "once upon a time", "--json", "--model"};
  const auto predicted = [&](const std::string& name) {
    std::vector<std::string> words = predict;
    words.push_back(name);
    return vitrine(words).json();
  };
  EXPECT_EQ(predicted(model)["predictions"], predicted(file)["predictions"]);
  // An adapter merged into either gives the same file.
  for (const auto& [from, to] : {std::pair{model, scratch / "a.gguf"}, {file, scratch / "b.gguf"}})
    ASSERT_EQ(vitrine({"convert", from, to, "--adapter", golden_adapter("gemma2"), "--dtype", "f32"}).code, 0);
  EXPECT_EQ(predicted(scratch / "a.gguf")["predictions"], predicted(scratch / "b.gguf")["predictions"]);
  EXPECT_NE(predicted(scratch / "a.gguf")["predictions"], predicted(file)["predictions"]);
}

TEST(ConvertCommand, AGgufFileKeepsTheTypeOfItsWeights) {
  const Scratch scratch;
  const auto dtype = [&](const std::string& from, const std::string& to) {
    const Outcome made = vitrine({"convert", from, scratch / to, "--json"});
    EXPECT_EQ(made.code, 0) << made.err;
    return made.json()["dtype"].get<std::string>();
  };
  EXPECT_EQ(dtype(std::string(VITRINE_SOURCE) + "/models/tales9m", "tales.gguf"), "bf16");
  EXPECT_EQ(dtype(golden_model("llama"), "a/new/folder/llama.gguf"), "f16");
}

TEST(AdapterCommand, WhatIsWrongIsSaid) {
  const Scratch scratch;
  const std::string model = golden_model("gpt2_a"), adapter = scratch / "adapter";
  std::filesystem::copy(golden_adapter("gpt2_a"), adapter);  // --out is tried in it
  expect_refused({"predict", "--tokens", "1", "--model", model, "--adapter", model}, {"it is a model", "--model"});
  expect_refused({"predict", "--tokens", "1", "--model", adapter}, {"it holds an adapter", "--adapter"});
  expect_refused({"predict", "--tokens", "1", "--model", model, "--adapter", ""}, {"--adapter", "is empty"});
  expect_refused({"predict", "--tokens", "1", "--model", golden_model("llama"), "--adapter", adapter},
                 {"adapter_model.safetensors", "belongs to no matrix"});
  expect_refused({"trace", "--tokens", "1", "--model", model, "--adapter", adapter, "--hooks", "hook_logits", "--out",
                  adapter + "/adapter_model.safetensors"},
                 {"a file that this run reads"});
  expect_refused({"convert", model, scratch.path()}, {"is there already"});
  expect_refused({"convert", model, scratch.write("out.gguf", "")}, {"out.gguf is there already"});
  expect_refused({"convert", model, scratch / "out.gguf/inside/a.gguf"}, {"a.gguf cannot be made: Not a directory"});
  expect_refused({"convert", model, scratch / "out", "--dtype", "q8_0"},
                 {"a Hugging Face directory holds f32, bf16 or f16, not q8_0"});
  expect_refused({"convert", model, scratch / "out", "--dtype", "q5"}, {"none of f32|f16|bf16|q4_0|"});
  expect_refused({"convert", golden_model("classic_pre"), scratch / "classic.gguf"},
                 {"the family classic_decoder", "no GGUF form"});
}

}  // namespace
}  // namespace vitrine
