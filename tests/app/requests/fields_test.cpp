// A request's fields are honored, named as ignored, or refused by name; nothing is silent.
#include "requests/fields.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

std::vector<Field> table() {
  Field needed{"needed", type::text, ""};
  needed.required = true;
  Field other{"other_name", type::integer, ""};
  other.same_as = "count";
  return {needed,
          {"count", type::integer, "", Use::honored, 1, 10},
          other,
          {"share", type::number, "", Use::honored, 0, 1},
          {"words", type::text | type::texts, ""},
          {"ids", type::integers, ""},
          {"on", type::boolean, ""},
          Field::ignored("user", ""),
          Field::refused("beams", "use another program", "[false, 0]")};
}

const std::vector<Field> kTable = table();

RequestError error_of(const std::string& body, bool strict = false) {
  try {
    const Fields fields(body, kTable, strict);
    for (const Field& field : kTable)
      if (field.use == Use::honored) fields.find(field.name);
  } catch (const RequestError& e) {
    return e;
  }
  ADD_FAILURE() << body << " was taken";
  return {"", ""};
}

void expect(const RequestError& e, const std::string& param, const std::string& code, const std::string& message) {
  EXPECT_EQ(e.field, param);
  EXPECT_EQ(e.code, code);
  EXPECT_STREQ(e.what(), message.c_str());
}

TEST(Fields, AreReadByType) {
  const Fields fields(R"({"needed": "a", "count": 3.0, "share": 0.5, "words": ["x", "y"], "ids": [1, 2], "on": true})", kTable);
  EXPECT_EQ(fields.text("needed"), "a");
  EXPECT_EQ(fields.integer("count"), 3);
  EXPECT_EQ(fields.number("share"), 0.5);
  EXPECT_EQ(fields.texts("words"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(fields.integers("ids"), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(fields.boolean("on", false));
  EXPECT_TRUE(fields.ignored().empty());
}

TEST(Fields, NullIsAbsentAndIntegersAreNumbers) {
  const Fields fields(R"({"needed": "a", "count": null, "share": 1, "beams": null, "user": null})", kTable);
  EXPECT_EQ(fields.integer("count"), std::nullopt);
  EXPECT_EQ(fields.number("share"), 1);
  fields.text("needed");
  EXPECT_TRUE(fields.ignored().empty());
}

TEST(Fields, ErrorsNameTheFieldWhatItIsAndWhatWasExpected) {
  expect(error_of(R"({"count": 1})"), "needed", "missing_required_parameter", "\"needed\" is missing; expected a string");
  expect(error_of(R"({"needed": 7})"), "needed", "invalid_type", "\"needed\" is 7; expected a string");
  expect(error_of(R"({"needed": "a", "count": 11})"), "count", "invalid_value",
         "\"count\" is 11; expected a whole number from 1 to 10");
  expect(error_of(R"({"needed": "a", "count": 1.5})"), "count", "invalid_type",
         "\"count\" is 1.5; expected a whole number from 1 to 10");
  expect(error_of(R"({"needed": "a", "share": -0.1})"), "share", "invalid_value",
         "\"share\" is -0.1; expected a number from 0 to 1");
  expect(error_of(R"({"needed": "a", "words": [1]})"), "words", "invalid_type",
         "\"words\" is [1]; expected a string or a list of strings");
  expect(error_of(R"({"needed": "a", "on": 1})"), "on", "invalid_type", "\"on\" is 1; expected true or false");
  expect(error_of(R"({"needed": "a", "beams": 4})"), "beams", "unsupported_parameter",
         "\"beams\" is 4, which is not supported: use another program");
  expect(error_of(R"({"needed": "a", "more": 1})", true), "more", "unknown_parameter",
         "\"more\" is not a field of this endpoint; /openapi.json lists those that are");
}

TEST(Fields, TwoNamesOfOneFieldMustAgree) {
  const Fields both(R"({"needed": "a", "count": 3, "other_name": 3})", kTable);
  EXPECT_EQ(both.integer("count"), 3);
  const Fields one(R"({"needed": "a", "other_name": 4})", kTable);
  EXPECT_EQ(one.integer("count"), 4);
  expect(error_of(R"({"needed": "a", "count": 3, "other_name": 4})"), "other_name", "invalid_value",
         "\"count\" is 3 and \"other_name\", its other name, is 4; give one of them");
}

TEST(Fields, WhatChangesNothingIsNamed) {
  Fields fields(R"({"needed": "a", "user": "me", "wish": 1, "beams": false})", kTable);
  fields.text("needed");
  fields.ignore("inner.key");
  EXPECT_EQ(fields.ignored(), (std::set<std::string>{"inner.key", "user", "wish"}));
}

// An endpoint cannot list a field and forget it.
TEST(Fields, AnHonoredFieldThatNobodyReadIsAMistake) {
  const Fields fields(R"({"needed": "a", "share": 0.5})", kTable);
  fields.text("needed");
  EXPECT_THROW(fields.ignored(), std::logic_error);
  EXPECT_THROW(fields.find("unlisted"), std::logic_error);
}

TEST(Fields, BodiesThatAreNoObjectAreRefused) {
  for (const char* body :
       {"", "{", "[1]", "7", "{\"needed\": \"\xff\"}", R"({"needed": "a", "needed": "b"})", "{\"needed\": 1e999}"})
    EXPECT_EQ(error_of(body).code, "invalid_json") << body;
  std::string deep(100, '[');
  EXPECT_EQ(error_of("{\"needed\": " + deep).code, "invalid_json");
  std::string wide = "{";
  for (int i = 0; i < 2000; ++i) wide += "\"k" + std::to_string(i) + "\":1,";
  EXPECT_EQ(error_of(wide + "\"needed\":\"a\"}").code, "invalid_json");
}

}  // namespace
}  // namespace vitrine
