// What users rely on, beyond single golden cases: lossless bytes, control tokens in user text, streaming, comparison,
// use from many threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/utf8.h"
#include "support/scratch.h"
#include "tokenizer/load.h"
#include "tokenizer/sentencepiece_writer.h"
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

// The pieces that a Split pre-tokenizer cuts a text into.
std::vector<std::string> split(const std::string& regex, const std::string& behavior, bool invert, const std::string& text) {
  Json json = Json::parse(R"({"model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}})");
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", invert}};
  std::vector<std::string> out;
  for (const TokenPiece& p : tokenizer_from_json(json.dump(), "tokenizer.json", {})->encode_with_offsets(text, false))
    out.push_back(text.substr(p.begin, p.end - p.begin));
  return out;
}

// tokenizers 0.23: a match without characters cuts, too.
TEST(Split, CutsAtEmptyMatches) {
  using Pieces = std::vector<std::string>;
  const struct {
    const char* behavior;
    bool invert;
    Pieces thousands, letters, between;
  } cases[] = {
      {"Removed", false, {"1", "234", "567 ab 12"}, {"b", "c"}, {"1", "2", "3", "4"}},
      {"Removed", true, {}, {"aa"}, {"b", "b", "b"}},
      {"Isolated", false, {"1", "234", "567 ab 12"}, {"b", "aa", "c"}, {"1", "2", "b", "3", "b", "b", "4"}},
      {"Isolated", true, {"1", "234", "567 ab 12"}, {"b", "aa", "c"}, {"1", "2", "b", "3", "b", "b", "4"}},
      {"MergedWithPrevious", false, {"1", "234", "567 ab 12"}, {"baa", "c"}, {"1", "2b", "3b", "b", "4"}},
      {"MergedWithPrevious", true, {"1", "234", "567 ab 12"}, {"b", "aac"}, {"1", "2", "b3", "b", "b4"}},
      {"MergedWithNext", false, {"1", "234", "567 ab 12"}, {"b", "aac"}, {"1", "2", "b3", "b", "b4"}},
      {"MergedWithNext", true, {"1", "234", "567 ab 12"}, {"baa", "c"}, {"1", "2b", "3b", "b", "4"}},
      {"Contiguous", false, {"1", "234", "567 ab 12"}, {"b", "aa", "c"}, {"1", "2", "b", "3", "bb", "4"}},
      {"Contiguous", true, {"1", "234", "567 ab 12"}, {"b", "aa", "c"}, {"1", "2", "b", "3", "bb", "4"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.behavior) + (c.invert ? ", inverted" : ""));
    EXPECT_EQ(split(R"((?=(?:\d{3})+(?:\D|$)))", c.behavior, c.invert, "1234567 ab 12"), c.thousands);
    EXPECT_EQ(split("a*", c.behavior, c.invert, "baac"), c.letters);
    EXPECT_EQ(split(R"((?<=\d)(?=\d)|b)", c.behavior, c.invert, "12b3bb4"), c.between);
  }
}

// tokenizers 0.23: Oniguruma's classes are sets of Unicode, wider than PCRE2's.
TEST(Split, PosixClassesAreOnigurumas) {
  const std::string text = "a\u01C5\u0345\u0488\u00B2\u24B6_1$+\u20AC \t\u2028\u00AD\x01";
  const std::pair<const char*, const char*> classes[] = {
      {"alpha", "a\u01C5\u0345\u24B6"},
      {"alnum", "a\u01C5\u0345\u24B61"},
      {"word", "a\u01C5\u0345\u0488\u24B6_1"},
      {"punct", "\u24B6_$+\u20AC"},
      {"upper", "\u24B6"},
      {"lower", "a\u0345"},
      {"space", " \t\u2028"},
      {"blank", " \t"},
      {"graph", "a\u01C5\u0345\u0488\u00B2\u24B6_1$+\u20AC\u00AD"},
      {"print", "a\u01C5\u0345\u0488\u00B2\u24B6_1$+\u20AC \u00AD"},
      {"^punct", "a\u01C5\u0345\u0488\u00B21 \t\u2028\u00AD\x01"},
      {"^graph", " \t\u2028\x01"},
  };
  const auto joined = [&](const std::string& set) {
    std::string out;
    for (const std::string& piece : split(set, "Removed", true, text)) out += piece;
    return out;
  };
  for (const auto& [name, characters] : classes) EXPECT_EQ(joined(std::string("[[:") + name + ":]]"), characters) << name;
  EXPECT_EQ(joined("[^[:punct:]a]"), "\u01C5\u0345\u0488\u00B21 \t\u2028\u00AD\x01");
  EXPECT_EQ(joined("[[:^alpha:]a]"), "a\u0488\u00B2_1$+\u20AC \t\u2028\u00AD\x01");
}

// tokenizers 0.23.3: where Ruby's syntax and PCRE2's give the same words different meanings.
TEST(Split, SyntaxIsOnigurumas) {
  const struct {
    const char *regex, *text;
    std::vector<std::string> pieces;
  } cases[] = {
      {R"([\v])", "a\r\vb\n", {"a\r", "\v", "b\n"}},
      {R"(\v+)", "a\v\v\n", {"a", "\v\v", "\n"}},
      {R"([^\S\v]+)", "a \v b", {"a", " ", "\v", " ", "b"}},
      {R"((?m)a.)", "a\na", {"a\n", "a"}},
      {R"((?m:a.)b.)", "a\nb\n", {"a\nb\n"}},
      {R"((?mi)A.)", "a\nxa", {"a\n", "xa"}},
      {R"((?m:a(?-m:.)).)", "a\na.\n", {"a\na.\n"}},
      {R"((?i-m)A.)", "a\nxab", {"a\nx", "ab"}},
      {R"(a(?i)b|c)", "ab aB C AC aC", {"ab", " ", "aB", " C AC ", "aC"}},
      {R"((x(?i)b|c)d)", "xBd Cd xCd", {"xBd", " Cd ", "xCd"}},
      {R"((?i)b|c)", "aBC", {"a", "B", "C"}},
      {R"((?x) a # (?m)b (\n.)", "ab a.", {"a", "b ", "a", "."}},
      {R"(a{2}?)", "aab", {"aa", "b"}},
      {R"(a{2}?b)", "aabab", {"aab", "a", "b"}},
      {R"((?:ab){2}?c)", "ababcabc", {"ababc", "ab", "c"}},
      {R"(a{2,}?b)", "aaab", {"aaab"}},
      {R"(a{2}??b)", "aabb", {"aab", "b"}},
      {R"(é{2}?x)", "ééxéx", {"ééx", "é", "x"}},
      {R"(a(?#(\)){2}b)", "aab", {"aab"}},
      {R"(\Qa\E)", "QaE a", {"QaE", " a"}},
      {R"(\V)", "aV", {"a", "V"}},
      {R"([^a&&^b])", "a^b", {"a", "^", "b"}},
      {R"([a-f&&^b]+)", "ab^", {"a", "b", "^"}},
      {R"([a-c&&[^b]]+)", "abc", {"a", "b", "c"}},
      {R"([^a-c&&b-d]+)", "abcd", {"a", "bc", "d"}},
      {R"([&&a])", "a&", {"a&"}},
      {R"([a&&])", "a&", {"a&"}},
      {R"([^&&a]+)", "a&", {"a&"}},
      {R"(\xE3\x81\x82+)", "aああ", {"a", "ああ"}},
      {R"(\343\201\202)", "aああ", {"a", "あ", "あ"}},
      {R"([\xC3\xA9-\xC3\xAB]+)", "èéêëì", {"è", "éêë", "ì"}},
      {R"([^\xE3\x81\x82]+)", "aあb", {"a", "あ", "b"}},
      {R"([\n-\xFF]+)", "a\tbé", {"a", "\t", "b", "é"}},
      {R"(\x{e9})", "aé", {"a", "é"}},
      {R"(\pL)", "apL", {"a", "pL"}},
      {R"((a)\g1)", "aag1", {"a", "ag1"}},
  };
  for (const auto& c : cases) EXPECT_EQ(split(c.regex, "Isolated", false, c.text), c.pieces) << c.regex;
}

// tokenizers 0.23.3: "too short multibyte code string" and "invalid code point value".
TEST(Split, BytesThatAreNoCharacterAreRefused) {
  for (const char* regex : {R"(\xE3)", R"([\xE3])", R"(\xe9a)", R"(\343\201)", R"(\x80)"}) {
    try {
      split(regex, "Isolated", false, "a");
      ADD_FAILURE() << regex;
    } catch (const FileError& e) {
      EXPECT_NE(std::string(e.what()).find("has bytes that are no character in UTF-8"), std::string::npos) << e.what();
    }
  }
}

// tokenizers 0.23.3: a match without characters is replaced, too, except where the match before ends.
TEST(Replace, PutsItsContentAtEmptyMatches) {
  const char* const texts[5] = {"ab", "a  b", "bé日", "xx", "a\nb\n"};
  const struct {
    const char* regex;
    const char* results[5];
  } cases[] = {
      {"^", {"Xab", "Xa  b", "Xbé日", "Xxx", "Xa\nXb\n"}},
      {"$", {"abX", "a  bX", "bé日X", "xxX", "aX\nbX\nX"}},
      {"(?=b)", {"aXb", "a  Xb", "Xbé日", "xx", "a\nXb\n"}},
      {"(?<=a)", {"aXb", "aX  b", "bé日", "xx", "aX\nb\n"}},
      {"(?=日)", {"ab", "a  b", "béX日", "xx", "a\nb\n"}},
      {"x*", {"XaXbX", "XaX X XbX", "XbXéX日X", "X", "XaX\nXbX\nX"}},
      {"\\b", {"XabX", "XaX  XbX", "Xbé日X", "XxxX", "XaX\nXbX\n"}},
      {" *", {"XaXbX", "XaXbX", "XbXéX日X", "XxXxX", "XaX\nXbX\nX"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.regex);
    const Json replace = {{"type", "Replace"}, {"pattern", {{"Regex", c.regex}}}, {"content", "X"}};
    Json json = Json::parse(R"({"model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}})");
    json["normalizer"] = replace;
    for (size_t i = 0; i < std::size(texts); ++i) json["model"]["vocab"][c.results[i]] = 1 + i;
    const auto normalizes = tokenizer_from_json(json.dump(), "tokenizer.json", {});
    for (size_t i = 0; i < std::size(texts); ++i) {
      const auto pieces = normalizes->encode_with_offsets(texts[i], false);
      ASSERT_EQ(pieces.size(), 1u);
      EXPECT_EQ(normalizes->piece(pieces[0].id), c.results[i]) << texts[i];
      EXPECT_EQ(normalizes->encode(texts[i], false), Ids{pieces[0].id}) << texts[i];
      EXPECT_EQ(pieces[0].begin, 0u);
      EXPECT_EQ(pieces[0].end, std::string(texts[i]).size());
    }
    EXPECT_EQ(normalizes->encode("", false), Ids{});

    json.erase("normalizer");
    json["decoder"] = replace;
    json["model"]["vocab"] = {{"<unk>", 0}};
    for (size_t i = 0; i < std::size(texts); ++i) json["model"]["vocab"][texts[i]] = 1 + i;
    const auto decodes = tokenizer_from_json(json.dump(), "tokenizer.json", {});
    for (size_t i = 0; i < std::size(texts); ++i) EXPECT_EQ(decodes->decode(Ids{int32_t(1 + i)}), c.results[i]);
  }
}

// tokenizers 0.23: white space that <|a|> takes along may be a token itself.
TEST(AddedTokens, InTheWhiteSpaceOfTheOneBefore) {
  const auto tokenizer = tokenizer_from_json(R"({"added_tokens": [
      {"id": 1, "content": "<|a|>", "rstrip": true, "special": true}, {"id": 2, "content": "\n", "normalized": false}],
      "model": {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}})",
                                             "tokenizer.json", {});
  EXPECT_EQ(tokenizer->encode("<|a|>\nx"), (Ids{1, 2, 0}));
  EXPECT_EQ(tokenizer->encode("<|a|>  \n  x"), (Ids{1, 2, 0}));
  EXPECT_EQ(tokenizer->encode("<|a|>  x"), (Ids{1, 0}));
  EXPECT_EQ(tokenizer->encode("<|a|> <|a|>\n\n"), (Ids{1, 1, 2, 2}));
}

// sentencepiece 0.2.3: the score of a user-defined piece is its own and does not fall with those of the others.
TEST(Unigram, UserDefinedPiecesHaveTheirOwnScore) {
  SentencePieceSpec spec;
  const auto add = [&](const char* text, float score, PieceType type) { spec.pieces.push_back({text, score, type}); };
  add("<unk>", 0, PieceType::unknown);
  add("\xE2\x96\x81", -1, PieceType::normal);
  add("a", -1.5f, PieceType::normal);
  add("b", -2, PieceType::normal);
  add("bc", -1, PieceType::user_defined);
  add("c", -2, PieceType::normal);
  add("ab", -0.5f, PieceType::normal);
  add("d", -2, PieceType::normal);
  add("bcd", -1.95f, PieceType::normal);
  add("bcb", -1.85f, PieceType::normal);
  spec.add_dummy_prefix = spec.remove_extra_whitespaces = false;
  ProtobufWriter how;
  how.integer(3, 1);  // model_type: unigram
  const auto tokenizer = tokenizer_from_sentencepiece(sentencepiece_model(spec, how), "tokenizer.model", {});
  EXPECT_EQ(tokenizer->encode("abab"), (Ids{6, 6}));
  EXPECT_EQ(tokenizer->encode("aabcc"), (Ids{2, 2, 4, 5}));
  EXPECT_EQ(tokenizer->encode("bcd"), (Ids{4, 7}));
  EXPECT_EQ(tokenizer->encode("bcbcd"), (Ids{4, 4, 7}));
  EXPECT_EQ(tokenizer->encode("bcb"), Ids{9});
}

// Expected as tokenizers 0.23.3 gives it. White space that a token with rstrip has taken along is not there for one with lstrip,
// of which nothing may be left; one without it is found all the same.
TEST(AddedTokens, WhiteSpaceTokensBehindOnesThatStripIt) {
  const auto ids = [](const char* space, const char* text) {
    const Json json = {{"added_tokens", {{{"id", 3}, {"content", "<r>"}, {"rstrip", true}}, Json::parse(space)}},
                       {"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}, {"b", 1}, {"[UNK]", 2}}}, {"unk_token", "[UNK]"}}}};
    return tokenizer_from_json(json.dump(), "tokenizer.json", {})->encode(text);
  };
  const char* const left = R"({"id": 4, "content": "  ", "lstrip": true})";
  EXPECT_EQ(ids(left, "<r>  a"), (Ids{3, 0}));
  EXPECT_EQ(ids(left, "<r>  "), (Ids{3}));
  EXPECT_EQ(ids(left, "a   b"), (Ids{0, 4, 2}));
  const char* const both = R"({"id": 4, "content": "  ", "lstrip": true, "rstrip": true})";
  EXPECT_EQ(ids(both, "<r>    a"), (Ids{3, 0}));
  EXPECT_EQ(ids(both, "<r>     <r>"), (Ids{3, 3}));
  const char* const plain = R"({"id": 4, "content": "  "})";
  EXPECT_EQ(ids(plain, "<r>    a"), (Ids{3, 4, 4, 0}));
  EXPECT_EQ(ids(plain, "<r>   a"), (Ids{3, 4, 2}));
}

// Named as it is written, a token is the one that continues a text: the space that these tokenizers put in front of every text
// is not the user's.
TEST(SingleToken, IsThePieceThatContinuesAText) {
  for (const char* file : {"variants/llama2_like.json", "variants/mistral_like.json"}) {
    const auto tokenizer = load_tokenizer(kGolden + file);
    const auto named = [&](const char* text) { return tokenizer->piece(single_token(*tokenizer, text)); };
    ASSERT_EQ(tokenizer->piece(tokenizer->encode("s", false).at(0)), "▁s") << file;
    EXPECT_EQ(named("s"), "s") << file;
    EXPECT_EQ(named(" s"), "▁s") << file;
    EXPECT_EQ(named("▁s"), "▁s") << file;
    EXPECT_EQ(named(" "), "▁") << file;
    EXPECT_EQ(named("<0x0A>"), "<0x0A>") << file;
    EXPECT_CONTAINS(message_of<InputError>([&] { single_token(*tokenizer, "s s"); }), "\"s s\" is no single token but \"");
  }
  const auto bytes = load_tokenizer(kGolden + "bpe512");
  EXPECT_EQ(bytes->piece(single_token(*bytes, "s")), "s");
  EXPECT_EQ(single_token(*bytes, " t"), bytes->encode(" t").at(0));
}

// A piece that only stands at the beginning of words is not what "fish" names; a character without a piece is its byte.
TEST(SingleToken, DoesNotTakeTheSpaceInFrontForTheUsers) {
  SentencePieceSpec spec;
  const auto add = [&](const char* text, float score, PieceType type) { spec.pieces.push_back({text, score, type}); };
  add("<unk>", 0, PieceType::unknown);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte).c_str(), 0, PieceType::byte);
  add("▁", -1, PieceType::normal);
  add("f", -2, PieceType::normal);
  add("o", -2, PieceType::normal);
  add("▁f", -0.5f, PieceType::normal);
  add("▁fo", -0.4f, PieceType::normal);
  spec.byte_fallback = true;
  const auto tokenizer = tokenizer_from_sentencepiece(sentencepiece_model(spec), "tokenizer.model", {});
  EXPECT_EQ(tokenizer->piece(tokenizer->encode("f", false).at(0)), "▁f");
  EXPECT_EQ(tokenizer->piece(single_token(*tokenizer, "f")), "f");
  EXPECT_EQ(tokenizer->piece(single_token(*tokenizer, " fo")), "▁fo");
  EXPECT_EQ(tokenizer->piece(single_token(*tokenizer, "\n")), "<0x0A>");
  EXPECT_CONTAINS(message_of<InputError>([&] { single_token(*tokenizer, "fo"); }),
                  "\"fo\" is no single token but \"▁fo\"; expected one");
}

// A user-defined piece is whole from the start: no two pieces merge to it.
TEST(Merges, DoNotMakeUserDefinedPieces) {
  SentencePieceSpec spec;
  const auto add = [&](const char* text, float score, PieceType type) { spec.pieces.push_back({text, score, type}); };
  add("<unk>", 0, PieceType::unknown);
  add("a", -1, PieceType::normal);
  add("b", -2, PieceType::normal);
  add("ab", -3, PieceType::normal);
  add("ba", 0, PieceType::user_defined);
  const auto tokenizer = tokenizer_from_sentencepiece(sentencepiece_model(spec), "tokenizer.model", {});
  EXPECT_TRUE(tokenizer->merge("a", "b"));
  EXPECT_FALSE(tokenizer->merge("b", "a"));
}

// sentencepiece 0.2.3: a character that only a control piece or an unused one spells is unknown, though it may be merged.
TEST(Merges, LeaveCharactersOfNoPieceUnknown) {
  SentencePieceSpec spec;
  const auto add = [&](const char* text, float score, PieceType type) { spec.pieces.push_back({text, score, type}); };
  add("<unk>", 0, PieceType::unknown);
  add("a", -5, PieceType::unused);
  add("b", -6, PieceType::normal);
  add("ab", -1, PieceType::unused);
  add("c", -7, PieceType::normal);
  add("¤c", -2, PieceType::normal);
  add("¤", 0, PieceType::control);
  spec.add_dummy_prefix = spec.remove_extra_whitespaces = false;
  const auto plain = tokenizer_from_sentencepiece(sentencepiece_model(spec), "tokenizer.model", {});
  for (int byte = 0; byte < 256; ++byte) spec.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, PieceType::byte});
  spec.byte_fallback = true;
  const auto bytes = tokenizer_from_sentencepiece(sentencepiece_model(spec), "tokenizer.model", {});
  const struct {
    const char* text;
    Ids plain, bytes;
  } cases[] = {{"ab", {0, 2}, {104, 2}}, {"abc", {0, 2, 4}, {104, 2, 4}}, {"aab", {0, 2}, {104, 104, 2}},
               {"¤", {0}, {201, 171}},   {"¤a", {0}, {201, 171, 104}},    {"c¤b", {4, 0, 2}, {4, 201, 171, 2}},
               {"c¤c", {4, 5}, {4, 5}}};
  for (const auto& c : cases) {
    for (const Special special : {Special::as_file, Special::text}) {
      EXPECT_EQ(plain->encode(c.text, false, special), c.plain) << c.text;
      EXPECT_EQ(bytes->encode(c.text, false, special), c.bytes) << c.text;
    }
  }
  EXPECT_EQ(bytes->encode("¤b", false, Special::parse), (Ids{6, 2}));
}

// Where no text may be cut: inside a user-defined piece or an added token, in whatever spelling it is found.
TEST(LiesAcross, InsideTokensThatAreFoundFirst) {
  SentencePieceSpec spec;
  for (const char* piece : {"<unk>", "▁▁", "x▁y", "▁", "x", "y"}) spec.pieces.push_back({piece, 0, PieceType::normal});
  spec.pieces[0].type = PieceType::unknown;
  spec.pieces[1].type = spec.pieces[2].type = PieceType::user_defined;
  spec.add_dummy_prefix = spec.remove_extra_whitespaces = false;
  const auto model = tokenizer_from_sentencepiece(sentencepiece_model(spec), "tokenizer.model", {});
  const auto json = tokenizer_from_json(R"({"added_tokens": [
      {"id": 1, "content": "▁▁", "normalized": true}, {"id": 2, "content": "x▁y", "normalized": true},
      {"id": 6, "content": "y z", "normalized": false}, {"id": 7, "content": "y <|a|>", "special": true}],
      "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
      "model": {"type": "BPE", "vocab": {"<unk>": 0, "▁": 3, "x": 4, "y": 5}, "merges": [], "unk_token": "<unk>"}})",
                                        "tokenizer.json", {});
  const auto places = [](const Tokenizer& tokenizer, const std::string& text) {
    std::vector<size_t> inside;
    for (size_t at = 0; at <= text.size(); ++at)
      if (tokenizer.lies_across(text, at)) inside.push_back(at);
    return inside;
  };
  using Places = std::vector<size_t>;
  for (const Tokenizer* tokenizer : {model.get(), json.get()}) {
    EXPECT_EQ(places(*tokenizer, "zx yz"), (Places{2, 3}));
    EXPECT_EQ(places(*tokenizer, "zx▁yz"), (Places{2, 3, 4, 5}));
    EXPECT_EQ(places(*tokenizer, "x  y"), (Places{2}));
    EXPECT_EQ(places(*tokenizer, "x▁ y"), (Places{2, 3, 4}));
    EXPECT_EQ(places(*tokenizer, "y x"), Places{});
  }
  EXPECT_EQ(places(*json, "y z"), (Places{1, 2}));
  EXPECT_EQ(places(*json, "y <|a|>"), Places{});  // a control token stays text
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
  EXPECT_NE(gemma->description().find("puts token 2, \"<bos>\", in front (BOS), adds no EOS"), std::string::npos)
      << gemma->description();
  const auto gpt2 = load_tokenizer(kGolden + "gpt2");
  EXPECT_FALSE(gpt2->adds_bos());
  EXPECT_TRUE(gpt2->encode("").empty());
  EXPECT_NE(gpt2->description().find("puts nothing in front"), std::string::npos) << gpt2->description();
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
