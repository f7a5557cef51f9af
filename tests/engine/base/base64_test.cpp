#include "base/base64.h"

#include <gtest/gtest.h>

#include <string_view>

namespace vitrine {
namespace {

// RFC 4648, section 10.
TEST(Base64, VectorsOfTheStandard) {
  const auto of = [](std::string_view text) { return base64(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foob"), "Zm9vYg==");
  EXPECT_EQ(of("fooba"), "Zm9vYmE=");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(of("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace vitrine
