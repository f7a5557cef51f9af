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

TEST_F(Curves, RefusesWhatIsNoRun) {
  EXPECT_EQ(vitrine({"curves", scratch / "none"}).code, 2);
  const std::string wrong = scratch.write("wrong.jsonl", "{\"step\": 1, \"loss\": 2}\nno metrics\n{\"step\": 2}\n");
  const Outcome outcome = vitrine({"curves", wrong});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "line 2 is no line of metrics");
  EXPECT_EQ(vitrine({"curves", scratch.write("ok.jsonl", "{\"step\": 1, \"loss\": 2}\n"), "--metric", "lss"}).code, 2);
}

}  // namespace
}  // namespace vitrine
