#include "io/config_reader.h"

#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

ConfigReader reader(const std::string& text) { return ConfigReader(parse_json(text, "config.json"), "config.json"); }

TEST(ConfigReader, ReadsTypesOldNamesDefaultsAndNulls) {
  const ConfigReader c = reader(R"({"n_embd": 48, "eps": 1e-5, "tied": true, "act": "gelu", "window": null, "whole": 12.0,
                                    "eos": 1, "stops": [1, 107], "types": ["a", "b"], "scales": [1, 0.5], "zero": 0})");
  EXPECT_EQ(c.positive("hidden_size", {"n_embd"}), 48);
  EXPECT_EQ(c.positive("window", {}, 4096), 4096);
  EXPECT_EQ(c.find_positive("window"), std::nullopt);
  EXPECT_EQ(c.positive("whole"), 12);
  EXPECT_EQ(c.count("zero"), 0);
  EXPECT_EQ(c.find_count("zero"), 0);
  EXPECT_EQ(c.number("eps"), 1e-5);
  EXPECT_EQ(c.number("whole"), 12);
  EXPECT_EQ(c.number("theta", {}, 10000.), 10000);
  EXPECT_TRUE(c.flag("tied"));
  EXPECT_FALSE(c.flag("bias", {}, false));
  EXPECT_EQ(c.find_flag("bias"), std::nullopt);
  EXPECT_EQ(c.string("act"), "gelu");
  EXPECT_EQ(c.string("rope_type", {"type"}, "default"), "default");
  EXPECT_EQ(c.find_string("type"), std::nullopt);
  EXPECT_EQ(c.counts("eos"), (std::vector<int64_t>{1}));
  EXPECT_EQ(c.counts("stops"), (std::vector<int64_t>{1, 107}));
  EXPECT_TRUE(c.counts("absent").empty());
  EXPECT_EQ(c.strings("types"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.numbers("scales"), (std::vector<double>{1, 0.5}));
  EXPECT_TRUE(c.has("act"));
  EXPECT_FALSE(c.has("window"));
  EXPECT_FALSE(c.has("absent"));
  EXPECT_TRUE(c.unread().empty());
}

TEST(ConfigReader, ErrorsNameFileKeyFoundAndExpected) {
  const ConfigReader c =
      reader(R"({"size": "abc", "zero": 0, "minus": -3, "half": 2.5, "huge": 2147483648, "vast": 18446744073709551615,
                                    "beyond": 1e300, "text": 7, "flag": 1, "list": [1, "a"], "object": [], "deep": {"x": [1]},
                                    "long": ")" +
             std::string(100, 'x') + R"(", "many": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,"q"]})");
  const auto message = [](auto f) { return message_of(f); };
  const std::string range = "; expected a whole number from 1 to 2147483647";
  EXPECT_EQ(message([&] { c.positive("size"); }), "config.json: \"size\" is \"abc\"" + range);
  EXPECT_EQ(message([&] { c.positive("zero"); }), "config.json: \"zero\" is 0" + range);
  EXPECT_EQ(message([&] { c.positive("x", {"minus"}); }), "config.json: \"minus\" is -3" + range);
  EXPECT_EQ(message([&] { c.find_positive("half"); }), "config.json: \"half\" is 2.5" + range);
  EXPECT_EQ(message([&] { c.positive("huge"); }), "config.json: \"huge\" is 2147483648" + range);
  EXPECT_EQ(message([&] { c.positive("vast"); }), "config.json: \"vast\" is 18446744073709551615" + range);
  EXPECT_EQ(message([&] { c.positive("beyond"); }), "config.json: \"beyond\" is 1e+300" + range);
  EXPECT_EQ(message([&] { c.count("minus"); }), "config.json: \"minus\" is -3; expected a whole number from 0 to 2147483647");
  EXPECT_EQ(message([&] { c.number("size"); }), "config.json: \"size\" is \"abc\"; expected a number");
  EXPECT_EQ(message([&] { c.string("text"); }), "config.json: \"text\" is 7; expected a string");
  EXPECT_EQ(message([&] { c.flag("flag"); }), "config.json: \"flag\" is 1; expected true or false");
  EXPECT_EQ(message([&] { c.counts("list"); }),
            "config.json: \"list\" is [1,\"a\"]; expected whole numbers from 0 to 2147483647");
  EXPECT_EQ(message([&] { c.counts("many"); }),
            "config.json: \"many\" is a list of 17 entries; expected whole numbers from 0 to 2147483647");
  EXPECT_EQ(message([&] { c.strings("list"); }), "config.json: \"list\" is [1,\"a\"]; expected a list of strings");
  EXPECT_EQ(message([&] { c.numbers("size"); }), "config.json: \"size\" is \"abc\"; expected a list of numbers");
  EXPECT_EQ(message([&] { c.find_object("object"); }), "config.json: \"object\" is []; expected an object");
  EXPECT_EQ(message([&] { c.find_object("deep")->positive("x"); }), "config.json: \"deep.x\" is [1]" + range);
  EXPECT_EQ(message([&] { c.find_object("deep")->positive("y"); }),
            "config.json: lacks \"deep.y\"; expected a whole number of at least 1");
  EXPECT_EQ(message([&] { c.positive("hidden_size", {"n_embd", "d_model"}); }),
            "config.json: lacks \"hidden_size\" (or \"n_embd\") (or \"d_model\"); expected a whole number of at least 1");
  EXPECT_EQ(message([&] { c.positive("long"); }), "config.json: \"long\" is \"" + std::string(56, 'x') + "..." + range);
  EXPECT_EQ(message([&] { c.fail("text", "only 8 will do"); }), "config.json: \"text\" is 7; only 8 will do");
  EXPECT_EQ(message([] { reader("[1]"); }), "config.json: is [1]; expected an object of settings");
}

TEST(ConfigReader, TwoNamesMustAgree) {
  EXPECT_EQ(reader(R"({"hidden_size": 48, "n_embd": 48})").positive("hidden_size", {"n_embd"}), 48);
  EXPECT_EQ(reader(R"({"hidden_size": null, "n_embd": 48})").positive("hidden_size", {"n_embd"}), 48);
  EXPECT_EQ(message_of([] { reader(R"({"hidden_size": 48, "n_embd": 64})").positive("hidden_size", {"n_embd"}); }),
            "config.json: \"n_embd\" is 64; but \"hidden_size\", another name of the same setting, is 48. Remove the wrong one");
}

TEST(ConfigReader, RemembersWhatWasRead) {
  const ConfigReader c =
      reader(R"({"a": 1, "b": null, "c": {"x": 1, "y": 2}, "d": {"z": 1}, "use_cache": true, "new_scale": 2})");
  c.positive("a");
  c.find_object("c")->positive("x");
  c.ignore({"use_cache", "absent"});
  EXPECT_EQ(c.unread(), (std::vector<std::string>{"c.y", "d", "new_scale"}));
  EXPECT_EQ(c.find_object("c")->unread(), (std::vector<std::string>{"c.y"}));
  EXPECT_EQ(
      message_of([&] { c.refuse_unread("llama"); }),
      "config.json: sets \"c.y\", \"d\", \"new_scale\", which llama models here do not know; the numbers could be wrong. Remove "
      "the setting if it changes nothing, or go on without it by --ignore-unknown-keys");
  c.find_object("c")->ignore({"y"});
  c.ignore({"d", "new_scale"});
  EXPECT_NO_THROW(c.refuse_unread("llama"));
  const ConfigReader many = reader(R"({"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"a":1})");
  EXPECT_CONTAINS(message_of([&] { many.refuse_unread("x"); }), "\"8\" and 2 more, which x models");
}

TEST(ConfigReader, JsonItselfMayBeHostile) {
  EXPECT_EQ(message_of([] { reader("{\"a\": 1e999}"); }), "config.json: holds a number beyond the range of a double");
  EXPECT_CONTAINS(message_of([] { reader("{\"a\": 1, \"a\": 2}"); }), "has the key \"a\" twice in one object");
  EXPECT_CONTAINS(message_of([] { reader(std::string(1 << 20, '[')); }), "nests deeper than 64 levels");
  EXPECT_CONTAINS(message_of([] { reader("{\"a\": \"\xff\"}"); }), "is not valid JSON at byte");
  EXPECT_CONTAINS(message_of([] { reader(""); }), "is not valid JSON");
}

}  // namespace
}  // namespace vitrine
