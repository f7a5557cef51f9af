// What users rely on, beyond single golden cases: lossless bytes, control tokens in user text, streaming, comparison,
// use from many threads.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

using Ids = std::vector<int32_t>;
const std::string kGolden = std::string(VITRINE_GOLDEN) + "/tokenizers/";

std::string random_bytes(std::mt19937& random, size_t size) {
  std::string out(size, '\0');
  for (char& c : out) c = char(random());
  return out;
}

std::string random_text(std::mt19937& random, size_t characters) {
  std::string out;
  for (size_t i = 0; i < characters; ++i) {
    const uint32_t kind = random() % 8;
    const uint32_t code = kind < 4   ? 32 + random() % 95
                          : kind < 5 ? 0xA0 + random() % 0x500
                          : kind < 6 ? 0x2000 + random() % 0xB000
                          : kind < 7 ? 0x1F300 + random() % 0x400
                                     : "\n\t  "[random() % 4];
    append_utf8(out, code);
  }
  return out;
}

// tokenizers 0.23: a letter in a square continues a word, and this vocabulary knows none of these words.
TEST(Words, SquaredLettersAreAlphabetic) {
  const auto tokenizer = load_tokenizer(kGolden + "variants/words_whitespace.json");
  for (const char* text : {"a🅶b", "🅢x", "x🆉", "🄰a"}) EXPECT_EQ(tokenizer->encode(text, false), (Ids{0})) << text;
}

// F05: with a byte vocabulary every text comes back, whatever its bytes.
TEST(Lossless, RandomBytesThroughGpt2) {
  const auto tokenizer = load_tokenizer(kGolden + "gpt2");
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::string bytes = random_bytes(random, random() % 200);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
  }
}

TEST(Lossless, RandomTextThroughEveryKindOfFile) {
  std::mt19937 random(2);
  for (const char* name : {"gemma", "gpt2", "bpe512", "spm512", "spm512/tokenizer.model"}) {
    const auto tokenizer = load_tokenizer(kGolden + name);
    for (int i = 0; i < 100; ++i) {
      const std::string text = random_text(random, random() % 80);
      if (text.find("\xE2\x96\x81") != std::string::npos) continue;  // U+2581 itself comes back as a space
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, false)), text) << name;
    }
  }
}

TEST(Lossless, InvalidUtf8BecomesReplacementCharacters) {
  const std::string bad =
      "a\xFF"
      "b\xE2\x82";
  EXPECT_EQ(load_tokenizer(kGolden + "spm512/tokenizer.model")
                ->decode(load_tokenizer(kGolden + "spm512/tokenizer.model")->encode(bad, false)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD");  // SentencePiece: one for each byte
  const auto json = load_tokenizer(kGolden + "bpe512");
  EXPECT_EQ(json->decode(json->encode(bad, false)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");  // one for each broken character
  EXPECT_EQ(json->encode(bad, false), json->encode("a\xEF\xBF\xBD"
                                                   "b\xEF\xBF\xBD",
                                                   false));
}

// Offsets of byte-level tokens tile the text.
TEST(Offsets, TileTheText) {
  std::mt19937 random(3);
  for (const char* name : {"gpt2", "bpe512", "spm512", "gemma"}) {
    const auto tokenizer = load_tokenizer(kGolden + name);
    for (int i = 0; i < 100; ++i) {
      const std::string text = random_text(random, 1 + random() % 60);
      size_t at = 0;
      for (const TokenPiece& p : tokenizer->encode_with_offsets(text, false)) {
        EXPECT_EQ(p.begin, at);
        at = p.end;
      }
      EXPECT_EQ(at, text.size()) << name;
    }
  }
}

// F08. Gemma's turn markers are user-defined pieces: found as the file says, but not in what a user types.
TEST(ControlTokens, StayTextUnlessAskedFor) {
  const auto gemma = load_tokenizer(kGolden + "gemma");
  const int32_t turn = *gemma->find("<start_of_turn>");
  const auto contains = [](const Ids& ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  EXPECT_EQ(gemma->encode("<start_of_turn>", false), Ids{turn});
  EXPECT_FALSE(contains(gemma->encode("<start_of_turn>user", false, Special::text), turn));
  EXPECT_EQ(gemma->decode(gemma->encode("<start_of_turn>user", false, Special::text)), "<start_of_turn>user");
  EXPECT_FALSE(contains(gemma->encode("<bos>a", false), 2));
  EXPECT_EQ(gemma->encode("<bos>a", false, Special::parse), (Ids{2, *gemma->find("a")}));
  EXPECT_EQ(gemma->encode("\n\n", false, Special::text), gemma->encode("\n\n", false));  // no control token: still found
  EXPECT_TRUE(gemma->is_control(2));
  EXPECT_TRUE(gemma->is_control(turn));
  EXPECT_FALSE(gemma->is_control(*gemma->find("\n\n")));

  const auto json = load_tokenizer(kGolden + "spm512");
  EXPECT_EQ(json->encode("<bos>a", false).front(), 2);
  EXPECT_FALSE(contains(json->encode("<bos>a", false, Special::text), 2));
}

TEST(Bos, IsAddedOnceAndVisible) {
  const auto gemma = load_tokenizer(kGolden + "gemma");
  EXPECT_TRUE(gemma->adds_bos());
  EXPECT_FALSE(gemma->adds_eos());
  EXPECT_EQ(gemma->encode(""), Ids{2});
  EXPECT_TRUE(gemma->encode("", false).empty());
  EXPECT_NE(gemma->description().find("adds BOS 2 \"<bos>\", adds no EOS"), std::string::npos) << gemma->description();
  const auto gpt2 = load_tokenizer(kGolden + "gpt2");
  EXPECT_FALSE(gpt2->adds_bos());
  EXPECT_TRUE(gpt2->encode("").empty());
  EXPECT_NE(gpt2->description().find("adds nothing in front"), std::string::npos) << gpt2->description();
}

// P08: an emoji that is four byte tokens comes out whole, with the last of them.
TEST(Streaming, GivesWholeCharacters) {
  for (const char* name : {"bpe512", "gpt2", "spm512/tokenizer.model", "spm512"}) {
    const auto tokenizer = load_tokenizer(kGolden + name);
    const std::string text = "caf\xC3\xA9 \xF0\x9F\x98\x80!";
    const Ids ids = tokenizer->encode(text, false);
    StreamDecoder stream(*tokenizer);
    std::string out;
    for (const int32_t id : ids) {
      out += stream.push(id);
      EXPECT_TRUE(is_valid_utf8(out)) << name;
    }
    out += stream.flush();
    EXPECT_EQ(out, text);
    EXPECT_EQ(stream.flush(), "");
    EXPECT_EQ(stream.push(ids[0]), tokenizer->decode(Ids{ids[0]})) << "after a flush a new text begins";
  }
}

// Any ids at all, in any order: the stream and the whole agree.
TEST(Streaming, EqualsDecodeForRandomIds) {
  std::mt19937 random(4);
  for (const char* name : {"bpe512", "gpt2", "spm512/tokenizer.model", "spm512", "gemma", "variants/llama2_like.json",
                           "variants/mistral_like.json", "variants/suffix.json", "variants/wordpiece.json",
                           "variants/words_metaspace_always.json", "variants/spm_default.model"}) {
    const auto tokenizer = load_tokenizer(kGolden + name);
    for (int i = 0; i < 200; ++i) {
      Ids ids(random() % 12);
      for (int32_t& id : ids) id = int32_t(random() % uint32_t(std::min(tokenizer->vocab_size(), i % 2 ? 300 : INT32_MAX)));
      StreamDecoder stream(*tokenizer, i % 3 == 0);
      std::string out;
      for (const int32_t id : ids) out += stream.push(id);
      EXPECT_EQ(out + stream.flush(), tokenizer->decode(ids, i % 3 == 0)) << name;
    }
  }
}

// F09. The two kinds of file agree except on control tokens in the text.
TEST(Compare, NamesTheFirstDifference) {
  const auto json = load_tokenizer(kGolden + "bpe512"), files = load_tokenizer(kGolden + "bpe512/vocab.json");
  EXPECT_FALSE(first_difference(*json, *files, "one\ntwo  three 4567 \xC3\xA9"));
  const std::string text = "one\ntwo <|endoftext|> three";
  const auto difference = first_difference(*json, *files, text);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->line, 2u);
  EXPECT_EQ(difference->begin, text.find("<|"));
  EXPECT_EQ(difference->a->id, 511);
  EXPECT_NE(difference->message.find("byte 8, line 2): 511 \"<|endoftext|>\" against 27 \"<\""), std::string::npos)
      << difference->message;
  EXPECT_FALSE(first_difference(*json, *files, text, Special::text));
}

TEST(Threads, OneTokenizerServesMany) {
  const auto tokenizer = load_tokenizer(kGolden + "bpe512");
  std::mt19937 random(5);
  std::vector<std::string> texts;
  for (int i = 0; i < 50; ++i) texts.push_back(random_text(random, 200));
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer->encode(text));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) wrong[t] += tokenizer->encode(texts[i]) != expected[i];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// Long texts go through a cache of words and are cut in front of spaces; parts of them do not.
TEST(LongTexts, EqualTheirParts) {
  std::string words;
  std::mt19937 random(6);
  for (int i = 0; i < 3000; ++i) words += (i ? " " : "") + std::string(1 + random() % 5, char('a' + random() % 26)) + "ing";
  for (const char* name : {"gpt2", "gemma", "spm512"}) {
    const auto tokenizer = load_tokenizer(kGolden + name);
    Ids parts;
    for (size_t begin = 0; begin < words.size();) {
      const size_t end = std::min(words.find(' ', begin + 1), words.size());
      const Ids ids = tokenizer->encode(words.substr(begin, end - begin), false);
      parts.insert(parts.end(), ids.begin(), ids.end());
      begin = end;
    }
    EXPECT_EQ(tokenizer->encode(words, false), parts) << name;
  }
}

}  // namespace
}  // namespace vitrine
