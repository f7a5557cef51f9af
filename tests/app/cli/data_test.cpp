// vitrine data: what it prints, what it refuses.
#include <filesystem>

#include "cli/program.h"

namespace vitrine {
namespace {

const std::string kFables = std::string(VITRINE_SOURCE) + "/examples/fables.txt";

TEST(Data, MakesTokenDataAndChecksIt) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  const Outcome made =
      vitrine({"data", kFables, "--document", "\\n\\n\\n", "--valid", "0.2", "--seed", "1", "--out", out, "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Json document = made.json();
  EXPECT_EQ(document["out"], out);
  EXPECT_EQ(document["vocab_size"], 6144);
  EXPECT_EQ(document["train"]["documents"].get<int>() + document["valid"]["documents"].get<int>(), 24);
  EXPECT_GT(document["tokens_per_s"].get<double>(), 0);
  const Outcome checked = vitrine({"data", "--check", out + "/train", "--json"});
  ASSERT_EQ(checked.code, 0) << checked.err;
  EXPECT_EQ(checked.json()["tokens"], document["train"]["tokens"]);

  std::string shard = read_file(out + "/train/00000.tokens");
  shard[100] = static_cast<char>(shard[100] ^ 1);
  scratch.write("out/train/00000.tokens", shard);
  expect_refused({"data", "--check", out + "/train"}, {"00000.tokens: ", "does not fit the header's checksum"});

  const Outcome words = vitrine({"data", kFables, "--tokenizer", "characters", "--out", out, "--threads", "1"});
  ASSERT_EQ(words.code, 0) << words.err;
  EXPECT_CONTAINS(words.out, "train  14,");
  EXPECT_TRUE(std::filesystem::exists(out + "/tokenizer.json"));
  const Outcome tokens = vitrine({"tokenize", "The Crow", "--model", out + "/tokenizer.json", "--json"});
  ASSERT_EQ(tokens.code, 0) << tokens.err;
  EXPECT_EQ(tokens.json()["tokens"].size(), 8u);
}

// Not what the tokenizer would put around a text: what is put around documents here.
TEST(Data, SaysWhatWasPutAroundDocuments) {
  const Scratch scratch;
  const std::string out = scratch / "out", models = std::string(VITRINE_GOLDEN) + "/models/";
  const auto made = [&](const std::string& model, std::vector<std::string> more) {
    more.insert(more.begin(), {"data", kFables, "--tokenizer", models + model + "/model", "--out", out});
    return vitrine(more);
  };
  const Outcome end = made("gpt2_a", {});
  EXPECT_CONTAINS(end.err, "; nothing before each document, 511 \"<|endoftext|>\" at its end\n");
  const std::vector<std::string> json = {"--json"}, none = {"--json", "--no-special"};
  EXPECT_EQ(made("gpt2_a", json).json()["bos"], Json());
  EXPECT_EQ(made("gpt2_a", json).json()["eos"], 511);
  EXPECT_EQ(made("gpt2_a", none).json()["eos"], Json());
  EXPECT_CONTAINS(made("gpt2_a", {"--no-special"}).err, "; nothing before each document, nothing at its end\n");
  EXPECT_EQ(made("llama", json).json()["bos"], 2);
  EXPECT_EQ(made("llama", json).json()["eos"], 1);
}

TEST(Data, ChecksAFolderOfNoTokens) {
  const Scratch scratch;
  scratch.write("none/index.json", R"({"format": 1, "vocab_size": 61, "tokenizer": "1", "text_bytes": 0, "shards": [],
                                       "tokens": 0, "documents": 0})");
  const Outcome checked = vitrine({"data", "--check", scratch / "none"});
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_EQ(checked.out, "whole  0 tokens in 0 documents, 0 B of text\n");
}

TEST(Data, RefusesWrongFlags) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  expect_refused({"data", "--out", out}, {"no text: name files"});
  expect_refused({"data", kFables}, {"--out is missing"});
  expect_refused({"data", kFables, "--out", out, "--valid", "0.1", "--valid-files", kFables}, {"--valid and --valid-files"});
  expect_refused({"data", kFables, "--out", out, "--valid-files", kFables}, {"is among the files to train on"});
  expect_refused({"data", kFables, "--out", out, "--document", "\\x"}, {"--document: \"\\x\" has a \\ that means nothing"});
  expect_refused({"data", kFables, "--check", out}, {"--check reads one folder"});
  for (const std::string flag : {"--tokenizer", "--seed", "--key", "--valid-files", "--document"})
    expect_refused({"data", "--check", out, flag, "1"}, {"--check", flag});
  expect_refused({"data", "--check", out, "--valid", "0.1"}, {"--check", "--valid"});
  expect_refused({"data", kFables, "--out", out, "--key", "body"}, {"--key is for JSON lines"});
  const std::string lines = scratch.write("lines.jsonl.gz", "{\"text\": \"one\"}\n");
  expect_refused({"data", lines, "--out", out, "--document", "x"}, {"--document is for plain text"});
  expect_refused({"data", lines, "--out", out, "--key", "body", "--format", "text"}, {"--key is for JSON lines"});
  expect_refused({"data", "--check", out}, {"out/index.json: cannot be opened"});
  expect_refused({"data", scratch / "none.txt", "--out", out}, {"none.txt: cannot be opened"});
  expect_refused({"data", kFables, "--out", out, "--tokenizer", scratch / "none"}, {"none"});
  expect_refused({"data", scratch.write("empty.txt", ""), "--out", out}, {"the corpus is empty"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

// Of several files one is enough for a flag to mean something; --format decides for all.
TEST(Data, ReadsTextAndJsonLinesTogether) {
  const Scratch scratch;
  const std::string lines = scratch.write("lines.jsonl", "{\"body\": \"one\"}\n"), text = scratch.write("a.txt", "two||three");
  const auto documents = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "data");
    words.insert(words.end(), {"--out", scratch / "out", "--json"});
    const Outcome outcome = vitrine(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json()["train"]["documents"].get<int>() : -1;
  };
  EXPECT_EQ(documents({lines, text, "--key", "body", "--document", "||"}), 3);
  EXPECT_EQ(documents({text, "--valid-files", lines, "--key", "body", "--document", "||"}), 2);
  EXPECT_EQ(documents({scratch.write("odd.name", "{\"body\": \"one\"}\n"), "--format", "jsonl", "--key", "body"}), 1);
}

TEST(Data, SaysWhyTheFolderCannotBeMade) {
  const Scratch scratch;
  expect_refused({"data", kFables, "--out", scratch.write("file", "x") + "/out"},
                 {"cannot be made: Not a directory. Name a folder in a place that you may write to"});
}

}  // namespace
}  // namespace vitrine
