#include "io/gzip.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "io/byte_stream.h"
#include "io/temporary_folder.h"

namespace vitrine {
namespace {

std::string read_back(const std::string& packed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/packed.gz";
  std::ofstream(path, std::ios::binary) << packed;
  const std::unique_ptr<ByteStream> stream = ByteStream::open(path);
  std::string text, part(1000, '\0');
  while (const size_t got = stream->read(part)) text.append(part, 0, got);
  return text;
}

TEST(Gzip, ReadsBackAndIsTheSameEachTime) {
  std::string noise(300'000, '\0');  // longer than what is written at once
  uint32_t state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  for (const std::string& text : {std::string(), std::string("a"), std::string(1 << 20, 'x'), noise}) {
    const std::string packed = gzip(std::as_bytes(std::span(text)));
    EXPECT_EQ(packed.substr(0, 2), "\x1f\x8b");
    EXPECT_EQ(packed, gzip(std::as_bytes(std::span(text))));
    EXPECT_EQ(read_back(packed), text);
  }
}

}  // namespace
}  // namespace vitrine
