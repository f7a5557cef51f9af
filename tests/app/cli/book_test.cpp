// The scripts that make the models of the book, in a short form.
#include <filesystem>

#include "cli/program.h"

namespace vitrine {
namespace {

TEST(Book, Gpt2TalesIsMadeByItsScript) {
  if (run_program({"/usr/bin/env", "python3", "-c", ""}).code != 0) GTEST_SKIP() << "python3 tells the story of the run";
  const Scratch scratch;
  const std::string folder = scratch / "made", source = std::string(VITRINE_SOURCE) + "/models/book/gpt2-tales";
  const std::string build = std::filesystem::path(VITRINE_PROGRAM).parent_path();
  const Outcome made = run_program({"/usr/bin/env", "bash", source + "/make.sh", build, folder, "2"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string model = folder + "/gpt2-tales";
  EXPECT_EQ(read_file(model + "/tokenizer.json"), read_file(source + "/tokenizer.json"));
  EXPECT_EQ(read_json(model + "/config.json").at("n_layer"), read_json(source + "/config.json").at("n_layer"));

  // The shipped run began with these very steps, up to the rounding of other processors.
  const Json story = read_json(model + "/story.json"), shipped = read_json(source + "/story.json");
  ASSERT_EQ(story.at("checkpoints").size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const Json &now = story["checkpoints"][i], &then = shipped["checkpoints"][i];
    EXPECT_EQ(now["step"], i);
    EXPECT_NEAR(now["valLoss"].get<double>(), then["valLoss"].get<double>(), 1e-3);
    EXPECT_EQ(now["parts"]["W_Q"][0], then["parts"]["W_Q"][0]) << "the weights are drawn by the seed";
  }
  EXPECT_EQ(story["merges"], shipped["merges"]);
  EXPECT_EQ(story["words"], shipped["words"]);

  const Outcome again = run_program({"/usr/bin/env", "bash", source + "/make.sh", build, folder, "2"});
  EXPECT_NE(again.code, 0);  // the model is there, and nothing is written over
}

}  // namespace
}  // namespace vitrine
