// vitrine features, and generate --sae: an autoencoder of random directions beside the shipped model.
#include <algorithm>
#include <random>

#include "cli/program.h"
#include "io/safetensors.h"
#include "sae/sae_file.h"
#include "support/close.h"
#include "support/golden.h"

namespace vitrine {
namespace {

constexpr int64_t kWidth = 256, kFeatures = 64;

std::string written_sae(const Scratch& scratch, const std::string& hook = "blocks.3.hook_resid_post") {
  std::mt19937 random(5);
  const auto numbers = [&](int64_t count) {
    FloatVector values(static_cast<size_t>(count));
    for (float& x : values) x = static_cast<float>(random() % 2001) / 1000 - 1;
    return values;
  };
  SparseAutoencoder sae;
  sae.activation = SparseAutoencoder::Activation::topk;
  sae.k = 6;
  sae.d_in = sae.d_out = kWidth;
  sae.d_sae = kFeatures;
  sae.hook_name = sae.hook_name_out = hook;
  sae.W_enc = numbers(kWidth * kFeatures);
  sae.W_dec = numbers(kFeatures * kWidth);
  sae.b_enc = numbers(kFeatures);
  sae.b_dec = numbers(kWidth);
  write_sae(scratch / "sae", sae);
  return scratch / "sae";
}

TEST(FeaturesCommand, ShowsTheFeaturesOfAPrompt) {
  const Scratch scratch;
  const std::string sae = written_sae(scratch);
  const Json d = vitrine({"features", "--sae", sae, "The king sat on", "--top", "3", "--json"}).json();
  EXPECT_EQ(d["architecture"], "topk");
  EXPECT_EQ(d["hook"], "blocks.3.hook_resid_post");
  ASSERT_EQ(d["positions"].size(), 5U);
  for (const Json& row : d["positions"]) {
    EXPECT_EQ(row["active"], 6);
    ASSERT_EQ(row["features"].size(), 3U);
    EXPECT_GE(row["features"][0]["value"].get<double>(), row["features"][1]["value"].get<double>());
  }
  const std::string traced = scratch / "features.safetensors", plain = scratch / "plain.safetensors";
  EXPECT_EQ(vitrine({"features", "--sae", sae, "The king sat on", "--trace", traced}).code, 0);
  EXPECT_EQ(vitrine({"trace", "The king sat on", "--hooks", "blocks.3.hook_resid_post", "--out", plain}).code, 0);
  const Checkpoint parts = open_safetensors(traced), whole = open_safetensors(plain);
  const auto part = [&](const std::string& name) {
    return as_floats(*parts.find("blocks.3.hook_resid_post.hook_sae_" + name)).values;
  };
  std::vector<float> sum = part("recons");
  const std::vector<float> error = part("error"), acts = part("acts_post");
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += error[i];
  EXPECT_CLOSE(sum, as_floats(*whole.find("blocks.3.hook_resid_post")).values, Tolerance{.abs = 1e-4, .rel = 1e-5});
  EXPECT_EQ(std::ranges::count_if(acts, [](float a) { return a != 0; }), 30);

  const Outcome shown = vitrine({"features", "--sae", sae, "The king sat on"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_CONTAINS(shown.out, "▁king");
}

TEST(FeaturesCommand, DescribesFeaturesOverAText) {
  const Scratch scratch;
  const std::string sae = written_sae(scratch);
  const std::string text =
      scratch.write("text.txt", "The king sat on his throne. The queen sat by the sea, and the king looked at her.");
  const Outcome all = vitrine({"features", "--sae", sae, "--file", text, "--context", "16"});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_CONTAINS(all.out, "6.0 features active on a token");
  const Json table = vitrine({"features", "--sae", sae, "--file", text, "--json"}).json();
  size_t busiest = 0;
  for (size_t f = 0; f < table["active"].size(); ++f)
    if (table["active"][f] > table["active"][busiest]) busiest = f;
  const std::string page = scratch / "page.html";
  const Json d = vitrine({"features", "--sae", sae, "--file", text, "--feature", std::to_string(busiest), "--logits", "4",
                          "--top-contexts", "2", "--out", page, "--json"})
                     .json();
  const Json& one = d["features"][0];
  EXPECT_EQ(one["active"], table["active"][busiest]);
  ASSERT_GE(one["contexts"].size(), 1U);
  EXPECT_EQ(one["contexts"][0]["value"], one["largest"]);
  EXPECT_EQ(one["raised"].size(), 4U);
  EXPECT_GT(one["raised"][0]["logit"].get<double>(), one["lowered"][0]["logit"].get<double>());
  EXPECT_CONTAINS(read_file(page), "feature " + std::to_string(busiest));
}

TEST(FeaturesCommand, SteersWhatIsGenerated) {
  const Scratch scratch;
  const std::string sae = written_sae(scratch);
  const std::vector<std::string> plain = {"generate", "Once upon a time", "-n", "8", "--json"};
  const auto with = [&](const std::string& edit) {
    std::vector<std::string> line = plain;
    line.insert(line.end(), {"--sae", sae, "--steer", edit});
    return vitrine(line).json()["tokens"];
  };
  const Json tokens = vitrine(plain).json()["tokens"];
  EXPECT_EQ(with("3*=1"), tokens);  // the error term makes it whole
  EXPECT_NE(with("3=40"), tokens);
}

TEST(SaeOption, FeaturesAreHooksOfTraceInterveneGenerateAndCollect) {
  const Scratch scratch;
  const std::string sae = written_sae(scratch), at = "blocks.3.hook_resid_post.hook_sae_acts_post";
  const std::string traced = scratch / "features.safetensors", here = scratch / "here.safetensors",
                    slope = scratch / "slope.safetensors";
  EXPECT_EQ(vitrine({"features", "--sae", sae, "The king sat on", "--trace", traced}).code, 0);
  EXPECT_EQ(vitrine({"trace", "The king sat on", "--sae", sae, "--hooks", at, "--out", here}).code, 0);
  EXPECT_CLOSE(as_floats(*open_safetensors(here).find(at)).values, as_floats(*open_safetensors(traced).find(at)).values,
               Tolerance{.abs = 1e-5, .rel = 1e-5});
  EXPECT_EQ(vitrine({"trace", "The king sat on", "--sae", sae, "--gradients-at", at, "--out", slope}).code, 0);
  EXPECT_EQ(open_safetensors(slope).find("grad." + at)->shape, (std::vector<int64_t>{5, 64}));
  const std::string other = scratch / "other.safetensors", moved = "blocks.1.hook_resid_post.hook_sae_acts_post";
  EXPECT_EQ(vitrine({"trace", "The king", "--sae", "blocks.1.hook_resid_post=" + sae, "--hooks", moved, "--out", other}).code, 0);
  EXPECT_NE(open_safetensors(other).find(moved), nullptr);

  const std::string change = "\ninterventions:\n  - hook: " + at + "\n    features: [3=40]\n";
  const std::string recipe = scratch.write("r.yaml", "prompt: Once upon a time\nsaes: [" + sae + "]" + change);
  const std::string bare = scratch.write("bare.yaml", "prompt: Once upon a time" + change);
  const Json by_recipe = vitrine({"intervene", recipe, "--json"}).json(),
             by_flag = vitrine({"intervene", bare, "--sae", sae, "--json"}).json();
  EXPECT_EQ(by_recipe["after"], by_flag["after"]);
  EXPECT_NE(by_recipe["after"], by_recipe["before"]);
  const std::vector<std::string> plain = {"generate", "Once upon a time", "-n", "8", "--json"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = plain;
    line.insert(line.end(), more.begin(), more.end());
    return vitrine(line).json()["tokens"];
  };
  const Json steered = with({"--sae", sae, "--steer", "3=40"});
  EXPECT_EQ(with({"--edits", recipe}), steered);
  EXPECT_EQ(with({"--edits", bare, "--sae", sae}), steered);

  const std::string text = scratch.write("text.txt", "The king sat on his throne.");
  EXPECT_EQ(vitrine({"collect", text, "--hooks", at, "--sae", sae, "--out", scratch / "acts"}).code, 0);
  expect_refused({"trace", "text", "--hooks", at, "--out", here}, {"It runs without autoencoders", "--sae"});
  expect_refused({"trace", "text", "--sae", sae, "--hooks", "*.hook_sae_x", "--out", here}, {"Its autoencoders have", at});
  expect_refused({"intervene", bare}, {"It runs without autoencoders", "saes"});
  expect_refused({"generate", "text", "--sae", sae, "--steer", "1=0", "--edits", bare},
                 {"--steer and --edits", "hook_sae_acts_post"});
  expect_refused({"trace", "text", "--sae", "x=", "--hooks", at, "--out", here}, {"--sae is x=", "HOOK=DIR"});
}

TEST(FeaturesCommand, RefusesWhatDoesNotFit) {
  const Scratch scratch;
  const std::string sae = written_sae(scratch);
  expect_refused({"features", "--sae", sae}, {"give a TEXT"});
  expect_refused({"features", "--sae", sae, "text", "--feature", "1"}, {"--feature goes with --file"});
  expect_refused({"features", "--sae", sae, "--feature", "64"}, {"no feature 64", "0 to 63"});
  expect_refused({"features", "--sae", sae, "--feature", "-1"}, {"is no feature"});
  expect_refused({"features", "--sae", sae, "text", "--hook", "blocks.3.hook_none"}, {"blocks.3.hook_none", "info --hooks"});
  expect_refused({"features", "--sae", sae, "text", "--hook", "blocks.3.mlp.hook_post"}, {"d_in", "another model"});
  expect_refused({"features", "--sae", scratch / "absent", "text"}, {"absent", "cfg.json"});
  expect_refused({"features", "--sae", sae, "text", "--out", scratch / "p.html"}, {"--out", "--feature and --file"});
  expect_refused({"generate", "text", "--steer", "1=0"}, {"--steer needs --sae"});
  expect_refused({"generate", "text", "--sae", sae}, {"--sae needs --steer"});
  expect_refused({"generate", "text", "--sae", sae, "--steer", "1"}, {"expected FEATURE=VALUE"});
  expect_refused({"generate", "text", "--sae", sae, "--steer", "1=0", "--beams", "2"}, {"--beams"});
}

}  // namespace
}  // namespace vitrine
