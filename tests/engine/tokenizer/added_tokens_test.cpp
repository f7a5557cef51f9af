// Tokens that a vocabulary lacks and the files beside it declare. The ids are those of AutoTokenizer (transformers 5.23) for
// the same folders.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "support/scratch.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/sentencepiece_spec.h"
#include "tokenizer/sentencepiece_writer.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {
namespace {

using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> load(const Scratch& folder) { return load_tokenizer(folder.path()); }

void expect_refused(const Scratch& folder, const std::string& part) {
  EXPECT_CONTAINS(message_of([&] { load(folder); }), part);
}

Json entry(const std::string& content, bool special) {
  return {{"content", content}, {"normalized", false}, {"special", special}};
}

// Pieces 0 to 7: a Llama vocabulary in small, which puts a space in front of the text.
std::string small_model() {
  SentencePieceSpec spec;
  const auto add = [&](const char* text, float score, PieceType type) { spec.pieces.push_back({text, score, type}); };
  add("<unk>", 0, PieceType::unknown);
  add("<s>", 0, PieceType::control);
  add("</s>", 0, PieceType::control);
  add("\xE2\x96\x81u", -1, PieceType::normal);
  add("\xE2\x96\x81", -2, PieceType::normal);
  add("u", -3, PieceType::normal);
  add("x", -4, PieceType::normal);
  add("<tag>", -5, PieceType::normal);
  spec.remove_extra_whitespaces = false;
  return sentencepiece_model(spec);
}

Json small_config() {
  return {{"tokenizer_class", "LlamaTokenizer"},
          {"add_bos_token", true},
          {"bos_token", "<s>"},
          {"eos_token", "<|im_end|>"},
          {"unk_token", "<unk>"},
          {"legacy", false},
          {"added_tokens_decoder",
           {{"0", entry("<unk>", true)},
            {"1", entry("<s>", true)},
            {"2", entry("</s>", true)},
            {"8", entry("<|im_start|>", true)},
            {"9", entry("<|im_end|>", true)},
            {"10", entry("<tool>", false)}}}};
}

TEST(AddedTokens, OfSentencePiece) {
  const Scratch folder;
  folder.write("tokenizer.model", small_model());
  folder.write("tokenizer_config.json", small_config().dump());
  auto t = load(folder);
  EXPECT_EQ(t->vocab_size(), 11);
  EXPECT_EQ(t->encode("<|im_start|>u <tool>x", true, Special::parse), (Ids{1, 8, 5, 4, 10, 6}));
  EXPECT_EQ(t->encode("u<|im_end|> u", true, Special::parse), (Ids{1, 3, 9, 3}));
  EXPECT_EQ(t->encode("<tool>", true, Special::parse), (Ids{1, 10}));
  EXPECT_EQ(t->encode("u</s>u", true, Special::parse), (Ids{1, 3, 2, 5}));
  // Without Special::parse only what is no control token.
  EXPECT_EQ(t->encode("<tool>u", false), (Ids{10, 5}));
  EXPECT_EQ(t->encode("<tool>u", false, Special::text), (Ids{10, 5}));
  for (const Special special : {Special::as_file, Special::text}) {
    const Ids ids = t->encode("<|im_end|>", false, special);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 9), 0);
  }
  EXPECT_EQ(t->eos(), 9);
  EXPECT_EQ(t->find("<|im_end|>"), 9);
  EXPECT_EQ(t->piece(8), "<|im_start|>");
  EXPECT_TRUE(t->is_control(8));
  EXPECT_FALSE(t->is_control(10));
  EXPECT_EQ(t->decode(Ids{8, 5, 4, 10, 6}), "<|im_start|>u <tool>x");
  EXPECT_EQ(t->decode(Ids{8, 5, 4, 10, 6}, true), "u <tool>x");
  EXPECT_EQ(t->decode(Ids{1, 3}), "u");  // SentencePiece's own control pieces have no text

  Json legacy = small_config();  // a space after every added token
  legacy["legacy"] = true;
  folder.write("tokenizer_config.json", legacy.dump());
  EXPECT_EQ(load(folder)->encode("<|im_start|>u<tool>u", true, Special::parse), (Ids{1, 8, 3, 10, 3}));

  // A piece of the vocabulary becomes an added token, too, and keeps its id.
  Json known = small_config();
  known["added_tokens_decoder"]["7"] = entry("<tag>", true);
  folder.write("tokenizer_config.json", known.dump());
  t = load(folder);
  EXPECT_EQ(t->encode("u<tag>u", true, Special::parse), (Ids{1, 3, 7, 5}));
  EXPECT_TRUE(t->is_control(7));
  EXPECT_EQ(t->decode(Ids{3, 7, 5}, true), "uu");

  // Flags, and an id with none in front of it.
  Json flags = small_config();
  flags["added_tokens_decoder"]["12"] = {{"content", "<w>"}, {"lstrip", true}, {"rstrip", true}, {"single_word", true}};
  folder.write("tokenizer_config.json", flags.dump());
  t = load(folder);
  EXPECT_EQ(t->encode("u <w>  x", false), (Ids{3, 12, 6}));
  EXPECT_EQ(t->encode("u<w>", false).front(), 3);
  EXPECT_EQ(t->find("<w>"), 12);
  EXPECT_EQ(std::ranges::count(t->encode("u<w>", false), 12), 0);
  EXPECT_EQ(t->piece(11), "");
  EXPECT_EQ(t->decode(Ids{11}), "");
}

TEST(AddedTokens, OfAddedTokensJson) {
  const Scratch folder;
  folder.write("tokenizer.model", small_model());
  folder.write("added_tokens.json", R"({"<|im_start|>": 8, "<|im_end|>": 9, "<tool>": 10})");
  Json config = small_config();
  config.erase("added_tokens_decoder");
  folder.write("tokenizer_config.json", config.dump());
  auto t = load(folder);
  EXPECT_EQ(t->encode("<|im_start|>u <tool>x", true, Special::parse), (Ids{1, 8, 5, 4, 10, 6}));
  EXPECT_EQ(t->decode(Ids{8, 5, 9}, true), "u");
  EXPECT_EQ(t->eos(), 9);
  std::filesystem::remove(folder / "tokenizer_config.json");
  EXPECT_EQ(load(folder)->encode("<tool>", false), Ids{10});
  // added_tokens_decoder is the newer form and counts alone.
  folder.write("added_tokens.json", R"({"<other>": 11})");
  folder.write("tokenizer_config.json", small_config().dump());
  EXPECT_EQ(load(folder)->vocab_size(), 11);
}

void write_bytes_vocabulary(const Scratch& folder) {
  Json vocabulary = Json::object();
  int32_t id = 0;
  for (const std::string& byte : byte_level_alphabet()) vocabulary[byte] = id++;  // the id is the byte
  vocabulary
      ["\xC4\xA0"
       "1"] = 256;
  vocabulary["12"] = 257;
  folder.write("vocab.json", vocabulary.dump());
  folder.write("merges.txt", "\xC4\xA0 1\n1 2\n");
}

TEST(AddedTokens, OfVocabAndMerges) {
  const Scratch folder;
  write_bytes_vocabulary(folder);
  Json config = {{"tokenizer_class", "GPT2Tokenizer"}, {"eos_token", "<|im_end|>"}};
  config["added_tokens_decoder"] = {{"258", entry("<|im_end|>", true)}, {"259", entry("<tool>", false)}};
  folder.write("tokenizer_config.json", config.dump());
  const auto t = load(folder);
  EXPECT_EQ(t->encode("a<|im_end|>", true, Special::parse), (Ids{'a', 258}));
  EXPECT_EQ(t->encode("<tool>12"), (Ids{259, 257}));
  EXPECT_EQ(t->eos(), 258);
  EXPECT_EQ(t->decode(Ids{'a', 258}), "a<|im_end|>");
  EXPECT_EQ(t->decode(Ids{'a', 258}, true), "a");
}

TEST(AddedTokens, OfTokenizerJson) {
  const Scratch folder;
  folder.write(
      "tokenizer.json",
      R"({"added_tokens": [{"id": 2, "content": "<s>", "special": true}], "model": {"type": "BPE", "vocab": {"a": 0, "b": 1},
                  "merges": []}})");
  Json config = {{"eos_token", "<|im_end|>"}};
  config["added_tokens_decoder"] = {{"2", entry("<s>", true)}, {"3", entry("<|im_end|>", true)}, {"1", entry("b", true)}};
  folder.write("tokenizer_config.json", config.dump());
  const auto t = load(folder);
  EXPECT_EQ(t->encode("<s>a<|im_end|>"), (Ids{2, 0, 3}));
  EXPECT_EQ(t->eos(), 3);
  EXPECT_TRUE(t->is_control(1));
}

TEST(AddedTokens, HostileDeclarationsAreRefused) {
  const Scratch folder;
  folder.write("tokenizer.model", small_model());
  const auto refuse = [&](const Json& decoder, const std::string& part) {
    folder.write("tokenizer_config.json", Json{{"added_tokens_decoder", decoder}}.dump());
    expect_refused(folder, part);
  };
  refuse({{"-1", entry("<t>", true)}},
         "tokenizer_config.json: added_tokens_decoder[\"-1\"] stands under \"-1\", expected a token id from 0 to");
  refuse({{"8x", entry("<t>", true)}}, "added_tokens_decoder[\"8x\"] stands under \"8x\", expected a token id");
  refuse({{"99999999999", entry("<t>", true)}}, "expected a token id from 0 to 2147483647");
  refuse({{"2000000000", entry("<t>", true)}},
         "added_tokens_decoder[\"2000000000\"] gives \"<t>\" id 2000000000, expected 0 to 65543");
  refuse({{"5", entry("<t>", true)}}, "gives \"<t>\" id 5, which is \"u\" in the vocabulary; expected an id of its own");
  refuse({{"8", entry("<t>", true)}, {"9", entry("<t>", true)}}, "gives \"<t>\" id 9, but it already has id 8; expected one id");
  refuse({{"8", entry("<t>", true)}, {"08", entry("<v>", true)}}, "which added_tokens_decoder[\"08\"] gives \"<v>\"");
  refuse({{"8", {{"content", 1}}}}, "added_tokens_decoder[\"8\"] has no string \"content\"");
  refuse({{"8", {{"content", "<t>"}, {"lstrip", 1}}}}, "\"lstrip\" is a JSON number, expected true or false");
  refuse({{"8", entry(std::string(5000, 't'), true)}}, "the token has 5000 bytes, more than 4096");
  refuse("none", "added_tokens_decoder is a JSON string, expected an object");
  std::filesystem::remove(folder / "tokenizer_config.json");
  for (const char* id : {"-1", "1.5", "\"8\"", "3000000000", "18446744073709551615"}) {
    folder.write("added_tokens.json", std::string("{\"<t>\": ") + id + "}");
    expect_refused(folder, "added_tokens.json: \"<t>\" is ");
  }
  folder.write("added_tokens.json", R"({"<t>": 8, "<v>": 8})");
  expect_refused(folder, "added_tokens.json: \"<v>\" gives \"<v>\" id 8, which \"<t>\" gives \"<t>\"");
}

// Qwen 2 keeps GPT-2's two files and cuts words by another pattern: digits one by one, after NFC.
TEST(VocabAndMerges, AreCutByTheirClass) {
  const Scratch folder;
  write_bytes_vocabulary(folder);
  EXPECT_EQ(load(folder)->encode(" 12e\xCC\x81"), (Ids{256, '2', 'e', 0xCC, 0x81}));
  const auto with_class = [&](const char* name) {
    folder.write("tokenizer_config.json", Json{{"tokenizer_class", name}}.dump());
  };
  with_class("GPT2TokenizerFast");
  EXPECT_EQ(load(folder)->encode("12"), Ids{257});
  for (const char* name : {"Qwen2Tokenizer", "Qwen2TokenizerFast"}) {
    with_class(name);
    const auto t = load(folder);
    EXPECT_EQ(t->encode(" 12e\xCC\x81"), (Ids{' ', '1', '2', 0xC3, 0xA9}));
    EXPECT_EQ(t->decode(t->encode("a \xFF"
                                  "b")),
              "a \xFF"
              "b");
  }
  with_class("RobertaTokenizer");
  expect_refused(folder, "tokenizer_class is \"RobertaTokenizer\", expected GPT2Tokenizer or Qwen2Tokenizer");
  folder.write("config.json", R"({"model_type": "qwen2"})");
  EXPECT_EQ(load(folder)->encode("12"), (Ids{'1', '2'}));
}

// transformers 5.24: a space in front of every text between added tokens; of Qwen 2 in front of every word.
TEST(VocabAndMerges, AddPrefixSpace) {
  const Scratch folder;
  write_bytes_vocabulary(folder);
  const auto with_class = [&](const char* name) {
    Json config = {{"tokenizer_class", name}, {"add_prefix_space", true}, {"eos_token", "<|e|>"}};
    config["added_tokens_decoder"] = {{"258", entry("<|e|>", true)}};
    folder.write("tokenizer_config.json", config.dump());
    return load(folder);
  };
  const auto gpt2 = with_class("GPT2Tokenizer");
  EXPECT_EQ(gpt2->encode("12"), (Ids{256, '2'}));
  EXPECT_EQ(gpt2->encode(" 12"), (Ids{256, '2'}));
  EXPECT_EQ(gpt2->encode("\n1"), (Ids{' ', '\n', '1'}));
  EXPECT_EQ(gpt2->encode(""), Ids{});
  EXPECT_EQ(gpt2->encode("12<|e|>12 x", true, Special::parse), (Ids{256, '2', 258, 256, '2', ' ', 'x'}));
  EXPECT_EQ(gpt2->encode("1\xFF"), (Ids{256, 0xEF, 0xBF, 0xBD}));  // transformers takes characters only
  const auto qwen2 = with_class("Qwen2Tokenizer");
  EXPECT_EQ(qwen2->encode("12"), (Ids{256, ' ', '2'}));
  EXPECT_EQ(qwen2->encode(" 12"), (Ids{' ', 256, ' ', '2'}));
  folder.write("tokenizer_config.json", R"({"add_prefix_space": "yes"})");
  expect_refused(folder, "add_prefix_space is a JSON string, expected true, false or null");
}

// transformers 5.24: these two classes make their ByteLevel by the flag of tokenizer_config.json; others take the file's.
TEST(AddPrefixSpace, OfTheConfigurationCountsForItsClasses) {
  const Scratch folder;
  Json file = {{"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", {"\xC4\xA0 1", "1 2"}}}}};
  int32_t id = 0;
  for (const std::string& byte : byte_level_alphabet()) file["model"]["vocab"][byte] = id++;
  file["model"]["vocab"]
      ["\xC4\xA0"
       "1"] = 256;
  file["model"]["vocab"]["12"] = 257;
  const Ids prefixed{256, '2'}, plain{257};
  const auto ids = [&](bool in_file, const Json& config) {
    file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", in_file}};
    folder.write("tokenizer.json", file.dump());
    folder.write("tokenizer_config.json", config.dump());
    return load(folder)->encode("12");
  };
  for (const char* name : {"GPT2Tokenizer", "GPT2TokenizerFast"}) {
    EXPECT_EQ(ids(false, {{"tokenizer_class", name}, {"add_prefix_space", true}}), prefixed);
    EXPECT_EQ(ids(true, {{"tokenizer_class", name}, {"add_prefix_space", false}}), plain);
  }
  EXPECT_EQ(ids(false, {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_prefix_space", true}}), plain);
  EXPECT_EQ(ids(true, {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_prefix_space", false}}), prefixed);
  EXPECT_EQ(ids(false, {{"add_prefix_space", true}}), plain);
  folder.write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_EQ(ids(false, {{"add_prefix_space", true}}), prefixed);
  EXPECT_EQ(ids(false, {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_prefix_space", true}}), plain);

  // Qwen 2's: the space goes in front of every word.
  folder.write("config.json", R"({"model_type": "qwen2"})");
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"}, {"pattern", {{"Regex", "\\p{N}|\\s+"}}}, {"behavior", "Isolated"}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  folder.write("tokenizer.json", file.dump());
  EXPECT_EQ(load(folder)->encode("12"), (Ids{256, ' ', '2'}));
}

// transformers 5.24: a token said to be null is none, though the vocabulary has one of its usual name.
TEST(SpecialTokens, NullIsNone) {
  const char* null_both = R"({"bos_token": null, "eos_token": null, "add_bos_token": true, "add_eos_token": true})";
  const Scratch json;
  json.write("tokenizer.json",
             R"({"added_tokens": [{"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true}],
                 "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  EXPECT_EQ(load(json)->bos(), 1);  // not said: guessed
  EXPECT_EQ(load(json)->eos(), 2);
  json.write("tokenizer_config.json", R"({"bos_token": null})");
  EXPECT_EQ(load(json)->bos(), std::nullopt);
  EXPECT_EQ(load(json)->eos(), 2);
  json.write("tokenizer_config.json", null_both);
  EXPECT_EQ(load(json)->bos(), std::nullopt);
  EXPECT_EQ(load(json)->eos(), std::nullopt);

  const Scratch model;
  model.write("tokenizer.model", small_model());
  model.write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(load(model)->bos(), 1);
  EXPECT_EQ(load(model)->eos(), std::nullopt);
  model.write("tokenizer_config.json", null_both);
  EXPECT_EQ(load(model)->bos(), std::nullopt);
  EXPECT_EQ(load(model)->encode("u"), Ids{3});

  const Scratch files;
  write_bytes_vocabulary(files);
  files.write("added_tokens.json", R"({"<|endoftext|>": 258})");
  files.write("tokenizer_config.json", R"({"bos_token": null, "add_bos_token": true})");
  EXPECT_EQ(load(files)->bos(), std::nullopt);
  EXPECT_EQ(load(files)->eos(), 258);
  EXPECT_EQ(load(files)->encode("a"), Ids{'a'});
}

// transformers 5.24.0: special_tokens_map.json goes before tokenizer_config.json, unless that has an added_tokens_decoder.
TEST(SpecialTokens, OfTheirMap) {
  const Scratch folder;
  folder.write("tokenizer.json", R"({"added_tokens": [], "model": {"type": "WordLevel", "unk_token": "[UNK]",
      "vocab": {"a": 0, "b": 1, "[UNK]": 2, "<s>": 3, "</s>": 4, "<e>": 5}}})");
  const char* const config = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  const auto ends = [&](const char* of_config, const char* map) {
    folder.write("tokenizer_config.json", of_config);
    folder.write("special_tokens_map.json", map);
    EXPECT_EQ(load(folder)->bos(), 3);
    return load(folder)->eos();
  };
  EXPECT_EQ(ends(config, "{}"), 4);
  EXPECT_EQ(ends(config, R"({"eos_token": "<e>"})"), 5);
  EXPECT_EQ(ends(config, R"({"eos_token": {"content": "<e>", "lstrip": false}})"), 5);
  EXPECT_EQ(ends(config, R"({"eos_token": null})"), std::nullopt);
  EXPECT_EQ(ends(R"({"bos_token": "<s>", "eos_token": "</s>", "added_tokens_decoder": {}})", R"({"eos_token": "<e>"})"), 4);
  EXPECT_CONTAINS(message_of<FileError>([&] { ends(config, R"({"eos_token": 4})"); }),
                  "special_tokens_map.json: eos_token is a JSON number, expected a string");
}

// transformers 5.24.0 hands it to its library as encode_special_tokens: control tokens in a text are cut, others are not.
TEST(SpecialTokens, AreCutWhereTheConfigurationSaysSo) {
  const Scratch folder;
  folder.write("tokenizer.json", R"({"added_tokens": [{"id": 4, "content": "<s>", "special": true},
                                                      {"id": 5, "content": "<t>", "special": false}],
      "model": {"type": "BPE", "vocab": {"a": 0, "<": 1, "s": 2, ">": 3}, "merges": []}})");
  const auto ids = [&](const char* config, Special special = Special::as_file) {
    folder.write("tokenizer_config.json", config);
    return load(folder)->encode("a<s><t>s", true, special);
  };
  EXPECT_EQ(ids(R"({"split_special_tokens": true})"), (Ids{0, 1, 2, 3, 5, 2}));
  EXPECT_EQ(ids(R"({"split_special_tokens": true})", Special::parse), (Ids{0, 4, 5, 2}));
  EXPECT_EQ(ids(R"({"split_special_tokens": false})"), (Ids{0, 4, 5, 2}));
  EXPECT_CONTAINS(message_of<FileError>([&] { ids(R"({"split_special_tokens": 1})"); }), "split_special_tokens is a JSON number");
}

}  // namespace
}  // namespace vitrine
