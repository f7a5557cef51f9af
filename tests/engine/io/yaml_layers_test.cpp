// Configurations in layers: what is merged, where it stands, and what is refused.
#include "io/yaml_layers.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/scratch.h"

namespace vitrine {
namespace {

std::string merged(const Scratch& scratch, const std::string& file, const std::vector<std::string>& settings = {}) {
  return yaml_text(read_yaml_layers(scratch / file, settings));
}

TEST(YamlLayers, ObjectsAreMergedListsReplacedNullRemoves) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "sub");
  scratch.write("base.yaml", "steps: 3\nseed: 1\noptimizer: {name: adamw, lr: 1e-3, betas: [0.9, 0.95]}\nema: 0.5\n");
  scratch.write("sub/middle.yaml", "extends: ../base.yaml\nema: null\noptimizer: {betas: [0.8, 0.9]}\n");
  scratch.write("sub/top.yaml", "seed: 2\noptimizer:\n  lr: 2e-3\nextends: middle.yaml\ntext: \"7\"\nnothing:\n");
  EXPECT_EQ(merged(scratch, "sub/top.yaml"),
            "steps: 3\nseed: 2\noptimizer:\n  name: adamw\n  lr: 2e-3\n  betas: [0.8, 0.9]\ntext: \"7\"\nnothing: null\n");
  EXPECT_EQ(merged(scratch, "base.yaml", {"optimizer.lr=1", "optimizer.betas=", "data.train=[{path: a b}]", "ema={decay: 0.9}"}),
            "steps: 3\nseed: 1\noptimizer:\n  name: adamw\n  lr: 1\nema:\n  decay: 0.9\ndata:\n  train: [{path: \"a b\"}]\n");
}

TEST(YamlLayers, EveryValueIsNamedByItsOwnFile) {
  const Scratch scratch;
  const std::string base = scratch.write("base.yaml", "a:\n  x: one\n  y: two\n");
  const std::string top = scratch.write("top.yaml", "extends: base.yaml\n\na: {y: three}\n");
  const YamlValue value = read_yaml_layers(top, std::vector<std::string>{"a.z=four", "b.c=5"});
  const YamlValue a = value.at("a", "");
  EXPECT_EQ(a.at("x", "").where(), base + ":2: \"a.x\"");
  EXPECT_EQ(a.at("y", "").where(), top + ":3: \"a.y\"");
  EXPECT_EQ(a.at("z", "").where(), "--set: \"a.z\"");
  EXPECT_EQ(a.where(), top + ":3: \"a\"");
  EXPECT_EQ(value.at("b", "").at("c", "").where(), "--set: \"b.c\"");
  EXPECT_EQ(message_of([&] { a.allow(std::vector<std::string>{"x", "y", "zz"}); }),
            "--set: \"a.z\" is not known. Here can stand: x, y, zz");
}

// What a text means does not change on its way through a file.
TEST(YamlLayers, TextReadsBackAsTheSame) {
  const YamlValue value = YamlValue::parse(
      "a: [1e-3, \"1e-3\", yes, true, \"true\", ~, \"~\", \"null\", -0.5, x y, 'it''s', \"a\\nb\", ./p, ..., \"\", [], {}, "
      "[{}]]\n"
      "\"k: y\": {\"1\": 2, inner: {deep: [a, {b: c}]}}\nempty: {}\nblock: |\n  two\n  lines\n",
      "v.yaml");
  const std::string text = yaml_text(value);
  EXPECT_EQ(yaml_text(YamlValue::parse(text, "v.yaml")), text);
  const std::vector<YamlValue> before = value.at("a", "").items(), after = YamlValue::parse(text, "v").at("a", "").items();
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].is_null(), after[i].is_null()) << i;
    EXPECT_EQ(before[i].as_number(), after[i].as_number()) << i;
    if (before[i].is_scalar()) {
      EXPECT_EQ(before[i].text(), after[i].text()) << i;
    }
  }
  EXPECT_TRUE(after[3].flag());
  EXPECT_TRUE(after[4].is_quoted());
}

TEST(YamlLayers, RefusesCyclesLongChainsAndBadSettings) {
  const Scratch scratch;
  const auto refused = [&](const std::string& file, const std::vector<std::string>& settings = {}) {
    return message_of([&] { read_yaml_layers(scratch / file, settings); });
  };
  scratch.write("a.yaml", "extends: b.yaml\n");
  scratch.write("b.yaml", "x: 1\nextends: ./a.yaml\n");
  EXPECT_EQ(refused("a.yaml"), scratch / "b.yaml" + ":2: \"extends\" is \"./a.yaml\"; the file extends itself, by way of " +
                                   scratch / "a.yaml" + ". Remove one \"extends\"");
  scratch.write("c0.yaml", "x: 1\n");
  for (int i = 1; i <= 16; ++i)
    scratch.write("c" + std::to_string(i) + ".yaml", "extends: c" + std::to_string(i - 1) + ".yaml\n");
  EXPECT_EQ(merged(scratch, "c15.yaml"), "x: 1\n");
  EXPECT_EQ(refused("c16.yaml"),
            scratch / "c1.yaml" + ":1: \"extends\" is \"c0.yaml\"; expected at most 16 files that extend each other");
  scratch.write("d.yaml", "extends: none.yaml\n");
  EXPECT_EQ(refused("d.yaml"), scratch / "d.yaml" + ":1: \"extends\" is \"none.yaml\"; there is no file " +
                                   scratch / "none.yaml" + "; expected a path relative to this file");
  scratch.write("e.yaml", "extends: [c0.yaml]\n");
  EXPECT_EQ(refused("e.yaml"), scratch / "e.yaml" + ":1: \"extends\" is a list of 1; expected a text");
  scratch.write("list.yaml", "[1]\n");
  scratch.write("f.yaml", "extends: list.yaml\n");
  EXPECT_EQ(refused("f.yaml"), scratch / "list.yaml" + ":1: the document is a list of 1; expected an object of named values");
  EXPECT_EQ(refused("c0.yaml", {"x"}), "--set: \"x\" is not a setting; expected KEY=VALUE, such as optimizer.lr=1e-3");
  for (const std::string bad : {"", "a..b", ".a", "a."})
    EXPECT_CONTAINS(refused("c0.yaml", {bad + "=1"}),
                    "is \"1\"; expected keys with dots between them before it, such as optimizer.lr, not \"" + bad + "\"");
  EXPECT_EQ(refused("c0.yaml", {"a.b=[1"}),
            "--set a.b:1: is not valid YAML at column 1: the list that begins there with \"[\" does not end; expected \"]\"");
}

}  // namespace
}  // namespace vitrine
