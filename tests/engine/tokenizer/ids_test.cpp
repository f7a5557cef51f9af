// encode() finds the words of many tokenizers in the text as it is written. Its ids are those of encode_with_offsets(), which
// rewrites the text step by step; golden_test.cpp checks those.
#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "base/thread_pool.h"
#include "base/utf8.h"
#include "tokenizer/id_cache.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

const std::string kFiles = std::string(VITRINE_GOLDEN) + "/tokenizers/";
const std::vector<std::string> kKinds = {"gpt2",
                                         "bpe512",
                                         "spm512",
                                         "spm512/tokenizer.model",
                                         "gemma",
                                         "variants/gemma_like.json",
                                         "variants/llama2_like.json",
                                         "variants/mistral_like.json",
                                         "variants/half_fallback.json"};

std::string random_text(std::mt19937& random, size_t parts, bool valid) {
  static const std::vector<std::string> kParts = {"'s",
                                                  "'ll",
                                                  "'re",
                                                  "'",
                                                  "''",
                                                  " ",
                                                  "  ",
                                                  "\n",
                                                  "\n\n",
                                                  "\r\n",
                                                  "\t",
                                                  "a",
                                                  " the",
                                                  " Once",
                                                  "n't",
                                                  "7",
                                                  "१२",
                                                  "²",
                                                  ".",
                                                  "...",
                                                  "!?",
                                                  "—",
                                                  "“",
                                                  "é",
                                                  "a\u0301",
                                                  "日本語",
                                                  "привет",
                                                  " мир",
                                                  "😀",
                                                  "👩‍👩‍👧",
                                                  "\u00A0",
                                                  "\u3000",
                                                  "\u2028",
                                                  "▁",
                                                  "▁▁",
                                                  "<bos>",
                                                  "<unk>",
                                                  "<pad>",
                                                  "\u200D",
                                                  "\x7F",
                                                  "ß",
                                                  "𝒳",
                                                  "==========",
                                                  "00000000000",
                                                  "          ",
                                                  "<|endoftext|>",
                                                  "a word that is longer than sixteen bytes",
                                                  "antidisestablishmentarianism"};
  static const std::vector<std::string> kBroken = {"\xE2\x96", "\x80", "\xFF", "\xF0\x9F\x98"};
  std::string text;
  for (size_t i = 0; i < parts; ++i)
    text += !valid && random() % 50 == 0 ? kBroken[random() % kBroken.size()] : kParts[random() % kParts.size()];
  return text;
}

std::vector<int32_t> ids_with_offsets(const Tokenizer& tokenizer, const std::string& text, Special special) {
  std::vector<int32_t> ids;
  for (const TokenPiece& piece : tokenizer.encode_with_offsets(text, true, special)) ids.push_back(piece.id);
  return ids;
}

TEST(Ids, AreThoseWithOffsets) {
  for (const std::string& name : kKinds) {
    const auto tokenizer = load_tokenizer(kFiles + name);
    std::mt19937 random(21);
    for (int round = 0; round < 300; ++round) {
      const std::string text = random_text(random, random() % 80, round % 3 != 0);
      for (const Special special : {Special::as_file, Special::text, Special::parse})
        ASSERT_EQ(tokenizer->encode(text, true, special), ids_with_offsets(*tokenizer, text, special))
            << name << ": " << Json(utf8_lossy(text));
    }
  }
}

TEST(Ids, OfLongTextsAndThreadsAreTheSame) {
  ThreadPool pool(3);
  for (const std::string& name : kKinds) {
    const auto tokenizer = load_tokenizer(kFiles + name);
    std::mt19937 random(22);
    for (const bool valid : {true, false}) {
      const std::string text = random_text(random, 150'000, valid);
      const std::vector<int32_t> expected = ids_with_offsets(*tokenizer, text, Special::as_file);
      EXPECT_TRUE(tokenizer->encode(text) == expected) << name;
      EXPECT_TRUE(tokenizer->encode(text, true, Special::as_file, pool) == expected) << name << ", threads";
    }
  }
}

// One run of a character has no place to cut it at.
TEST(Ids, OfTextsWithoutBorders) {
  ThreadPool pool(2);
  for (const std::string name : {"gpt2", "spm512", "variants/gemma_like.json"}) {
    const auto tokenizer = load_tokenizer(kFiles + name);
    for (const std::string character : {"a", " ", "日", "'", "▁"}) {
      std::string text;
      while (text.size() < 530'000) text += character;
      const std::vector<int32_t> ids = tokenizer->encode(text, false, Special::as_file, pool);
      EXPECT_TRUE(ids == tokenizer->encode(text, false)) << name << ": " << character;
      text.resize(character.size() * 7000);
      EXPECT_TRUE(tokenizer->encode(text, true) == ids_with_offsets(*tokenizer, text, Special::as_file))
          << name << ": " << character;
    }
  }
}

TEST(IdCache, GivesBackWhatItWasGiven) {
  std::mt19937 random(23);
  std::vector<std::string> words;
  for (int i = 0; i < 150'000; ++i) {  // more than it keeps
    std::string word = std::to_string(i);
    word.resize(1 + random() % 150, char('a' + i % 26));
    words.push_back(std::move(word));
  }
  const auto ids_of = [](std::string_view word) {
    std::vector<int32_t> ids(word.size() % 7, int32_t(word.size()));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] += word[i] * 1000;
    return ids;
  };
  IdCache cache;
  IdList list;
  size_t misses = 0;
  for (int i = 0; i < 400'000; ++i) {
    const std::string& word = words[i % 3 == 0 ? random() % words.size() : random() % 100];
    list.clear();
    cache.append(word, word, list, [&](std::string_view missed, IdList& ids) {
      ++misses;
      for (const int32_t id : ids_of(missed)) ids.push_back(id);
    });
    ASSERT_EQ(std::vector<int32_t>(list.data(), list.data() + list.size()), ids_of(word)) << word;
  }
  EXPECT_LT(misses, 200'000u);
}

}  // namespace
}  // namespace vitrine
