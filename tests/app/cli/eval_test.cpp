// vitrine eval perplexity, choices, compare.
#include <cmath>
#include <limits>

#include "cli/program.h"

namespace vitrine {
namespace {

std::string evaluate_file(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/evaluate/" + name; }
std::string golden_gguf(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"; }

TEST(EvalPerplexity, DocumentHasTheNumbersAndTheDefinition) {
  const Outcome outcome = vitrine({"eval", "perplexity", "--file", evaluate_file("text.txt"), "--context", "128", "--like",
                                   "llama.cpp", "--compute", "f32", "--json", "--per-token"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json(), golden = read_json(evaluate_file("perplexity.json"));
  EXPECT_NEAR(document["nll"].get<double>(), golden["llama.cpp"]["nll"].get<double>(), 5e-6);
  EXPECT_NEAR(document["perplexity"].get<double>(), std::exp(document["nll"].get<double>()), 1e-9);
  EXPECT_EQ(document["tokens"], golden["llama.cpp"]["tokens"]);
  EXPECT_EQ(document["definition"]["like"], "llama.cpp");
  EXPECT_EQ(document["definition"]["context"], 128);
  EXPECT_EQ(document["definition"]["first_token"], 2);
  EXPECT_CONTAINS(document["definition"]["text"].get<std::string>(), "As llama-perplexity");
  const Json& tokens = document["per_token"][0];
  ASSERT_EQ(tokens["tokens"].size(), tokens["logprobs"].size());
  EXPECT_EQ(tokens["tokens"][0], 2);
  EXPECT_EQ(tokens["logprobs"][64], nullptr);
  EXPECT_TRUE(tokens["logprobs"][65].is_number());
  double sum = 0;
  for (const Json& logprob : tokens["logprobs"])
    if (logprob.is_number()) sum -= logprob.get<double>();
  EXPECT_NEAR(sum / document["tokens"].get<double>(), document["nll"].get<double>(), 1e-6);
  int64_t by_position = 0, by_frequency = 0;
  for (const Json& bucket : document["by_position"]) by_position += bucket["tokens"].get<int64_t>();
  for (const Json& bucket : document["by_frequency"]) by_frequency += bucket["tokens"].get<int64_t>();
  EXPECT_EQ(by_position, document["tokens"]);
  EXPECT_EQ(by_frequency, document["tokens"]);
}

TEST(EvalPerplexity, JsonLinesAreTextsOfTheirOwn) {
  const Scratch scratch;
  const std::string lines = scratch.write("texts", "{\"body\": \"The old king\"}\n\n{\"body\": \"the queen — she\"}\n");
  const Json document = vitrine({"eval", "perplexity", "-f", lines, "--jsonl", "--key", "body", "--json"}).json();
  EXPECT_EQ(document["texts"], 2);
  EXPECT_EQ(document["windows"], 2);
  EXPECT_EQ(document["bytes"], 12 + 17);
  const Outcome from_input = vitrine({"eval", "perplexity", "-f", "-", "--json"}, {}, "", evaluate_file("text.txt"));
  ASSERT_EQ(from_input.code, 0) << from_input.err;
  EXPECT_EQ(from_input.json()["bytes"], 1895);
}

TEST(EvalPerplexity, TablesAndTokens) {
  const Outcome outcome = vitrine({"eval", "perplexity", "--file", evaluate_file("text.txt"), "--context", "64", "--per-token"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"perplexity", "bits a byte", "each beginning with <bos> (id 2)", "tokens in front",
                           "occurrences in the text", "-ln p 2.7", "tokens/s"})
    EXPECT_CONTAINS(outcome.out, part);
}

TEST(EvalPerplexity, TwoModelsOnAPage) {
  const Scratch scratch;
  const std::string page = scratch / "page.html";
  const std::vector<std::string> line = {"eval",      "perplexity",
                                         "--file",    evaluate_file("text.txt"),
                                         "--model",   golden_gguf("llama"),
                                         "--against", golden_gguf("llama_q4_0"),
                                         "--out",     page,
                                         "--json"};
  const Outcome outcome = vitrine(line);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json();
  EXPECT_NEAR(document["against"]["difference"]["nll"].get<double>(),
              document["against"]["nll"].get<double>() - document["nll"].get<double>(), 1e-6);
  const std::string html = read_file(page);
  for (const char* part : {"<!doctype html>", "default-src 'none'", "\"picture\":\"losses\",\"paired\":true", "By frequency"})
    EXPECT_CONTAINS(html, part);
  // Other tokens: only the totals stand beside each other.
  const Json other =
      vitrine({"eval", "perplexity", "--file", evaluate_file("text.txt"), "--against", golden_gguf("llama"), "--json"}).json();
  EXPECT_EQ(other["against"]["difference"], nullptr);
  EXPECT_EQ(other["definition"]["context"], other["against"]["definition"]["context"]);
}

TEST(EvalPerplexity, AnEnsembleAveragesProbabilities) {
  const std::vector<std::string> common = {"eval", "perplexity", "--file", evaluate_file("text.txt"), "--per-token", "--json"};
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> line = common;
    line.insert(line.end(), more.begin(), more.end());
    const Outcome outcome = vitrine(line);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  const std::string a = golden_gguf("llama"), b = golden_gguf("llama_q4_0");
  const Json one = run({"--model", a}), two = run({"--model", b}), both = run({"--model", a, "--ensemble", b, "--against", a});
  double sum = 0;
  int64_t scored = 0;
  for (size_t i = 0; i < one["per_token"][0]["logprobs"].size(); ++i) {
    const Json &x = one["per_token"][0]["logprobs"][i], &y = two["per_token"][0]["logprobs"][i];
    if (x.is_null()) continue;
    sum -= std::log((std::exp(x.get<double>()) + std::exp(y.get<double>())) / 2);
    ++scored;
  }
  EXPECT_EQ(both["tokens"], scored);
  EXPECT_NEAR(both["nll"].get<double>(), sum / static_cast<double>(scored), 1e-6);
  EXPECT_EQ(both["bytes"], one["bytes"]);
  EXPECT_EQ(both["ensemble"].size(), 2u);
  EXPECT_EQ(both["ensemble"][1]["nll"], two["nll"]);
  EXPECT_NEAR(both["against"]["difference"]["nll"].get<double>(), one["nll"].get<double>() - both["nll"].get<double>(), 1e-6);
  // By convexity no worse than the members' mean.
  EXPECT_LE(both["nll"].get<double>(), (one["nll"].get<double>() + two["nll"].get<double>()) / 2);
  expect_refused({"eval", "perplexity", "--file", evaluate_file("text.txt"), "--ensemble", a}, {"same tokens", "tokenizer"});
  expect_refused({"eval", "perplexity", "--file", evaluate_file("text.txt"), "--ensemble", a, "--out", "page.html"},
                 {"--ensemble"});
}

TEST(EvalPerplexity, RefusesWhatItCannotRead) {
  const Scratch scratch;
  const std::string text = evaluate_file("text.txt");
  expect_refused({"eval", "perplexity"}, {"--file"});
  expect_refused({"eval", "perplexity", "--file", "no/such/file"}, {"no/such/file"});
  expect_refused({"eval", "perplexity", "--file", scratch.write("empty.txt", "")}, {"empty.txt", "holds no text"});
  expect_refused({"eval", "perplexity", "--file", scratch.write("bad.txt", "a\xff")}, {"bad.txt", "UTF-8"});
  expect_refused({"eval", "perplexity", "--file", scratch.write("a.jsonl", "{\"text\": 3}\n")}, {"a.jsonl line 1", "text"});
  expect_refused({"eval", "perplexity", "--file", text, "--key", "body"}, {"--key is for JSON lines"});
  expect_refused({"eval", "perplexity", "--file", text, "--like", "hf"}, {"--like", "hf"});
  expect_refused({"eval", "perplexity", "--file", text, "--context", "4096"}, {"--context 4096 is more than"});
  expect_refused({"eval", "perplexity", "--file", text, "--stride", "2000"}, {"--stride 2000 skips text"});
  expect_refused({"eval", "perplexity", "--file", text, "--like", "llama.cpp"}, {"needs two windows, 1024 tokens"});
  expect_refused({"eval", "perplexity", "--file", text, "--model", golden_model("classic_pre")}, {"tokenizer"});
  const std::string copy = scratch.write("copy.txt", "The old king");
  expect_refused({"eval", "perplexity", "--file", copy, "--out", copy}, {"is a file that this run reads"});
  expect_refused({"eval"}, {"eval"});
}

TEST(EvalChoices, DocumentIsTheHarness) {
  const Json golden = read_json(evaluate_file("choices.json"));
  const Outcome outcome = vitrine({"eval", "choices", "--file", evaluate_file("hellaswag.jsonl"), "--compute", "f32", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json(), &metrics = golden["hellaswag"]["metrics"];
  EXPECT_EQ(document["task"], "hellaswag");
  EXPECT_EQ(document["accuracy"], metrics["acc"]);
  EXPECT_EQ(document["accuracy_norm"], metrics["acc_norm"]);
  ASSERT_EQ(document["items"].size(), 6u);
  for (size_t i = 0; i < 6; ++i)
    for (size_t c = 0; c < 4; ++c)
      EXPECT_NEAR(document["items"][i]["choices"][c]["logprob"].get<double>(),
                  golden["hellaswag"]["items"][i][c][2].get<double>(), 2e-4);
  const Json few = vitrine({"eval", "choices", "--file", evaluate_file("winogrande.jsonl"), "--limit", "2", "--json"}).json();
  EXPECT_EQ(few["items"].size(), 2u);
  EXPECT_EQ(few["accuracy_norm"], nullptr);
}

TEST(EvalChoices, SeveralTasksHaveAMean) {
  const std::vector<std::string> line = {
      "eval", "choices", "--file", evaluate_file("arc.jsonl"), "--file", evaluate_file("piqa.jsonl")};
  std::vector<std::string> with_json = line;
  with_json.emplace_back("--json");
  const Json document = vitrine(with_json).json();
  ASSERT_EQ(document["tasks"].size(), 2u);
  EXPECT_NEAR(document["centered_mean"].get<double>(),
              (document["tasks"][0]["centered"].get<double>() + document["tasks"][1]["centered"].get<double>()) / 2, 1e-12);
  std::vector<std::string> shown = line;
  shown.emplace_back("--show-items");
  const Outcome outcome = vitrine(shown);
  for (const char* part : {"arc.jsonl (arc, 5 items)", "accuracy, normed by characters", "centered accuracy, mean of 2 tasks",
                           "What does a plant need most", "right"})
    EXPECT_CONTAINS(outcome.out, part);
}

TEST(EvalChoices, RefusesOtherItems) {
  const Scratch scratch;
  const auto refused = [&](const std::string& content, const std::vector<std::string>& parts) {
    expect_refused({"eval", "choices", "--file", scratch.write("items.jsonl", content)}, parts);
  };
  refused("", {"items.jsonl", "holds no item"});
  refused("\n\n{\"a\": 1}\n", {"items.jsonl line 3", "no known task"});
  refused("{\"a\"\n", {"items.jsonl line 1"});
  refused("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"gold\": 7}\n", {"items.jsonl line 1", "\"gold\" is 7"});
  expect_refused({"eval", "choices", "--file", evaluate_file("arc.jsonl"), "--task", "piqa"}, {"line 1", "\"goal\" is missing"});
  expect_refused({"eval", "choices", "--file", evaluate_file("arc.jsonl"), "--task", "mmlu"}, {"--task", "mmlu"});
}

TEST(EvalCompare, AQuantizedFileAndItsOriginal) {
  const std::vector<std::string> line = {"eval",
                                         "compare",
                                         golden_gguf("llama_q8_0"),
                                         "--model",
                                         golden_model("llama"),
                                         "--file",
                                         evaluate_file("text.txt"),
                                         "--context",
                                         "64",
                                         "--compute",
                                         "f32"};
  std::vector<std::string> with_json = line;
  with_json.emplace_back("--json");
  const Outcome outcome = vitrine(with_json);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json(), golden = read_json(evaluate_file("compare.json"));
  EXPECT_NEAR(document["kl"]["mean"].get<double>(), golden["q8_0"]["kl"].get<double>(), 1e-6);
  EXPECT_EQ(document["layers"].size(), 4u);
  EXPECT_EQ(document["a"]["dtypes"], Json({"f32"}));
  EXPECT_NEAR(document["top1_agreement"].get<double>(), golden["q8_0"]["same_top"].get<double>(), 2e-3);
  const Outcome table = vitrine(line);
  for (const char* part : {"KL (original || other)", "same most likely token", "layer 2", "perplexity ratio"})
    EXPECT_CONTAINS(table.out, part);
  expect_refused({"eval", "compare", golden_model("llama"), "--file", evaluate_file("text.txt")}, {"not two files of one model"});
  expect_refused({"eval", "compare", "--file", evaluate_file("text.txt")}, {"OTHER"});
}

TEST(Eval, NanFailsTheRun) {
  const Scratch scratch;
  const std::string model = copy_model(scratch, golden_model("llama")), file = model + "/model.safetensors";
  std::string content = read_file(file);
  uint64_t header = 0;
  std::memcpy(&header, content.data(), 8);
  const Json tensor = parse_json(content.substr(8, header), file).at("model.layers.1.mlp.down_proj.weight");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(content.data() + 8 + header + tensor.at("data_offsets")[0].get<size_t>(), &nan, sizeof nan);
  scratch.write("model/model.safetensors", content);
  const std::string text = evaluate_file("text.txt");
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"eval", "perplexity", "--file", text, "--model", model},
        {"eval", "perplexity", "--file", text, "--model", golden_model("llama"), "--against", model},
        {"eval", "choices", "--file", evaluate_file("piqa.jsonl"), "--model", model},
        {"eval", "compare", model, "--file", text, "--model", golden_model("llama")}}) {
    const Outcome outcome = vitrine(line);
    EXPECT_EQ(outcome.code, 1) << line[1];
    EXPECT_EQ(outcome.out, "") << line[1];
    EXPECT_CONTAINS(outcome.err, "NaN or infinity appeared first in blocks.1.");
  }
}

}  // namespace
}  // namespace vitrine
