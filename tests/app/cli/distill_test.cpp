// vitrine distill as a shell runs it: a run, its continuation, and a configuration without a teacher.
#include "cli/program.h"
#include "train/run_support.h"

namespace vitrine {
namespace {

TEST(DistillCommand, LearnsFromATeacherAndGoesOn) {
  const Scratch scratch;
  small_data(scratch, "data", 40, 1);
  small_data(scratch, "valid", 6, 2);
  const std::string teacher = scratch.write("teacher.yaml", small_config(scratch, scratch / "teacher"));
  ASSERT_EQ(vitrine({"train", teacher}).code, 0);
  const std::string extra =
      "ema: 0.9\ndistill: {teacher: " + scratch / "teacher/last" + ", cache: {folder: " + scratch / "cache" + ", top_k: 8}}\n";
  std::string text = small_config(scratch, scratch / "student", extra);
  const std::string file = scratch.write("student.yaml", text);
  const Outcome run = vitrine({"distill", file, "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.json().at("step"), 12);
  EXPECT_TRUE(metrics_of(scratch / "student").back().contains("kl"));
  text.replace(text.find("steps: 12"), 9, "steps: 14");
  const Outcome more = vitrine({"distill", scratch.write("more.yaml", text), "--resume", "--json"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_CONTAINS(more.err, "going on from step 12");
  EXPECT_EQ(more.json().at("step"), 14);
  const Outcome average = vitrine({"predict", "--model", scratch / "student/last/ema", "--tokens", "3,6,12", "--json"});
  EXPECT_EQ(average.code, 0) << average.err;
  expect_refused({"distill", teacher}, {"teacher.yaml: has no \"distill\"", "Without a teacher the command is `vitrine train`"});
  expect_refused({"distill"}, {"CONFIG"});
}

}  // namespace
}  // namespace vitrine
