// How texts are cut: the laws of each definition, and what is refused.
#include "evaluate/windows.h"

#include <algorithm>
#include <set>

#include "evaluate/support.h"

namespace vitrine {
namespace {

WindowDefinition definition(Protocol like, int64_t context, int64_t stride, bool lead) {
  WindowDefinition d;
  d.like = like;
  d.context = context;
  d.stride = stride;
  if (lead) d.lead = 2;
  return d;
}

// How often each id is scored.
std::vector<int> times_scored(size_t n, const std::vector<TextWindow>& windows) {
  std::vector<int> times(n, 0);
  for (const TextWindow& w : windows) {
    EXPECT_LT(w.first, w.end);
    EXPECT_LE(w.end, n);
    EXPECT_GE(w.first, w.begin + (w.lead ? 0 : 1));  // something stands in front
    for (size_t i = w.first; i < w.end; ++i) ++times[i];
  }
  return times;
}

TEST(Windows, EveryTokenOnceBehindALeadingToken) {
  for (const size_t n : {1u, 2u, 7u, 8u, 9u, 20u, 21u, 100u})
    for (const int64_t stride : {1, 3, 4, 7}) {
      const auto windows = windows_over(n, definition(Protocol::vitrine, 8, stride, true));
      EXPECT_EQ(times_scored(n, windows), std::vector<int>(n, 1)) << n << " " << stride;
      for (const TextWindow& w : windows) {
        EXPECT_LE(w.end - w.begin, 7u);
        EXPECT_EQ(w.begin % static_cast<size_t>(stride), 0u);
      }
      for (size_t i = 1; i < windows.size(); ++i) EXPECT_EQ(windows[i].first, windows[i - 1].end);  // the first that holds it
    }
}

TEST(Windows, WithoutALeadingTokenTheFirstIsNotScored) {
  EXPECT_EQ(times_scored(20, windows_over(20, definition(Protocol::vitrine, 8, 4, false)))[0], 0);
  std::vector<int> times = times_scored(20, windows_over(20, definition(Protocol::transformers, 8, 4, false)));
  EXPECT_EQ(std::count(times.begin(), times.end(), 1), 19);
  // Side by side, no window's first token has anything in front.
  times = times_scored(20, windows_over(20, definition(Protocol::vitrine, 8, 8, false)));
  EXPECT_EQ((std::vector<int>{times[0], times[8], times[16], times[1]}), (std::vector<int>{0, 0, 0, 1}));
  EXPECT_TRUE(windows_over(1, definition(Protocol::vitrine, 8, 4, false)).empty());
  EXPECT_TRUE(windows_over(0, definition(Protocol::vitrine, 8, 4, true)).empty());
}

// The example in the documentation of loglikelihood_rolling: ten tokens, windows of four.
TEST(Windows, HarnessExample) {
  const auto windows = windows_over(10, definition(Protocol::harness, 4, 0, true));
  ASSERT_EQ(windows.size(), 3u);
  const auto is = [](const TextWindow& w, size_t begin, size_t end, size_t first) {
    return w.begin == begin && w.end == end && w.first == first;
  };
  EXPECT_TRUE(windows[0].lead && is(windows[0], 0, 4, 0));    // reads BOS 0 1 2, scores 0 1 2 3
  EXPECT_TRUE(!windows[1].lead && is(windows[1], 3, 8, 4));   // reads 3 4 5 6, scores 4 5 6 7
  EXPECT_TRUE(!windows[2].lead && is(windows[2], 5, 10, 8));  // reads 5 6 7 8, scores 8 9
  EXPECT_EQ(windows[2].before(9), 4u);
  EXPECT_EQ(windows[0].before(0), 1u);
  EXPECT_TRUE(windows_over(0, definition(Protocol::harness, 4, 0, true)).empty());
}

TEST(Windows, LlamaCppScoresTheSecondHalf) {
  const auto windows = windows_over(19, definition(Protocol::llama_cpp, 8, 0, true));
  ASSERT_EQ(windows.size(), 2u);    // three tokens are left over
  EXPECT_EQ(windows[1].begin, 9u);  // BOS stands for token 8
  EXPECT_EQ(windows[1].end, 16u);
  EXPECT_EQ(windows[1].first, 13u);
  EXPECT_EQ(windows[1].before(13), 5u);
  EXPECT_EQ(windows_over(16, definition(Protocol::llama_cpp, 8, 0, false))[1].begin, 8u);
  EXPECT_CONTAINS(message_of<InputError>([] { windows_over(15, definition(Protocol::llama_cpp, 8, 0, true)); }),
                  "has 15 tokens; llama.cpp's definition needs two windows, 16 tokens");
}

TEST(Windows, DefinitionsOfAModel) {
  const Engine engine(tales(), {1, {}});
  const auto defined = [&](Protocol like, int64_t context = 0, int64_t stride = 0) {
    return define_windows(engine, {.like = like, .context = context, .stride = stride});
  };
  EXPECT_EQ(defined(Protocol::vitrine).context, 1024);
  EXPECT_EQ(defined(Protocol::vitrine).stride, 512);
  EXPECT_EQ(defined(Protocol::vitrine).lead, 2);
  EXPECT_EQ(defined(Protocol::llama_cpp).context, 512);
  EXPECT_EQ(defined(Protocol::harness).context, 1024);
  EXPECT_EQ(defined(Protocol::transformers).lead, std::nullopt);
  EXPECT_EQ(define_windows(engine, {.no_special = true}).lead, std::nullopt);
  for (const char* word : {"vitrine", "transformers", "harness", "llama.cpp"}) {
    EXPECT_EQ(name_of(protocol_of(word)), word);
    EXPECT_CONTAINS(defined(protocol_of(word), 64).text(engine), "64 tokens");
  }
  const auto refused = [&](const WindowOptions& options, const std::string& part) {
    EXPECT_CONTAINS(message_of<UsageError>([&] { define_windows(engine, options); }), part);
  };
  refused({.context = 1025}, "--context 1025 is more than");
  refused({.context = 1}, "leaves nothing to score");
  refused({.like = Protocol::llama_cpp, .context = 3}, "expected 4 or more");
  refused({.context = 8, .stride = 8}, "a window holds 7 tokens of it");
  refused({.like = Protocol::harness, .stride = 8}, "--stride has no meaning in the definition of harness");
  refused({.like = Protocol::llama_cpp, .stride = 8}, "--stride has no meaning");
  EXPECT_CONTAINS(message_of<UsageError>([] { protocol_of("hf"); }), "expected one of vitrine, transformers, harness, llama.cpp");
}

}  // namespace
}  // namespace vitrine
