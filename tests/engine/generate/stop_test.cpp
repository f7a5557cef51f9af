#include "generate/stop.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace vitrine {
namespace {

struct Shown {
  std::string text, stop;
  bool operator==(const Shown&) const = default;
};

Shown run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopFilter filter(stops);
  Shown shown;
  for (const std::string& piece : pieces) shown.text += filter.push(piece);
  shown.text += filter.flush();
  if (filter.stopped_by()) shown.stop = *filter.stopped_by();
  return shown;
}

std::ostream& operator<<(std::ostream& out, const Shown& s) {
  return out << "\"" << s.text << "\" stopped by \"" << s.stop << "\"";
}

TEST(StopFilter, FindsStopsOverBorders) {
  EXPECT_EQ(run({"END"}, {"one E", "N", "D two"}), (Shown{"one ", "END"}));
  EXPECT_EQ(run({"END"}, {"one E", "N", "d two EN"}), (Shown{"one ENd two EN", ""}));
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b", "c"}), (Shown{"a", "aab"}));  // the match begins inside a failed one
  EXPECT_EQ(run({}, {"any", "thing"}), (Shown{"anything", ""}));
}

TEST(StopFilter, TheFirstCompleteStopCountsAndAmongThemTheLongest) {
  EXPECT_EQ(run({"abcd", "bc"}, {"xabcd"}), (Shown{"xa", "bc"}));
  EXPECT_EQ(run({"c", "abc", "bc"}, {"xabc"}), (Shown{"x", "abc"}));
}

TEST(StopFilter, HoldsBackOnlyWhatCanStillBecomeAStop) {
  StopFilter filter({"\n\nQ:"});
  EXPECT_EQ(filter.push("yes\n"), "yes");
  EXPECT_EQ(filter.push("\n"), "");
  EXPECT_EQ(filter.push("A"), "\n\nA");
  EXPECT_EQ(filter.push("\n\n\n"), "\n");
  EXPECT_EQ(filter.push("Q"), "");
  EXPECT_EQ(filter.flush(), "\n\nQ");
  EXPECT_EQ(filter.stopped_by(), nullptr);
}

TEST(StopFilter, NothingComesOutAfterAStop) {
  StopFilter filter({"."});
  EXPECT_EQ(filter.push("a.b"), "a");
  ASSERT_NE(filter.stopped_by(), nullptr);
  EXPECT_EQ(filter.push("c"), "");
  EXPECT_EQ(filter.flush(), "");
}

TEST(StopFilter, NeverShowsHalfACharacter) {
  StopFilter filter({"€uro"});
  EXPECT_EQ(filter.push("\xE2"), "");
  EXPECT_EQ(filter.push("\x82"), "");
  EXPECT_EQ(filter.push("\xACu"), "");
  EXPECT_EQ(filter.push("x\xF0\x9F"), "€ux");
  EXPECT_EQ(filter.push("\x98\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(filter.push("z\xF0\x9F"), "z");
  EXPECT_EQ(filter.flush(), "\xEF\xBF\xBD");
}

TEST(StopFilter, AnEmptyStopIsRefused) {
  try {
    StopFilter({"x", ""});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "a stop string is empty; give at least one character");
  }
}

// The plain definition: look at every byte's end for the longest stop string that ends there.
Shown by_definition(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops)
      if (std::string_view(text).substr(0, end).ends_with(stop) && stop.size() > best.size()) best = stop;
    if (!best.empty()) return {text.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

TEST(StopFilter, EqualsItsDefinitionHoweverTheTextIsCut) {
  uint32_t state = 7;
  const auto next = [&](uint32_t n) { return (state = state * 1664525u + 1013904223u) / 7 % n; };
  const auto word = [&](size_t longest) {
    std::string text;
    for (size_t n = 1 + next(static_cast<uint32_t>(longest)); n > 0; --n) text += "aab"[next(3)];
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (uint32_t n = 1 + next(3); n > 0; --n) stops.push_back(word(4));
    const std::string text = word(20);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, 1 + next(4)));
      at += pieces.back().size();
    }
    ASSERT_EQ(run(stops, pieces), by_definition(stops, text)) << text;
  }
}

}  // namespace
}  // namespace vitrine
