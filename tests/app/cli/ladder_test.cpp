// The ladder of the book (models/book/ladder): its script in short, and what it ships.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "cli/program.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kLadder = std::string(VITRINE_SOURCE) + "/models/book/ladder";

TEST(Ladder, TheScriptMakesLogsAndTheirSummary) {
  const Scratch scratch;
  const std::string build = std::filesystem::path(VITRINE_PROGRAM).parent_path();
  const Outcome script = run_program({"/bin/bash", kLadder + "/make.sh", build, scratch / "ladder", "--short"});
  ASSERT_EQ(script.code, 0) << script.err;
  const Json made = Json::parse(read_file(scratch / "ladder/ladder.json")).at("runs");
  const Json shipped = Json::parse(read_file(kLadder + "/ladder.json")).at("runs");
  ASSERT_EQ(made.size(), shipped.size());
  for (size_t i = 0; i < made.size(); ++i) {
    SCOPED_TRACE(made[i].at("name").get<std::string>());
    for (const char* same : {"name", "parts", "layers"}) EXPECT_EQ(made[i].at(same), shipped[i].at(same));
    EXPECT_EQ(made[i].at("gradients").at("stream")[0].size(), made[i].at("layers").get<size_t>() + 1);
    EXPECT_TRUE(std::filesystem::exists(scratch / "ladder/logs/" + made[i].at("name").get<std::string>() + ".jsonl.gz"));
  }
  // Whoever draws the logs gets the numbers of the summary.
  const Outcome curves = vitrine({"curves", scratch / "ladder/logs/mlp.jsonl.gz", "--metric", "loss", "--json"});
  ASSERT_EQ(curves.code, 0) << curves.err;
  const Json drawn = curves.json().at("loss").at(scratch / "ladder/logs/mlp.jsonl.gz");
  EXPECT_EQ(drawn.at("step"), made[3].at("loss").at("step"));
  for (size_t i = 0; i < drawn.at("value").size(); ++i)
    EXPECT_NEAR(drawn.at("value")[i].get<double>(), made[3].at("loss").at("value")[i].get<double>(), 1e-3);
}

TEST(Ladder, TheShippedSummaryIsThatOfTheShippedLogs) {
  const Scratch scratch;
  const Outcome script = run_program({"/usr/bin/env", "python3", kLadder + "/summary.py", kLadder, scratch / "again.json"});
  ASSERT_EQ(script.code, 0) << script.err;
  EXPECT_EQ(read_file(scratch / "again.json"), read_file(kLadder + "/ladder.json"));
}

}  // namespace
}  // namespace vitrine
