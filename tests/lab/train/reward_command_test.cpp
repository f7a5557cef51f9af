// Rewards from a program: what it may do wrong, and what is said then.
#include "train/reward_command.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::vector<std::string> kRewardLines = {R"({"completion":"a"})", R"({"completion":"bb"})", R"({"completion":"ccc"})"};

std::vector<double> rewards_of(const std::string& command, double seconds = 20) {
  return run_reward_command(command, kRewardLines, seconds, "c.yaml: grpo.reward");
}
std::string reward_refused(const std::string& command, double seconds = 20) {
  return message_of<RunError>([&] { rewards_of(command, seconds); });
}

TEST(RewardCommand, GivesANumberForEachLine) {
  EXPECT_EQ(rewards_of("awk '{ print length($0) }'"), (std::vector<double>{18, 19, 20}));
  EXPECT_EQ(rewards_of("cat > /dev/null; printf '1\\n-2.5e0\\n0'"), (std::vector<double>{1, -2.5, 0}));
}

TEST(RewardCommand, MoreThanAPipeHoldsGoesBothWays) {
  const std::vector<std::string> many(20000, std::string(50, 'x'));
  EXPECT_EQ(run_reward_command("awk '{ print length($0) }'", many, 60, "w"), std::vector<double>(20000, 50));
}

TEST(RewardCommand, NamesTheLineOfRubbish) {
  EXPECT_CONTAINS(reward_refused("echo 1; echo two; echo 3"),
                  "c.yaml: grpo.reward: `echo 1; echo two; echo 3` printed \"two\" for line 2, which asked about "
                  "\"{\\\"completion\\\":\\\"bb\\\"}\"; expected a finite number");
  EXPECT_CONTAINS(reward_refused("echo 1; echo NaN; echo 3"), "printed \"NaN\" for line 2");
  EXPECT_CONTAINS(reward_refused("echo 1; echo 2; echo 1e999"), "printed \"1e999\" for line 3");
  EXPECT_CONTAINS(reward_refused("echo 1; echo null; echo 3"), "printed \"null\" for line 2");
  EXPECT_CONTAINS(reward_refused("printf '\\377\\n2\\n3\\n'"), "for line 1");
}

TEST(RewardCommand, CountsTheLines) {
  EXPECT_CONTAINS(reward_refused("echo 1"), "printed 1 lines for 3; the first without a number is line 2");
  EXPECT_CONTAINS(reward_refused("true"), "printed 0 lines for 3; the first without a number is line 1");
  EXPECT_CONTAINS(reward_refused("seq 5"),
                  "printed more than 3 lines, one for each line that it was given; the first too many is \"4\"");
  EXPECT_CONTAINS(reward_refused("yes 1"), "printed more than 3 lines");
}

TEST(RewardCommand, TellsHowTheProgramEnded) {
  EXPECT_CONTAINS(reward_refused("echo 1; echo no such file >&2; exit 3"),
                  "returned 3 after 1 of 3 answers. Its standard error ends with:\nno such file");
  EXPECT_CONTAINS(reward_refused("kill -9 $$"), "was ended by a signal: Killed");
  EXPECT_CONTAINS(reward_refused("/there/is/no/such/program"), "returned 127");
}

// What is said of a command that hangs after `answers` lines: with more time where it has not come so far, on a busy machine.
std::string hangs_after(const std::string& command, const std::string& answers) {
  std::string message;
  for (double seconds = 0.3; seconds < 100 && message.find("had answered " + answers) == std::string::npos; seconds *= 4)
    message = reward_refused(command, seconds);
  return message;
}

// Returns once the process whose number that file holds has ended.
void wait_for_end(const std::string& file_of_number) {
  const std::string child = read_file(file_of_number), stat = "/proc/" + child.substr(0, child.find('\n')) + "/stat";
  for (bool lives = true; lives; std::this_thread::yield()) {
    std::ifstream file(stat);
    std::string id, name, state;
    lives = static_cast<bool>(file >> id >> name >> state) && state != "Z";
  }
}

TEST(RewardCommand, WhatItLeavesBehindEndsWithIt) {
  const Scratch scratch;
  const std::string left = "sleep 1000 > /dev/null 2>&1 & echo $! > " + scratch / "child";
  EXPECT_EQ(rewards_of(left + "; seq 3"), (std::vector<double>{1, 2, 3}));
  wait_for_end(scratch / "child");
}

// It is killed with all that it has started, whether it reads or not.
TEST(RewardCommand, EndsOneThatHangs) {
  const Scratch scratch;
  const std::string one = hangs_after("sleep 1000 & echo $! > " + scratch / "child" + "; echo 1; wait", "1 of 3 lines after ");
  EXPECT_CONTAINS(one, "s, and not line 2, which asked about \"{\\\"completion\\\":\\\"bb\\\"}\". Raise grpo.reward_timeout");
  wait_for_end(scratch / "child");
  EXPECT_CONTAINS(hangs_after("seq 3; exec sleep 1000", "3 of 3 lines after "), "s, and did not end");
}

}  // namespace
}  // namespace vitrine
