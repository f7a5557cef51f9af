// YAML from people: values, where they stand, and what is refused with which words.
#include "io/yaml_reader.h"

#include <gtest/gtest.h>

#include "base/nearest.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

YamlValue parse(const std::string& text) { return YamlValue::parse(text, "r.yaml"); }
std::string refused(const std::string& text) {
  return message_of([&] { parse(text); });
}

TEST(YamlReader, ReadsBlocksFlowsAndScalars) {
  const YamlValue root = parse(
      "name: a b\n"
      "quoted: \"3\"\n"
      "whole: -3\n"
      "plus: +4\n"
      "number: 2.5e-3\n"
      "yes: true\n"
      "nothing: ~\n"
      "empty:\n"
      "list:\n"
      "  - 1\n"
      "  - {head: 3.10, \"x y\": [a, b]}\n"
      "block: |\n"
      "  two\n"
      "  lines\n");
  EXPECT_EQ(root.at("name", "").text(), "a b");
  EXPECT_EQ(root.at("quoted", "").text(), "3");
  EXPECT_TRUE(root.at("quoted", "").is_quoted());
  EXPECT_FALSE(root.at("quoted", "").as_whole().has_value());
  EXPECT_EQ(root.at("whole", "").whole(-5, 5), -3);
  EXPECT_EQ(root.at("plus", "").whole(-5, 5), 4);
  EXPECT_EQ(root.at("number", "").number(), 2.5e-3);
  EXPECT_EQ(root.at("whole", "").number(), -3);
  EXPECT_TRUE(root.at("yes", "").flag());
  EXPECT_FALSE(root.find("nothing").has_value());
  EXPECT_FALSE(root.find("empty").has_value());
  EXPECT_FALSE(root.find("absent").has_value());
  EXPECT_EQ(root.at("block", "").text(), "two\nlines\n");
  const auto list = root.at("list", "").items();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].at("head", "").text(), "3.10");  // as written, not 3.1
  EXPECT_EQ(list[1].at("x y", "").items()[1].text(), "b");
  ASSERT_EQ(list[1].members().size(), 2u);
  EXPECT_EQ(list[1].members()[0].first, "head");
  EXPECT_EQ(list[1].members()[1].first, "x y");
  EXPECT_EQ(list[1].members()[1].second.items()[1].where(), "r.yaml:11: \"list[1].x y[1]\"");
  EXPECT_TRUE(root.members()[6].second.is_null());
  EXPECT_EQ(root.at("name", "").items().size(), 1u);  // one value is a list of one
  EXPECT_EQ(list[1].at("x y", "").items()[1].where(), "r.yaml:11: \"list[1].x y[1]\"");
  EXPECT_TRUE(parse("").is_null());
  EXPECT_TRUE(parse("# only a comment\n").is_null());
}

TEST(YamlReader, AnchorsAreTheSameValueAgain) {
  const YamlValue root = parse("a: &x [1, 2]\nb: *x\n");
  EXPECT_EQ(root.at("b", "").items()[1].whole(0, 9), 2);
}

// PyYAML, which mergekit reads recipes with, knows YAML 1.1's merge key.
TEST(YamlReader, MergeKeysGiveWhatAnObjectLacks) {
  const YamlValue all = YamlValue::parse(
      "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\n"
      "one: {<<: *b, y: 5}\ntwo: {<<: [*b, *m]}\nthree: {<<: {w: 6}}\nfour: {\"<<\": 7}\n",
      "r.yaml");
  const auto keys = [&](const char* name) {
    std::string text;
    for (const auto& [key, value] : all.at(name, "").members()) text += key + value.text() + " ";
    return text;
  };
  EXPECT_EQ(keys("one"), "x1 y5 ");
  EXPECT_EQ(keys("two"), "x1 y2 z4 ");
  EXPECT_EQ(keys("three"), "w6 ");
  EXPECT_EQ(keys("four"), "<<7 ");  // in quotes it is a name like any other
  for (const char* bad : {"a: {<<: 1}", "a: {<<: [1]}", "a:\n  <<: text\n"})
    EXPECT_CONTAINS(message_of<FileError>([&] { YamlValue::parse(bad, "r.yaml"); }), "has a \"<<\" that is no object") << bad;
}

TEST(YamlReader, ErrorsNameFileLineFieldAndValue) {
  const YamlValue root = parse("a:\n  b: [1, x]\n  c: {}\n  d: " + std::string(200, 'y') + "\n");
  const YamlValue a = root.at("a", "");
  EXPECT_EQ(message_of([&] { a.at("b", "").items()[1].whole(0, 7); }),
            "r.yaml:2: \"a.b[1]\" is \"x\"; expected a whole number from 0 to 7");
  EXPECT_EQ(message_of([&] { a.at("b", "").items()[0].whole(2, 7); }),
            "r.yaml:2: \"a.b[0]\" is \"1\"; expected a whole number from 2 to 7");
  EXPECT_EQ(message_of([&] { a.at("b", "").text(); }), "r.yaml:2: \"a.b\" is a list of 2; expected a text");
  EXPECT_EQ(message_of([&] { a.at("c", "").number(); }), "r.yaml:3: \"a.c\" is an object of 0 keys; expected a number");
  EXPECT_EQ(message_of([&] { a.at("b", "").find("k"); }), "r.yaml:2: \"a.b\" is a list of 2; expected an object of named values");
  EXPECT_EQ(message_of([&] { a.at("e", "a prompt"); }), "r.yaml:2: \"a\" lacks \"e\"; expected a prompt");
  EXPECT_EQ(message_of([&] { root.at("e", "a prompt"); }), "r.yaml:1: the document lacks \"e\"; expected a prompt");
  EXPECT_LT(message_of([&] { a.at("d", "").flag(); }).size(), 120u);
  EXPECT_CONTAINS(message_of([&] { parse("a: \"true\"").at("a", "").flag(); }), "expected true or false");
  for (const char* bad : {"a: 1e999", "a: nan", "a: .inf", "a: \"1\"", "a: 1x", "a: [1]"})
    EXPECT_CONTAINS(message_of([&] { parse(bad).at("a", "").number(); }), "expected a number");
}

TEST(YamlReader, UnknownKeysComeWithTheNearest) {
  const std::vector<std::string> known = {"head", "mlp", "positions"};
  parse("{head: 1, positions: 2}").allow(known);
  EXPECT_EQ(message_of([&] { parse("head: 1\npostions: 2\n").allow(known); }),
            "r.yaml:2: \"postions\" is not known. Did you mean \"positions\"? Here can stand: head, mlp, positions");
  EXPECT_EQ(message_of([&] { parse("head: 1\nfp16: 2\n").allow(known); }),
            "r.yaml:2: \"fp16\" is not known. Here can stand: head, mlp, positions");  // far from all
}

TEST(YamlReader, RefusesWhatIsNoPlainDocument) {
  EXPECT_CONTAINS(refused("a: [1, 2"), "is not valid YAML at column");
  EXPECT_CONTAINS(refused("a: 1\n b: 2\n"), "r.yaml:2: is not valid YAML");
  EXPECT_CONTAINS(refused("a: 1\na: 2\n"), "r.yaml:2: has the key \"a\" twice");
  EXPECT_CONTAINS(refused("a: 1\n---\nb: 2\n"), "second document");
  EXPECT_CONTAINS(refused("a: !!python/object 1\n"), "has the tag");
  EXPECT_CONTAINS(refused("a: *x\n"), "is not valid YAML");
  EXPECT_CONTAINS(refused("a: &x [*x]\n"), "contains it");
  EXPECT_CONTAINS(refused("[1, 2]: 3\n"), "key that is no text");
  EXPECT_CONTAINS(refused("? {a: 1}\n: 3\n"), "key that is no text");
  EXPECT_CONTAINS(refused("~: 3\n"), "key that is no text");
  EXPECT_CONTAINS(refused("a: &x 1\n*x : 3\n"), "key that is no text");
  // Here the parser gives empty documents without end.
  EXPECT_CONTAINS(refused("{,},"), "key that is no text");
  EXPECT_CONTAINS(refused("{a: 1},"), "second document");
  const Scratch scratch;
  EXPECT_CONTAINS(message_of([&] { YamlValue::read(scratch / "absent.yaml"); }), "absent.yaml");
}

// The parser takes what does not end for the key of an object, if more than one bracket stands open.
TEST(YamlReader, NamesTheBracketThatDoesNotEnd) {
  EXPECT_EQ(refused("a: 1\nprompt: [[[[\n"),
            "r.yaml:2: is not valid YAML at column 12: the list that begins there with \"[\" does not end; expected \"]\"");
  const char* const object = "the object that begins there with \"{\" does not end; expected \"}\"";
  EXPECT_EQ(refused("a: {b: 1,\n c: {d: 2\n"), "r.yaml:2: is not valid YAML at column 5: " + std::string(object));
  EXPECT_CONTAINS(refused("a: {b: ["), "r.yaml:1: is not valid YAML at column 8: the list");
  EXPECT_CONTAINS(refused("a: [b, c\nd: e\n"), "r.yaml:1: is not valid YAML at column 4: the list");
  EXPECT_CONTAINS(refused("a: [{b: 1"), "r.yaml:1: is not valid YAML at column 5: the object");
  EXPECT_CONTAINS(refused("? [1, 2]\n: [\n"), "r.yaml:2: is not valid YAML at column 3: the list");
}

TEST(YamlReader, BoundsSizeDepthAndAliases) {
  EXPECT_CONTAINS(refused(std::string(40, '[') + std::string(40, ']')), "deeper than 32 levels");
  std::string open;
  for (int i = 0; i < 100000; ++i) open += "[\n";
  EXPECT_NE(refused(open), "");  // the parser sees a key that never ends
  EXPECT_CONTAINS(refused(open + std::string(100000, ']')), "deeper than 32 levels");
  std::string deep = "a: &a0 [1]\n";
  for (int i = 1; i < 40; ++i)
    deep += "b" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_CONTAINS(refused(deep), "deeper than 32 levels");
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = " *a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 9; ++j) bomb += "," + before;
    bomb += "]\n";
  }
  EXPECT_CONTAINS(refused(bomb), "beyond 262144 values");
  EXPECT_CONTAINS(message_of([&] { YamlValue::parse("[1, 2, 3, 4]", "r.yaml", {.values = 4}); }), "beyond 4 values");
  EXPECT_CONTAINS(message_of([&] { YamlValue::parse("[1, 2, 3, 4]", "r.yaml", {.bytes = 4}); }), "expected at most 4");
  const Scratch scratch;
  const std::string path = scratch.write("long.yaml", std::string(100, '#'));
  EXPECT_CONTAINS(message_of([&] { YamlValue::read(path, {.bytes = 50}); }), "long.yaml");
}

// A recipe may hold as many keys as values are allowed: each is compared with all others in no time.
TEST(YamlReader, ManyKeys) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "k" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(parse(text).members().size(), 200'000u);
  EXPECT_CONTAINS(refused(text + "k7: 1\n"), "r.yaml:200001: has the key \"k7\" twice");
}

TEST(YamlReader, QuotedTextReadsBack) {
  for (const std::string text : {"plain", " he", "a \"b\" \\ c", "line\nbreak\ttab", "▁né 😀", "*", "\x01", ""})
    EXPECT_EQ(parse("a: " + yaml_quoted(text)).at("a", "").text(), text);
}

TEST(Nearest, IsTheLeastEdited) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
  const std::vector<std::string> words = {"zero", "mean", "scale"};
  EXPECT_EQ(nearest("men", words), "mean");
  EXPECT_EQ(nearest("men", {}), "");
}

}  // namespace
}  // namespace vitrine
