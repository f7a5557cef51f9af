// Texts written at random under JSON schemas: each is JSON and is what its schema says, by a check of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar_support.h"

namespace vitrine {
namespace {

struct SchemaCase {
  const char* name;
  const char* schema;
  bool (*holds)(const Json&);
};

// Also one with more digits than an int64 holds, which reads as a double.
bool is_whole(const Json& j) { return j.is_number() && j.get<double>() == std::floor(j.get<double>()); }

bool is_tree(const Json& j) {
  if (!j.is_object() || j.size() != 2 || !is_whole(j["value"]) || !j["children"].is_array() || j["children"].size() > 2)
    return false;
  return std::ranges::all_of(j["children"], is_tree);
}

size_t characters(const std::string& text) {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); at += utf8_at(text, at).size) ++n;
  return n;
}

const SchemaCase kCases[] = {
    {"object", R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
                   "required": ["name", "age"], "additionalProperties": false})",
     [](const Json& j) {
       return j.is_object() && j.size() == 2 && j["name"].is_string() && characters(j["name"]) <= 12 && is_whole(j["age"]);
     }},
    {"nested", R"({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "object", "properties":
                   {"c": {"type": "null"}}, "required": ["c"], "additionalProperties": false}}, "required": ["b"],
                   "additionalProperties": false}}, "required": ["a"], "additionalProperties": false})",
     [](const Json& j) { return j == Json{{"a", {{"b", {{"c", nullptr}}}}}}; }},
    {"optional",
     R"({"type": "object", "properties": {"x": {"type": "boolean"}, "y": {"type": "boolean"}, "z": {"type": "boolean"}},
                     "required": ["y"], "additionalProperties": false})",
     [](const Json& j) {
       if (!j.is_object() || !j.contains("y")) return false;
       for (const auto& [key, value] : j.items())
         if (!value.is_boolean() || (key != "x" && key != "y" && key != "z")) return false;
       return true;
     }},
    {"enumeration", R"({"enum": ["red", "grün", 7, null, [1, 2], {"a": true}]})",
     [](const Json& j) {
       return j == "red" || j == "grün" || j == 7 || j.is_null() || j == Json{1, 2} || j == Json{{"a", true}};
     }},
    {"constant", R"({"const": {"quoted": "a \"b\" \\ ü 🙂"}})",
     [](const Json& j) { return j == Json{{"quoted", "a \"b\" \\ ü 🙂"}}; }},
    {"array", R"({"type": "array", "items": {"type": "integer", "minimum": -3, "maximum": 12}, "minItems": 2, "maxItems": 4})",
     [](const Json& j) {
       return j.is_array() && j.size() >= 2 && j.size() <= 4 &&
              std::ranges::all_of(j, [](const Json& n) { return n.is_number_integer() && n >= -3 && n <= 12; });
     }},
    {"tuple", R"({"type": "array", "prefixItems": [{"type": "boolean"}, {"enum": ["a", "b"]}], "items": false, "minItems": 2})",
     [](const Json& j) { return j.is_array() && j.size() == 2 && j[0].is_boolean() && (j[1] == "a" || j[1] == "b"); }},
    {"integers", R"({"type": "integer", "exclusiveMinimum": 17, "maximum": 1205})",
     [](const Json& j) { return j.is_number_integer() && j > 17 && j <= 1205; }},
    {"numbers", R"({"type": "number", "minimum": 0.5, "exclusiveMaximum": 2})",
     [](const Json& j) { return j.is_number() && j.get<double>() >= 0.5 && j.get<double>() < 2; }},
    {"pattern", R"({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"})",
     [](const Json& j) { return std::regex_match(j.get<std::string>(), std::regex("[A-Z]{2}-[0-9]{3,5}")); }},
    {"lengths", R"({"type": "string", "minLength": 3, "maxLength": 5})",
     [](const Json& j) { return characters(j.get<std::string>()) >= 3 && characters(j.get<std::string>()) <= 5; }},
    {"tree",
     R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"}, "children":
                 {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}}, "required": ["value", "children"],
                 "additionalProperties": false}}})",
     is_tree},
    {"alternatives",
     R"({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "array", "items": {"type": "null"}, "maxItems": 2},
                         {"type": "object", "properties": {"kind": {"const": "k"}}, "required": ["kind"],
                         "additionalProperties": false}]})",
     [](const Json& j) {
       return (j.is_string() && characters(j) <= 3) || j == Json{{"kind", "k"}} ||
              (j.is_array() && j.size() <= 2 && std::ranges::all_of(j, [](const Json& n) { return n.is_null(); }));
     }},
    {"unicode_keys", R"({"type": "object", "properties": {"größe": {"enum": ["ä", "日本"]}}, "required": ["größe"],
                         "additionalProperties": false})",
     [](const Json& j) { return j.size() == 1 && (j["größe"] == "ä" || j["größe"] == "日本"); }},
    {"additional", R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 0})",
     [](const Json& j) { return j.is_object() && std::ranges::all_of(j, is_whole); }},
    {"both", R"({"allOf": [{"type": "integer", "minimum": 10}, {"type": "integer", "maximum": 20}]})",
     [](const Json& j) { return j.is_number_integer() && j >= 10 && j <= 20; }},
    {"multiples", R"({"type": "integer", "minimum": -40, "maximum": 999, "multipleOf": 7})",
     [](const Json& j) { return j.is_number_integer() && j.get<int>() % 7 == 0 && j >= -40 && j <= 999; }},
    {"closed", R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/B"}}, "required": ["a"],
                   "$defs": {"B": {"properties": {"c": {"type": "null"}}, "type": "object"}}})",
     [](const Json& j) {
       for (const auto& [key, value] : j.items())
         if (key != "a" && (key != "b" || (value != Json::object() && value != Json{{"c", nullptr}}))) return false;
       return is_whole(j["a"]) && std::abs(j["a"].get<double>()) < 9.1e15;
     }},
    {"composed", R"({"$defs": {"Base": {"type": "object", "properties": {"id": {"enum": [1, 2]}}, "required": ["id"]}},
                     "allOf": [{"$ref": "#/$defs/Base"}, {"type": "object", "properties": {"k": {"$ref": "#/$defs/Base"}},
                     "required": ["k", "more"]}]})",
     [](const Json& j) {
       return j.size() == 3 && j.contains("more") && (j["id"] == 1 || j["id"] == 2) && j["k"].size() == 1 &&
              j["k"].contains("id");
     }},
    {"either", R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "anyOf": [{"required": ["a"]},
                   {"required": ["b"]}]})",
     [](const Json& j) { return j == Json{{"a", 1}} || j == Json{{"b", 2}} || j == Json{{"a", 1}, {"b", 2}}; }},
    {"kinds", R"({"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "discriminator": {"propertyName": "k"},
                  "$defs": {"A": {"type": "object", "properties": {"k": {"const": "a", "default": "a"}, "x": {"type": "boolean"}},
                  "required": ["x"]}, "B": {"type": "object", "properties": {"k": {"const": "b", "default": "b"}, "y": {"const": 7}},
                  "required": ["y"]}}})",
     [](const Json& j) {
       const std::string k = j.value("k", "");
       return (j.contains("x") && j["x"].is_boolean() && k != "b") || (j.value("y", 0) == 7 && k != "a");
     }},
    {"listed_names", R"({"type": "object", "propertyNames": {"$ref": "#/$defs/N"}, "additionalProperties": {"enum": [1, 2]},
                         "$defs": {"N": {"enum": ["a", "b"]}}})",
     [](const Json& j) {
       for (const auto& [key, value] : j.items())
         if ((key != "a" && key != "b") || (value != 1 && value != 2)) return false;
       return j.is_object();
     }},
    {"matched_names",
     R"({"type": "object", "propertyNames": {"pattern": "^x[0-9]$"}, "additionalProperties": {"type": "boolean"}})",
     [](const Json& j) {
       for (const auto& [key, value] : j.items())
         if (!std::regex_match(key, std::regex("x[0-9]")) || !value.is_boolean()) return false;
       return j.is_object();
     }},
    {"unknown_format", R"({"type": "string", "format": "phone", "pattern": "^[0-9]{3}$"})",
     [](const Json& j) { return std::regex_match(j.get<std::string>(), std::regex("[0-9]{3}")); }},
    {"set", R"({"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/Color"}, "minItems": 1,
                "$defs": {"Color": {"enum": ["red", "green", "blue"], "type": "string"}}})",
     [](const Json& j) {
       const std::set<Json> values(j.begin(), j.end());
       for (const Json& value : values)
         if (value != "red" && value != "green" && value != "blue") return false;
       return !j.empty() && values.size() == j.size();
     }},
    {"large_set", R"({"type": "array", "uniqueItems": true, "items": {"enum": [1, 2, 3, 4, 5, 6]}})",
     [](const Json& j) { return j.is_array() && j.size() <= 6; }},
    {"unique", R"({"type": "array", "uniqueItems": true, "maxItems": 3, "items": {"type": "boolean"}})",
     [](const Json& j) { return j.size() < 2 || (j.size() == 2 && j[0] != j[1]); }},
    {"password", R"({"type": "string", "pattern": "^(?=.*[0-9])(?=.*[A-Z])[A-Z0-9]{2,4}$"})",
     [](const Json& j) { return std::regex_match(j.get<std::string>(), std::regex("(?=.*[0-9])(?=.*[A-Z])[A-Z0-9]{2,4}")); }},
    {"decimal", R"({"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "maxLength": 9})",
     [](const Json& j) { return std::regex_match(j.get<std::string>(), std::regex(R"((?![-+.]*$)[+-]?0*\d*\.?\d*)")); }},
    {"decimal_digits", R"js({"type": "string", "maxLength": 9, "pattern":
        "^(?!^[-+.]*$)[+-]?0*(?:\\d{0,3}|(?=[\\d.]{1,6}0*$)\\d{0,3}\\.\\d{0,2}0*$)"})js",
     [](const Json& j) {
       return std::regex_match(j.get<std::string>(), std::regex(R"((?![-+.]*$)[+-]?0*\d{0,3}(\.\d{0,2}0*)?)"));
     }},
    {"most_digits", R"js({"type": "string", "maxLength": 9, "pattern":
        "^(?!^[-+.]*$)[+-]?0*(?:\\d{0,3}|(?=[\\d.]{1,4}0*$)\\d*\\.\\d*0*$)"})js",
     [](const Json& j) {
       std::smatch parts;
       const std::string text = j.get<std::string>();
       return std::regex_match(text, parts, std::regex(R"([+-]?0*(\d{0,3})(?:\.(\d*?)0*)?)")) &&
              parts[1].length() + parts[2].length() <= 3;
     }},
    {"date", R"({"type": "string", "format": "date"})",
     [](const Json& j) { return std::regex_match(j.get<std::string>(), std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}")); }},
};

class JsonSchema : public ::testing::TestWithParam<std::string> {};

TEST_P(JsonSchema, TextsAreWhatTheSchemaSays) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture(GetParam());
  const uint64_t seeds = GetParam() == "gemma" ? 4 : 12;
  for (const SchemaCase& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto grammar = f.compiler->compile({.kind = GrammarKind::json_schema, .text = c.schema, .source = c.name});
    std::set<std::string> texts;
    uint64_t complete = 0;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      const Written written = write_randomly(f, *grammar, seed, 150);
      EXPECT_TRUE(is_valid_utf8(written.text) || !written.complete) << written.text;
      if (!written.complete) continue;
      ++complete;
      texts.insert(written.text);
      Json value;
      ASSERT_NO_THROW(value = Json::parse(written.text)) << written.text;
      EXPECT_TRUE(c.holds(value)) << written.text;
    }
    EXPECT_GE(complete, seeds / 2);
    if (std::string(c.name) != "constant" && std::string(c.name) != "nested") {
      EXPECT_GT(texts.size(), 1u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, JsonSchema, ::testing::Values("gpt2", "gemma", "tales9m"),
                         [](const auto& test) { return test.param; });

// What a schema says is refused for.
std::string refusal(GrammarKind kind, const std::string& text) {
  try {
    fixture("tales9m").compiler->compile({.kind = kind, .text = text, .source = "answer.json"});
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(JsonSchema, RefusesByName) {
  SKIP_WITHOUT_GRAMMARS();
  const auto says = [](const std::string& schema) { return refusal(GrammarKind::json_schema, schema); };
  EXPECT_TRUE(says(R"({"type": "array", "contains": {"type": "null"}})").find("contains") != std::string::npos);
  EXPECT_TRUE(says(R"({"type": "string", "pattern": "a(?=b)c"})").find("answer.json") == 0);
  EXPECT_TRUE(says(R"({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"x": true}, "allOf": [{"$ref": "#/$defs/a"}]}}})")
                  .find("of itself") != std::string::npos);
  EXPECT_TRUE(says(R"({"not": {"type": "null"}})").find("not") != std::string::npos);
  std::string many = R"({"prefixItems": [{"properties": {"a": true}})";
  for (int i = 0; i < 2100; ++i) many += R"(,{"properties": {"a": true}})";
  EXPECT_EQ(says(many + "]}"), "");
  EXPECT_TRUE(says(R"({"type": "obj"})").find("answer.json: ") == 0) << says(R"({"type": "obj"})");
  EXPECT_TRUE(says(R"({"$ref": "#/$defs/none"})").find("none") != std::string::npos);
  EXPECT_TRUE(says(R"({"$ref": "http://localhost/schema.json"})").find("localhost") != std::string::npos);
  EXPECT_TRUE(says("[1]").find("a JSON schema is an object") != std::string::npos) << says("[1]");
  EXPECT_TRUE(says("{\"type\": ").find("answer.json") == 0);
  EXPECT_TRUE(says(R"({"type": "integer", "multipleOf": 999983})").find("multipleOf 999983 is too costly") != std::string::npos);
  EXPECT_TRUE(says(R"({"allOf": [{"type": "integer", "multipleOf": 997}, {"type": "integer", "multipleOf": 0.991}]})")
                  .find("multipleOf 0.991 is too costly") != std::string::npos);
  EXPECT_TRUE(says("false").find("allows no text") != std::string::npos);
  EXPECT_TRUE(says(R"({"type": "integer", "minimum": 3, "maximum": 2})").find("answer.json") == 0);
}

TEST(JsonSchema, SpaceBetweenPartsIsBounded) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  const auto token = [&](const std::string& one) { return f.tokenizer->encode(one, false)[0]; };
  for (const std::string before : {"", "<"}) {
    const auto text =
        f.compiler->compile({.kind = GrammarKind::json_schema, .text = R"({"type": "array"})", .source = "s", .before = before})
            ->clone();
    if (!before.empty()) text->accept(token(before));
    text->accept(token("["));
    EXPECT_TRUE(is_allowed(text->allowed(), token(" "))) << before;
    text->accept(token(" "));
    EXPECT_FALSE(is_allowed(text->allowed(), token(" "))) << before;
    EXPECT_TRUE(is_allowed(text->allowed(), token("]"))) << before;
  }
}

TEST(JsonSchema, TrueAndTheEmptyObjectTakeAnyJson) {
  SKIP_WITHOUT_GRAMMARS();
  const GrammarFixture& f = fixture("gpt2");
  for (const char* schema : {"true", "{}", " { } "}) {
    const auto grammar = f.compiler->compile({.kind = GrammarKind::json_schema, .text = schema, .source = "s"});
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const Written written = write_randomly(f, *grammar, seed, 100);
      if (written.complete) {
        EXPECT_TRUE(is_json(written.text)) << written.text;
      }
    }
  }
}

}  // namespace
}  // namespace vitrine
