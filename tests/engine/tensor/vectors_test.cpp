#include "tensor/vectors.h"

#include <gtest/gtest.h>

#include <numeric>

namespace vitrine {
namespace {

float* filled(Vectors& vectors, size_t count, float first) {
  float* const p = vectors.allocate(count);
  std::iota(p, p + count, first);
  return p;
}

TEST(Vectors, WhatIsTakenStaysWhereItIs) {
  Vectors vectors;
  FloatVector kept;
  float* const p = filled(vectors, 1000, 5);
  ASSERT_TRUE(vectors.take(p, 1000, kept));
  EXPECT_EQ(kept.data(), p);
  vectors.rewind(0);
  for (int i = 0; i < 3; ++i) filled(vectors, 1000, -1);  // what comes later lies elsewhere
  EXPECT_EQ(kept.front(), 5);
  EXPECT_EQ(kept.back(), 1004);
}

TEST(Vectors, OnlyWholeTensorsAreTakenAndOnce) {
  Vectors vectors;
  FloatVector kept;
  float* const p = filled(vectors, 10, 0);
  const float elsewhere = 0;
  EXPECT_FALSE(vectors.take(p, 9, kept));
  EXPECT_FALSE(vectors.take(p + 1, 9, kept));
  EXPECT_FALSE(vectors.take(&elsewhere, 1, kept));
  EXPECT_TRUE(kept.empty());
  EXPECT_TRUE(vectors.take(p, 10, kept));
  FloatVector again;
  EXPECT_FALSE(vectors.take(p, 10, again));
  EXPECT_TRUE(again.empty());
}

TEST(Vectors, GivesMemoryBackToTensorsOfItsSize) {
  Vectors vectors;
  filled(vectors, 1, 0);
  const size_t mark = vectors.mark();
  float* const p = filled(vectors, 500, 0);
  vectors.rewind(mark);
  EXPECT_NE(vectors.allocate(499), p);
  EXPECT_EQ(vectors.allocate(500), p);
}

TEST(Vectors, KeepsOneTensorOfAFrame) {
  for (const bool taken : {false, true}) {
    Vectors vectors;
    FloatVector of_listener;
    float* const input = filled(vectors, 20, 0);
    const size_t mark = vectors.begin_if_last(input);
    ASSERT_EQ(mark, 0U);
    filled(vectors, 30, 100);
    float* const result = filled(vectors, 20, 200);
    filled(vectors, 40, 300);
    EXPECT_EQ(vectors.begin_if_last(input), vectors.mark());
    ASSERT_TRUE(!taken || vectors.take(result, 20, of_listener));
    ASSERT_TRUE(vectors.rewind_keeping(mark, result));
    EXPECT_EQ(vectors.mark(), 1U);
    EXPECT_EQ(vectors.begin_if_last(result), 0U);  // the next frame may consume it
    for (int i = 0; i < 4; ++i) filled(vectors, 20, -1);
    EXPECT_EQ(result[0], 200);
    EXPECT_EQ(result[19], 219);
    EXPECT_FALSE(vectors.rewind_keeping(1, result));  // made before that mark
  }
}

TEST(Vectors, ATensorOfNothingLiesSomewhere) {
  Vectors vectors;
  FloatVector kept;
  float* const p = vectors.allocate(0);
  EXPECT_NE(p, nullptr);
  EXPECT_FALSE(vectors.take(p, 0, kept));
}

}  // namespace
}  // namespace vitrine
