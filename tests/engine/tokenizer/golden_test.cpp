// Golden encodings of outside implementations, id for id and byte for byte. Each case also goes through offsets, the
// streaming decoder and, where the text comes back, the round trip.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

using Ids = std::vector<int32_t>;

const std::string kGoldenFolder = std::string(VITRINE_GOLDEN) + "/tokenizers/";

std::string bytes_from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

std::string text_of(const Json& row) { return row.contains("hex") ? bytes_from_hex(row["hex"]) : row["text"].get<std::string>(); }

std::vector<Json> rows_of(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw FileError(path, "cannot be opened");
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, path));
  return rows;
}

void expect_offsets_cover(const Tokenizer& tokenizer, const std::string& text, const Ids& ids) {
  const auto pieces = tokenizer.encode_with_offsets(text, false);
  ASSERT_EQ(pieces.size(), ids.size());
  size_t last = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].id, ids[i]);
    EXPECT_LE(pieces[i].begin, pieces[i].end);
    EXPECT_LE(pieces[i].end, text.size());
    EXPECT_LE(last, pieces[i].begin) << "token " << i;
    last = pieces[i].begin;
  }
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special = false) {
  StreamDecoder stream(tokenizer, skip_special);
  std::string out;
  bool whole_characters = true;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id);
    whole_characters = whole_characters && is_valid_utf8(part);
    out += part;
  }
  out += stream.flush();
  EXPECT_TRUE(whole_characters || !is_valid_utf8(out)) << "half a character of \"" << out << '"';
  return out;
}

// The rows of one golden file. Every key that a row has is checked.
void check_rows(const Tokenizer& tokenizer, const std::string& path) {
  const auto rows = rows_of(path);
  ASSERT_GT(rows.size(), 0u);
  for (const Json& row : rows) {
    const std::string text = text_of(row);
    SCOPED_TRACE("text: " + row.begin().value().dump());
    const Ids ids = row["ids"];
    EXPECT_EQ(tokenizer.encode(text, false), ids);
    expect_offsets_cover(tokenizer, text, ids);
    const auto expect = [&](const char* key, const auto& actual) {
      using Value = std::decay_t<decltype(actual)>;
      if (row.contains(key)) {
        EXPECT_EQ(actual, row[key].template get<Value>()) << key;
      }
    };
    expect("ids_with_special_tokens", tokenizer.encode(text, true));
    expect("ids_special_parsed", tokenizer.encode(text, false, Special::parse));
    expect("ids_special_as_text", tokenizer.encode(text, false, Special::text));
    std::vector<std::string> pieces;
    for (const int32_t id : ids) pieces.push_back(tokenizer.piece(id));
    expect("pieces", pieces);
    expect("decoded", tokenizer.decode(ids));
    expect("decoded", streamed(tokenizer, ids));
    if (row.contains("decoded_hex")) {
      EXPECT_EQ(tokenizer.decode(ids), bytes_from_hex(row["decoded_hex"]));
    }
    if (row.contains("decoded_skip_special")) {
      const Ids with = row.value("ids_with_special_tokens", ids);
      EXPECT_EQ(tokenizer.decode(with, true), row["decoded_skip_special"].get<std::string>());
      EXPECT_EQ(streamed(tokenizer, with, true), row["decoded_skip_special"].get<std::string>());
    }
  }
}

TEST(TokenizerGolden, GemmaSentencePiece) {
  check_rows(*load_tokenizer(kGoldenFolder + "gemma"), kGoldenFolder + "gemma.spm.jsonl");
}
TEST(TokenizerGolden, Gpt2) { check_rows(*load_tokenizer(kGoldenFolder + "gpt2"), kGoldenFolder + "gpt2.jsonl"); }
TEST(TokenizerGolden, Spm512Model) {
  check_rows(*load_tokenizer(kGoldenFolder + "spm512/tokenizer.model"), kGoldenFolder + "spm512.spm.jsonl");
}
TEST(TokenizerGolden, Spm512Json) { check_rows(*load_tokenizer(kGoldenFolder + "spm512"), kGoldenFolder + "spm512.hf.jsonl"); }
TEST(TokenizerGolden, Bpe512Json) { check_rows(*load_tokenizer(kGoldenFolder + "bpe512"), kGoldenFolder + "bpe512.hf.jsonl"); }

std::string outside_data() {
  const char* folder = std::getenv("VITRINE_DATA");
  return folder == nullptr ? "" : std::string(folder) + "/tokenizers/";
}

TEST(TokenizerGolden, GemmaJson) {
  if (outside_data().empty()) GTEST_SKIP() << "left out: Gemma's tokenizer.json (17 MB); set VITRINE_DATA to the data folder";
  check_rows(*load_tokenizer(outside_data() + "gemma/tokenizer.json"), outside_data() + "golden/gemma.hf.jsonl");
}

TEST(TokenizerGolden, Llama2SentencePiece) {
  if (outside_data().empty()) GTEST_SKIP() << "left out: Llama 2's tokenizer.model; set VITRINE_DATA to the data folder";
  check_rows(*load_tokenizer(outside_data() + "llama2"), outside_data() + "golden/llama2.spm.jsonl");
}

TEST(TokenizerGolden, SeedFacts) {
  const Json facts = read_json(kGoldenFolder + "seed_facts.json");
  const auto gemma = load_tokenizer(kGoldenFolder + "gemma");
  EXPECT_EQ(gemma->vocab_size(), facts["gemma"]["vocab_size"].get<int32_t>());
  EXPECT_EQ(gemma->bos(), facts["gemma"]["bos_id"].get<int32_t>());
  EXPECT_EQ(gemma->eos(), facts["gemma"]["eos_id"].get<int32_t>());
  EXPECT_EQ(gemma->unknown(), facts["gemma"]["unk_id"].get<int32_t>());
  EXPECT_EQ(gemma->padding(), facts["gemma"]["pad_id"].get<int32_t>());
  for (const auto& [id, piece] : facts["gemma"]["pieces"].items())
    EXPECT_EQ(gemma->piece(std::stoi(id)), piece.get<std::string>());
  for (const Json& row : facts["gemma"]["with_bos"]) {
    const Ids ids = gemma->encode(row["text"].get<std::string>());
    EXPECT_EQ(ids, row["ids"].get<Ids>());
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(gemma->piece(ids[i]), row["pieces"][i].get<std::string>());
  }
  const auto gpt2 = load_tokenizer(kGoldenFolder + "gpt2");
  EXPECT_EQ(gpt2->vocab_size(), facts["gpt2"]["vocab_size"].get<int32_t>());
  EXPECT_EQ(gpt2->find("<|endoftext|>"), facts["gpt2"]["endoftext"].get<int32_t>());
  EXPECT_EQ(gpt2->encode(" history"), Ids{facts["gpt2"]["history_with_space"].get<int32_t>()});
  const Json& sentence = facts["gpt2"]["sentence"];
  EXPECT_EQ(gpt2->encode(sentence["text"].get<std::string>()), sentence["ids"].get<Ids>());
}

}  // namespace
}  // namespace vitrine
