// The texts of the walk-through (src/app/picture/page/chapters): every family can be walked, and every name has a value.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "picture/data/studio.h"
#include "picture/page/chapters.h"
#include "picture/page/embedded.h"
#include "picture/page/prose.h"
#include "picture/page/walk_values.h"
#include "support.h"

namespace vitrine {
namespace {

const std::string kFolder = "src/app/picture/page/chapters/";

std::vector<EmbeddedFile> templates() {
  std::vector<EmbeddedFile> found;
  for (const EmbeddedFile& file : embedded_files())
    if (file.name.starts_with(kFolder)) found.push_back(file);
  return found;
}

// All matches of the first group.
std::vector<std::string> all_of(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), pattern); at != std::sregex_iterator(); ++at)
    found.push_back((*at)[1]);
  return found;
}

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(VITRINE_GOLDEN) + "/models"))
    if (std::filesystem::exists(entry.path() / "model")) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// "rope", "rope.theta".
void add_names(const PictureJson& values, const std::string& of, std::set<std::string>& names) {
  for (const auto& [name, value] : values.items()) {
    names.insert(of + name);
    if (value.is_object()) add_names(value, (name == "other_rope" ? "rope" : name) + ".", names);
  }
}

// The names in the first column of the tables.
std::set<std::string> listed_names() {
  const std::string readme = read_file(std::string(VITRINE_SOURCE) + "/" + kFolder + "README.md");
  std::set<std::string> names;
  for (const std::string& cell : all_of(readme.substr(readme.find("## Values")), std::regex("\n\\| (`[^|]*)\\|")))
    for (const std::string& name : all_of(cell, std::regex("`([A-Za-z_.]+)`")))
      names.insert(name.substr(0, name.find('.'))), names.insert(name);
  return names;
}

TEST(Steps, ValuesAreThoseThatAreListed) {
  std::set<std::string> given;
  for (const std::string& model : golden_models()) {
    Engine engine(open_model(resolve_model(Golden::open(model).model())), kF32);
    add_names(DocumentRuns(engine, ids_prompt({3, 5, 7, 9}), {}, {}, walk_values).take().at("steps"), "", given);
  }
  std::set<std::string> listed = listed_names();
  given.insert("integrated");  // input_attribution's
  EXPECT_EQ(given, listed);
}

// Without strings, what a template calls or names itself.
TEST(Steps, TemplatesUseNamesThatAreListed) {
  std::set<std::string> known = listed_names(), pictured;  // pictures tell texts what their "prose" holds
  for (const PictureInfo& info : pictures()) pictured.insert(std::regex_replace(std::string(info.name), std::regex("-"), "_"));
  for (const char* name : {"if", "elif", "else", "endif", "set",   "macro",  "endmacro", "in",    "not",    "and",
                           "or", "n",    "word", "part",  "name",  "vector", "replace",  "join",  "length", "format",
                           "x",  "g",    "f",    "d",     "count", "plural", "product",  "normed"})
    known.insert(name);
  for (const EmbeddedFile& file : templates()) {
    const std::string text(file.text);
    std::set<std::string> own;
    for (const std::string& name : all_of(text, std::regex("\\{% set ([a-z_]+) "))) own.insert(name);
    for (std::string code : all_of(text, std::regex("\\{[{%]([^}]*)[}%]\\}"))) {
      code = std::regex_replace(code, std::regex("\"[^\"]*\"|other_(?=rope\\.)"), "");
      for (const std::string& name : all_of(code, std::regex("\\b([A-Za-z_]+(\\.[a-z_]+)?)")))
        EXPECT_TRUE(known.contains(name) || own.contains(name) || pictured.contains(name.substr(0, name.find('.'))))
            << file.name << ": " << name;
    }
    // The line break behind a tag is dropped.
    EXPECT_EQ(all_of(text, std::regex("\n( *(?!\\{%)[^\n ][^\n]*%\\})(?=\n)")), std::vector<std::string>()) << file.name;
  }
}

class StepsOf : public testing::TestWithParam<std::string> {};

TEST_P(StepsOf, EveryStepHasItsWords) {
  Engine engine(open_model(resolve_model(Golden::open(GetParam()).model())), kF32);
  for (const Chapter& chapter : chapters()) {
    const PictureJson steps = explain_document(engine, ids_prompt({3, 5, 7, 9}), {}, chapter.name).at("steps");
    EXPECT_GE(steps.size(), chapter.name == std::string(kFirstChapter) ? 11u : 4u) << chapter.name;
    for (const PictureJson& step : steps) {
      EXPECT_FALSE(step.at("question").get<std::string>().empty()) << step.at("id");
      ASSERT_FALSE(step.at("text").empty()) << step.at("id");
      for (const PictureJson& paragraph : step.at("text")) {
        const std::string text = paragraph;
        EXPECT_TRUE(text.ends_with('.') || text.ends_with(" %")) << text;
        for (const char* mistake : {"{{", "{%", "None", "  ", " .", " ,"})
          EXPECT_EQ(text.find(mistake), std::string::npos) << text;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, StepsOf, testing::ValuesIn(golden_models()), [](const auto& model) { return model.param; });

TEST(Chapters, TextsNameKnownPicturesAndEveryPictureIsInAChapter) {
  std::set<std::string> told, known;
  for (const PictureInfo& info : pictures()) known.insert(info.name);
  for (const Chapter& chapter : chapters()) {
    EXPECT_FALSE(texts_of(chapter).empty()) << chapter.name;
    for (const std::string& name : pictures_of(chapter)) told.insert(name);
  }
  EXPECT_EQ(told, known);
}

TEST(Chapters, AnUnknownOneIsRefusedByName) {
  EXPECT_THROW(chapter_of("next-wrod"), UsageError);
  EXPECT_EQ(chapter_json(chapter_of("next-word")).at("number"), 1);
}

PictureJson step_of(const std::string& text, const PictureJson& values = PictureJson::object()) {
  return vitrine::step_of("id", text, "text", values, {});
}

TEST(Steps, LinesOfATemplate) {
  const PictureJson step = step_of(
      "# Title {{ n }}\n\nOne\nparagraph with {{ piece }}.\n\n## Why?\n\n    a  = b\nTwo.\npictures: x y\n"
      "shape: q | | {{ n }} key head | 1 1\n{% if no %}\nThree.\n{% endif %}\n",
      {{"n", 2}, {"piece", "\n\n# a"}, {"no", nullptr}});
  EXPECT_EQ(step.at("title"), "Title 2");
  EXPECT_EQ(step.at("question"), "Why?");
  EXPECT_EQ(step.at("text"), (std::vector<std::string>{"One paragraph with \n\n# a.", "Two."}));
  EXPECT_EQ(step.at("formula"), std::vector<std::string>{"a  = b"});
  EXPECT_EQ(step.at("pictures"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(step.at("shapes").dump(), R"([{"name":"q","hook":null,"shape":[2,1],"axes":["key head","1"]}])");
  EXPECT_TRUE(step_of("{% if no %}\n# Title\n{% endif %}\n", {{"no", false}}).is_null());
}

TEST(Steps, MistakesNameTheFile) {
  const auto message = [](const std::string& text, const PictureJson& values = PictureJson::object()) {
    return message_of<InputError>([&] { step_of(text, values); });
  };
  EXPECT_EQ(message("# Title\n\n{{ nobody }}\n"), "text, line 3: 'nobody' is undefined");
  EXPECT_EQ(message("# Title\n\n{% if rope.nobody %}{% endif %}\n", {{"rope", {{"theta", 1}}}}),
            "text, line 3: 'dict object' has no attribute 'nobody'");
  EXPECT_CONTAINS(message("# Title\nshape: q | token\n"), "text: \"shape: q | token\"; expected shape: NAME | HOOK");
}

}  // namespace
}  // namespace vitrine
