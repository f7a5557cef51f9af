// Hostile JSON: what parse_json and parse_ordered_json refuse, and that many values cost no more than their number.
#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/golden.h"

namespace vitrine {
namespace {

using nlohmann::ordered_json;

std::string repeated(const std::string& text, size_t n, const std::string& between = "") {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += (i == 0 ? "" : between) + text;
  return out;
}

// The error of both functions, which is the same; "" for none.
std::string refusal(const std::string& text) {
  const auto message = [](auto parse) -> std::string {
    try {
      parse();
      return "";
    } catch (const FileError& error) {
      return error.what();
    }
  };
  const std::string plain = message([&] { parse_json(text, "f"); });
  EXPECT_EQ(message([&] { parse_ordered_json(text, "f"); }), plain);
  return plain;
}

TEST(Json, ValuesAreThoseOfTheLibrary) {
  for (const std::string text :
       {R"(null)", R"( true )", R"(false)", R"(-0)", R"(-12)", R"(18446744073709551615)", R"(-9223372036854775808)",
        R"(18446744073709551616)", R"(0.1)", R"(-1e-400)", R"("")", R"("\u00e9\ud83d\ude00\n\"\\\/")", R"([])", R"({})",
        R"([[],{},[{}],[[]]])", R"({"b": 1, "a": [1, {"z": null, "y": [true, {"": "x"}]}], "": {}})", "\xEF\xBB\xBF[1]",
        "\t\r\n[ 1 ,2\n]\n"}) {
    const Json json = parse_json(text, "f");
    EXPECT_EQ(json, Json::parse(text)) << text;
    EXPECT_EQ(json.type(), Json::parse(text).type()) << text;
    EXPECT_EQ(parse_ordered_json(text, "f").dump(), ordered_json::parse(text).dump()) << text;
  }
}

TEST(Json, RefusalsNameTheByte) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "is not valid JSON: it is truncated after 0 bytes"},
      {" ", "is not valid JSON: it is truncated after 1 bytes"},
      {"{", "is not valid JSON: it is truncated after 1 bytes"},
      {"[1,", "is not valid JSON: it is truncated after 3 bytes"},
      {R"({"a)", "is not valid JSON: it is truncated after 3 bytes"},
      {R"({"a":)", "is not valid JSON: it is truncated after 5 bytes"},
      {"tru", "is not valid JSON: it is truncated after 3 bytes"},
      {"-", "is not valid JSON: it is truncated after 1 bytes"},
      {R"(["\u12)", "is not valid JSON: it is truncated after 6 bytes"},
      {R"("\ud83d")",
       "holds half of a surrogate pair (\\ud800 to \\udfff) at byte 8 of 8, which is no character by itself; write the character "
       "whole"},
      {R"("\ude00")",
       "holds half of a surrogate pair (\\ud800 to \\udfff) at byte 7 of 8, which is no character by itself; write the character "
       "whole"},
      {R"("\ud83d\u0041")",
       "holds half of a surrogate pair (\\ud800 to \\udfff) at byte 13 of 14, which is no character by itself; write the "
       "character whole"},
      {R"("\q")", "is not valid JSON at byte 3 of 4"},
      {"\"\n\"", "is not valid JSON at byte 2 of 3"},
      {"\"\xff\"", "is not valid JSON at byte 2 of 3"},
      {"[\"\xc3\x28\"]", "is not valid JSON at byte 4 of 6"},
      {"[1,]", "is not valid JSON at byte 4 of 4"},
      {"[1 2]", "is not valid JSON at byte 4 of 5"},
      {"{1: 2}", "is not valid JSON at byte 2 of 6"},
      {R"({"a" 1})", "is not valid JSON at byte 6 of 7"},
      {R"({"a": 1,})", "is not valid JSON at byte 9 of 9"},
      {R"({"a": 1])", "is not valid JSON at byte 8 of 8"},
      {"[01]", "is not valid JSON at byte 3 of 4"},
      {"[1] []", "is not valid JSON at byte 5 of 6"},
      {"[] x", "is not valid JSON at byte 4 of 4"},
      {"NaN", "is not valid JSON at byte 1 of 3"},
      {"/* */ 1", "is not valid JSON at byte 1 of 7"},
      {"[1e999]", "holds a number beyond the range of a double"},
      {"{\"a\": -1e999, \"a\": 1}", "holds a number beyond the range of a double"},
      {R"({"a": 1, "b": {"a": 2}, "a": 3})", "has the key \"a\" twice in one object; remove one of them"},
      {R"([{"a": {}, "\u0061": [)", "has the key \"a\" twice in one object; remove one of them"},
      {R"({"": 1, "": 2})", "has the key \"\" twice in one object; remove one of them"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(refusal(text), "f: " + message) << text;
}

TEST(Json, NestsAtMost64Deep) {
  const std::string deeper = "f: nests deeper than 64 levels";
  EXPECT_EQ(refusal(repeated("[", 64) + "1" + repeated("]", 64)), "");
  EXPECT_EQ(refusal(repeated("[", 65) + repeated("]", 65)), "");
  EXPECT_EQ(refusal(repeated("[", 65) + "1" + repeated("]", 65)), deeper);
  EXPECT_EQ(refusal(repeated("{\"a\":", 64) + "{}" + repeated("}", 64)), "");
  EXPECT_EQ(refusal(repeated("{\"a\":", 65) + "1" + repeated("}", 65)), deeper);
  EXPECT_EQ(refusal(std::string(1 << 20, '[')), deeper);
  EXPECT_EQ(refusal(repeated("[{\"a\":", 1 << 18)), deeper);
}

TEST(Json, ManySiblings) {  // each end of an object or a list once took time for all siblings before it
  constexpr size_t kMany = 400'000;
  const std::string mixed = R"({},[],{"a":{}},[{}],"",1)";
  const std::string text = "{\"x\":[" + repeated(mixed, kMany / 4, ",") + "]}";
  const Json json = parse_json(text, "f");
  EXPECT_EQ(json.at("x").size(), kMany / 4 * 6);
  EXPECT_EQ(json, Json::parse(text));
  EXPECT_EQ(parse_ordered_json(text, "f").dump(), text);
}

TEST(Json, ManyKeys) {
  std::string text = "{";
  for (int i = 0; i < 400'000; ++i) text += "\"" + std::to_string(i) + "\":[],";
  EXPECT_EQ(parse_json(text + "\"\":{}}", "f"), Json::parse(text + "\"\":{}}"));
  EXPECT_EQ(message_of([&] { parse_json(text + "\"7\":1}", "f"); }),
            "f: has the key \"7\" twice in one object; remove one of them");

  const auto object = [](size_t keys) {
    std::string out = "{";
    for (size_t i = 0; i < keys; ++i)
      out += std::string(i == 0 ? "\"" : ",\"") + std::to_string(keys - i) + "\":" + std::to_string(i);
    return out + "}";
  };
  const std::string objects = "[" + repeated(object(kMostOrderedKeys), 600, ",") + "]";
  EXPECT_EQ(parse_ordered_json(objects, "f").dump(), objects);
  EXPECT_EQ(message_of([&] { parse_ordered_json("[" + object(kMostOrderedKeys + 1) + "]", "f"); }),
            "f: has an object of more than 1024 keys");
}

TEST(Json, MemoryOfARequestIsBounded) {  // 16 MiB of "[[[…" would take 512 MiB
  const auto refused = [](const std::string& value, size_t n) {
    return message_of([&] { parse_ordered_json("[" + repeated(value, n, ",") + "]", "f"); });
  };
  constexpr size_t kLists = kMostOrderedBytes / 64 - 1, kNumbers = kMostOrderedBytes / 16 - 4;
  EXPECT_EQ(parse_ordered_json("[" + repeated("[]", kLists, ",") + "]", "f").size(), kLists);
  EXPECT_EQ(parse_ordered_json("[" + repeated("1", kNumbers, ",") + "]", "f").size(), kNumbers);
  const std::string message =
      "f: has too many values: they take more than 64 MiB, 16 bytes for a number and 64 for a string, a "
      "list, an object or a key";
  EXPECT_EQ(refused("[]", kLists + 1), message);
  EXPECT_EQ(refused("{}", kLists + 1), message);
  EXPECT_EQ(refused("\"\"", kLists + 1), message);
  EXPECT_EQ(refused("1", kNumbers + 1), message);
  EXPECT_EQ(refused("{\"a\":\"\"}", kLists / 3 + 1), message);
  EXPECT_EQ(refused(repeated("[", 60) + repeated("]", 60), kLists / 60 + 1), message);
}

}  // namespace
}  // namespace vitrine
