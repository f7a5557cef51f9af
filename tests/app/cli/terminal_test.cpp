// What commands print on a terminal: lines that fit, words that stay whole, colors for light and dark.
#include "cli/heat_map.h"
#include "cli/on_terminal.h"
#include "cli/output.h"
#include "cli/text_table.h"

namespace vitrine {
namespace {

using cli::text_table;
using cli::TextTable;
using cli::wrapped;

TEST(Wrapped, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("one two three", 0), "one two three");
  EXPECT_EQ(wrapped("one two three", 13), "one two three");
  EXPECT_EQ(wrapped("one two three", 8), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrapped("  one two three\nfour", 8), "  one\n  two\n  three\nfour");
  EXPECT_EQ(wrapped("a longerthanthat b", 6), "a\nlongerthanthat\nb");
  EXPECT_EQ(wrapped("takes 8.0 MiB, or 4 %\n", 10), "takes\n8.0 MiB,\nor 4 %\n");
  EXPECT_EQ(wrapped("king +0.43  queen -0.5", 16), "king +0.43\nqueen -0.5");
  EXPECT_EQ(wrapped("\x1b[1mone\x1b[0m two", 7), "\x1b[1mone\x1b[0m two");
  EXPECT_EQ(wrapped("\xc3\xa4\xc3\xb6\xc3\xbc \xc3\xa4\xc3\xb6\xc3\xbc", 7), "\xc3\xa4\xc3\xb6\xc3\xbc \xc3\xa4\xc3\xb6\xc3\xbc");
}

TEST(TextTable, AlignsWordsAndNumbers) {
  const TextTable table{{{"name", true}, {"n"}, {"what", true}}, {{"a", "1", "some words"}, {"bcdef", "10"}}};
  EXPECT_EQ(text_table(table, 0), "name    n  what\na       1  some words\nbcdef  10\n");
  EXPECT_EQ(cli::table_width(table), 21);
}

TEST(TextTable, BreaksTheLastWordsOrCutsBlocks) {
  const TextTable words{{{"n"}, {"what", true}}, {{"1", "one two three four five six seven"}}};
  EXPECT_EQ(text_table(words, 29), "n  what\n1  one two three four five\n   six seven\n");
  EXPECT_EQ(text_table(words, 20), "n\n1\n      one two three\n      four five six\n      seven\n");
  const TextTable numbers{{{"k"}, {"first"}, {"second"}, {"third"}}, {{"1", "2", "3", "4"}}};
  EXPECT_EQ(text_table(numbers, 17), "k  first  second\n1      2       3\n\nk  third\n1      4\n");
}

// No bright ground, which glares on a dark terminal, and none at all near the middle.
TEST(HeatMap, ColorsReadOnLightAndDarkTerminals) {
  EXPECT_EQ(cli::colored("0.00", 0), "0.00");
  for (int i = -10; i <= 10; ++i) {
    const std::string text = cli::colored("x", i / 10.0);
    if (std::abs(i) < 8) {
      EXPECT_EQ(text.find("48;5;"), std::string::npos) << i;
    } else {
      EXPECT_CONTAINS(text, i > 0 ? "48;5;26" : "48;5;166");
    }
  }
}

class OnTerminal : public testing::TestWithParam<unsigned short> {};

TEST_P(OnTerminal, LinesFit) {
  const std::string king = "Once upon a time there was a king";
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"info"},
                                             {"info", "--ops"},
                                             {"circuits"},
                                             {"intervene", std::string(VITRINE_SOURCE) + "/examples/patch-king-queen.yaml"},
                                             {"units", king},
                                             {"attribute", king},
                                             {"predict", "--all-positions", king},
                                             {"predict", "--help"},
                                             {"picture", "--list"},
                                             {"picture", "logit-lens", king},
                                             {"picture", "logit-attribution", king},
                                             {"curves", std::string(VITRINE_SOURCE) + "/models/training/metrics.jsonl.gz"}}) {
    std::string name;
    for (const std::string& word : command) name += word + " ";
    for (const std::string& line : shown_lines(on_terminal(command, GetParam(), 50))) {
      const bool whole = line.find('/') != std::string::npos || line.starts_with("  vitrine ");  // a path, a command to copy
      EXPECT_TRUE(whole || cli::width_of(line) <= GetParam()) << name << "\n" << line;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Columns, OnTerminal, testing::Values(80, 120));

}  // namespace
}  // namespace vitrine
