// Files and texts that mean harm, or are merely broken: a named error or an answer in time, never a crash.
#include <gtest/gtest.h>

#include <ctime>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "support/scratch.h"
#include "tokenizer/load.h"

namespace vitrine {
namespace {

const std::string kValid = std::string(VITRINE_GOLDEN) + "/tokenizers/";

Json small_json() {
  return Json::parse(
      R"({"added_tokens": [{"id": 5, "content": "<s>", "special": true}], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "▁": 4}, "merges": ["a b"]}})");
}

std::shared_ptr<const Tokenizer> load(const Json& json) { return tokenizer_from_json(json.dump(), "tokenizer.json", {}); }

template <class F>
void expect_error(F&& f, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << "message: " << e.what() << "\nexpected in it: " << part;
  }
}

void expect_refused(const char* pointer, const Json& value, const std::string& part) {
  Json json = small_json();
  json[Json::json_pointer(pointer)] = value;
  expect_error([&] { load(json); }, part);
}

TEST(TokenizerJsonErrors, NameTheUnknownAndTheKnown) {
  expect_refused("/normalizer", {{"type", "Upper"}},
                 "tokenizer.json: normalizer: unsupported normalizer \"Upper\"; supported are Sequence, Prepend");
  expect_refused("/pre_tokenizer", {{"type", "UnicodeScripts"}},
                 "unsupported pre-tokenizer \"UnicodeScripts\"; supported are Sequence, ByteLevel, Split");
  expect_refused("/decoder", {{"type", "CTC"}}, "unsupported decoder \"CTC\"; supported are Sequence, ByteLevel");
  expect_refused("/post_processor", {{"type", "Other"}},
                 "unsupported post-processor \"Other\"; supported are Sequence, TemplateProcessing");
  expect_refused("/model/type", "Neural", "unsupported model \"Neural\"; supported are BPE, WordPiece, WordLevel, Unigram");
  expect_refused("/decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", "Rot13"}}}}},
                 "decoder.decoders[1]: unsupported");
  expect_refused("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Shuffled"}, {"pattern", {{"String", " "}}}},
                 "behavior is \"Shuffled\"; expected Removed");
}

TEST(TokenizerJsonErrors, NameFieldFoundAndExpected) {
  expect_refused("/normalizer", "NFC", "normalizer is a JSON string, expected an object");
  expect_refused("/normalizer", {{"type", "Prepend"}}, "normalizer: has no \"prepend\"");
  expect_refused("/normalizer", {{"type", "Prepend"}, {"prepend", 1}}, "\"prepend\" is a JSON number, expected a string");
  expect_refused("/model", nullptr, "has no \"model\"");
  expect_refused("/model/vocab", {{"a", 0}, {"b", 0}}, "the pieces \"a\" and \"b\" both have id 0");
  expect_refused("/model/vocab", {{"a", -1}}, "the piece \"a\" has id -1");
  expect_refused("/model/vocab", {{"a", 2000000000}}, "the piece \"a\" has id 2000000000, expected 0 to");
  expect_refused("/model/vocab", {{"a", 0.5}}, "expected a whole number");
  expect_refused("/model/vocab", Json::array(), "expected '{'");
  expect_refused("/model/merges", {"a x"}, "merge 0 (\"a\" + \"x\") needs the piece \"x\"");
  expect_refused("/model/merges", {"b a"}, "needs the piece \"ba\"");
  expect_refused("/model/merges", {"a b", "a b c"}, "merges[1] is \"a b c\", expected two pieces");
  expect_refused("/model/unk_token", "<none>", "unk_token is \"<none>\", which model.vocab does not hold");
  expect_refused("/added_tokens/0/id", 3, "\"<s>\" has id 3, which is the piece \"ab\"");
  expect_refused("/added_tokens/0/id", 1000000000, "\"id\" is 1000000000, expected 0 to");
  expect_refused("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a"}}}},
                 "pre_tokenizer.pattern: the regular expression (a cannot be used: missing closing parenthesis");
  expect_refused("/post_processor", {{"type", "BertProcessing"}, {"sep", {"a", 99}}, {"cls", {"a", 1}}},
                 "names token 99, outside the vocabulary of 6");
  Json both = small_json();
  both["added_tokens"].push_back({{"id", 5}, {"content", "<t>"}});
  expect_error([&] { load(both); }, "the added tokens \"<s>\" and \"<t>\" both have id 5");
}

TEST(TokenizerJsonErrors, BrokenJson) {
  const std::string good = small_json().dump();
  ASSERT_TRUE(tokenizer_from_json(good, "tokenizer.json", {}));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(tokenizer_from_json(std::string_view(good).substr(0, size), "tokenizer.json", {}), FileError) << size;
  expect_error([&] { tokenizer_from_json(good + "x", "tokenizer.json", {}); }, "something follows the object");
  expect_error([] { tokenizer_from_json(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})", "t.json", {}); },
               "has the piece \"a\" twice");
  expect_error([] { tokenizer_from_json(R"({"model": {"vocab": {"\ud800": 0}, "merges": []}})", "t.json", {}); },
               "half of a surrogate pair");
  expect_error([] { tokenizer_from_json("{\"model\": {\"vocab\": {\"\xFF\": 0}, \"merges\": []}}", "t.json", {}); },
               "a string is not UTF-8");
  expect_error([] { tokenizer_from_json("{\"x\": " + std::string(100000, '[') + "}", "t.json", {}); }, "nests deeper than 64");
}

TEST(TokenizerModelErrors, BrokenFiles) {
  const std::string good = read_file(kValid + "spm512/tokenizer.model");
  ASSERT_TRUE(tokenizer_from_sentencepiece(good, "tokenizer.model", {}));
  for (size_t size = 0; size < good.size(); size += 7) {
    try {  // a cut between two fields may leave a whole model
      tokenizer_from_sentencepiece(std::string_view(good).substr(0, size), "tokenizer.model", {})->encode("a");
    } catch (const FileError& e) {
      EXPECT_EQ(std::string(e.what()).find("tokenizer.model: "), 0u);
    }
  }
  const auto piece = [](std::string_view text, char type) {
    std::string body = "\x0A" + std::string(1, char(text.size())) + std::string(text) + "\x18" + type;
    return "\x0A" + std::string(1, char(body.size())) + body;
  };
  const std::string unknown = piece("<unk>", 2);
  const auto refuse = [](const std::string& bytes, const std::string& part) {
    expect_error([&] { tokenizer_from_sentencepiece(bytes, "m", {}); }, part);
  };
  refuse("", "holds no pieces");
  refuse(piece("a", 1), "has no piece of type unknown");
  refuse(unknown + unknown, "pieces 0 and 1 are both \"<unk>\"");
  refuse(unknown + piece("x", 2), "are both of type unknown");
  refuse(unknown + piece("a", 9), "piece 1 (byte 13) has type 9, expected 1 to 6");
  refuse(unknown + piece("<0xZZ>", 6), "byte piece 1 is \"<0xZZ>\"");
  refuse(unknown + "\x12\x02\x18\x03", "model_type is 3 (word); vitrine knows 1 (unigram) and 2 (BPE)");
  refuse(unknown + "\x12\x05\x18\x02\x98\x02\x01", "has byte_fallback, but no piece <0x00>");
  refuse(unknown + "\x0A\x7F", "gives 127 bytes where 0 are left");
  refuse(unknown + "\x0F", "has the unknown wire type 7");
  refuse(unknown + "\x1A\x06\x12\x04\xFF\xFF\xFF\xFF", "precompiled_charsmap says its trie has 4294967295 bytes");
}

TEST(LoadTokenizer, SaysWhatIsMissingOrWrong) {
  const Scratch folder;
  expect_error([&] { load_tokenizer(folder.path()); },
               "holds no tokenizer: expected tokenizer.json, tokenizer.model, vocab.json and merges.txt, or vocab.txt");
  expect_error([&] { load_tokenizer(folder.path() + "/none.json"); }, folder.path() + "/none.json: ");
  expect_error([&] { load_tokenizer(folder.write("tokenizer.model", "")); },
               "is empty; expected a tokenizer.json or a tokenizer.model");
  expect_error([&] { load_tokenizer(folder.write("model.gguf", "GGUF\3")); }, "is a GGUF file, not a tokenizer");
  folder.write("vocab.json", R"({"a": 0})");
  folder.write("merges.txt", "#version: 0.2\n");
  expect_error([&] { load_tokenizer(folder.path() + "/vocab.json"); }, "needs all 256");
  folder.write("tokenizer.json", small_json().dump());
  folder.write("tokenizer_config.json", R"({"add_bos_token": "yes"})");
  expect_error([&] { load_tokenizer(folder.path()); }, "add_bos_token is a JSON string, expected true, false or null");
  folder.write("tokenizer_config.json", "[]");
  expect_error([&] { load_tokenizer(folder.path()); }, "holds a JSON array, expected an object");
}

// transformers 5.23: beside a tokenizer.json the names of the tokens count; add_bos_token and add_eos_token do not.
TEST(LoadTokenizer, TheFileSaysWhatIsAddedAndTheConfigurationWhatItIsCalled) {
  const Scratch folder;
  const std::string file = folder.write("tokenizer.json", small_json().dump());
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(load_tokenizer(file)->encode("a"), Ids{1});
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>"}, "add_bos_token": true, "eos_token": "b", "add_eos_token": true})");
  EXPECT_EQ(load_tokenizer(folder.path())->encode("a"), Ids{1});
  EXPECT_EQ(load_tokenizer(folder.path())->bos(), 5);
  EXPECT_EQ(load_tokenizer(folder.path())->eos(), 2);
  Json framed = small_json();
  framed["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                              {"special_tokens", {{"<s>", {{"ids", {5}}}}}}};
  folder.write("tokenizer.json", framed.dump());
  for (const char* flags : {R"("add_bos_token": false)", R"("add_eos_token": false)", R"("add_eos_token": true)"}) {
    folder.write("tokenizer_config.json", std::string(R"({"bos_token": "<s>", "eos_token": "b", )") + flags + "}");
    EXPECT_EQ(load_tokenizer(folder.path())->encode("a"), (Ids{5, 1})) << flags;
    EXPECT_EQ(load_tokenizer(folder.path())->encode("a", false), Ids{1});
  }
  EXPECT_NE(load_tokenizer(folder.path())->description().find("puts token 5, \"<s>\", in front, nothing at the end"),
            std::string::npos);
}

TEST(TokenizerIds, OutsideTheVocabularyAreNamed) {
  for (const char* name : {"spm512", "bpe512", "gpt2", "gemma"}) {
    const auto tokenizer = load_tokenizer(kValid + name);
    const int32_t size = tokenizer->vocab_size();
    for (const int32_t id : {-1, size, INT32_MAX, INT32_MIN}) {
      expect_error([&] { tokenizer->decode(std::vector<int32_t>{id}); },
                   "token " + std::to_string(id) + " is outside the vocabulary");
      expect_error([&] { tokenizer->piece(id); }, "ids are 0 to " + std::to_string(size - 1));
      EXPECT_FALSE(tokenizer->is_control(id));
    }
  }
}

Json split_by(const std::string& regex) {
  Json json = small_json();
  json["pre_tokenizer"] = {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", regex}}}};
  return json;
}

TEST(HostileRegex, StopsAtItsLimit) {
  const auto tokenizer = load(split_by("(a+)+$"));
  expect_error([&] { tokenizer->encode(std::string(40, 'a') + "b"); },
               "the regular expression (a+)+$ fails at byte 0 of a text of 41 bytes");
  EXPECT_EQ(tokenizer->encode("aab", false).size(), 2u);  // the pattern itself is usable
}

TEST(HostileRegex, QuadraticPatternsRunOutOfTime) {
  // Every match looks for a b up to the end: 10^10 steps in all, none of which exceeds the limit of one match.
  const auto tokenizer = load(split_by("a*b|a"));
  expect_error([&] { tokenizer->encode(std::string(250000, 'a')); }, "is stopped");
}

TEST(HostileRegex, LongOnesAreNotPrintedWhole) {
  std::string pattern = "(";
  for (int i = 0; i < 4000; ++i) pattern += "é|b|";
  try {
    load(split_by(pattern));
    ADD_FAILURE() << "no error";
  } catch (const InputError& e) {
    const std::string message = e.what();
    EXPECT_LT(message.size(), 600u) << message;
    EXPECT_NE(message.find("… (of 20001 bytes)"), std::string::npos) << message;
    EXPECT_NE(message.find("missing closing parenthesis"), std::string::npos) << message;
  }
}

// Nine times ten letters for one are 10^9 for each of the text.
TEST(HostileNormalizer, MayMakeLittleOfMuchButNotMuchOfLittle) {
  Json json = small_json();
  Json& list = json["normalizer"];
  list = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 9; ++i)
    list["normalizers"].push_back(
        {{"type", "Replace"}, {"pattern", {{"Regex", "."}}}, {"content", "abababab" + std::to_string(10 + i)}});
  const auto tokenizer = load(json);
  for (const bool offsets : {false, true}) {
    const auto encode = [&] {
      offsets ? void(tokenizer->encode_with_offsets("abc", false)) : void(tokenizer->encode("abc", false));
    };
    expect_error(encode, "tokenizer.json: normalizer: makes more than 1048672 bytes of 3 of a text");
  }
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, {{"type", "ByteLevel"}}}}};
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "\xEF\xB7\xBA";  // one letter that stands for eighteen
  EXPECT_NO_THROW(load(json)->encode(text, false));
}

TEST(HostileRegex, DeepNestingIsRefused) {
  expect_error([] { load(split_by(std::string(5000, '(') + std::string(5000, ')'))); }, "cannot be used");
  expect_error([] { load(split_by(std::string(100, '[') + "a" + std::string(100, ']'))); }, "nests sets deeper than 16");
  expect_error([] { load(split_by(std::string(100000, 'a'))); }, "cannot be used");
}

// Texts that quadratic implementations do not survive: a megabyte of one thing (F10). Processor time, since other work on
// the machine is no fault of ours. Linear work takes 0.3 s for a megabyte and quadratic work minutes.
void encode_in_time(const std::string& name, const std::string& unit, size_t size, bool lossless) {
  static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
  auto& tokenizer = loaded[name];
  if (!tokenizer) tokenizer = load_tokenizer(kValid + name);
  std::string text;
  while (text.size() < size) text += unit;
  text += "x";
  const std::clock_t start = std::clock();
  const auto ids = tokenizer->encode(text, false);
  const auto decoded = tokenizer->decode(ids);
  const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 10) << name << " with \"" << unit << '"';
  EXPECT_TRUE(!lossless || decoded == text) << name << " with \"" << unit << '"';
}

TEST(WorstCase, AMegabyteOfOneThing) {
  for (const char* name : {"spm512", "gpt2", "gemma"})
    for (const char* unit : {"a", "-", "7", " "}) encode_in_time(name, unit, size_t{1} << 20, true);
}

TEST(WorstCase, LongRunsThroughEveryPattern) {
  for (const char* name : {"bpe512", "variants/llama3_like.json", "variants/o200k_like.json", "variants/deepseek3_like.json",
                           "variants/kimi_like.json", "variants/spm_unused.model", "variants/spm_unigram.model"})
    for (const char* unit : {"a", "A", "7", " ", "\n", "\xE6\xBC\xA2", "\xF0\x9F\x98\x80", " \t"})
      encode_in_time(name, unit, size_t{1} << 17, std::string_view(name).find("unigram") == std::string_view::npos);
}

}  // namespace
}  // namespace vitrine
