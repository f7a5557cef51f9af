// --help, the manual page and the completions come from one table.
#include <regex>
#include <sstream>

#include "cli/program.h"

namespace vitrine {
namespace {

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  std::istringstream page(vitrine({"manual", "--format", "markdown"}).out);
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("## vitrine ")) names.push_back(line.substr(11));
  return names;
}

TEST(Manual, EveryCommandHasHelpWithAnExample) {
  const auto names = command_names();
  ASSERT_GE(names.size(), 10u);
  const std::string overview = vitrine({"--help"}).out, page = vitrine({"manual"}).out;
  for (const std::string& name : names) {
    std::vector<std::string> words;  // "tokenizer train" is two
    std::istringstream split(name);
    for (std::string word; split >> word;) words.push_back(word);
    const std::string first = words.front();
    words.push_back("--help");
    const Outcome help = vitrine(words);
    EXPECT_EQ(help.code, 0);
    EXPECT_CONTAINS(help.out, "Usage: vitrine " + name);
    EXPECT_CONTAINS(help.out, "Example:\n  vitrine " + name);
    EXPECT_CONTAINS(overview, "\n  " + first + " ");
    EXPECT_CONTAINS(page, ".SS vitrine " + std::regex_replace(name, std::regex("-"), "\\-") + " ");
  }
}

TEST(Manual, VersionNamesCommitAndKernels) {
  const Outcome outcome = vitrine({"--version"}, {"VITRINE_TARGET=reference"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_CONTAINS(outcome.out, "vitrine 0.");
  EXPECT_CONTAINS(outcome.out, "commit ");
  EXPECT_CONTAINS(outcome.out, "kernels reference (this machine has reference");
}

TEST(Manual, CompletionsKnowEveryCommandAndFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = vitrine({"completion", shell}).out;
    for (const std::string& name : command_names()) EXPECT_CONTAINS(script, name);
    EXPECT_CONTAINS(script, "all-positions");
    EXPECT_CONTAINS(script, "auto f32");
  }
}

/// What bash would offer for a line, whose last word is being typed.
std::string bash_offers(const std::string& words, int word) {
  const Scratch scratch;
  scratch.write("script", vitrine({"completion", "bash"}).out);
  const std::string command = "source '" + (scratch / "script") + "'; COMP_WORDS=(" + words +
                              "); COMP_CWORD=" + std::to_string(word) + "; _vitrine; echo \"${COMPREPLY[@]}\" > '" +
                              (scratch / "offers") + "'";
  EXPECT_EQ(std::system(("bash -c " + std::string("\"") +
                         [&] {
                           std::string escaped;
                           for (const char c : command)
                             escaped += c == '"' || c == '$' || c == '\\' ? std::string("\\") + c : std::string(1, c);
                           return escaped;
                         }() +
                         "\"")
                            .c_str()),
            0);
  return read_file(scratch / "offers");
}

TEST(Manual, BashCompletes) {
  EXPECT_EQ(bash_offers("vitrine pre", 1), "predict\n");
  EXPECT_EQ(bash_offers("vitrine predict --all", 2), "--all-positions\n");
  EXPECT_EQ(bash_offers("vitrine predict --compute ''", 3), "auto f32\n");
  EXPECT_EQ(bash_offers("vitrine tokenizer ''", 2), "train --help\n");
  EXPECT_EQ(bash_offers("vitrine tokenizer train --vo", 3), "--vocab-size\n");
}

}  // namespace
}  // namespace vitrine
