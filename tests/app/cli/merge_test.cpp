// vitrine merge as a shell runs it: a finished run is resumed, flags that exclude each other, no folder for temporary files.
#include <csignal>

#include "cli/program.h"

namespace vitrine {
namespace {

const std::string kModels = std::string(VITRINE_GOLDEN) + "/merging/tiny_llama/";

std::string linear_recipe(const std::vector<std::string>& models, const std::string& more = "") {
  std::string text = more + "merge_method: linear\nparameters: {weight: 1}\nmodels:\n";
  for (const std::string& model : models) text += "- model: " + model + "\n";
  return text;
}

TEST(MergeCommand, AFinishedRunIsWhole) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yml", linear_recipe({kModels + "ft1", kModels + "ft2"})), out = scratch / "out";
  ASSERT_EQ(vitrine({"merge", recipe, out}).code, 0);
  const std::string weights = read_file(out + "/model.safetensors");
  const Outcome again = vitrine({"merge", recipe, out, "--resume"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, out + " is whole: an earlier run of this recipe has finished it\n");
  EXPECT_EQ(vitrine({"merge", recipe, out, "--resume", "--json"}).json(), (Json{{"out", out}, {"whole", true}}));
  EXPECT_EQ(read_file(out + "/model.safetensors"), weights);
  // Not so without --resume, with another recipe, or where nothing says the recipe.
  EXPECT_CONTAINS(vitrine({"merge", recipe, out}).err, "is there already");
  const std::string other = scratch.write("other.yml", linear_recipe({kModels + "ft1", kModels + "base"}));
  const Outcome refused = vitrine({"merge", other, out, "--resume"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_CONTAINS(refused.err, "is there already");
  std::filesystem::remove(out + "/mergekit_config.yml");
  EXPECT_EQ(vitrine({"merge", recipe, out, "--resume"}).code, 2);
}

TEST(MergeCommand, TheProgramUnderMergekitsName) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yml", linear_recipe({kModels + "ft1", kModels + "ft2"})), out = scratch / "out";
  const std::string beside = std::filesystem::path(VITRINE_PROGRAM).parent_path() / "mergekit-yaml";
  const Outcome outcome = run_program({beside, recipe, out, "--cuda", "--lazy-unpickle", "--allow-crimes"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(vitrine({"merge", recipe, scratch / "other"}).code, 0);
  EXPECT_EQ(read_file(out + "/model.safetensors"), read_file(scratch / "other/model.safetensors"));
  EXPECT_CONTAINS(run_program({beside, "--help"}).out, "vitrine merge");
}

// Whole is what all of its documents say; what is there is told before any of them is made.
TEST(MergeCommand, AFinishedRunOfSeveralMergesIsWhole) {
  const Scratch scratch;
  const std::string last = "---\n" + linear_recipe({"one", kModels + "base"}), out = scratch / "out",
                    recipe = scratch.write("r.yml", linear_recipe({kModels + "ft1", kModels + "ft2"}, "name: one\n") + last),
                    other = scratch.write("other.yml", linear_recipe({kModels + "ft1"}, "name: one\n") + last);
  ASSERT_EQ(vitrine({"merge", recipe, out}).code, 0);
  const Outcome again = vitrine({"merge", recipe, out, "--resume"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_CONTAINS(again.out, "is whole");
  const Outcome changed = vitrine({"merge", other, out, "--resume"});
  EXPECT_EQ(changed.code, 2);
  EXPECT_CONTAINS(changed.err, out + " is there already");
  std::filesystem::remove_all(out + ".parts");
  EXPECT_EQ(vitrine({"merge", recipe, out, "--resume"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(out + ".parts"));
}

TEST(MergeCommand, AWholeMergeIsReportedOn) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yml", linear_recipe({kModels + "ft1", kModels + "ft2"})), out = scratch / "out";
  ASSERT_EQ(vitrine({"merge", recipe, out}).code, 0);
  EXPECT_EQ(vitrine({"merge", recipe, out, "--resume", "--report", scratch / "page.html"}).code, 0);
  EXPECT_CONTAINS(read_file(scratch / "page.html"), "lm_head.weight");
}

TEST(MergeCommand, WhatADryRunRefuses) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yml", linear_recipe({kModels + "ft1", kModels + "ft2"}));
  const Outcome both = vitrine({"merge", recipe, "--dry-run", "--report", scratch / "page.html"});
  EXPECT_EQ(both.code, 2);
  EXPECT_CONTAINS(both.err, "--report measures the merge, which --dry-run does not do");
  const std::string chat = scratch.write("chat.yml", linear_recipe({kModels + "ft1"}, "chat_template: chatlm\n"));
  const Outcome unknown = vitrine({"merge", chat, "--dry-run"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_CONTAINS(unknown.err, "\"chat_template\" is \"chatlm\"");
}

TEST(MergeCommand, SaysThatOutIsNotWritten) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yml", linear_recipe({shipped_model_folder()})), out = scratch / "out",
                    text = scratch.write("text", "Once upon a time there was a fox.");
  const Outcome preview = vitrine({"merge", recipe, out, "--preview"});
  EXPECT_EQ(preview.code, 0) << preview.err;
  EXPECT_CONTAINS(preview.err, "note: nothing is written to " + out + ": --preview merges in memory\n");
  const Outcome sweep = vitrine({"merge", recipe, out, "--sweep", "weight=1", "--text", text});
  EXPECT_EQ(sweep.code, 0) << sweep.err;
  EXPECT_CONTAINS(sweep.err, "note: nothing is written to " + out + ": --sweep merges in memory\n");
  EXPECT_FALSE(std::filesystem::exists(out));
  expect_refused({"merge", recipe, out, "--text", text}, {"--text requires --preview or --sweep"});
}

TEST(MergeCommand, ADirectoryOfItsOwn) {
  const Scratch scratch;
  const std::string recipe = scratch.write("r.yml", linear_recipe({kModels + "ft1"}));
  const Outcome here = vitrine({"merge", recipe, ".", "--force"});
  EXPECT_EQ(here.code, 2);
  EXPECT_CONTAINS(here.err, ". is the working directory, or one around it");
}

// A mean that never converges is stopped.
TEST(MergeCommand, CtrlCSaysHowToGoOn) {
  const Scratch scratch;
  const std::string models = "models: [{model: " + kModels + "base}, {model: " + kModels + "ft1}, {model: " + kModels + "ft2}]\n",
                    recipe = scratch.write("r.yml", "merge_method: karcher\nparameters: {max_iter: 1000000, tol: 0}\n" + models),
                    out = scratch / "out", work = scratch / ".merging-out";
  const Outcome stopped = run_program({"/bin/sh", "-c",
                                       "\"$0\" merge \"$1\" \"$2\" & i=0; while [ $i -lt 1000 ] && ! [ -e \"$3/journal\" ]; do "
                                       "sleep 0.01; i=$((i+1)); done; kill -TERM $!; wait $!",
                                       VITRINE_PROGRAM, recipe, out, work});
  EXPECT_EQ(stopped.code, 128 + SIGTERM);
  EXPECT_CONTAINS(stopped.err, "stopped: " + out + " is not written. What is done is kept in " + work +
                                   ". Go on with the same command and --resume\n");
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_TRUE(std::filesystem::exists(work));
}

// A mistake in the last of several merges costs no time of the first.
TEST(MergeCommand, AllMergesAreCheckedBeforeTheFirst) {
  const Scratch scratch;
  const std::string out = scratch / "out", first = linear_recipe({kModels + "ft1", kModels + "ft2"}, "name: one\n") + "---\n";
  const auto refused = [&](const std::string& rest, const std::string& problem) {
    expect_refused({"merge", scratch.write("r.yml", first + rest), out}, {problem});
    EXPECT_FALSE(std::filesystem::exists(out + ".parts")) << rest;
  };
  refused(linear_recipe({"one", scratch / "nowhere"}), scratch / "nowhere");
  refused(linear_recipe({"one", kModels + "base+" + scratch / "adapter"}), scratch / "adapter");
  refused("merge_method: lineal\nmodels: [{model: one}]\n", "which is no merge method");
  refused("name: two\nmerge_method: slerp\nmodels: [{model: " + kModels + "ft1}]\n---\n" + linear_recipe({"one", "two"}),
          "needs a base model");
  const std::string recipe = scratch.write("r.yml", first + linear_recipe({"one", kModels + "base"}));
  EXPECT_EQ(vitrine({"merge", recipe, out}).code, 0);
}

TEST(MergeCommand, NoFolderForTemporaryFiles) {
  const Scratch scratch;
  const std::string recipe =
      scratch.write("r.yml", linear_recipe({kModels + "ft1"}, "name: a\n") + "---\n" + linear_recipe({"a"}));
  const Outcome preview = vitrine({"merge", recipe, "--preview"}, {"TMPDIR=" + scratch / "nowhere"});
  EXPECT_EQ(preview.code, 1);
  EXPECT_CONTAINS(preview.err, scratch / "nowhere");
  EXPECT_CONTAINS(preview.err, "set TMPDIR to one that is there");
}

}  // namespace
}  // namespace vitrine
