// encode() finds the words of many tokenizers in the text as it is written. Its ids are those of encode_with_offsets(), which
// rewrites the text step by step; golden_test.cpp checks those.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/json.h"
#include "base/thread_pool.h"
#include "base/utf8.h"
#include "tokenizer/gpt2_classes.h"
#include "tokenizer/gpt2_words.h"
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
  ThreadPool two(2), five(5);
  for (const std::string& name : kKinds) {
    const auto tokenizer = load_tokenizer(kFiles + name);
    std::mt19937 random(22);
    for (const bool valid : {true, false}) {
      const std::string text = random_text(random, 110'000, valid);
      ASSERT_GT(text.size(), size_t{1} << 19) << "a shorter text is not shared among threads";
      const std::vector<int32_t> expected = ids_with_offsets(*tokenizer, text, Special::as_file);
      EXPECT_TRUE(tokenizer->encode(text) == expected) << name;
      for (ThreadPool* pool : {&two, &five})
        EXPECT_TRUE(tokenizer->encode(text, true, Special::as_file, *pool) == expected) << name << ", threads";
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

std::vector<std::string> many_words(int count) {
  std::mt19937 random(23);
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) {
    std::string word = std::to_string(i);
    word.resize(1 + random() % 150, char('a' + i % 26));
    words.push_back(std::move(word));
  }
  return words;
}

std::vector<int32_t> made_up_ids(std::string_view word) {
  std::vector<int32_t> ids(word.size() % 7, int32_t(word.size()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] += word[i] * 1000;
  return ids;
}

// Whether the cache gives the ids of a word; counts those that it did not know.
bool gives_ids(IdCache& cache, const std::string& word, size_t& misses) {
  IdList list;
  cache.append(word, word, list, [&](std::string_view missed, IdList& ids) {
    ++misses;
    for (const int32_t id : made_up_ids(missed)) ids.push_back(id);
  });
  return std::vector<int32_t>(list.data(), list.data() + list.size()) == made_up_ids(word);
}

constexpr int kMoreThanKept = 150'000;

TEST(IdCache, GivesBackWhatItWasGiven) {
  const std::vector<std::string> words = many_words(kMoreThanKept);
  std::mt19937 random(24);
  SharedIds shared(0);
  IdCache cache(shared);
  size_t misses = 0;
  for (int i = 0; i < 400'000; ++i) {
    const std::string& word = words[i % 3 == 0 ? random() % words.size() : random() % 100];
    ASSERT_TRUE(gives_ids(cache, word, misses)) << word;
  }
  EXPECT_LT(misses, 200'000u);
}

TEST(IdCache, KnowsTheWordsOfOtherThreads) {
  const std::vector<std::string> words = many_words(20'000);
  SharedIds shared(0);
  IdCache first(shared), second(shared);
  size_t first_misses = 0, second_misses = 0;
  for (const std::string& word : words) ASSERT_TRUE(gives_ids(first, word, first_misses)) << word;
  second.refresh();
  for (const std::string& word : words) ASSERT_TRUE(gives_ids(second, word, second_misses)) << word;
  size_t too_long = 0;
  for (const std::string& word : words) too_long += word.size() > IdTable::kLongestWord;
  EXPECT_GT(first_misses, words.size() / 2);
  EXPECT_LT(second_misses, too_long + words.size() / 20);  // and the few whose slots were taken
}

TEST(IdCache, ServesThreadsThatInsertAtOnce) {
  const std::vector<std::string> words = many_words(kMoreThanKept);
  SharedIds shared(0);
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      IdCache cache(shared);
      size_t misses = 0;
      for (int i = 0; i < 60'000; ++i) {
        if (i % 100 == 0) cache.refresh();
        wrong += !gives_ids(cache, words[random() % words.size()], misses);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
}

// The largest table is cleared once its other users are done; the sanitizer of threads sees whether it waits for them.
TEST(IdCache, ClearsATableBehindThreadsThatAreDone) {
  const std::vector<std::string> words = many_words(kMoreThanKept);
  SharedIds shared(size_t{1} << 30);
  std::atomic<size_t> wrong{0};
  const auto insert = [&](size_t first, size_t end) {
    IdCache cache(shared);
    size_t misses = 0;
    for (size_t i = first; i < end; ++i) wrong += !gives_ids(cache, words[i], misses);
  };
  std::thread shorter(insert, 0, 5'000), longer(insert, 5'000, words.size());
  shorter.join();
  longer.join();
  EXPECT_EQ(wrong, 0u);
}

TEST(Gpt2Words, ClassesOfBytesAreThoseOfTheTable) {
  std::mt19937 random(25);
  for (int round = 0; round < 1000; ++round) {
    char text[64];
    for (char& c : text) c = char(random() % 256);
    const auto check = [&](const ClassBits& bits, const char* how) {
      for (size_t i = 0; i < 64; ++i) {
        const auto has = [&](uint64_t of) { return (of >> i & 1) != 0; };
        const CharClass is = kByteClass[static_cast<unsigned char>(text[i])];
        ASSERT_EQ(has(bits.letter), is == CharClass::letter) << how << ", byte " << int(text[i]);
        ASSERT_EQ(has(bits.number), is == CharClass::number) << how << ", byte " << int(text[i]);
        ASSERT_EQ(has(bits.white), is == CharClass::space) << how << ", byte " << int(text[i]);
        ASSERT_EQ(has(bits.beyond), is == CharClass::beyond_ascii) << how << ", byte " << int(text[i]);
        ASSERT_EQ(has(bits.space), text[i] == ' ') << how << ", byte " << int(text[i]);
      }
    };
    check(classes_by_eights(text), "eights");
    check(classes_of(text), "this processor's");
  }
}

}  // namespace
}  // namespace vitrine
