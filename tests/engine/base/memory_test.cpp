#include "base/memory.h"

#include <gtest/gtest.h>

using namespace vitrine;

namespace {

TEST(Memory, BytesAreReadWithTheirUnits) {
  EXPECT_EQ(bytes_of("4096"), 4096);
  EXPECT_EQ(bytes_of("500 B"), 500);
  EXPECT_EQ(bytes_of("6 GiB"), 6.0 * (1 << 30));
  EXPECT_EQ(bytes_of("1.5g"), 1.5 * (1 << 30));
  EXPECT_EQ(bytes_of("512MiB"), 512.0 * (1 << 20));
  EXPECT_EQ(bytes_of("500 MB"), 500e6);
  EXPECT_EQ(bytes_of("2 kb"), 2000);
  EXPECT_EQ(bytes_of("1 TiB"), 0x1p40);
  for (const char* wrong : {"", "GiB", "-1 GiB", "6 GiBs", "6 gallons", "nan", "inf", "6 iB"})
    EXPECT_FALSE(bytes_of(wrong)) << wrong;
}

}  // namespace
