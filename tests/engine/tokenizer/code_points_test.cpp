// Every code point in every class of characters that tokenizer files use, against tokenizers (make_code_points.py).
#include <gtest/gtest.h>

#include <array>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace vitrine {
namespace {

uint32_t crc32(std::string_view text) {
  static const auto table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < 256; ++i) {
      out[i] = i;
      for (int bit = 0; bit < 8; ++bit) out[i] = out[i] >> 1 ^ ((out[i] & 1) != 0 ? 0xEDB88320 : 0);
    }
    return out;
  }();
  uint32_t crc = ~0u;
  for (const char c : text) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

constexpr uint32_t kBlock = 4096;

std::string block_text(uint32_t first, const std::string& before, const std::string& after) {
  std::string out;
  for (uint32_t c = first; c < first + kBlock; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    out += before;
    append_utf8(out, c);
    out += after;
  }
  return out;
}

TEST(CodePoints, AreWhatTokenizersTakesThemFor) {
  const std::string path = std::string(VITRINE_GOLDEN) + "/tokenizers/code_points.json";
  for (const Json& test : Json::parse(read_file(path))) {
    const auto name = test.at("name").get<std::string>();
    const bool normalizes = test.contains("normalizer");
    const Component component(test.at(normalizes ? "normalizer" : "pre_tokenizer"), path, name);
    const auto normalizers = normalizes ? parse_normalizers(component) : std::vector<std::unique_ptr<Normalizer>>{};
    const auto pre_tokenizers = normalizes ? std::vector<std::unique_ptr<PreTokenizer>>{} : parse_pre_tokenizers(component);
    const Json& results = test.at("results");
    const uint32_t planes = test.at("everywhere") ? 17 : 4;
    uint32_t first = 0;
    std::string wrong;  // the first code points of blocks
    for (size_t i = 0; i < results.size(); i += 2) {
      for (auto times = results[i + 1].get<uint32_t>(); times > 0; --times, first += kBlock) {
        if (first == planes << 16) first = 14 << 16;
        const std::string text = block_text(first, test.at("before"), test.at("after"));
        uint32_t result = 0;
        if (normalizes) {
          TrackedText out(text, false);
          for (const auto& normalizer : normalizers) normalizer->apply(out);
          if (out.text() != text) result = crc32(out.text());
        } else {
          Chunks chunks{TrackedText(text, true), {{0, uint32_t(text.size())}}};
          for (const auto& pre_tokenizer : pre_tokenizers) pre_tokenizer->apply(chunks);
          std::string ends;
          for (const Chunk& chunk : chunks.list) ends += std::to_string(chunks.text.range(chunk.begin, chunk.end).end) + ",";
          result = crc32(ends);
        }
        if (result != results[i].get<uint32_t>()) wrong += (wrong.empty() ? "" : " ") + std::to_string(first / kBlock);
      }
    }
    EXPECT_EQ(first, (planes == 17 ? 17u : 15u) << 16) << name;
    EXPECT_EQ(wrong, "") << name << ": blocks of 4,096 that differ";
  }
}

}  // namespace
}  // namespace vitrine
