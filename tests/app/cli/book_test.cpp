// What `vitrine book` refuses, and the scripts that make its models, in a short form.
#include <filesystem>
#include <set>
#include <sstream>

#include "cli/program.h"

namespace vitrine {
namespace {

// A page is a file of its name, so a chapter and an experiment of one name would take each other's place.
TEST(Book, NoTwoPagesHaveOneName) {
  std::string help = vitrine({"book", "--help"}).out;
  for (char& c : help)
    if (c == ',') c = ' ';
  help = help.substr(help.find("separated by commas"));
  help.erase(help.find('\n'));
  std::istringstream words(help);
  std::multiset<std::string> names;
  for (std::string word; words >> word;) names.insert(word);
  for (const char* name :
       {"next-word", "gpt2", "heads", "gemma2", "trainable", "text", "patch", "ablate", "circuits", "film", "compare"})
    EXPECT_EQ(names.count(name), 1u) << name;
}

TEST(Book, TellsOfAModelThatIsNotThereBeforeItMakesAPage) {
  const Scratch scratch;
  expect_refused({"book", scratch / "none.gguf", "--pages", "heads", "--out", scratch / "book"}, {"none.gguf does not exist"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "book/heads.html"));
}

TEST(Book, TellsHowAPageFailedAlsoWhereEndsOfProgramsAreIgnored) {
  const Scratch scratch;
  scratch.write("broken/config.json", "{}");
  const std::vector<std::string> ignored = {"/usr/bin/env", "--ignore-signal=CHLD"};
  std::vector<std::string> words = ignored;
  words.emplace_back("/bin/true");
  if (run_program(words).code != 0) GTEST_SKIP() << "this env cannot ignore signals";
  words = ignored;
  for (const std::string& word : {std::string(VITRINE_PROGRAM), std::string("book"), scratch / "broken", std::string("--pages"),
                                  std::string("ablate"), std::string("--out"), scratch / "book"})
    words.push_back(word);
  const Outcome outcome = run_program(words);
  EXPECT_NE(outcome.code, 0);
  EXPECT_CONTAINS(outcome.err, "--model broken --out model-broken.html failed:");
}

TEST(Book, ScriptsOfModelsSayHowTheyAreCalled) {
  for (const char* model : {"gpt2-tales", "ladder"}) {
    const Outcome outcome = run_program({"/bin/bash", std::string(VITRINE_SOURCE) + "/models/book/" + model + "/make.sh"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_CONTAINS(outcome.err, "usage: ");
  }
}

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
}

}  // namespace
}  // namespace vitrine
