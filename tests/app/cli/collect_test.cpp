// vitrine collect and vitrine sae train: from a text to an autoencoder, and what stops them.
#include <algorithm>
#include <filesystem>

#include "cli/program.h"
#include "io/activations.h"
#include "sae/sae_file.h"

namespace vitrine {
namespace {

const std::string kText = std::string(VITRINE_SOURCE) + "/examples/fables.txt";

TEST(Collect, GoesFromATextToAnAutoencoder) {
  const Scratch scratch;
  const std::string out = scratch / "acts", sae = scratch / "sae";
  const std::vector<std::string> words = {"collect",      kText,     "--document", "\\n\\n\\n",    "--hooks",
                                          "resid_post.2", "--hooks", "mlp_out.0",  "--max-tokens", "1500",
                                          "--context",    "64",      "--out"};
  std::vector<std::string> first = words;
  first.insert(first.end(), {out, "--json"});
  const Outcome made = vitrine(first);
  ASSERT_EQ(made.code, 0) << made.err;
  const Json document = made.json();
  EXPECT_EQ(document["tokens"], 1500);
  EXPECT_EQ(document["computed"], 1500);
  EXPECT_EQ(document["model"], "tales9m");
  EXPECT_EQ(document["hooks"][1]["name"], "blocks.2.hook_resid_post");
  EXPECT_GT(document["tokens_per_s"].get<double>(), 0);
  EXPECT_EQ(Activations::open(out).tokens(), 1500U);

  // What vitrine data made of the same text gives the same bytes.
  const std::string data = scratch / "data", other = scratch / "other";
  ASSERT_EQ(vitrine({"data", kText, "--document", "\\n\\n\\n", "--no-special", "--out", data}).code, 0);
  ASSERT_EQ(vitrine({"collect", "--data", data + "/train", "--hooks", "resid_post.2", "--hooks", "mlp_out.0", "--max-tokens",
                     "1500", "--context", "64", "--out", other})
                .code,
            0);
  EXPECT_EQ(read_file(other + "/activations-00000.safetensors"), read_file(out + "/activations-00000.safetensors"));

  const std::vector<std::string> train = {"sae",   "train", out,       "--features", "128",
                                          "--k",   "8",     "--batch", "256",        "--lr",
                                          "0.003", "--out", sae,       "--hook",     "blocks.2.hook_resid_post"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), train.begin(), train.end());
    return vitrine(more);
  };
  const Outcome begun = run({"--steps", "15", "--metrics-every", "5"});
  ASSERT_EQ(begun.code, 0) << begun.err;
  EXPECT_CONTAINS(begun.out, "explained variance");
  const Outcome gone_on = run({"--steps", "40", "--metrics-every", "5", "--resume", "--json"});
  ASSERT_EQ(gone_on.code, 0) << gone_on.err;
  EXPECT_EQ(gone_on.json()["first_step"], 16);
  EXPECT_EQ(gone_on.json()["steps"], 40);
  EXPECT_GT(gone_on.json()["activations_per_s"].get<double>(), 0);
  const std::string metrics = read_file(sae + "/metrics.csv");
  EXPECT_EQ(metrics.substr(0, 28), "step,loss,mse,sparsity,aux,e");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 1 + 1 + 8);  // head, step 1, every fifth
  const SparseAutoencoder read = read_sae(sae);
  EXPECT_EQ(read.d_sae, 128);
  EXPECT_EQ(read.hook_name, "blocks.2.hook_resid_post");

  expect_refused({"sae", "train", out, "--features", "128", "--out", scratch / "x"},
                 {"holds several hooks; name one of them: blocks.0.hook_mlp_out, blocks.2.hook_resid_post"});
  expect_refused({"sae", "train", sae, "--features", "128", "--out", scratch / "x"},
                 {"holds no manifest.json", "vitrine collect"});
}

TEST(Collect, RefusesWhatItCannotDo) {
  const Scratch scratch;
  const std::string out = scratch / "out", empty = scratch.write("empty.txt", "");
  const auto refused = [&](std::vector<std::string> words, std::vector<std::string> says) {
    words.insert(words.begin(), "collect");
    words.insert(words.end(), {"--out", out});
    expect_refused(words, says);
  };
  refused({kText, "--hooks", "blocks.9.hook_resid_post"}, {"blocks.9.hook_resid_post"});
  refused({kText, "--hooks", "pattern.1"}, {"blocks.1.attn.hook_pattern", "a row for each token"});
  refused({"--hooks", "resid_post.1"}, {"no text: name files"});
  refused({kText, "--data", out, "--hooks", "resid_post.1"}, {"two sources"});
  refused({empty, "--hooks", "resid_post.1"}, {"the text is empty"});
  scratch.write("full/file", "x");
  expect_refused({"collect", kText, "--hooks", "resid_post.1", "--out", scratch / "full"}, {"exists and holds something"});
}

TEST(Collect, SaysThatTheDiskIsFullAndLeavesNoHalfShard) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  const Outcome full =
      vitrine_with_small_files(300, {"collect", kText, "--hooks", "resid_post.1", "--max-tokens", "2000", "--out", out});
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_CONTAINS(full.err, "activations-00000.safetensors: cannot be written");
  EXPECT_FALSE(read_activation_manifest(out).complete);
  for (const auto& entry : std::filesystem::directory_iterator(out)) EXPECT_EQ(entry.path().filename(), "manifest.json");
}

}  // namespace
}  // namespace vitrine
