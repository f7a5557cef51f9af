// Tokenizer files as GGUF vocabularies: what is written is read back as the same tokenizer, id for id.
#include "tokenizer/to_vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
const std::string kTokenizerGolden = std::string(VITRINE_GOLDEN) + "/tokenizers/";

// A thousand texts: those of the golden files of real tokenizers (prose, code, other scripts, control tokens, white space of
// every kind), and ends of one with beginnings of another.
const std::vector<std::string>& texts() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> list;
    std::ifstream file(kTokenizerGolden + "bpe512.hf.jsonl");
    for (std::string line; std::getline(file, line);) list.push_back(Json::parse(line).at("text").get<std::string>());
    const size_t golden = list.size();
    uint64_t state = 1;
    const auto random = [&](size_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return size_t(state >> 33) % below;
    };
    const auto cut = [&](const std::string& text) {
      size_t at = random(text.size() + 1);
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      return at;
    };
    while (list.size() < 1000) {
      const std::string &a = list[random(golden)], &b = list[random(golden)];
      list.push_back(a.substr(cut(a)) + b.substr(0, cut(b)));
    }
    return list;
  }();
  return all;
}

// Characters that normalization to NFC joins or replaces, which GGUF has no words for.
bool may_change_in_nfc(const std::string& text) {
  for (const char c : text)
    if (const auto byte = static_cast<unsigned char>(c); byte == 0xCC || byte == 0xCD || byte >= 0xE0) return true;
  return false;
}
// Where Mistral's tokenizer.json puts no space: in front of one, and behind a control token.
bool has_no_space_put_in(const std::string& text) {
  return text.starts_with(" ") || text.starts_with("\xE2\x96\x81") || text.find("s>") != std::string::npos;
}
bool none(const std::string&) { return false; }

void expect_equal_ids(const Tokenizer& a, const Tokenizer& b, bool (*leave_out)(const std::string&) = none) {
  int differences = 0;
  for (const std::string& text : texts())
    for (const Special special : {Special::text, Special::parse}) {
      // The piece of type unknown is a control token in a tokenizer.json.
      if (leave_out(text) || (special == Special::parse && text.find("<unk>") != std::string::npos)) continue;
      if (a.encode(text, true, special) != b.encode(text, true, special) && ++differences <= 3)
        ADD_FAILURE() << "\"" << text << "\"" << (special == Special::parse ? " (parsed)" : "");
    }
  EXPECT_EQ(differences, 0);
}

void expect_read_back(const std::string& folder, const std::string& kind, const std::string& pre,
                      bool (*leave_out)(const std::string&) = none) {
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(folder);
  const VocabularySpec spec = vocabulary_of_folder(folder);
  EXPECT_EQ(spec.kind, kind);
  EXPECT_EQ(spec.pre, pre);
  EXPECT_EQ(int32_t(spec.pieces.size()), tokenizer->vocab_size());
  const std::shared_ptr<const Tokenizer> read = tokenizer_from_vocabulary(spec);
  expect_equal_ids(*tokenizer, *read, leave_out);
  const std::vector<int32_t> framed = tokenizer->encode("a", true), plain = tokenizer->encode("a", false);
  EXPECT_EQ(read->bos(), framed == plain ? tokenizer->bos() : framed.front());
  EXPECT_EQ(read->eos(), tokenizer->eos());
  EXPECT_EQ(read->padding(), tokenizer->padding());
  EXPECT_EQ(read->adds_bos(), framed != plain);
  EXPECT_EQ(read->adds_eos(), tokenizer->adds_eos());
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->piece(id) == "<unk>") continue;
    EXPECT_EQ(read->is_control(id), tokenizer->is_control(id)) << id << " " << tokenizer->piece(id);
  }
}

// A folder with one of the variants as its tokenizer.json or tokenizer.model.
std::string variant(const Scratch& scratch, const std::string& name) {
  const bool model = fs::exists(kTokenizerGolden + "variants/" + name + ".model");
  fs::copy_file(kTokenizerGolden + "variants/" + name + (model ? ".model" : ".json"),
                scratch / (model ? "tokenizer.model" : "tokenizer.json"));
  return scratch.path();
}

TEST(ToVocabulary, OfAByteLevelTokenizerJson) { expect_read_back(kTokenizerGolden + "bpe512", "gpt2", "gpt-2"); }
TEST(ToVocabulary, OfSentencePiece) { expect_read_back(kTokenizerGolden + "spm512", "llama", "default"); }
TEST(ToVocabulary, OfTheShippedModel) { expect_read_back(std::string(VITRINE_SOURCE) + "/models/tales9m", "llama", "default"); }
TEST(ToVocabulary, OfAGoldenModel) {
  expect_read_back(std::string(VITRINE_GOLDEN) + "/models/gemma2/model", "llama", "default");
  expect_read_back(std::string(VITRINE_GOLDEN) + "/models/gpt2_a/model", "gpt2", "gpt-2");
}

TEST(ToVocabulary, OfVocabAndMerges) {
  const Scratch scratch;
  for (const char* file : {"vocab.json", "merges.txt", "tokenizer_config.json"})
    fs::copy_file(kTokenizerGolden + "bpe512/" + file, scratch / file);
  expect_read_back(scratch.path(), "gpt2", "gpt-2");
  EXPECT_EQ(vocabulary_of_folder(scratch.path()).merges, vocabulary_of_folder(kTokenizerGolden + "bpe512").merges);
}

TEST(ToVocabulary, NamesTheWayToCutWords) {
  for (const auto& [name, pre] : std::vector<std::pair<std::string, std::string>>{{"llama3_like", "llama-bpe"},
                                                                                  {"qwen2_like", "qwen2"},
                                                                                  {"deepseek3_like", "deepseek-v3"},
                                                                                  {"o200k_like", "gpt-4o"},
                                                                                  {"starcoder_like", "smollm"}}) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    expect_read_back(variant(scratch, name), "gpt2", pre, name == "qwen2_like" ? may_change_in_nfc : none);
  }
}

// The order of merges becomes scores.
TEST(ToVocabulary, OfSentencePieceWithoutItsFile) {
  for (const std::string name : {"gemma_like", "llama2_like", "mistral_like"}) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    const std::string folder = variant(scratch, name);
    const VocabularySpec spec = vocabulary_of_folder(folder);
    EXPECT_EQ(spec.kind, "llama");
    EXPECT_EQ(spec.add_space_prefix, name != "gemma_like");
    expect_read_back(folder, "llama", "default", name == "mistral_like" ? has_no_space_put_in : none);
  }
}

TEST(ToVocabulary, OfATokenizerModelAlone) {
  const Scratch scratch;
  expect_read_back(variant(scratch, "spm_llama"), "llama", "default");
}

TEST(ToVocabulary, WhatHasNoWordsIsRefusedByName) {
  const auto message = [](const std::string& name) {
    const Scratch scratch;
    const std::string folder = variant(scratch, name);
    return message_of<FileError>([&] { vocabulary_of_folder(folder); });
  };
  EXPECT_CONTAINS(message("unigram"),
                  "has a model of type Unigram, which a GGUF vocabulary has no words for; name a directory as OUT");
  EXPECT_CONTAINS(message("wordpiece"), "has a model of type WordPiece");
  EXPECT_CONTAINS(message("spm_unigram"), "is a unigram model");
  EXPECT_CONTAINS(message("spm_nfkc_cf"), "changes characters before they are cut");
  EXPECT_CONTAINS(message("spm_suffix"), "marks spaces in another way");
  EXPECT_CONTAINS(message("kimi_like"), "a way that vitrine knows no name of (tokenizer.ggml.pre)");
  EXPECT_CONTAINS(message("falcon_like"), "cuts words by Punctuation");
  EXPECT_CONTAINS(message("suffix"), "marks pieces inside a word (model.end_of_word_suffix)");
}

TEST(ToVocabulary, FitsTheEmbedding) {
  VocabularySpec spec = vocabulary_of_folder(kTokenizerGolden + "spm512");
  const VocabularySpec whole = spec;
  fit_vocabulary(spec, 514);
  ASSERT_EQ(spec.pieces.size(), 514u);
  EXPECT_EQ(spec.pieces[513], "[PAD513]");
  EXPECT_EQ(spec.types[513], 5);  // unused
  EXPECT_EQ(spec.scores[513], -10000);
  expect_equal_ids(*tokenizer_from_vocabulary(spec), *tokenizer_from_vocabulary(whole));
  fit_vocabulary(spec, 500);
  EXPECT_EQ(spec.pieces.size(), 500u);
  EXPECT_EQ(spec.types.size(), 500u);
  spec = vocabulary_of_folder(kTokenizerGolden + "bpe512");
  fit_vocabulary(spec, 511);  // its end of text has id 511
  EXPECT_EQ(spec.eos, std::nullopt);
  EXPECT_TRUE(spec.scores.empty());
}

}  // namespace
}  // namespace vitrine
