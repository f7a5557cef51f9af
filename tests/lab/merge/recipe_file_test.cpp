// The merges of one file: their order, their directories, what is refused; and the examples that ship.
#include "merge/recipe_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "merge/plan.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

std::string document(const std::string& name, const std::vector<std::string>& models) {
  std::string text = name.empty() ? "" : "name: " + name + "\n";
  text += "merge_method: linear\nmodels:\n";
  for (const std::string& model : models) text += "- {model: " + model + ", parameters: {weight: 1}}\n";
  return text;
}

std::vector<MergeStep> steps_of(const std::vector<std::string>& documents) {
  std::string text;
  for (const std::string& one : documents) text += "---\n" + one;
  return merge_steps(parse_merge_recipes(text, "r.yml"), "out", "parts");
}

std::string refusal(const std::vector<std::string>& documents) {
  return message_of<UsageError>([&] { steps_of(documents); });
}

TEST(RecipeFile, OneMergeGoesToOut) {
  for (const char* name : {"", "child"}) {
    const auto steps = steps_of({document(name, {"a", "b"})});
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps[0].directory, "out");
    EXPECT_TRUE(steps[0].is_wanted);
    EXPECT_FALSE(is_made(steps[0]));
  }
}

TEST(RecipeFile, EachMergeComesAfterThoseItUses) {
  const auto steps = steps_of({document("", {"second", "x"}), document("second", {"first", "y"}), document("first", {"x", "y"})});
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].directory, "parts/first");
  EXPECT_EQ(steps[1].directory, "parts/second");
  EXPECT_EQ(steps[2].directory, "out");
  EXPECT_EQ(steps[1].recipe.models()[0].path, "parts/first");
  EXPECT_EQ(steps[1].needs, std::vector<std::string>{"parts/first"});
  EXPECT_EQ(first_missing(steps[1]), "parts/first");
  EXPECT_EQ(first_missing(steps[0]), "");
  EXPECT_EQ(steps[2].recipe.models()[1].path, "x");
  EXPECT_FALSE(steps[1].is_wanted);
  EXPECT_TRUE(steps[2].is_wanted);
}

TEST(RecipeFile, WhatIsRefused) {
  const std::string a = document("a", {"x"}), last = document("", {"a"});
  EXPECT_EQ(refusal({a, document("b", {"a"})}),
            "r.yml: every merge has a \"name\"; leave it out of the one whose result is wanted");
  EXPECT_NE(refusal({last, last}).find("a second merge without \"name\""), std::string::npos);  // whose result is wanted?
  EXPECT_NE(refusal({a, a, last}).find("a second merge is called \"a\""), std::string::npos);
  EXPECT_NE(refusal({document("../a", {"x"}), last}).find("expected a plain name"), std::string::npos);
  EXPECT_NE(refusal({document("a", {"b"}), document("b", {"a"}), last}).find("needs its own result"), std::string::npos);
}

TEST(RecipeFile, AMergeThatGivesTheTokenizerComesFirst) {
  const auto steps = steps_of({"tokenizer_source: second\n" + document("", {"x"}), document("second", {"y"})});
  EXPECT_EQ(steps[0].directory, "parts/second");
  EXPECT_EQ(steps[1].recipe.tokenizer->model.path, "parts/second");
  EXPECT_EQ(steps[1].needs, std::vector<std::string>{"parts/second"});
}

// "./m/a/" and "m/a" are one model, wherever they stand; so is a link.
TEST(RecipeFile, AModelHasOneName) {
  const Scratch scratch;
  scratch.write("m/a/config.json", "{}");
  const std::string a = scratch / "m/a", link = scratch.link("link", a);
  MergeRecipe recipe =
      parse_merge_recipes("merge_method: linear\nbase_model: " + link + "\nmodels:\n- model: " + a + "/\n- model: ./x/../b/\n" +
                              "tokenizer:\n  source: " + scratch / "m/./a" + "\n  tokens:\n    t: {source: b}\n" +
                              "    u: {source: {kind: model_token, model: b/, token: t}}\n    z: {source: {kind: zero}}\n",
                          "r.yml")
          .front();
  join_models(recipe);
  EXPECT_EQ(recipe.models().size(), 2u);
  EXPECT_EQ(recipe.base_model->path, a + "/");
  EXPECT_EQ(recipe.tokenizer->model.path, a + "/");
  EXPECT_EQ(recipe.tokenizer->tokens[0].second.model.path, "./x/../b/");
  EXPECT_EQ(recipe.tokenizer->tokens[1].second.model.path, "./x/../b/");
  MergeRecipe twice = parse_merge_recipes(document("", {"m/a", "./m/a"}), "r.yml").front();
  EXPECT_CONTAINS(message_of<InputError>([&] { join_models(twice); }), "named twice");
}

TEST(RecipeFile, AResultIsKeptIfItsRecipeIsTheSame) {
  const Scratch scratch;
  MergeStep step{parse_merge_recipes(document("a", {"x"}), "r.yml").front(), scratch.path(), {}, false};
  EXPECT_FALSE(is_made(step));
  scratch.write("config.json", "{}");
  EXPECT_TRUE(is_made(step));
  scratch.write("mergekit_config.yml", step.recipe.yaml);
  EXPECT_TRUE(is_made(step));
  scratch.write("mergekit_config.yml", step.recipe.yaml + "dtype: float32\n");
  EXPECT_FALSE(is_made(step));
}

// "b" uses "a": made before the "a" that is there, it is not what its recipe says.
TEST(RecipeFile, AResultIsMadeAfterThoseItUses) {
  const Scratch scratch;
  const auto parts = merge_steps(
      parse_merge_recipes(document("a", {"x"}) + "---\n" + document("b", {"a"}) + "---\n" + document("", {"b"}), "r.yml"),
      scratch / "out", scratch / "parts");
  ASSERT_EQ(parts[1].directory, scratch / "parts/b");
  for (const char* name : {"a", "b"}) scratch.write(std::string("parts/") + name + "/config.json", "{}");
  const auto now = fs::last_write_time(scratch / "parts/b/config.json");
  EXPECT_TRUE(is_made(parts[1]));
  fs::last_write_time(scratch / "parts/a/config.json", now + std::chrono::seconds(5));
  EXPECT_FALSE(is_made(parts[1]));
  EXPECT_TRUE(is_made(parts[0]));
}

// What is compared with mergekit_config.yml: all of a document, wherever it begins.
TEST(RecipeFile, ADocumentKeepsItsText) {
  const std::string first = "{name: a, merge_method: linear, models: [{model: x}]}\n",
                    second = "merge_method: linear\nmodels:\n- model: a\n";
  const auto recipes = parse_merge_recipes("--- " + first + "---   # the last\n# what is wanted\n" + second + "...\n", "r.yml");
  ASSERT_EQ(recipes.size(), 2u);
  EXPECT_EQ(recipes[0].yaml, first);
  EXPECT_TRUE(recipes[1].yaml.starts_with(second));
  EXPECT_EQ(parse_merge_recipes(recipes[0].yaml, "a").front().name, "a");
}

TEST(RecipeFile, AWholeResultSaysItsRecipe) {
  const Scratch scratch;
  const auto steps = merge_steps(parse_merge_recipes(document("", {"a"}) + "---\n" + document("a", {"x"}), "r.yml"),
                                 scratch / "out", scratch / "parts");
  EXPECT_FALSE(is_whole(steps));
  scratch.write("parts/a/config.json", "{}");
  scratch.write("parts/a/mergekit_config.yml", steps[0].recipe.yaml);
  scratch.write("out/config.json", "{}");
  EXPECT_FALSE(is_whole(steps));  // nothing says the recipe
  scratch.write("out/mergekit_config.yml", steps[1].recipe.yaml);
  EXPECT_TRUE(is_whole(steps));
  // Its own recipe is the same, that of what it uses is not.
  scratch.write("parts/a/mergekit_config.yml", steps[0].recipe.yaml + "dtype: float16\n");
  EXPECT_FALSE(is_whole(steps));
  fs::remove_all(scratch / "parts");
  EXPECT_FALSE(is_whole(steps));
}

TEST(RecipeFile, SizesOfShards) {
  EXPECT_EQ(parse_shard_size("5B", "s"), 5'000'000'000);
  EXPECT_EQ(parse_shard_size("500m", "s"), 500'000'000);
  EXPECT_EQ(parse_shard_size("20K", "s"), 20'000);
  EXPECT_EQ(parse_shard_size("123456789012", "s"), 123456789012);
  for (const char* wrong : {"", "B", "5T", "-1", "1.5B", "12345678901B", "1234567890123456789"})
    EXPECT_EQ(message_of<UsageError>([&] { parse_shard_size(wrong, "--out-shard-size"); }),
              std::string("--out-shard-size is ") + wrong + "; expected bytes, such as 5B, 500M or 100000");
}

TEST(RecipeFile, TheExamplesHaveNoProblems) {
  const fs::path before = fs::current_path();
  fs::current_path(VITRINE_SOURCE);  // their paths begin there
  int planned = 0;
  for (const auto& entry : fs::directory_iterator("examples")) {
    const std::string path = entry.path().string();
    if (path.find("/merge-") == std::string::npos) continue;
    for (const MergeStep& step : merge_steps(read_merge_recipes(path), "out", "parts")) {
      if (!step.needs.empty()) continue;
      const MergePlan plan = plan_merge(step.recipe, {});
      EXPECT_TRUE(plan.problems.empty()) << path;
      EXPECT_TRUE(plan.notes.empty()) << path;
      ++planned;
    }
  }
  fs::current_path(before);
  EXPECT_GE(planned, 4);
}

}  // namespace
}  // namespace vitrine
