// What a run shows on a terminal, through a pseudo-terminal; and the curves by themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cli/braille_chart.h"
#include "cli/on_terminal.h"
#include "cli/output.h"
#include "train/run_support.h"

namespace vitrine {
namespace {

using cli::braille_chart;

TEST(BrailleChart, ARisingLineIsADiagonal) {
  const std::vector<double> x = {0, 1, 2, 3}, y = {0, 1, 2, 3};
  const cli::ChartCurve curve{x, y, ""};
  const cli::Chart chart = braille_chart(std::span(&curve, 1), 0, 3, 2, 1);
  ASSERT_EQ(chart.lines.size(), 1u);
  EXPECT_EQ(chart.lines[0], "⡠⠊");  // dots 7 6, then 2 4: one row up with each dot column
  EXPECT_EQ(chart.low, 0);
  EXPECT_EQ(chart.high, 3);
}

TEST(BrailleChart, LeavesOutWhatIsNotFiniteAndAveragesWhatIsDense) {
  std::vector<double> x(1000), y(1000);
  std::iota(x.begin(), x.end(), 1);
  for (size_t i = 0; i < y.size(); ++i) y[i] = i % 2 == 0 ? 1 : 3;
  y[500] = NAN, y[501] = INFINITY;
  const cli::ChartCurve curve{x, y, ""};
  const cli::Chart chart = braille_chart(std::span(&curve, 1), 1, 1000, 10, 2);
  EXPECT_NEAR(chart.low, 2, 0.1);  // 25 points or more in each dot's width
  EXPECT_NEAR(chart.high, 2, 0.1);
  const std::vector<double> powers = {1e-8, 1, 1e8}, at = {1, 2, 3};
  const cli::ChartCurve steep{at, powers, ""};
  const cli::Chart logarithmic = braille_chart(std::span(&steep, 1), 1, 3, 3, 1, true);
  EXPECT_NEAR(logarithmic.high, 1e8, 1);
  EXPECT_NEAR(logarithmic.low * 1e8, 1, 1e-6);
  EXPECT_EQ(braille_chart({}, 0, 1, 3, 2).lines, (std::vector<std::string>{"   ", "   "}));
}

class TrainView : public testing::Test {
 protected:
  void SetUp() override {
    small_data(scratch, "data", 40, 1);
    small_data(scratch, "valid", 6, 2);
  }
  std::string config(const std::string& out) {
    std::string text = small_config(scratch, scratch / out);
    text.replace(text.find("steps: 12"), 9, "steps: 40");
    return scratch.write(out + ".yaml", text);
  }
  Scratch scratch;
};

TEST_F(TrainView, DrawsCurvesInPlaceWithinTheWindow) {
  const std::string written = on_terminal({"train", config("wide")}, 70, 30, "");
  EXPECT_CONTAINS(written, "\x1b[J");  // redrawn, not scrolled
  EXPECT_CONTAINS(written, "\x1b[36m");
  EXPECT_CONTAINS(written, "step 40/40");
  EXPECT_CONTAINS(written, "tokens/s");
  EXPECT_CONTAINS(written, " left");
  bool loss = false, lr = false, norm = false, dots = false;
  for (const std::string& line : shown_lines(written)) {
    loss |= line.starts_with("loss ");
    lr |= line.starts_with("lr ");
    norm |= line.starts_with("norm ");
    for (const char* lead : {"\xe2\xa0", "\xe2\xa1", "\xe2\xa2", "\xe2\xa3"}) dots |= line.find(lead) != std::string::npos;
    const bool message = line.starts_with("saved") || line.starts_with("done") || line.find("parameters") != std::string::npos ||
                         line.find(scratch / "") != std::string::npos;
    EXPECT_TRUE(message || cli::width_of(line) < 70) << line;
  }
  EXPECT_TRUE(loss && lr && norm && dots);
}

TEST_F(TrainView, ANarrowWindowGetsOneLine) {
  const std::string written = on_terminal({"train", config("narrow")}, 30, 30, "");
  EXPECT_CONTAINS(written, "step 40/40");
  for (const std::string& line : shown_lines(written)) {
    EXPECT_FALSE(line.starts_with("norm "));
    EXPECT_TRUE(line.find("step 40/40") == std::string::npos || cli::width_of(line) < 30) << line;
  }
}

TEST_F(TrainView, PlainLinesWhereAsked) {
  int run = 0;
  for (const char* environment : {"NO_COLOR=1", "TERM=dumb"}) {
    SCOPED_TRACE(environment);
    const std::string written = on_terminal({"train", config("plain" + std::to_string(run++))}, 70, 30, environment);
    EXPECT_EQ(written.find('\x1b'), std::string::npos);
    EXPECT_CONTAINS(written, "step 40/40  loss ");
    EXPECT_CONTAINS(written, "of peak");
  }
}

}  // namespace
}  // namespace vitrine
