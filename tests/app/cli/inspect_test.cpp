// vitrine trace, verify, info, tokenize, detokenize.
#include "cli/program.h"
#include "io/safetensors.h"

namespace vitrine {
namespace {

TEST(TraceCommand, WritesTheNamedTensors) {
  const Scratch scratch;
  const std::string out = scratch / "trace.safetensors";
  const Outcome outcome = vitrine({"trace", "--tokens", "2,7,9", "--model", golden_model("gemma2"), "--hooks",
                                   "blocks.*.attn.hook_pattern", "--hooks", "hook_logits", "--out", out, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = outcome.json();
  const Checkpoint file = open_safetensors(out);
  EXPECT_EQ(file.tensors().size(), 5u);
  for (const Json& tensor : document["tensors"]) {
    const StoredTensor* stored = file.find(tensor["name"].get<std::string>());
    ASSERT_NE(stored, nullptr);
    EXPECT_EQ(stored->dtype, DType::f32);
    EXPECT_EQ(Json(stored->shape), tensor["shape"]);
  }
  EXPECT_EQ(file.find("blocks.3.attn.hook_pattern")->shape, (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(file.find("hook_logits")->shape, (std::vector<int64_t>{3, 512}));

  // Several sequences: each by its number; the file is replaced.
  ASSERT_EQ(
      vitrine({"trace", "--tokens", "2,7,9;2", "--model", golden_model("gemma2"), "--hooks", "hook_logits", "--out", out}).code,
      0);
  const Checkpoint several = open_safetensors(out);
  EXPECT_EQ(several.tensors().size(), 2u);
  EXPECT_EQ(several.find("hook_logits#1")->shape, (std::vector<int64_t>{1, 512}));
}

TEST(TraceCommand, GradientsHaveTheFilesNamesAndShapes) {
  const Scratch scratch;
  const std::string out = scratch / "gradients.safetensors";
  const Outcome outcome = vitrine({"trace", "--tokens", "5,7,9,11", "--labels", "5,7,-100,11", "--gradients", "--model",
                                   golden_model("gpt2_b"), "--out", out});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Checkpoint gradients = open_safetensors(out), model = open_safetensors(golden_model("gpt2_b"));
  EXPECT_EQ(gradients.tensors().size(), model.tensors().size());
  for (const auto& [name, tensor] : model.tensors()) {
    const StoredTensor* gradient = gradients.find("grad." + name);
    ASSERT_NE(gradient, nullptr) << name;
    EXPECT_EQ(gradient->shape, tensor.shape) << name;
  }
  expect_refused(
      {"trace", "--tokens", "5,7", "--labels", "5,7,9", "--gradients", "--model", golden_model("gpt2_b"), "--out", out},
      {"label"});
  expect_refused(
      {"trace", "--tokens", "5,7", "--labels", "5,7", "--hooks", "hook_logits", "--model", golden_model("gpt2_b"), "--out", out},
      {"--labels needs --gradients"});
  expect_refused({"trace", "a", "--hooks", "blocks.*.hook_soul", "--out", out}, {"blocks.*.hook_soul"});
}

TEST(VerifyCommand, HoldsEveryGoldenModelAndSeesAnotherOne) {
  for (const char* name : {"gpt2_a", "gemma2", "llama"}) {
    const Outcome outcome = vitrine({"verify", "--model", golden_model(name), "--reference",
                                     std::string(VITRINE_GOLDEN) + "/models/" + name + "/golden", "--json"});
    EXPECT_EQ(outcome.code, 0) << name << ": " << outcome.err;
    EXPECT_EQ(outcome.json()["held"], true);
    EXPECT_EQ(outcome.json()["verdict"], "agrees");
  }
  const Outcome words = vitrine(
      {"verify", "--model", golden_model("gemma2"), "--reference", std::string(VITRINE_GOLDEN) + "/models/gemma2/golden"});
  EXPECT_TRUE(words.out.ends_with("\nagrees\n")) << words.out;
  const Scratch scratch;  // the same shapes, one weight changed
  const std::string model = copy_model(scratch, golden_model("gemma2"));
  std::string weights = read_file(model + "/model.safetensors");
  weights[weights.size() - 2] = static_cast<char>(weights[weights.size() - 2] ^ 0x7f);
  scratch.write("model/model.safetensors", weights);
  const Outcome other =
      vitrine({"verify", "--model", model, "--reference", std::string(VITRINE_GOLDEN) + "/models/gemma2/golden"});
  EXPECT_EQ(other.code, 1) << other.out;
  EXPECT_CONTAINS(other.err, "vitrine verify: differs from the reference\n");
  const std::string last = other.out.substr(other.out.rfind('\n', other.out.size() - 2) + 1);
  EXPECT_TRUE(last.starts_with("differs: first at ")) << last;
  // The last tensor of the file is a norm of the last block or the final one: what comes before agrees.
  EXPECT_EQ(last.find("0 of"), std::string::npos) << last;
}

TEST(InfoCommand, CountsParametersFromConfigurationsAlone) {
  const std::string folder = std::string(VITRINE_GOLDEN) + "/configs";
  const Json counts = read_json(folder + "/parameters.json");
  ASSERT_GE(counts.size(), 10u);
  for (const auto& [name, count] : counts.items()) {
    const Outcome outcome = vitrine({"info", "--json", "--model", folder + "/" + name + ".json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["parameters"], count) << name;
  }
  const Outcome shipped = vitrine({"info"});
  EXPECT_CONTAINS(shipped.out, "9,445,632");
  EXPECT_CONTAINS(vitrine({"info", "--hooks"}).out, "blocks.*.attn.hook_pattern");
  expect_refused({"info", "--context", "2000"}, {"2000", "1024"});
  EXPECT_CONTAINS(vitrine({"info", "--ops", "--rows", "5"}).out, "layers 0, 2, 4, 6:");
  expect_refused({"info", "--rows", "5"}, {"--rows", "--ops"});
  expect_refused({"info", "--ops", "--training", "--position", "3"}, {"--position", "--training"});
  expect_refused({"info", "--ops", "--rows", "25", "--position", "1000"}, {"1000", "1024"});
}

TEST(TokenizeCommand, DocumentsAndTables) {
  const Json found = vitrine({"tokenize", "The old king", "--json"}).json();
  EXPECT_EQ(found["tokens"], Json({2, 349, 560, 834}));
  EXPECT_EQ(found["pieces"], Json({"<bos>", "The", "▁old", "▁king"}));
  EXPECT_EQ(found["offsets"], Json::parse("[[0,0],[0,3],[3,7],[7,12]]"));
  EXPECT_EQ(vitrine({"tokenize", "The old king", "--json", "--no-special"}).json()["tokens"], Json({349, 560, 834}));
  EXPECT_EQ(vitrine({"tokenize", "", "--json", "--no-special"}).json()["tokens"], Json::array());
  EXPECT_CONTAINS(vitrine({"tokenize", "The old king"}).out, "834  ▁king  7-12");
  EXPECT_EQ(vitrine({"detokenize", "2,349,560,834", "--no-special"}).out, "The old king\n");
  EXPECT_EQ(vitrine({"detokenize", "349,560", "--json"}).json()["text"], "The old");
  // A bare tokenizer needs no model.
  const Outcome bare = vitrine({"tokenize", "The old king", "--json", "--model", shipped_model_folder() + "/tokenizer.model"});
  EXPECT_EQ(bare.json()["pieces"].back(), "▁king") << bare.err;
}

TEST(TokenizeCommand, FilesLinesAndComparison) {
  const Scratch scratch;
  const std::string file = scratch.write("text.txt", "The old king\xff\nhad");  // any bytes
  EXPECT_EQ(vitrine({"tokenize", "--file", file, "--json"}).code, 0);
  const Outcome lines = vitrine({"tokenize", "--jsonl", scratch.write("t.jsonl", "{\"text\": \"The\"}\n{\"text\": \"\"}\n")});
  EXPECT_EQ(
      lines.out,
      "{\"tokens\":[2,349],\"pieces\":[\"<bos>\",\"The\"],\"offsets\":[[0,0],[0,3]]}\n{\"tokens\":[2],\"pieces\":[\"<bos>\"],"
      "\"offsets\":[[0,0]]}\n");
  const Outcome same = vitrine({"tokenize", "The old king", "--compare", shipped_model_folder()});
  EXPECT_EQ(same.out, "equal over 12 bytes\n") << same.err;
  const Json different = vitrine({"tokenize", "The old king", "--json", "--compare", golden_model("gemma2")}).json();
  EXPECT_EQ(different["equal"], false);
  EXPECT_EQ(different["first_difference"]["index"], 0);
}

}  // namespace
}  // namespace vitrine
