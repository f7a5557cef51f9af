// Vocabularies of GGUF files. The metadata is read by a few lines here, since src/tokenizer does not know the format.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

using Ids = std::vector<int32_t>;

// Enough of GGUF v2/v3 for trusted test files: string, u32, bool, and arrays of string, f32 and i32.
class Metadata {
 public:
  explicit Metadata(const std::string& path) : file_(MappedFile::open(path)) {
    spec.source = path;
    if (take<uint32_t>() != 0x46554747 || take<uint32_t>() < 2) throw FileError(path, "is no GGUF v2 or v3 file");
    take<uint64_t>();  // tensors
    for (uint64_t left = take<uint64_t>(); left > 0; --left) {
      const std::string key = text();
      value(key, take<uint32_t>());
    }
  }
  VocabularySpec spec;

 private:
  template <class T>
  T take() {
    T out;
    if (file_.bytes().size() - at_ < sizeof(T)) throw FileError(spec.source, "ends early");
    std::memcpy(&out, file_.bytes().data() + at_, sizeof(T));
    at_ += sizeof(T);
    return out;
  }
  std::string text() {
    std::string out(take<uint64_t>(), '\0');
    if (file_.bytes().size() - at_ < out.size()) throw FileError(spec.source, "ends early");
    std::memcpy(out.data(), file_.bytes().data() + at_, out.size());
    at_ += out.size();
    return out;
  }
  void value(const std::string& key, uint32_t type) {
    constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      const std::string v = text();
      if (key == "tokenizer.ggml.model") spec.kind = v;
      if (key == "tokenizer.ggml.pre") spec.pre = v;
    } else if (type == 9) {
      const auto element = take<uint32_t>();
      for (uint64_t left = take<uint64_t>(); left > 0; --left) {
        if (element == 8) {
          std::string v = text();
          if (key == "tokenizer.ggml.tokens") spec.pieces.push_back(std::move(v));
          if (key == "tokenizer.ggml.merges") spec.merges.push_back(std::move(v));
        } else if (element == 6) {
          spec.scores.push_back(take<float>());
        } else {
          const auto v = take<int32_t>();
          if (key == "tokenizer.ggml.token_type") spec.types.push_back(v);
        }
      }
    } else if (type == 7) {
      const bool v = take<uint8_t>() != 0;
      if (key == "tokenizer.ggml.add_bos_token") spec.add_bos = v;
      if (key == "tokenizer.ggml.add_space_prefix") spec.add_space_prefix = v;
    } else if (type == 4) {
      const auto v = int32_t(take<uint32_t>());
      if (key == "tokenizer.ggml.bos_token_id") spec.bos = v;
      if (key == "tokenizer.ggml.eos_token_id") spec.eos = v;
      if (key == "tokenizer.ggml.unknown_token_id") spec.unknown = v;
    } else {
      at_ += kSizes[type];
    }
  }
  MappedFile file_;
  size_t at_ = 0;
};

// The texts are separated by a line of their own, the answers are one line each, without BOS.
void check_vocabulary(const std::string& name) {
  const char* folder = std::getenv("VITRINE_DATA");
  if (folder == nullptr) GTEST_SKIP() << "left out: ggml-vocab-" << name << ".gguf; set VITRINE_DATA to the data folder";
  const std::string stem = std::string(folder) + "/tokenizers/ggml-vocab/ggml-vocab-" + name + ".gguf";
  const auto tokenizer = tokenizer_from_vocabulary(Metadata(stem).spec);
  const std::string inputs = read_file(stem + ".inp"), mark = "\n__ggml_vocab_test__\n";
  std::ifstream answers(stem + ".out");
  size_t cases = 0;
  for (size_t begin = 0; begin < inputs.size(); ++cases) {
    const size_t end = inputs.find(mark, begin);
    const std::string text = inputs.substr(begin, end - begin);
    begin = end == std::string::npos ? inputs.size() : end + mark.size();
    std::string line;
    ASSERT_TRUE(std::getline(answers, line));
    Ids ids;
    std::istringstream numbers(line);
    for (int32_t id = 0; numbers >> id;) ids.push_back(id);
    EXPECT_EQ(tokenizer->encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  EXPECT_GT(cases, 40u);
}

TEST(GgufVocabulary, Gpt2) { check_vocabulary("gpt-2"); }
TEST(GgufVocabulary, Falcon) { check_vocabulary("falcon"); }
TEST(GgufVocabulary, Qwen2) { check_vocabulary("qwen2"); }
TEST(GgufVocabulary, Llama3) { check_vocabulary("llama-bpe"); }
TEST(GgufVocabulary, Llama2) { check_vocabulary("llama-spm"); }

// The same vocabulary in another kind of file gives the same ids.
TEST(GgufVocabulary, Gpt2FilesAgree) {
  const char* folder = std::getenv("VITRINE_DATA");
  if (folder == nullptr) GTEST_SKIP() << "left out: ggml-vocab-gpt-2.gguf; set VITRINE_DATA to the data folder";
  const auto gguf =
      tokenizer_from_vocabulary(Metadata(std::string(folder) + "/tokenizers/ggml-vocab/ggml-vocab-gpt-2.gguf").spec);
  const auto files = load_tokenizer(std::string(VITRINE_GOLDEN) + "/tokenizers/gpt2");
  const std::string text = read_file(std::string(folder) + "/corpora/tinyshakespeare.txt");
  const auto difference = first_difference(*gguf, *files, text);
  EXPECT_FALSE(difference) << difference->message;
}

VocabularySpec small_byte_level() {
  const auto files = load_tokenizer(std::string(VITRINE_GOLDEN) + "/tokenizers/bpe512");
  VocabularySpec spec;
  spec.source = "small.gguf", spec.kind = "gpt2", spec.pre = "gpt-2";
  for (int32_t id = 0; id < files->vocab_size(); ++id) spec.pieces.push_back(files->piece(id));
  std::ifstream merges(std::string(VITRINE_GOLDEN) + "/tokenizers/bpe512/merges.txt");
  for (std::string line; std::getline(merges, line);)
    if (!line.starts_with("#version")) spec.merges.push_back(line);
  spec.types.assign(spec.pieces.size(), 1);
  spec.types[511] = 3;
  spec.bos = spec.eos = 511;
  return spec;
}

TEST(GgufVocabulary, SmallByteLevelEqualsItsTokenizerJson) {
  const auto gguf = tokenizer_from_vocabulary(small_byte_level());
  const auto json = load_tokenizer(std::string(VITRINE_GOLDEN) + "/tokenizers/bpe512");
  const std::string text =
      "First Citizen:\nBefore we proceed any further, hear me speak. It's 1623 \xE2\x80\x94 na\xC3\xAFve \xF0\x9F\x98\x80!";
  EXPECT_FALSE(first_difference(*gguf, *json, text));
  // Control tokens: a GGUF vocabulary leaves them alone unless asked, tokenizer.json finds them.
  EXPECT_EQ(gguf->encode("<|endoftext|>", false, Special::parse), Ids{511});
  EXPECT_GT(gguf->encode("<|endoftext|>", false).size(), 1u);
  EXPECT_EQ(json->encode("<|endoftext|>", false), Ids{511});
  EXPECT_EQ(json->encode("<|endoftext|>", false, Special::text), gguf->encode("<|endoftext|>", false));
}

TEST(GgufVocabulary, BosRule) {
  VocabularySpec spec = small_byte_level();
  EXPECT_FALSE(tokenizer_from_vocabulary(spec)->adds_bos());
  spec.pre = "llama-bpe";
  EXPECT_EQ(tokenizer_from_vocabulary(spec)->encode("").front(), 511);
  spec.add_bos = false;
  EXPECT_TRUE(tokenizer_from_vocabulary(spec)->encode("").empty());
}

void expect_refused(const VocabularySpec& spec, const std::string& part) {
  try {
    tokenizer_from_vocabulary(spec);
    ADD_FAILURE() << "accepted; expected an error with: " << part;
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).find("small.gguf: "), 0u) << e.what();
  }
}

TEST(GgufVocabulary, NamesWhatIsWrong) {
  const VocabularySpec good = small_byte_level();
  VocabularySpec spec = good;
  spec.kind = "t5";
  expect_refused(spec, "tokenizer.ggml.model is \"t5\"; vitrine knows \"llama\"");
  spec = good, spec.pre = "new-one";
  expect_refused(spec, "tokenizer.ggml.pre is \"new-one\", which vitrine does not know; it knows gpt-2");
  spec = good, spec.pieces[7] = spec.pieces[3];
  expect_refused(spec, "tokenizer.ggml.tokens 3 and 7 are both");
  spec = good, spec.merges[0] = "nospace";
  expect_refused(spec, "tokenizer.ggml.merges[0] is \"nospace\"");
  spec = good, spec.merges[1] = "zz zz";
  expect_refused(spec, "merge 1 (\"zz\" + \"zz\") needs the piece \"zz\"");
  spec = good, spec.types.pop_back();
  expect_refused(spec, "token_type has 511 entries, tokens has 512");
  spec = good, spec.types[4] = 9;
  expect_refused(spec, "token_type[4] is 9, expected 1 to 6");
  spec = good, spec.bos = 512;
  expect_refused(spec, "bos_token_id is 512, outside the 512 pieces");
  spec = good, spec.kind = "llama";
  expect_refused(spec, "tokenizer.ggml.scores is missing");
  spec = good, spec.pieces.clear(), spec.types.clear();
  expect_refused(spec, "tokens holds 0 pieces");
}

}  // namespace
}  // namespace vitrine
