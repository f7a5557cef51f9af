#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace vitrine {
namespace {

TEST(Arena, AllocationsAreAlignedAndApart) {
  Arena arena;
  std::vector<char*> parts;
  for (const size_t size : {1u, 63u, 64u, 65u, 1000u, 1u << 20}) {
    char* p = static_cast<char*>(arena.allocate(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    std::memset(p, static_cast<int>(parts.size()) + 1, size);
    parts.push_back(p);
  }
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i][0], static_cast<char>(i + 1));
}

TEST(Arena, RewindingGivesTheSameMemoryAgainAndRemembersThePeak) {
  Arena arena;
  arena.allocate(100);
  const size_t mark = arena.mark();
  void* first = arena.allocate(5000);
  arena.rewind(mark);
  EXPECT_EQ(arena.allocate(10), first);
  EXPECT_GE(arena.peak(), 5000u);
}

TEST(Arena, KeepsAResultAtTheStartOfAFrameWhereverItLies) {
  Arena arena;
  std::vector<int> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0);
  const size_t bytes = numbers.size() * sizeof(int);
  for (const size_t gap : {0u, 64u, 4000u, 100000u}) {  // overlapping, touching and apart
    const size_t mark = arena.mark();
    if (gap > 0) arena.allocate(gap);
    void* result = std::memcpy(arena.allocate(bytes), numbers.data(), bytes);
    arena.allocate(777);
    void* kept = arena.rewind_keeping(mark, result, bytes);
    EXPECT_EQ(arena.begin_if_last(kept, bytes), mark);
    EXPECT_EQ(std::memcmp(kept, numbers.data(), bytes), 0) << gap;
  }
  const size_t mark = arena.mark();
  arena.allocate(50);
  EXPECT_EQ(std::memcmp(arena.rewind_keeping(mark, numbers.data(), bytes), numbers.data(), bytes), 0);  // from outside
}

TEST(Arena, RefusesMoreThanItReserved) {
  Arena arena(size_t{1} << 30);
  EXPECT_THROW(arena.allocate(size_t{2} << 30), RunError);
  EXPECT_THROW(arena.allocate(SIZE_MAX - 10), RunError);
  EXPECT_NE(arena.allocate(100), nullptr);  // and goes on
}

}  // namespace
}  // namespace vitrine
