// Maps of files that are exchanged for huge pages while others read them.
#include "base/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/mapped_file.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::string some_bytes(size_t size) {
  std::string bytes(size, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// Larger than two pieces of the copy, with a rest that fills no huge page.
TEST(HugePages, HoldWhatTheFileHolds) {
  const Scratch scratch;
  const std::string bytes = some_bytes(35 * kHugePage + 12345);
  const MappedFile file = MappedFile::open(scratch.write("weights", bytes));
  const std::byte* const before = file.bytes().data();
  std::atomic<bool> done = false;
  std::atomic<int64_t> wrong = 0, rounds = 0;
  std::thread reader([&] {
    do {
      wrong += text_of(file) == bytes ? 0 : 1;
      ++rounds;
    } while (!done);
  });
  HugePageCopy copy({file.bytes()});
  copy.wait();
  done = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(rounds, 0);
  EXPECT_EQ(file.bytes().data(), before);
  EXPECT_TRUE(text_of(file) == bytes);
  const bool has_huge_pages = !map_huge_pages(1).empty();
  EXPECT_GE(copy.bytes(), has_huge_pages ? 34 * kHugePage : 0);
}

// The file may be cut or written afterwards: what was copied stays.
TEST(HugePages, AreNoLongerTheFiles) {
  const Scratch scratch;
  const std::string bytes = some_bytes(4 * kHugePage), path = scratch.write("weights", bytes);
  const MappedFile file = MappedFile::open(path);
  HugePageCopy copy({file.bytes()});
  copy.wait();
  if (copy.bytes() == 0) GTEST_SKIP() << "this system has no huge pages";
  scratch.write("weights", std::string(bytes.size(), 'x'));
  const auto* const first =
      reinterpret_cast<const char*>((reinterpret_cast<uintptr_t>(file.bytes().data()) + kHugePage - 1) / kHugePage * kHugePage);
  const auto at = static_cast<size_t>(first - text_of(file).data());
  EXPECT_TRUE(text_of(file).substr(at, copy.bytes()) == std::string_view(bytes).substr(at, copy.bytes()));
}

TEST(HugePages, OfSmallFilesAreNone) {
  const Scratch scratch;
  const MappedFile small = MappedFile::open(scratch.write("small", some_bytes(1000))),
                   empty = MappedFile::open(scratch.write("empty", ""));
  HugePageCopy copy({small.bytes(), empty.bytes()});
  copy.wait();
  EXPECT_EQ(copy.bytes(), 0u);
  EXPECT_TRUE(text_of(small) == some_bytes(1000));
}

TEST(HugePages, EndInTheMiddle) {
  const Scratch scratch;
  const std::string bytes = some_bytes(40 * kHugePage);
  const MappedFile file = MappedFile::open(scratch.write("weights", bytes));
  {
    const HugePageCopy copy({file.bytes()});
  }
  EXPECT_TRUE(text_of(file) == bytes);
}

}  // namespace
}  // namespace vitrine
