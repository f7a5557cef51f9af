// Bytes as the text of a live page.
#include "picture/page/printable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace vitrine {
namespace {

// The bits one by one, as the header says.
std::vector<std::byte> read_back(const std::string& text) {
  std::string digits;
  for (char letter = '!'; letter <= '~'; ++letter)
    if (letter != '"' && letter != '&' && letter != '<') digits += letter;
  std::vector<bool> bits;
  for (size_t at = 0; at < text.size(); at += 2) {
    const bool whole = at + 1 < text.size();
    const size_t value = digits.find(text[at]) + (whole ? 91 * digits.find(text[at + 1]) : 0);
    for (int bit = 0; bit < (whole ? 13 : 6); ++bit) bits.push_back((value >> bit & 1) != 0);
  }
  std::vector<std::byte> bytes(bits.size() / 8);
  for (size_t i = 0; i < 8 * bytes.size(); ++i) bytes[i / 8] |= static_cast<std::byte>(bits[i] ? 1 << i % 8 : 0);
  return bytes;
}

void expect_back(const std::vector<std::byte>& bytes) {
  const std::string text = printable(bytes);
  EXPECT_TRUE(std::ranges::all_of(text, [](char letter) { return letter > ' ' && letter <= '~'; }));
  EXPECT_EQ(text.find_first_of("\"&<"), std::string::npos);
  EXPECT_EQ(read_back(text), bytes);
}

TEST(Printable, EveryByteAtEveryPlaceAndEveryLength) {
  std::vector<std::byte> all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<std::byte>(byte));
  for (size_t length = 0; length <= 40; ++length) expect_back({all.begin() + 100, all.begin() + 100 + static_cast<int>(length)});
  for (size_t before = 0; before < 13; ++before) {
    std::vector<std::byte> bytes(before);
    bytes.insert(bytes.end(), all.begin(), all.end());
    bytes.insert(bytes.end(), all.rbegin(), all.rend());
    expect_back(bytes);
  }
  expect_back(std::vector<std::byte>(1000, std::byte{255}));
}

TEST(Printable, Takes16CharactersFor13Bytes) {
  EXPECT_EQ(printable(std::vector<std::byte>(13'000, std::byte{0x5a})).size(), 16'000);
}

}  // namespace
}  // namespace vitrine
