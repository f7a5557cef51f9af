// Every component of tokenizer.json and every option of SentencePiece, in small files written by
// golden/tokenizers/make_variants.py with the answers of Hugging Face's tokenizers and of sentencepiece.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

using Ids = std::vector<int32_t>;
const std::string kVariantFiles = std::string(VITRINE_GOLDEN) + "/tokenizers/variants/";

std::vector<std::string> variant_names() {
  std::vector<std::string> names;
  constexpr std::string_view kEnd = ".expected.json";
  for (const auto& entry : std::filesystem::directory_iterator(kVariantFiles)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kEnd)) names.push_back(file.substr(0, file.size() - kEnd.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

// The reference counts in characters; ours may cut inside one.
std::pair<size_t, size_t> widened(const std::string& text, const TokenPiece& p) {
  size_t begin = p.begin, end = p.end;
  const auto inside = [&](size_t i) { return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  while (begin > 0 && inside(begin)) --begin;
  while (end < text.size() && end > p.begin && inside(end)) ++end;
  return {begin, end};
}

class TokenizerVariant : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerVariant, EqualsTheReference) {
  const std::string stem = kVariantFiles + GetParam();
  const auto tokenizer = load_tokenizer(std::filesystem::exists(stem + ".json") ? stem + ".json" : stem + ".model");
  const Json strings = read_json(kVariantFiles + "strings.json"), rows = read_json(stem + ".expected.json");
  ASSERT_GT(rows.size(), 100u);
  for (const Json& row : rows) {
    const std::string decoded = row["decoded"];
    if (row.contains("decode")) {
      EXPECT_EQ(tokenizer->decode(row["decode"].get<Ids>()), decoded) << row["decode"];
      continue;
    }
    const std::string text = row.contains("hex") ? from_hex(row["hex"]) : strings.at(row["i"].get<size_t>()).get<std::string>();
    SCOPED_TRACE(GetParam() + ": " + (row.contains("hex") ? row["hex"] : strings.at(row["i"].get<size_t>())).dump());
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer->encode(text, false), ids);
    const bool json = tokenizer->description().starts_with("tokenizer.json");
    if (json) {  // the other kinds of file know BOS by their own rule, see sentencepiece_test.cpp
      EXPECT_EQ(tokenizer->encode(text, true), row.value("special", ids)) << "with special tokens";
      EXPECT_EQ(tokenizer->encode(text, false, Special::text), row.value("text", ids)) << "special tokens as text";
    }
    EXPECT_EQ(tokenizer->decode(ids), decoded);
    if (json) {
      EXPECT_EQ(tokenizer->decode(row.value("special", ids), true), row.value("skipped", decoded)) << "without special tokens";
    }
    std::string streamed;
    StreamDecoder stream(*tokenizer);
    for (const int32_t id : ids) {
      streamed += stream.push(id);
      EXPECT_TRUE(is_valid_utf8(streamed));
    }
    EXPECT_EQ(streamed + stream.flush(), decoded);
    const auto pieces = tokenizer->encode_with_offsets(text, false);
    ASSERT_EQ(pieces.size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(pieces[i].id, ids[i]);
      EXPECT_TRUE(pieces[i].begin <= pieces[i].end && pieces[i].end <= text.size());
      if (!row.contains("offsets")) continue;
      const std::pair<size_t, size_t> expected(row["offsets"][i][0], row["offsets"][i][1]);
      EXPECT_EQ(widened(text, pieces[i]), expected) << "token " << i << " \"" << tokenizer->piece(ids[i]) << '"';
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerVariant, ::testing::ValuesIn(variant_names()),
                         [](const auto& variant) { return variant.param; });

}  // namespace
}  // namespace vitrine
