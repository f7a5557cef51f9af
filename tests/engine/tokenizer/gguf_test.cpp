// Vocabularies of GGUF files. The metadata is read by a few lines here, since src/engine/tokenizer does not know the
// format.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "support/scratch.h"
#include "tokenizer/sentencepiece_spec.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary_files.h"

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

// The same vocabulary as the files of a Hugging Face directory.
std::shared_ptr<const Tokenizer> through_files(const Scratch& scratch, const VocabularySpec& spec) {
  for (const auto& [name, content] : vocabulary_files(spec, {})) scratch.write(name, content);
  return load_tokenizer(scratch / ".");
}

// The texts are separated by a line of their own, the answers are one line each, without BOS.
void check_vocabulary(const std::string& name) {
  const char* folder = std::getenv("VITRINE_DATA");
  if (folder == nullptr) GTEST_SKIP() << "left out: ggml-vocab-" << name << ".gguf; set VITRINE_DATA to the data folder";
  const std::string stem = std::string(folder) + "/tokenizers/ggml-vocab/ggml-vocab-" + name + ".gguf";
  const Scratch scratch;
  const VocabularySpec spec = Metadata(stem).spec;
  const auto tokenizer = tokenizer_from_vocabulary(spec), files = through_files(scratch, spec);
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
    EXPECT_EQ(files->encode(text, false, Special::text), ids) << text;
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

// The tokenizer.json has the ids of Hugging Face's own tokenizers (variants/gemma_like.expected.json).
VocabularySpec small_whole_text() {
  const Json file = read_json(std::string(VITRINE_GOLDEN) + "/tokenizers/variants/gemma_like.json");
  VocabularySpec spec;
  spec.source = "small.gguf", spec.kind = "gemma4";
  const Json& vocabulary = file["model"]["vocab"];
  spec.pieces.resize(vocabulary.size());
  spec.types.assign(vocabulary.size(), 1);
  for (const auto& [piece, id] : vocabulary.items()) spec.pieces[id.get<size_t>()] = piece;
  for (size_t i = 0; i < spec.pieces.size(); ++i)
    if (byte_of_piece(spec.pieces[i]) >= 0) spec.types[i] = 6;
  for (const Json& token : file["added_tokens"]) spec.types[token["id"].get<size_t>()] = 3;
  for (const Json& merge : file["model"]["merges"])
    spec.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  spec.unknown = 0, spec.bos = 1, spec.eos = 2;
  spec.add_eos = true;
  return spec;
}

TEST(GgufVocabulary, WholeTextsEqualHuggingFace) {
  const std::string variants = std::string(VITRINE_GOLDEN) + "/tokenizers/variants/";
  const Scratch scratch;
  const auto gguf = tokenizer_from_vocabulary(small_whole_text()), files = through_files(scratch, small_whole_text());
  const Json strings = read_json(variants + "strings.json");
  size_t rows = 0;
  for (const Json& row : read_json(variants + "gemma_like.expected.json")) {
    if (!row.contains("i")) continue;
    const std::string text = strings.at(row["i"].get<size_t>()).get<std::string>();
    for (const auto& tokenizer : {gguf, files}) {
      EXPECT_EQ(tokenizer->encode(text, false, Special::parse), row["ids"].get<Ids>()) << text;
      EXPECT_EQ(tokenizer->encode(text, true, Special::parse), row["special"].get<Ids>()) << text;
      EXPECT_EQ(tokenizer->decode(row["ids"].get<Ids>()), row["decoded"].get<std::string>());
    }
    ++rows;
  }
  EXPECT_GT(rows, 100u);
}

// Phi-3's files: "<unk>" is a control piece, and the rows behind the vocabulary are of its type.
TEST(GgufVocabulary, PiecesBehindTheVocabularyMayBeOfTypeUnknown) {
  VocabularySpec spec;
  spec.source = "small.gguf", spec.kind = "llama";
  spec.pieces = {"<unk>",
                 "<s>",
                 "</s>",
                 "\xE2\x96\x81",
                 "a",
                 "\xE2\x96\x81"
                 "a",
                 "[PAD6]",
                 "[PAD7]"};
  spec.types = {3, 3, 4, 1, 1, 1, 2, 2};
  spec.scores = {0, 0, 0, -2, -3, -1, -1000, -1000};
  spec.bos = 1, spec.unknown = 0;
  EXPECT_EQ(tokenizer_from_vocabulary(spec)->encode("a"), (Ids{1, 5}));
  EXPECT_EQ(tokenizer_from_vocabulary(spec)->unknown(), 0);
  // The end of texts, which is a word by its type, is not found in a text either.
  EXPECT_EQ(tokenizer_from_vocabulary(spec)->encode("</s>", false, Special::parse), (Ids{3, 2}));
  const Ids spelled = tokenizer_from_vocabulary(spec)->encode("</s>", false, Special::text);
  EXPECT_EQ(std::count(spelled.begin(), spelled.end(), 2), 0);
  spec.unknown = {};
  EXPECT_EQ(tokenizer_from_vocabulary(spec)->unknown(), 6);
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
  expect_refused(spec, "tokenizer.ggml.pre is \"new-one\", which is not supported; supported are gpt-2");
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

// The files of a Hugging Face directory ----------------------------------------------------------------------------------

const std::string kVariants = std::string(VITRINE_GOLDEN) + "/tokenizers/variants/";

void expect_same_vocabulary(const Tokenizer& a, const Tokenizer& b) {
  ASSERT_EQ(a.vocab_size(), b.vocab_size());
  for (int32_t id = 0; id < a.vocab_size(); ++id) {
    EXPECT_EQ(a.piece(id), b.piece(id));
    EXPECT_EQ(a.is_control(id), b.is_control(id)) << id;
  }
  EXPECT_EQ(a.bos(), b.bos());
  EXPECT_EQ(a.eos(), b.eos());
  EXPECT_EQ(a.unknown(), b.unknown());
  EXPECT_EQ(a.padding(), b.padding());
  EXPECT_EQ(a.adds_bos(), b.adds_bos());
  EXPECT_EQ(a.adds_eos(), b.adds_eos());
}

void expect_same_ids(const Tokenizer& a, const Tokenizer& b) {
  for (const Json& string : read_json(kVariants + "strings.json"))
    for (const Special special : {Special::text, Special::parse}) {
      const std::string text = string.get<std::string>();
      const Ids ids = a.encode(text, true, special);
      EXPECT_EQ(b.encode(text, true, special), ids) << string;
      EXPECT_EQ(b.decode(ids), a.decode(ids)) << string;
    }
  for (const std::string text : {"", "\xFF\xC3(", "<s>x</s>", "<|endoftext|> <|endoftext|>", "<bos><start_of_turn>user"})
    for (const Special special : {Special::text, Special::parse})
      EXPECT_EQ(b.encode(text, true, special), a.encode(text, true, special)) << text;
}

TEST(GgufVocabularyFiles, EveryWayToCutWords) {
  for (const char* pre : {"gpt-2", "llama-bpe", "dbrx", "glm4", "chatglm-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "falcon",
                          "starcoder", "deepseek-coder", "deepseek-v3", "default"}) {
    SCOPED_TRACE(pre);
    for (const int variant : {0, 1, 2}) {
      VocabularySpec spec = small_byte_level();
      spec.pre = pre;
      spec.types[500] = 4;  // user-defined
      if (variant > 0) spec.add_bos = variant == 1, spec.add_eos = true, spec.add_space_prefix = true;
      const Scratch scratch;
      const auto gguf = tokenizer_from_vocabulary(spec), files = through_files(scratch, spec);
      expect_same_vocabulary(*gguf, *files);
      expect_same_ids(*gguf, *files);
    }
  }
}

// The vocabulary as GGUF has it; what a GGUF file cannot say, such as rules for characters, the models used here do not have.
VocabularySpec as_gguf(const std::string& model) {
  SentencePieceSpec from = parse_sentencepiece(read_file(model), model);
  VocabularySpec spec;
  spec.source = "small.gguf", spec.kind = "llama";
  for (size_t id = 0; id < from.pieces.size(); ++id) {
    const SentencePieceSpec::Piece& piece = from.pieces[id];
    spec.pieces.push_back(piece.text), spec.scores.push_back(piece.score), spec.types.push_back(int32_t(piece.type));
    if (piece.text == from.bos_piece) spec.bos = int32_t(id);
    if (piece.text == from.eos_piece) spec.eos = int32_t(id);
    if (piece.type == PieceType::unknown) spec.unknown = int32_t(id);
  }
  spec.add_space_prefix = from.add_dummy_prefix, spec.remove_extra_whitespaces = from.remove_extra_whitespaces;
  return spec;
}

// Ids by sentencepiece itself, of the model that the vocabulary came from.
TEST(GgufVocabularyFiles, SentencePieceOddTexts) {
  const Json strings = read_json(kVariants + "strings.json");
  for (const std::string name : {"spm_llama", "spm_unused"}) {
    const Scratch scratch;
    const VocabularySpec spec = as_gguf(kVariants + name + ".model");
    const auto gguf = tokenizer_from_vocabulary(spec), files = through_files(scratch, spec);
    expect_same_vocabulary(*gguf, *files);
    expect_same_ids(*gguf, *files);
    for (const Json& row : read_json(kVariants + name + ".expected.json")) {
      if (!row.contains("i")) continue;
      const std::string text = strings.at(row["i"].get<size_t>()).get<std::string>();
      EXPECT_EQ(files->encode(text, false), row["ids"].get<Ids>()) << name << ": " << text;
    }
  }
}

TEST(GgufVocabularyFiles, SentencePieceGemmaAndItsBosRule) {
  for (const std::string name : {"spm512", "gemma"}) {
    VocabularySpec spec = as_gguf(std::string(VITRINE_GOLDEN) + "/tokenizers/" + name + "/tokenizer.model");
    std::ifstream rows(std::string(VITRINE_GOLDEN) + "/tokenizers/" + name + ".spm.jsonl");
    for (const bool add_bos : {true, false}) {
      spec.add_bos = add_bos;
      const Scratch scratch;
      const auto gguf = tokenizer_from_vocabulary(spec), files = through_files(scratch, spec);
      expect_same_vocabulary(*gguf, *files);
      expect_same_ids(*gguf, *files);
      for (std::string line; std::getline(rows, line);) {
        const Json row = Json::parse(line);
        if (!row.contains("text")) continue;  // bytes
        EXPECT_EQ(files->encode(row["text"].get<std::string>(), false), row["ids"].get<Ids>()) << row["text"];
      }
    }
  }
}

TEST(GgufVocabularyFiles, TheChatTemplateComesAlong) {
  const Json config = Json::parse(vocabulary_files(small_byte_level(), "{{ bos_token }}\n").at("tokenizer_config.json"));
  EXPECT_EQ(config.at("chat_template"), "{{ bos_token }}\n");
  EXPECT_EQ(config.at("eos_token"), "<|endoftext|>");
}

TEST(GgufVocabularyFiles, WhatFilesCannotSayIsRefused) {
  const auto message = [](const VocabularySpec& spec, const std::optional<std::string>& chat_template = {}) {
    return message_of<FileError>([&] { vocabulary_files(spec, chat_template); });
  };
  VocabularySpec bytes = small_byte_level();
  EXPECT_CONTAINS(message(bytes, "\xFF"), "small.gguf: tokenizer.chat_template is \"");
  bytes.pieces[510] = "\xFF";
  bytes.merges.pop_back();
  EXPECT_CONTAINS(message(bytes), "tokenizer.ggml.tokens[510] is \"\xEF\xBF\xBD\", which is not UTF-8");
  VocabularySpec spm = as_gguf(kVariants + "spm_llama.model");
  VocabularySpec changed = spm;
  changed.types[size_t(*spm.bos)] = 1;
  EXPECT_CONTAINS(message(changed), "tokenizer.ggml.bos_token_id is 1, whose token_type is not 3 (control)");
  changed = spm, changed.pieces.back().clear();
  EXPECT_CONTAINS(message(changed), "is empty; a tokenizer.model cannot hold that");
}

const std::string kTokenizers = std::string(VITRINE_GOLDEN) + "/tokenizers/";

// A vocabulary of kind "gemma4" as llama.cpp's converter writes it for a tokenizer.json of Gemma's form.
VocabularySpec spaced_vocabulary() {
  const Json file = read_json(kTokenizers + "spm512/tokenizer.json");
  VocabularySpec spec;
  spec.source = "spaced.gguf";
  spec.kind = "gemma4";
  spec.pieces.resize(file["model"]["vocab"].size());
  spec.types.assign(spec.pieces.size(), 1);
  for (const auto& [piece, id] : file["model"]["vocab"].items()) {
    spec.pieces[id.get<size_t>()] = piece;
    if (piece.size() == 6 && piece.starts_with("<0x")) spec.types[id.get<size_t>()] = 6;
  }
  for (const Json& token : file["added_tokens"]) spec.types[token["id"].get<size_t>()] = 3;
  for (const Json& merge : file["model"]["merges"])
    spec.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  spec.padding = 0, spec.eos = 1, spec.bos = 2, spec.unknown = 3;
  spec.add_bos = true, spec.add_space_prefix = false;
  return spec;
}

TEST(GgufSpacedBpe, IdsAreThoseOfTheTokenizerJson) {
  const VocabularySpec spec = spaced_vocabulary();
  const auto gguf = tokenizer_from_vocabulary(spec), json = load_tokenizer(kTokenizers + "spm512/tokenizer.json");
  EXPECT_TRUE(gguf->adds_bos());
  std::ifstream rows(kTokenizers + "spm512.hf.jsonl");
  int read = 0;
  for (std::string line; std::getline(rows, line); ++read) {
    const Json row = Json::parse(line);
    if (!row.contains("text")) continue;
    const std::string text = row["text"];
    EXPECT_EQ(gguf->encode(text, false, Special::parse), row["ids"].get<Ids>()) << text;
    EXPECT_EQ(gguf->encode(text, false, Special::text), json->encode(text, false, Special::text)) << text;
    EXPECT_EQ(gguf->decode(row["ids"].get<Ids>()), row["decoded"].get<std::string>());
  }
  EXPECT_GT(read, 50);
  const Scratch scratch;
  const auto files = through_files(scratch, spec);
  expect_same_vocabulary(*gguf, *files);
  for (const char* text : {"I want  to move", "naïve 東京 😀\n\n", "<bos> a", ""})
    EXPECT_EQ(files->encode(text, true, Special::text), gguf->encode(text, true, Special::text)) << text;
}

TEST(GgufSpacedBpe, WhatItCannotHoldIsRefused) {
  const auto message = [](const VocabularySpec& spec) { return message_of<FileError>([&] { tokenizer_from_vocabulary(spec); }); };
  VocabularySpec spec = spaced_vocabulary();
  spec.merges[2] = "ab";
  EXPECT_CONTAINS(message(spec), "tokenizer.ggml.merges[2] is \"ab\", expected two pieces with a space between them");
  spec = spaced_vocabulary();
  spec.pieces[300] = "\xFF";
  EXPECT_CONTAINS(message(spec), "which the vocabulary does not hold");
}

}  // namespace
}  // namespace vitrine
