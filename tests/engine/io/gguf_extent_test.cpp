#include "io/gguf_extent.h"

#include <algorithm>

#include "io/gguf.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

TEST(GgufExtent, IsWhereTheTensorsBegin) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(VITRINE_GOLDEN) + "/gguf")) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string content = read_file(entry.path().string());
    const std::optional<uint64_t> end = gguf_header_bytes(as_bytes(content));
    ASSERT_TRUE(end) << entry.path();
    const Gguf gguf = read_gguf(as_bytes(content), entry.path().string());
    const std::byte* first = nullptr;
    for (const auto& [name, tensor] : gguf.checkpoint.tensors())
      if (first == nullptr || tensor.data < first) first = tensor.data;
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(static_cast<uint64_t>(first - as_bytes(content).data()), (*end + 31) / 32 * 32) << entry.path();
    for (uint64_t bytes = 0; bytes < *end; bytes += 1 + *end / 997)
      EXPECT_FALSE(gguf_header_bytes(as_bytes(content).first(bytes))) << entry.path() << " " << bytes;
    EXPECT_FALSE(gguf_header_bytes(as_bytes(content).first(*end - 1)));
    EXPECT_EQ(gguf_header_bytes(as_bytes(content).first(*end)), end);
    ++files;
  }
  EXPECT_GT(files, 2);
}

TEST(GgufExtent, EndsWhereTheFileIsNone) {
  const std::string begin = "GGUF" + raw(uint32_t{3});
  EXPECT_TRUE(gguf_header_bytes(as_bytes(std::string(100, 'x'))));
  EXPECT_FALSE(gguf_header_bytes({}));
  const std::string key = begin + raw(uint64_t{0}) + raw(uint64_t{1}) + raw(uint64_t{1}) + "k";
  EXPECT_TRUE(gguf_header_bytes(as_bytes(key + raw(uint32_t{99}) + std::string(50, 'x'))));  // no type
  // Arrays that no file can hold: more is wanted, and who asks for more has a limit.
  EXPECT_FALSE(
      gguf_header_bytes(as_bytes(key + raw(uint32_t{9}) + raw(uint32_t{8}) + raw(~uint64_t{0}) + std::string(50, '\0'))));
  EXPECT_FALSE(gguf_header_bytes(as_bytes(key + raw(uint32_t{9}) + raw(uint32_t{0}) + raw(uint64_t{1} << 60))));
  std::string nested = key + raw(uint32_t{9});
  for (int i = 0; i < 20; ++i) nested += raw(uint32_t{9}) + raw(uint64_t{1});
  EXPECT_TRUE(gguf_header_bytes(as_bytes(nested)));
  EXPECT_TRUE(gguf_header_bytes(as_bytes(key + raw(uint32_t{9}) + raw(uint32_t{10}) + raw(~uint64_t{0}))));  // overflows
}

}  // namespace
}  // namespace vitrine
