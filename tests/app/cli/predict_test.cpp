// vitrine predict, generate: the documents they write and the shipped model's golden answers.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <sstream>

#include "cli/program.h"
#include "io/atomic_file.h"

namespace vitrine {
namespace {

const Json& tales() {
  static const Json golden = read_json(std::string(VITRINE_GOLDEN) + "/tales9m/golden.json");
  return golden;
}

TEST(Predict, ReadsTheTextFromStandardInput) {
  const Scratch scratch;
  write_file_atomically(scratch / "text", "The old king\n");
  const Outcome piped = vitrine({"predict", "-", "--json"}, {}, "", scratch / "text");
  ASSERT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.out, vitrine({"predict", "The old king", "--json"}).out);  // without echo's newline
}

TEST(Predict, TakesIdsAsAJsonList) {
  EXPECT_EQ(vitrine({"predict", "--tokens", "[2, 300, 301]", "--json"}).out,
            vitrine({"predict", "--tokens", "2,300,301", "--json"}).out);
}

TEST(Predict, ShippedModelGivesTheReferencesTable) {
  for (const Json& gold : tales()) {
    const Outcome outcome = vitrine({"predict", gold["text"].get<std::string>(), "--json", "--compute", "f32"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json found = outcome.json();
    EXPECT_EQ(found["text"], gold["text"]);
    EXPECT_EQ(found["tokens"], gold["ids"]);
    EXPECT_EQ(found["pieces"], gold["pieces"]);
    ASSERT_EQ(found["predictions"].size(), 1u);
    EXPECT_EQ(found["predictions"][0]["position"], gold["ids"].size() - 1);
    const Json& top = found["predictions"][0]["top"];
    ASSERT_EQ(top.size(), 10u);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(top[i]["token"], gold["top10_next"][i][0]);
      EXPECT_EQ(top[i]["piece"], gold["top10_next"][i][1]);
      const double expected = gold["top10_next"][i][2];
      EXPECT_NEAR(top[i]["prob"].get<double>(), expected, 2e-5 + 1e-4 * expected);
      EXPECT_NEAR(std::exp(top[i]["logprob"].get<double>()), top[i]["prob"].get<double>(), 1e-6);
    }
  }
}

TEST(Predict, IdsGoInAsTheyAreAndHaveNoText) {
  const Json found = vitrine({"predict", "--tokens", "2,2165, 374", "--json", "--top", "2", "--all-positions"}).json();
  EXPECT_EQ(found["tokens"], Json({2, 2165, 374}));
  EXPECT_TRUE(found["text"].is_null());
  EXPECT_TRUE(found["pieces"].is_null());
  ASSERT_EQ(found["predictions"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found["predictions"][i]["position"], i);
    EXPECT_EQ(found["predictions"][i]["top"].size(), 2u);
    EXPECT_TRUE(found["predictions"][i]["top"][0]["piece"].is_null());
  }
  const Json two = vitrine({"predict", "--tokens", "2,2165;2", "--json", "--top", "1"}).json();
  ASSERT_EQ(two["sequences"].size(), 2u);
  EXPECT_EQ(two["sequences"][1]["tokens"], Json({2}));
}

TEST(Predict, JsonLinesKeepTheirOrderAndEqualSinglePrompts) {
  const Scratch scratch;
  const std::vector<std::string> texts = {"Once upon a time", "", "The old king had three sons, and the youngest", "A"};
  std::string lines;
  for (const std::string& text : texts) lines += Json{{"text", text}}.dump() + "\n";
  const Outcome outcome = vitrine({"predict", "--exact", "--jsonl", scratch.write("prompts.jsonl", lines), "--top", "3"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream stream(outcome.out);
  std::string line;
  for (const std::string& text : texts) {
    ASSERT_TRUE(std::getline(stream, line));
    const Json found = parse_json(line, "line");
    EXPECT_EQ(found["text"], text);
    const Json alone = vitrine({"predict", text, "--json", "--exact", "--top", "3"}).json();
    EXPECT_EQ(found, alone) << text;  // --exact: to the bit
  }
  EXPECT_FALSE(std::getline(stream, line));
  // Without a BOS an empty line has no token, and still a line of its own.
  const Outcome empty = vitrine({"predict", "--jsonl", scratch.write("empty.jsonl", "{\"text\": \"\"}\n{\"text\": \"ab\"}\n"),
                                 "--model", golden_model("gpt2_a")});
  ASSERT_EQ(empty.code, 0) << empty.err;
  const Json first = parse_json(empty.out.substr(0, empty.out.find('\n')), "line");
  EXPECT_EQ(first["tokens"], Json::array());
  EXPECT_EQ(first["predictions"], Json::array());
}

TEST(Predict, TableForPeople) {
  const Json& gold = tales()[0];
  const Outcome outcome = vitrine({"predict", gold["text"].get<std::string>(), "--top", "2", "--compute", "f32"});
  std::istringstream lines(outcome.out);
  std::string line;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    const double share = gold["top10_next"][i][2];
    EXPECT_CONTAINS(line, fmt::format("{}  {} ", i + 1, gold["top10_next"][i][1].get<std::string>()));
    EXPECT_CONTAINS(line, fmt::format("{:.{}f} %  ", 100 * share, share < 0.1 ? 2 : 1));
    const long eighths = std::lround(share * 40 * 8);  // of 40 columns
    std::string bar;
    for (long column = 0; column < eighths / 8; ++column) bar += "█";
    bar += std::array{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}.at(static_cast<size_t>(eighths % 8));
    EXPECT_TRUE(line.ends_with("%  " + bar)) << line;
  }
  EXPECT_FALSE(std::getline(lines, line));
  const Outcome all = vitrine({"predict", "Once upon a time", "--top", "1", "--all-positions"});
  EXPECT_CONTAINS(all.out, "[▁time]");  // the piece that came
}

TEST(Predict, TableOfIdsShowsTheirPieces) {
  const Json& gold = tales()[0];
  std::string ids;
  for (const Json& id : gold["ids"]) ids += (ids.empty() ? "" : ",") + id.dump();
  EXPECT_EQ(vitrine({"predict", "--tokens", ids, "--top", "3"}).out,
            vitrine({"predict", gold["text"].get<std::string>(), "--top", "3"}).out);
  EXPECT_EQ(vitrine({"predict", "--tokens", ids, "--all-positions"}).out,
            vitrine({"predict", gold["text"].get<std::string>(), "--all-positions"}).out);
  // Without a tokenizer an id is all there is.
  EXPECT_CONTAINS(vitrine({"predict", "--tokens", "5", "--all-positions", "--model", golden_model("gpt2_b")}).out, "    0  5  ");
}

TEST(Generate, ShippedModelGivesTheReferencesText) {
  for (const Json& gold : tales()) {
    const Json& ids = gold["greedy_new_ids"];
    const Outcome outcome = vitrine({"generate", gold["text"].get<std::string>(), "--json", "--compute", "f32", "--ignore-eos",
                                     "--max-tokens", std::to_string(ids.size())});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json found = outcome.json();
    EXPECT_EQ(found["tokens"], ids);
    EXPECT_EQ(found["logprobs"].size(), ids.size());
    EXPECT_EQ(found["finish_reason"], "length");
    for (const char* key : {"load_ms", "prompt_tokens", "prompt_ms", "decode_tokens", "decode_ms"})
      EXPECT_TRUE(found["timings"].contains(key)) << key;
    EXPECT_EQ(found["timings"]["prompt_tokens"], gold["ids"].size());
  }
}

TEST(Generate, StreamedTextEqualsTheDocuments) {
  const std::vector<std::string> flags = {"generate", "The old king", "--max-tokens", "30",     "--temperature",
                                          "0.9",      "--top-p",      "0.95",         "--seed", "5"};
  std::vector<std::string> with_json = flags;
  with_json.push_back("--json");
  const Json document = vitrine(with_json).json();
  EXPECT_EQ(vitrine(flags).out, document["text"].get<std::string>() + "\n");
  EXPECT_EQ(vitrine(with_json).json()["tokens"], document["tokens"]);  // the same seed
  std::vector<std::string> one_thread = with_json;
  one_thread.insert(one_thread.end(), {"--threads", "1"});
  EXPECT_EQ(vitrine(one_thread).json()["tokens"], document["tokens"]);
  with_json[9] = "6";
  EXPECT_NE(vitrine(with_json).json()["tokens"], document["tokens"]);  // another seed
}

TEST(Generate, StopsAtStringsAndTokens) {
  const std::vector<std::string> base = {"generate", "Once upon a time", "--json", "--compute", "f32", "--max-tokens", "40"};
  const Json whole = vitrine(base).json();
  const std::string text = whole["text"];
  const size_t comma = text.find(", and");
  ASSERT_NE(comma, std::string::npos);
  std::vector<std::string> stop = base;
  stop.insert(stop.end(), {"--stop", ", and", "--stop", "never said"});
  const Json stopped = vitrine(stop).json();
  EXPECT_EQ(stopped["text"], text.substr(0, comma));
  EXPECT_EQ(stopped["finish_reason"], "stop");
  std::vector<std::string> eos = base;
  eos.insert(eos.end(), {"--eos", std::to_string(whole["tokens"][3].get<int>())});
  const Json ended = vitrine(eos).json();
  EXPECT_EQ(ended["finish_reason"], "stop");
  EXPECT_LE(ended["tokens"].size(), 4u);
  EXPECT_EQ(ended["tokens"].back(), whole["tokens"][3]);  // the end token is a token, but no text
  EXPECT_EQ(ended["logprobs"].size(), ended["tokens"].size());
  EXPECT_LT(ended["text"].get<std::string>().size(), text.size());
}

TEST(Generate, BeamsAndTheirScoresMatch) {
  const Json golden = read_json(std::string(VITRINE_GOLDEN) + "/models/gemma2/golden/generate.json");
  const Json prompts = read_json(std::string(VITRINE_GOLDEN) + "/models/gemma2/golden/prompts.json");
  for (const Json& gold : golden["beam"]) {
    std::string ids;
    for (const Json& id : prompts[gold["prompt"].get<std::string>()]["input_ids"][0]) ids += (ids.empty() ? "" : ",") + id.dump();
    std::vector<std::string> flags = {"generate",
                                      "--tokens",
                                      ids,
                                      "--json",
                                      "--model",
                                      golden_model("gemma2"),
                                      "--beams",
                                      "4",
                                      "--return",
                                      "4",
                                      "--max-tokens",
                                      gold["max_new_tokens"].dump(),
                                      "--length-penalty",
                                      gold["length_penalty"].dump()};
    if (gold["early_stopping"] == true) flags.push_back("--early-stopping");
    if (gold["eos_token_id"].is_null()) {
      flags.push_back("--ignore-eos");
    } else {
      flags.insert(flags.end(), {"--eos", gold["eos_token_id"].dump()});
    }
    const Outcome outcome = vitrine(flags);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json found = outcome.json();
    ASSERT_EQ(found["hypotheses"].size(), 4u);
    EXPECT_TRUE(found["text"].is_null());
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(found["hypotheses"][i]["tokens"], gold["new_ids"][i]) << gold.dump().substr(0, 160) << ", hypothesis " << i;
      EXPECT_NEAR(found["hypotheses"][i]["score"].get<double>(), gold["scores"][i].get<double>(), 1e-4);
    }
    EXPECT_EQ(found["tokens"], gold["new_ids"][0]);
    EXPECT_EQ(found["logprobs"].size(), found["tokens"].size());
  }
}

TEST(Predict, TellsWhatADrawKeeps) {
  const std::vector<std::string> line = {"predict", "Once upon a time there was a king", "--top", "6144", "--json", "--compute",
                                         "f32"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = line;
    words.insert(words.end(), more.begin(), more.end());
    return vitrine(words).json()["predictions"][0]["top"];
  };
  const Json plain = with({}), drawn = with({"--temperature", "0.5", "--top-k", "3"});
  EXPECT_FALSE(plain[0].contains("kept"));
  ASSERT_EQ(drawn.size(), plain.size());
  double sum = 0;  // of p^2 over the three most likely: at half the temperature
  for (size_t i = 0; i < 3; ++i) sum += std::exp(2 * plain[i]["logprob"].get<double>());
  for (size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_EQ(drawn[i]["prob"], plain[i]["prob"]) << "the model's own probability stays";
    const double expected = i < 3 ? std::exp(2 * plain[i]["logprob"].get<double>()) / sum : 0;
    ASSERT_NEAR(drawn[i]["kept"].get<double>(), expected, 1e-5) << i;
  }
  const Outcome table = vitrine({"predict", "Once upon a time there was a king", "--top", "4", "--top-k", "3"});
  EXPECT_NE(table.out.find("cut"), std::string::npos) << table.out;
  expect_refused({"predict", "a", "--all-positions", "--top-k", "3"}, {"--all-positions", "sampling flags"});
}

}  // namespace
}  // namespace vitrine
