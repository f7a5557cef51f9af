#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "cli/program.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

class Curves : public testing::Test {
 protected:
  Scratch scratch;
};

TEST_F(Curves, DrawsRunsBesideEachOther) {
  const std::string a = scratch.write(
      "a/metrics.jsonl", "{\"step\": 0, \"val_loss\": 4}\n{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n{\"st");
  const std::string b =
      scratch.write("b.jsonl", "{\"step\": 1, \"loss\": 3.5, \"peak_share\": null}\n{\"step\": 2, \"loss\": 1}\n");
  const Outcome drawn = vitrine({"curves", scratch / "a", b, "--out", scratch / "page.html"});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_CONTAINS(drawn.out, "2 at step 2");
  EXPECT_CONTAINS(drawn.out, "1 at step 2");
  EXPECT_CONTAINS(drawn.out, "val_loss\n");
  const std::string page = read_file(scratch / "page.html");
  EXPECT_CONTAINS(page, "<img alt=\"loss: " + scratch / "a" + " 2 at step 2; " + b + " 1 at step 2;\" src=\"data:image/svg+xml");
  const Outcome json = vitrine({"curves", scratch / "a", b, "--metric", "loss", "--json"});
  EXPECT_EQ(
      json.json(),
      (Json{{"loss", {{scratch / "a", {{"step", {1, 2}}, {"value", {3, 2}}}}, {b, {{"step", {1, 2}}, {"value", {3.5, 1}}}}}}}));
}

// One chart as a file, each value the mean with those before it.
TEST_F(Curves, DrawsMeansIntoAFile) {
  const std::string run = scratch.write("run.jsonl",
                                        "{\"step\": 1, \"loss\": 4, \"lr\": 1}\n{\"step\": 2, \"loss\": 2, \"lr\": 1}\n"
                                        "{\"step\": 3, \"loss\": 1, \"lr\": 1}\n");
  const Outcome drawn = vitrine({"curves", run, "--metric", "loss", "--mean", "2", "--svg", scratch / "loss.svg", "--json"});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_EQ(drawn.json().at("loss").at(run).at("value"), (Json{4, 3, 1.5}));
  EXPECT_CONTAINS(read_file(scratch / "loss.svg"), "<svg");
  EXPECT_CONTAINS(vitrine({"curves", run, "--svg", scratch / "more.svg"}).err, "there are 2: name one --metric");
  EXPECT_FALSE(std::filesystem::exists(scratch / "more.svg"));
}

// Numbers of layers: a chart for each run, a curve for each layer, on a logarithmic axis where they lie far apart.
TEST_F(Curves, DrawsEveryLayer) {
  const std::string run = scratch.write(
      "run.jsonl",
      R"({"step": 1, "loss": 3, "layer_grad_norm": {"W_E": 0.5, "blocks.0": 1e-6, "blocks.10": 1, "blocks.9": 0.1}, "layer_activation": {"blocks.0.ln1": {"before": {"mean": 1, "variance": 2}, "after": {"mean": 0, "variance": 1}}}})"
      "\n"
      R"({"step": 3, "loss": 2, "layer_grad_norm": {"W_E": 0.25, "blocks.0": 1e-5, "blocks.10": 2, "blocks.9": null}})"
      "\n");
  const Outcome json = vitrine({"curves", run, "--metric", "layer_grad_norm", "--json"});
  const Json layers = json.json().at("layer_grad_norm").at(run);
  EXPECT_EQ(layers.at("blocks.0"), (Json{{"step", {1, 3}}, {"value", {1e-6, 1e-5}}}));
  EXPECT_EQ(layers.at("blocks.9"), (Json{{"step", {1}}, {"value", {0.1}}}));
  EXPECT_EQ(layers.size(), 4u);
  const Outcome drawn = vitrine({"curves", run, "--metric", "layer_grad_norm", "--out", scratch / "page.html"});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_CONTAINS(drawn.out, "layer_grad_norm (logarithmic)\n");
  EXPECT_LT(drawn.out.find("blocks.9  0.1 at step 1"), drawn.out.find("blocks.10  2 at step 3"));
  EXPECT_CONTAINS(read_file(scratch / "page.html"), "<img alt=\"layer_grad_norm: W_E 0.25 at step 3; blocks.0 1e-05 at step 3;");
  const Outcome one = vitrine({"curves", run, "--metric", "layer_grad_norm.blocks.0", "--json"});
  EXPECT_EQ(one.json().at("layer_grad_norm.blocks.0").at(run).at("value"), (Json{1e-6, 1e-5}));
  const Outcome some = vitrine({"curves", run, "--metric", "layer_activation.*.variance", "--json"});
  EXPECT_EQ(some.json().at("layer_activation.*.variance").at(run).size(), 2u);
  const Json all = vitrine({"curves", run, "--metric", "all", "--json"}).json();
  for (const char* metric : {"loss", "layer_grad_norm", "layer_activation.*.before.mean", "layer_activation.*.after.variance"})
    EXPECT_TRUE(all.contains(metric)) << metric;
  EXPECT_FALSE(all.contains("step"));
}

// Lines of other programs may have our names with other numbers below them.
TEST_F(Curves, DrawsAllAlsoOfNamesWithFewerParts) {
  const std::string run = scratch.write("run.jsonl",
                                        "{\"step\": 1, \"layer_activation\": 3}\n"
                                        "{\"step\": 2, \"layer_activation\": {\"one\": 1, \"blocks\": {\"mean\": 2}}}\n");
  const Outcome all = vitrine({"curves", run, "--metric", "all", "--json"});
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_TRUE(all.json().contains("layer_activation"));
}

TEST_F(Curves, RefusesWhatIsNoRun) {
  EXPECT_EQ(vitrine({"curves", scratch / "none"}).code, 2);
  const std::string wrong = scratch.write("wrong.jsonl", "{\"step\": 1, \"loss\": 2}\nno metrics\n{\"step\": 2}\n");
  const Outcome outcome = vitrine({"curves", wrong});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "line 2 is not a line of metrics");
  EXPECT_EQ(vitrine({"curves", scratch.write("ok.jsonl", "{\"step\": 1, \"loss\": 2}\n"), "--metric", "lss"}).code, 2);
}

}  // namespace
}  // namespace vitrine
