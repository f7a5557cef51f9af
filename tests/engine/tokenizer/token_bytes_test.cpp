// The bytes of single tokens: joined, they are what the decoder makes of the tokens in the middle of a text.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

const std::string kTokenizerFolder = std::string(VITRINE_GOLDEN) + "/tokenizers/";

std::vector<std::string> files() {
  std::vector<std::string> found = {kTokenizerFolder + "gemma", kTokenizerFolder + "gpt2", kTokenizerFolder + "bpe512",
                                    kTokenizerFolder + "spm512", std::string(VITRINE_SOURCE) + "/models/tales9m"};
  for (const auto& entry : std::filesystem::directory_iterator(kTokenizerFolder + "variants")) {
    const std::string file = entry.path().string();
    if (file.ends_with(".model") ||
        (file.ends_with(".json") && !file.ends_with("expected.json") && !file.ends_with("strings.json")))
      found.push_back(file);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Why a tokenizer has none: the message, or "".
std::string refusal(const Tokenizer& tokenizer) {
  try {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) tokenizer.token_bytes(id);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(TokenBytes, JoinedAreTheDecodedText) {
  std::mt19937 random(5);
  size_t checked = 0;
  std::vector<std::string> refused;
  for (const std::string& file : files()) {
    SCOPED_TRACE(file);
    const auto tokenizer = load_tokenizer(file);
    if (!refusal(*tokenizer).empty()) {
      refused.push_back(std::filesystem::path(file).filename().string());
      continue;
    }
    std::vector<int32_t> with_text;
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
      if (!tokenizer->token_bytes(id).empty()) with_text.push_back(id);
    ASSERT_FALSE(with_text.empty());
    // A token that ends a character and is no space, so that what follows is in the middle of a text.
    int32_t before = -1;
    for (const int32_t id : with_text)
      if (const std::string bytes = tokenizer->token_bytes(id); bytes.size() == 1 && bytes[0] > 'A' && bytes[0] < 'z')
        before = id;
    if (before < 0) before = with_text.front();
    const std::string start = tokenizer->decode(std::vector<int32_t>{before});
    for (int round = 0; round < 4000; ++round) {
      std::vector<int32_t> ids = {before};
      std::string bytes = start;
      for (int i = 0; i < 1 + round % 4; ++i) {
        ids.push_back(with_text[random() % with_text.size()]);
        bytes += tokenizer->token_bytes(ids.back());
      }
      if (!is_valid_utf8(bytes)) continue;
      ++checked;
      ASSERT_EQ(tokenizer->decode(ids), bytes) << "round " << round;
    }
  }
  EXPECT_GT(checked, 100000u);
  EXPECT_EQ(refused, std::vector<std::string>{"suffix.json"});  // what ends a word there ends with the next token
}

TEST(TokenBytes, OfSentencePieceAndBytes) {
  const auto gemma = load_tokenizer(kTokenizerFolder + "gemma");
  EXPECT_EQ(gemma->token_bytes(*gemma->find("\u2581the")), " the");
  EXPECT_EQ(gemma->token_bytes(*gemma->find("<0xE2>")), "\xE2");
  EXPECT_EQ(gemma->token_bytes(*gemma->find("<bos>")), "");
  EXPECT_EQ(gemma->token_bytes(*gemma->find("<start_of_turn>")), "");
  EXPECT_EQ(gemma->token_bytes(*gemma->unknown()), "");
  EXPECT_THROW(gemma->token_bytes(gemma->vocab_size()), InputError);
  const auto gpt2 = load_tokenizer(kTokenizerFolder + "gpt2");
  EXPECT_EQ(gpt2->token_bytes(*gpt2->find("\u0120the")), " the");
  EXPECT_EQ(gpt2->token_bytes(*gpt2->find("<|endoftext|>")), "");
}

}  // namespace
}  // namespace vitrine
