// vitrine bench --plan: from files and from a configuration alone, for people and as JSON; --pin.
#include "cli/program.h"

namespace vitrine {
namespace {

const std::string kConfig = std::string(VITRINE_GOLDEN) + "/configs/smollm3-3b.json";

TEST(BenchPlan, CountsRegionsOfAConfigurationAlone) {
  const Outcome outcome =
      vitrine({"bench", "--plan", "--model", kConfig, "--threads", "16", "--weights", "q4_0", "--depth", "1000", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json plan = outcome.json();
  EXPECT_EQ(plan["threads"], 16);
  EXPECT_EQ(plan["weights"], "q4_0");
  ASSERT_EQ(plan["steps"].size(), 2u);
  const Json &prefill = plan["steps"][0], &decode = plan["steps"][1];
  EXPECT_EQ(prefill["work"], "prefill");
  EXPECT_EQ(prefill["rows"], 512);
  EXPECT_EQ(prefill["position"], 1000);
  EXPECT_EQ(decode["rows"], 1);
  EXPECT_EQ(decode["position"], 1512);
  EXPECT_EQ(decode["regions"], 36 * 5 + 1);
  EXPECT_EQ(decode["barriers"], decode["regions"]);
  EXPECT_EQ(decode["by_thread"].size(), 16u);
  int64_t regions = 0, chunks = 0, bytes = 0;
  for (const Json& group : decode["by_region"]) {
    regions += group["regions"].get<int64_t>();
    chunks += group["regions"].get<int64_t>() * group["chunks"].get<int64_t>();
    bytes += group["regions"].get<int64_t>() * group["total"]["bytes"].get<int64_t>();
  }
  EXPECT_EQ(decode["regions"], regions);
  EXPECT_EQ(decode["chunks"], chunks);
  EXPECT_EQ(decode["total"]["bytes"], bytes);
  EXPECT_GT(decode["byte_imbalance"], 1.0);
  EXPECT_LT(decode["byte_imbalance"], 1.1);
}

TEST(BenchPlan, IsATableForPeople) {
  const Outcome outcome = vitrine({"bench", "--plan", "--threads", "4"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"prefill", "decode", "regions", "4 threads", "W_gate", "nothing is run"})
    EXPECT_CONTAINS(outcome.out, part);
  EXPECT_CONTAINS(vitrine({"bench", "--plan", "--threads", "1"}).out, "the caller does all");
}

TEST(BenchPlan, RefusesWhatItDoesNotUse) {
  expect_refused({"bench", "--plan", "--repeat", "2"}, {"--plan", "--repeat"});
  expect_refused({"bench", "--plan", "--decode", "2"}, {"--plan", "--decode"});
  expect_refused({"bench", "--plan", "--sequences", "2"}, {"--plan", "--sequences"});
  expect_refused({"bench", "--weights", "q4_0"}, {"--weights", "--plan"});
  expect_refused({"bench", "--plan", "--weights", "q9"}, {"q9", "q4_0"});
  expect_refused({"bench", "--plan", "--depth", "1023"}, {"--depth", "1023", "1024"});
  expect_refused({"bench", "--plan", "--pin", "cores"}, {"--plan", "--pin"});
}

TEST(Pin, KeepsEveryThreadOnACoreOfItsOwn) {
  const std::vector<std::string> words = {"predict", "Once upon a time", "--json"};
  const auto pinned = [&](const std::string& threads) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--pin", "cores", "--threads", threads});
    return vitrine(more);
  };
  const Outcome one = pinned("1");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, vitrine(words).out);
  const Outcome many = pinned("1024");
  EXPECT_EQ(many.code, 2);
  for (const char* part : {"--pin cores", "1024 threads", "--pin none"}) EXPECT_CONTAINS(many.err, part);
  expect_refused({"predict", "Once", "--pin", "all"}, {"--pin", "all", "none|cores"});
}

}  // namespace
}  // namespace vitrine
