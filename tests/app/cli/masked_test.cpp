// Models in both directions: predict fills masks, and what needs a next token is refused by name. The model and the answers are
// those of tests/golden/roformer/make.py.
#include <cmath>
#include <filesystem>

#include "cli/program.h"
#include "io/atomic_file.h"

namespace vitrine {
namespace {

const std::string kMasked = std::string(VITRINE_GOLDEN) + "/roformer/masked",
                  kCausal = std::string(VITRINE_GOLDEN) + "/roformer/causal";

void expect_filled(const Json& found, const Json& want) {
  EXPECT_EQ(found["text"], want["text"]);
  EXPECT_EQ(found["tokens"], want["ids"]);
  ASSERT_EQ(found["predictions"].size(), want["masks"].size());
  for (size_t m = 0; m < want["masks"].size(); ++m) {
    EXPECT_EQ(found["predictions"][m]["position"], want["masks"][m]["position"]);
    const Json &top = found["predictions"][m]["top"], &best = want["masks"][m]["top"];
    ASSERT_EQ(top.size(), 10u);
    for (size_t i = 0; i < 10; ++i) {
      EXPECT_EQ(top[i]["token"], best[i][0]);
      EXPECT_EQ(top[i]["piece"], best[i][1]);
      EXPECT_NEAR(top[i]["prob"].get<double>(), best[i][2].get<double>(), 2e-5 + 1e-4 * best[i][2].get<double>());
    }
  }
}

TEST(Masked, PredictFillsEveryMaskOfAText) {
  const Json fill = read_json(kMasked + "/fill.json");
  ASSERT_EQ(fill.size(), 2u);
  for (const Json& want : fill) {
    const Outcome outcome = vitrine({"predict", want["text"].get<std::string>(), "--model", kMasked, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    expect_filled(outcome.json(), want);
  }
  const Scratch scratch;  // and of every text of a file
  write_file_atomically(scratch / "texts",
                        Json{{"text", fill[0]["text"]}}.dump() + "\n" + Json{{"text", fill[1]["text"]}}.dump() + "\n");
  const Outcome outcome = vitrine({"predict", "--jsonl", scratch / "texts", "--model", kMasked});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const size_t end = outcome.out.find('\n');
  expect_filled(parse_json(outcome.out.substr(0, end), "first"), fill[0]);
  expect_filled(parse_json(outcome.out.substr(end + 1), "second"), fill[1]);
}

TEST(Masked, PredictShowsWhereEachMaskStands) {
  const Outcome two = vitrine({"predict", "the [MASK] of [MASK]", "--model", kMasked, "--top", "2"});
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_CONTAINS(two.out, "position 2\n");
  EXPECT_CONTAINS(two.out, "position 4\n");
  const Outcome all = vitrine({"predict", "the king", "--model", kMasked, "--top", "31", "--all-positions"});
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_CONTAINS(all.out, "expected there");
  EXPECT_CONTAINS(all.out, "[king]");  // the token itself is in brackets
}

TEST(Masked, ATextWithoutAMaskIsAnError) {
  const Outcome text = vitrine({"predict", "the king of France", "--model", kMasked});
  EXPECT_EQ(text.code, 2);
  EXPECT_CONTAINS(
      text.err,
      "fills masked tokens, and the text has none: write [MASK] where a token is to be predicted, as in 'The [MASK] of France', "
      "or ask for every position (--all-positions)");
  const Scratch scratch;
  for (const char* name : {"config.json", "model.safetensors"}) std::filesystem::copy_file(kMasked + "/" + name, scratch / name);
  const Outcome ids = vitrine({"predict", "--tokens", "2,5,4,3", "--model", scratch.path()});
  EXPECT_EQ(ids.code, 2);
  EXPECT_CONTAINS(ids.err, "has no tokenizer that names its mask");
  EXPECT_EQ(vitrine({"predict", "--tokens", "2,5,4,3", "--model", scratch.path(), "--all-positions"}).code, 0);
}

TEST(Masked, WhatNeedsANextTokenIsRefusedByName) {
  const Scratch scratch;
  write_file_atomically(scratch / "text", "the king of france\n");
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "the king"},
      {"generate", "the king", "--beams", "2"},
      {"chat", "the king"},
      {"serve", "--port", "0"},
      {"eval", "perplexity", "--file", scratch / "text"},
      {"bench"},
      {"attribute", "the king"},
      {"trace", "the king", "--gradients", "--out", scratch / "t.safetensors"},
      {"picture", "attention", "the king"},
      {"explain", "the king", "--out", scratch / "page.html"},
      {"train", "--one-step", "the", "--target", " king"}};
  for (std::vector<std::string> words : commands) {
    SCOPED_TRACE(words[0]);
    words.insert(words.end(), {"--model", kMasked});
    const Outcome outcome = vitrine(words);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_CONTAINS(outcome.err, "needs a causal model, and ");
    EXPECT_CONTAINS(outcome.err, "reads a text in both directions");
    EXPECT_CONTAINS(outcome.err, "Use `vitrine predict` with a mask in the text");
  }
  const Outcome gguf = vitrine({"convert", kMasked, scratch / "m.gguf"});
  EXPECT_EQ(gguf.code, 2);
  EXPECT_CONTAINS(gguf.err, "is of the family roformer, which has no GGUF form; name a directory as OUT");
  const Outcome directory = vitrine({"convert", kMasked, scratch / "copy"});
  EXPECT_EQ(directory.code, 0) << directory.err;
  EXPECT_TRUE(std::filesystem::exists(scratch / "copy/vocab.txt"));
}

TEST(Masked, WhatReadsLogitsOffTheStreamIsRefusedByName) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"circuits"}, {"units", "the king"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--model", kMasked});
    const Outcome outcome = vitrine(all);
    EXPECT_EQ(outcome.code, 2) << words[0] << outcome.out;
    EXPECT_CONTAINS(outcome.err, "has a head of more layers (mlm_head.ln.hook_normalized)");
  }
}

TEST(Masked, InfoAndTraceWork) {
  const Outcome info = vitrine({"info", "--model", kMasked});
  ASSERT_EQ(info.code, 0) << info.err;
  EXPECT_CONTAINS(info.out, "2 layers see everything before and after");
  const Outcome ops = vitrine({"info", "--ops", "--rows", "5", "--model", kMasked});
  ASSERT_EQ(ops.code, 0) << ops.err;
  EXPECT_CONTAINS(ops.out, "rope");
  const Scratch scratch;
  const Outcome trace = vitrine({"trace", "--tokens", "2,5,4,3", "--labels", "-100,-100,12,-100", "--gradients", "--out",
                                 scratch / "t.safetensors", "--model", kMasked});
  ASSERT_EQ(trace.code, 0) << trace.err;
  EXPECT_CONTAINS(trace.out, "over 1 label");
}

TEST(Masked, ItsCausalFormGenerates) {
  const Outcome outcome = vitrine({"generate", "--tokens", "3,7,9", "--max-tokens", "4", "--model", kCausal, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["tokens"].size(), 4u);
}

}  // namespace
}  // namespace vitrine
