// What a Recorder keeps: whole values, taken or copied by several threads, and cuts of heads and positions.
#include "ops/recorder.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

constexpr int64_t kSteps = 400, kPatternHeads = 5, kKeys = 101;
float number(int64_t row, int64_t head, int64_t i) { return static_cast<float>((row * kPatternHeads + head) * kKeys + i); }

Recorder::Value heard(const HookRequest& request) {
  ThreadPool pool(3);
  Context ctx(pool);
  const Tensor value = ctx.empty({kSteps, kPatternHeads, kKeys});
  for (int64_t i = 0; i < value.count(); ++i) value.data<float>()[i] = static_cast<float>(i);
  Recorder recorder({request});
  recorder.see(ctx, request.glob, value);
  return recorder.values().at(request.glob);
}

void expect_part(const Recorder::Value& got, int64_t first_row, int64_t rows, int64_t first_head, int64_t heads) {
  ASSERT_EQ(got.shape, (std::vector<int64_t>{rows, heads, kKeys}));
  ASSERT_EQ(got.values.size(), static_cast<size_t>(rows * heads * kKeys));
  auto at = got.values.begin();
  for (int64_t r = first_row; r < first_row + rows; ++r)
    for (int64_t h = first_head; h < first_head + heads; ++h)
      for (int64_t i = 0; i < kKeys; ++i) ASSERT_EQ(*at++, number(r, h, i)) << r << " " << h << " " << i;
}

TEST(Recorder, KeepsLargeValuesWholeAndCut) {
  expect_part(heard({"z"}), 0, kSteps, 0, kPatternHeads);              // one stretch in several pieces
  expect_part(heard({"z", {}, {7, 391}}), 7, 384, 0, kPatternHeads);   // the same from within
  expect_part(heard({"z", {1, 4}, {3, 399}}), 3, 396, 1, 3);           // many stretches
  expect_part(heard({"z", {2, 3}, {0, 2}}), 0, 2, 2, 1);               // too little to share
  EXPECT_TRUE(heard({"z", {}, {kSteps, kSteps + 5}}).values.empty());  // nothing
}

TEST(Recorder, TakesWholeTensorsAndCopiesTheRest) {
  ThreadPool pool(2);
  Context ctx(pool);
  Recorder recorder({{"a"}, {"b"}, {"part"}, {"row", {}, {1, 2}}});
  ctx.listen(&recorder);
  const float* first = nullptr;
  {
    const auto frame = ctx.frame();
    const Tensor x = ctx.empty({3, 4});
    for (int64_t i = 0; i < 12; ++i) x.data<float>()[i] = static_cast<float>(i);
    first = x.data<float>();
    recorder.see(ctx, "a", x.view({3, 2, 2}));
    recorder.see(ctx, "b", x);  // the same memory under a second name
    recorder.see(ctx, "part", x.rows_view(1, 2));
    recorder.see(ctx, "row", x);
    EXPECT_EQ(x.data<float>()[11], 11);  // goes on, unchanged
  }
  ctx.listen(nullptr);
  const auto numbers = [&](const char* name) { return recorder.values().at(name).values; };
  const FloatVector all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(recorder.values().at("a").values.data(), first);  // not a copy
  EXPECT_EQ(recorder.values().at("a").shape, (std::vector<int64_t>{3, 2, 2}));
  EXPECT_EQ(numbers("a"), all);
  EXPECT_EQ(numbers("b"), all);
  EXPECT_EQ(numbers("part"), (FloatVector{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(numbers("row"), (FloatVector{4, 5, 6, 7}));
}

}  // namespace
}  // namespace vitrine
