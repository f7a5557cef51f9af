// What `vitrine book` refuses, the scripts that make its models, in a short form, and the table of docs/book.md.
#include <filesystem>
#include <map>
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
       {"next-word", "gpt2", "heads", "gemma2", "trainable", "text", "patch", "ablate", "circuits", "film", "repeats", "compare"})
    EXPECT_EQ(names.count(name), 1u) << name;
  for (const std::string& name : names) EXPECT_EQ(names.count(name), 1u) << name;
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

// Its training takes seconds; a seed that taught it nothing would leave chapter 3 without an example.
TEST(Book, TheModelThatRepeatsHasAnInductionHead) {
  const Scratch scratch;
  const Outcome made = vitrine({"book", "--pages", "repeats", "--out", scratch / "book"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string page = read_file(scratch / "book/repeats.html");
  EXPECT_CONTAINS(page, "An induction head was found: 1.");
}

TEST(Book, ScriptsOfModelsSayHowTheyAreCalled) {
  for (const char* model : {"gpt2-tales", "ladder"}) {
    const Outcome outcome = run_program({"/bin/bash", std::string(VITRINE_SOURCE) + "/models/book/" + model + "/make.sh"});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_CONTAINS(outcome.err, "usage: ");
  }
}

TEST(Book, Gpt2TalesIsMadeByItsScript) {
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
    const double size = now["parts"]["W_Q"][0].get<double>(), shipped_size = then["parts"]["W_Q"][0].get<double>();
    EXPECT_NEAR(size, shipped_size, i == 0 ? 0 : 1e-4) << "the weights are drawn by the seed";
  }
  EXPECT_EQ(story["merges"], shipped["merges"]);
  EXPECT_EQ(story["words"], shipped["words"]);
}

// The chapter on Gemma 2 says so.
TEST(Book, BothModelsAnswerTheShippedQuestions) {
  const std::string source = VITRINE_SOURCE;
  for (const char* model : {"/models/tales9m", "/models/book/gpt2-tales"}) {
    const Outcome scored =
        vitrine({"eval", "choices", "--file", source + "/examples/questions.jsonl", "--model", source + model, "--json"});
    ASSERT_EQ(scored.code, 0) << scored.err;
    EXPECT_EQ(scored.json().at("accuracy"), 1.0);
  }
}

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  for (size_t begin = 1, end; (end = row.find('|', begin)) != std::string::npos; begin = end + 1) {
    const size_t first = row.find_first_not_of(' ', begin), last = row.find_last_not_of(' ', end - 1);
    cells.push_back(first < end ? row.substr(first, last + 1 - first) : "");
  }
  return cells;
}

// What stands between backquotes.
std::vector<std::string> quoted_in(const std::string& cell) {
  std::vector<std::string> words;
  for (size_t begin = 0; (begin = cell.find('`', begin)) != std::string::npos;) {
    const size_t end = cell.find('`', begin + 1);
    words.push_back(cell.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return words;
}

// "Suite.Name" of every test in C++.
std::set<std::string> names_of_tests() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(VITRINE_SOURCE) + "/tests")) {
    if (entry.path().extension() != ".cpp") continue;
    std::istringstream lines(read_file(entry.path().string()));
    for (std::string line; std::getline(lines, line);) {
      const size_t open = line.find('('), comma = line.find(", "), close = line.find(')');
      if (line.starts_with("TEST") && comma < close)
        names.insert(line.substr(open + 1, comma - open - 1) + "." + line.substr(comma + 2, close - comma - 2));
    }
  }
  return names;
}

// The steps of a chapter as its page has them: the available pictures of each.
std::map<std::string, std::set<std::string>> steps_of(const std::string& chapter) {
  std::vector<std::string> arguments = {"explain", "Once upon a time there was a king", "--chapter", chapter, "--json"};
  if (chapter == "gpt2") arguments.insert(arguments.end(), {"--model", std::string(VITRINE_SOURCE) + "/models/book/gpt2-tales"});
  const Outcome told = vitrine(arguments);
  EXPECT_EQ(told.code, 0) << chapter << "\n" << told.err;
  const Json document = told.json();
  std::map<std::string, std::set<std::string>> steps;
  for (const Json& step : document.at("steps")) {
    std::set<std::string>& pictures = steps[step.at("id")];
    for (const Json& names : {step.at("pictures"), step.at("engineers").at("pictures")})
      for (const Json& name : names)
        if (document.at("pictures").at(name.get<std::string>()).at("available") == true) pictures.insert(name);
  }
  return steps;
}

void expect_command_runs(const std::string& line) {
  const Scratch scratch;
  const std::string bin = std::filesystem::path(VITRINE_PROGRAM).parent_path();
  std::string command = line;
  if (const size_t out = command.find(" OUT"); out != std::string::npos) command.replace(out, 4, " " + scratch / "out");
  const Outcome outcome =
      run_program({"/bin/sh", "-c", "cd " + std::string(VITRINE_SOURCE) + " && PATH=" + bin + ":$PATH && " + command});
  EXPECT_EQ(outcome.code, 0) << line << "\n" << outcome.err;
}

TEST(Book, TellsEveryStatementOfItsTable) {
  std::map<std::string, std::map<std::string, std::set<std::string>>> chapters;
  for (const char* name : {"next-word", "gpt2", "heads", "gemma2", "trainable"}) chapters[name] = steps_of(name);
  const std::set<std::string> tests = names_of_tests();
  const std::string source = VITRINE_SOURCE;
  std::istringstream lines(read_file(source + "/docs/book.md"));
  size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line[2] < 'A' || line[2] > 'E') continue;
    SCOPED_TRACE(line);
    ++rows;
    const std::vector<std::string> cells = cells_of(line);
    ASSERT_EQ(cells.size(), 5u);
    std::set<std::string> drawn;
    const std::vector<std::string> places = quoted_in(cells[2]);
    EXPECT_FALSE(places.empty());
    for (const std::string& place : places) {
      const std::string chapter = place.substr(0, place.find('#')), step = place.substr(place.find('#') + 1);
      ASSERT_TRUE(chapters.contains(chapter)) << chapter;
      ASSERT_TRUE(chapters[chapter].contains(step)) << place;
      drawn.insert(chapters[chapter][step].begin(), chapters[chapter][step].end());
    }
    const std::vector<std::string> shown = quoted_in(cells[3]);
    if (shown.empty()) {  // a file: [name](../path)
      const size_t path = cells[3].find("](../") + 5;
      EXPECT_TRUE(std::filesystem::exists(source + "/" + cells[3].substr(path, cells[3].find(')', path) - path)));
    }
    for (const std::string& word : shown) {
      if (word.find(' ') == std::string::npos)
        EXPECT_TRUE(drawn.contains(word)) << word;
      else
        expect_command_runs(word);
    }
    const std::vector<std::string> checked = quoted_in(cells[4]);
    EXPECT_FALSE(checked.empty());
    for (const std::string& name : checked)
      EXPECT_TRUE(tests.contains(name) || std::filesystem::exists(source + "/" + name) ||
                  std::filesystem::exists(source + "/web/test/" + name))
          << name;
  }
  EXPECT_EQ(rows, 48u);
}

}  // namespace
}  // namespace vitrine
