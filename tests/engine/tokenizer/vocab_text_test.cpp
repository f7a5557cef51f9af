// BERT's vocab.txt, with answers of transformers' BertTokenizer (tests/golden/tokenizers/vocab_text/make.py).
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/scratch.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

using Ids = std::vector<int32_t>;
const std::string kVocabTexts = std::string(VITRINE_GOLDEN) + "/tokenizers/";

class VocabText : public testing::TestWithParam<std::string> {};

TEST_P(VocabText, EqualsTheReference) {
  const std::string folder = kVocabTexts + "vocab_text/" + GetParam();
  ASSERT_TRUE(has_tokenizer_files(folder));
  const auto tokenizer = load_tokenizer(folder), by_file = load_tokenizer(folder + "/vocab.txt");
  const Json strings = read_json(kVocabTexts + "variants/strings.json"), rows = read_json(folder + "/expected.json");
  ASSERT_EQ(rows.size(), strings.size());
  for (const Json& row : rows) {
    const std::string text = strings.at(row[0].get<size_t>());
    SCOPED_TRACE(strings.at(row[0].get<size_t>()).dump());
    const Ids ids = row[1];
    EXPECT_EQ(tokenizer->encode(text), ids);
    EXPECT_EQ(by_file->encode(text), ids);
    EXPECT_EQ(tokenizer->decode(ids), row[2].get<std::string>());
    EXPECT_EQ(tokenizer->decode(ids, true), row[3].get<std::string>());
  }
}
INSTANTIATE_TEST_SUITE_P(Every, VocabText, testing::Values("plain", "cased"));

TEST(VocabText, FindsItsSpecialTokensInAText) {
  const auto plain = load_tokenizer(kVocabTexts + "vocab_text/plain"), cased = load_tokenizer(kVocabTexts + "vocab_text/cased");
  EXPECT_EQ(plain->find("[MASK]"), 4);
  EXPECT_EQ(plain->encode("[MASK]", false), Ids{4});
  EXPECT_EQ(cased->encode("<mask>"), (Ids{3, 0, 4}));
  EXPECT_TRUE(cased->is_control(0));
  EXPECT_EQ(plain->unknown(), 1);
  EXPECT_EQ(plain->padding(), 0);
}

std::string vocab_text_message(const std::string& text, const std::string& config = "") {
  const Scratch scratch;
  scratch.write("vocab.txt", text);
  if (!config.empty()) scratch.write("tokenizer_config.json", config);
  return message_of([&] { load_tokenizer(scratch.path()); });
}

TEST(VocabText, NamesWhatIsWrong) {
  EXPECT_CONTAINS(vocab_text_message("[UNK]\n[SEP]\na\n"), "vocab.txt: has no line \"[CLS]\", which stands around every text");
  EXPECT_CONTAINS(vocab_text_message("[CLS]\n[SEP]\na\n"), "\"unk_token\" is \"[UNK]\", which the vocabulary does not hold");
  EXPECT_CONTAINS(vocab_text_message("[UNK]\n[CLS]\n[SEP]\na\nb\na\n"), "the vocabulary has the piece \"a\" twice");
  EXPECT_CONTAINS(vocab_text_message("[UNK]\n[CLS]\n[SEP]\n\xff\n"), "line 4 is no UTF-8; expected a piece on each line");
  EXPECT_CONTAINS(vocab_text_message(""), "is empty");
}

TEST(VocabText, RefusesJiebaByName) {
  const std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n", said = R"({"tokenizer_class": "RoFormerTokenizer"})";
  EXPECT_CONTAINS(
      vocab_text_message(text, said),
      "tokenizer_config.json: the tokenizer_class of these files, RoFormerTokenizer, cuts words by the dictionary of jieba");
  EXPECT_CONTAINS(vocab_text_message(text, R"({"tokenizer_class": "RoFormerTokenizerFast"})"),
                  "set tokenizer_class to BertTokenizer");
  const Scratch unsaid;  // where no class is said, the model's family has one
  unsaid.write("vocab.txt", text);
  unsaid.write("config.json", R"({"model_type": "roformer"})");
  EXPECT_CONTAINS(message_of([&] { load_tokenizer(unsaid.path()); }), "jieba");
  unsaid.write("config.json", R"({"model_type": "bert"})");
  EXPECT_EQ(load_tokenizer(unsaid.path())->encode("a"), (Ids{2, 5, 3}));
  const Scratch scratch;  // a tokenizer.json holds another pre-tokenizer in the place of jieba's, which cannot be written
  scratch.write("tokenizer_config.json", said);
  scratch.write(
      "tokenizer.json",
      R"({"pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0}}})");
  EXPECT_CONTAINS(message_of([&] { load_tokenizer(scratch.path()); }), "jieba");
  scratch.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  EXPECT_EQ(load_tokenizer(scratch.path())->vocab_size(), 1);
}

}  // namespace
}  // namespace vitrine
