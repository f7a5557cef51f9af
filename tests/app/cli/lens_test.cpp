// vitrine lens train and what looks through its file, from the command line; and the lens that ships.
#include <filesystem>

#include "cli/program.h"
#include "collect/collect.h"
#include "lens/train.h"

namespace vitrine {
namespace {

const std::string kLensText = std::string(VITRINE_SOURCE) + "/examples/fables.txt";

Outcome trained_lens(const std::string& out, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"lens", "train",     kLensText, "--document", "\\n\\n\\n", "--steps", "8", "--batch",
                                    "4",    "--context", "48",      "--held-out", "6",         "--out",   out};
  words.insert(words.end(), more.begin(), more.end());
  return vitrine(words);
}

TEST(LensCommand, GoesFromATextToThePictures) {
  const Scratch scratch;
  const std::string path = scratch / "lens.safetensors", king = "Once upon a time there was a king";
  const Outcome made = trained_lens(path, {"--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Json json = made.json();
  EXPECT_EQ(json["model"], "tales9m");
  EXPECT_EQ(json["layers"], 8);
  EXPECT_EQ(json["steps"], 8);
  ASSERT_EQ(json["kl"].size(), 8U);
  EXPECT_EQ(json["kl"][3]["point"], "blocks.3.hook_resid_pre");
  EXPECT_LT(json["kl"][0]["tuned"].get<double>(), json["kl"][0]["logit"].get<double>());
  EXPECT_EQ(read_tuned_lens(path).fingerprint, json["fingerprint"].get<std::string>());

  // The same words give the same bytes; a half as many in 16 bits.
  ASSERT_EQ(trained_lens(scratch / "again", {"--threads", "1"}).code, 0);
  EXPECT_EQ(read_file(scratch / "again"), read_file(path));
  ASSERT_EQ(trained_lens(scratch / "half", {"--type", "f16"}).code, 0);
  EXPECT_LT(std::filesystem::file_size(scratch / "half"), std::filesystem::file_size(path) * 6 / 10);

  const Outcome plain = vitrine({"picture", "logit-lens", king, "--json"});
  const Outcome tuned = vitrine({"picture", "logit-lens", king, "--json", "--lens", path});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_EQ(tuned.err, "") << "it is this model's lens";
  const Json before = plain.json()["pictures"]["logit-lens"], after = tuned.json()["pictures"]["logit-lens"];
  EXPECT_LT(after["kl"].back()[0], before["kl"].back()[0]);
  EXPECT_EQ(after["probs"].back()[8], before["probs"].back()[8]) << "the prediction itself";
  EXPECT_CONTAINS(after["caption"].get<std::string>(), "tuned lens");

  const Outcome both = vitrine({"picture", "tuned-lens", king, "--json", "--lens", path});
  ASSERT_EQ(both.code, 0) << both.err;
  const Json picture = both.json()["pictures"]["tuned-lens"];
  EXPECT_EQ(picture["depths"][1]["logit"]["id"], before["ids"].back()[1][0]);
  EXPECT_EQ(picture["depths"][1]["tuned"]["id"], after["ids"].back()[1][0]);
  double sum = 0;
  for (const Json& row : after["kl"]) sum += row[1].get<double>();
  EXPECT_NEAR(picture["depths"][1]["tuned"]["kl"].get<double>(), sum / static_cast<double>(after["kl"].size()), 1e-5);
  EXPECT_CONTAINS(vitrine({"picture", "tuned-lens", king, "--lens", path}).out, "logit lens");
}

TEST(LensCommand, RefusesWhatDoesNotFit) {
  const Scratch scratch;
  const std::string lens = std::string(VITRINE_GOLDEN) + "/tuned_lens/llama.safetensors";
  expect_refused({"picture", "logit-lens", "--lens", lens}, {"3 layers of width 64", "tales9m has 8 layers of width 256"});
  expect_refused({"picture", "attention", "--lens", lens}, {"--lens is of no use to the picture attention"});
  expect_refused({"picture", "logit-lens", "--lens", scratch / "none"}, {"none"});
  expect_refused({"lens", "train", "--out", scratch / "lens"}, {"no text: name files, as in `vitrine lens train"});
  expect_refused({"lens", "train", kLensText, "--out", scratch / "lens", "--max-tokens", "300"},
                 {"the text has 2 contexts of up to 256 tokens", "32 are held out"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "lens"));
}

TEST(LensCommand, SaysThatALensIsOfOtherWeights) {
  const Scratch scratch;
  const std::string path = scratch / "lens.safetensors";
  TunedLens lens = read_tuned_lens(shipped_model_folder() + "/" + kTunedLensFile);
  lens.fingerprint = "0123456789abcdef";
  write_tuned_lens(path, lens, DType::f16);
  const Outcome seen = vitrine({"picture", "logit-lens", "--json", "--lens", path});
  EXPECT_EQ(seen.code, 0);
  EXPECT_CONTAINS(seen.err, "was trained on other weights");
}

TEST(ShippedLens, IsCloserToThePredictionAtEveryDepth) {
  Engine engine(shipped_model_folder(), {2, {}});
  const std::string path = shipped_model_folder() + "/" + kTunedLensFile;
  EXPECT_LE(std::filesystem::file_size(path), 1'200'000U);
  const auto lens = open_tuned_lens(path, engine);
  EXPECT_TRUE(trained_on(*lens, engine));
  std::vector<std::vector<int32_t>> contexts;
  for (const char* text :
       {"The old king and the young queen had a son", "Once upon a time there was a wolf who lived in the forest."})
    contexts.push_back(engine.prompt_ids(text));
  for (const LensKl& kl : lens_kl(engine, *lens, contexts)) EXPECT_LT(kl.tuned, kl.logit) << kl.point;
}

TEST(ShippedLens, IsMadeByItsScript) {
  const Scratch scratch;
  const std::string script = std::string(VITRINE_SOURCE) + "/models/training/lens.sh", out = scratch / "lens.safetensors";
  EXPECT_EQ(run_program({"/bin/bash", script}).code, 2);
  const Outcome made = run_program({"/bin/bash", script, std::filesystem::path(VITRINE_PROGRAM).parent_path(), out, "1"});
  ASSERT_EQ(made.code, 0) << made.err;
  const TunedLens now = read_tuned_lens(out), shipped = read_tuned_lens(shipped_model_folder() + "/" + kTunedLensFile);
  EXPECT_EQ(now.model, shipped.model);
  EXPECT_EQ(now.fingerprint, shipped.fingerprint);
  EXPECT_EQ(now.translators.size(), shipped.translators.size());
  EXPECT_EQ(std::filesystem::file_size(out) / 100,
            std::filesystem::file_size(shipped_model_folder() + "/" + kTunedLensFile) / 100);
}

}  // namespace
}  // namespace vitrine
