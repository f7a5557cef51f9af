// What pictures declare: every path leads somewhere, and the page's made-up documents declare the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "picture/data/paths.h"
#include "picture/data/tables.h"
#include "support.h"

namespace vitrine {
namespace {

// Texts of a declaration that hold paths or are one, with the places that are bound there.
void expect_values(Paths& paths, const PictureJson& chart, const std::string& where) {
  if (chart.contains("if") && paths.value(chart.at("if").get<std::string>(), paths.bound()).is_null()) return;
  if (chart.contains("each")) {
    const std::vector<Places> all = paths.places(chart.at("each").get<std::string>());
    ASSERT_FALSE(all.empty()) << where;
    const Places before = paths.bind(all.back());
    if (chart.contains("chart")) expect_values(paths, chart.at("chart"), where);
    for (const PictureJson& one : chart.value("charts", PictureJson::array())) expect_values(paths, one, where);
    paths.bind(before);
  }
  for (const PictureJson& option : chart.value("options", PictureJson::array()))
    for (const PictureJson& one : option.at("charts")) expect_values(paths, one, where);
  for (const PictureJson& series : chart.value("series", PictureJson::array())) {
    const std::vector<Places> places = paths.places(series.at("y").get<std::string>());
    if (places.empty()) continue;  // the data has null
    const std::string hint = paths.text(series.at("hint").get<std::string>(), places.front());
    EXPECT_EQ(hint.find("{"), std::string::npos) << where << ": " << hint;
  }
  if (chart.contains("values")) {
    const auto [rows, columns] = paths.sizes(chart.at("values").get<std::string>());
    EXPECT_GT(rows * columns, 0u) << where << ": " << chart.at("values");
  }
}

TEST(Declared, PathsLeadToValues) {
  for (const char* model : {"gemma2", "gpt2_a", "mixtral", "classic_post"}) {
    Engine engine(Golden::open(model).model(), kF32);
    const PictureJson document = explain_document(engine, ids_prompt({5, 3, 7, 9, 2, 11}));
    for (const auto& [name, picture] : document.at("pictures").items()) {
      if (!picture.at("available").get<bool>()) continue;
      const std::string where = std::string(model) + ", " + name;
      const PictureOptions options;
      Paths paths({document, picture, options});
      for (const PictureJson& chart : picture.value("charts", PictureJson::array())) expect_values(paths, chart, where);
      for (const PictureTable& table : picture_tables(document, name, true)) {
        EXPECT_TRUE(table.grid ? !table.grid->values.empty() : !table.columns.empty()) << where;
        for (size_t c = 0; c < table.columns.size(); ++c) {
          const bool some = std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return row[c] != "-"; });
          EXPECT_TRUE(some) << where << ": " << table.columns[c].name;
        }
      }
    }
  }
}

TEST(Declared, PathsAndTexts) {
  const PictureJson document = {{"tokens", PictureJson::array()}, {"pieces", {{"7", "a b"}}}};
  const float cells[] = {1, 2, 3, 4, 5, 6};
  const PictureJson picture = {
      {"list", {3, 1, 2}}, {"ids", {7, 8}}, {"packed", packed(std::span<const float>(cells), {2, 3})}, {"none", nullptr}};
  const PictureOptions options;
  Paths paths({document, picture, options});
  EXPECT_EQ(paths.places("packed.*.*").size(), 6u);
  EXPECT_EQ(paths.value("packed.*.*", {1, 2}), 6);
  EXPECT_EQ(paths.value("packed.1", {}), PictureJson({4, 5, 6}));
  EXPECT_EQ(paths.value("packed.-1.0", {}), 4);
  EXPECT_EQ(paths.value("list.length", {}), 3);
  EXPECT_EQ(paths.places("list.0::2").size(), 2u);
  EXPECT_EQ(paths.value("list.0::2", {1}), 2);
  EXPECT_EQ(paths.value("list.#1", {0, 2}), 2);
  EXPECT_TRUE(paths.value("list.3", {}).is_null() && paths.value("none.*", {0}).is_null() && paths.places("none.*").empty());
  EXPECT_EQ(paths.text("{ids.*|token} and {ids.1|token}: {list.*} {#0|ordinal}", {0}), "a␣b and #8: 3 1");
  EXPECT_EQ(paths.sizes("packed.*.*"), (std::pair<size_t, size_t>{2, 3}));
}

// web/test/declarations.json, by which the page's tests draw their own numbers.
TEST(Declared, ThePagesTestsHaveTheSame) {
  const std::string path = std::string(VITRINE_SOURCE) + "/web/test/declarations.json";
  PictureJson found = PictureJson::object();
  for (const std::string& model :
       {std::string(VITRINE_SOURCE) + "/models/tales9m", Golden::open("gpt2_a").model(), Golden::open("mixtral").model()}) {
    Engine engine(model, kF32);
    const PictureJson document =
        explain_document(engine, engine.has_tokenizer() ? text_prompt(engine, "The king") : ids_prompt({5, 3, 7}));
    for (const auto& [name, picture] : document.at("pictures").items()) {
      if (!picture.at("available").get<bool>() || found.contains(name)) continue;
      for (const char* key : {"made", "wide", "tables", "charts"})
        if (picture.contains(key)) found[name][key] = picture.at(key);
    }
  }
  std::string written;  // a line for each picture
  for (const auto& [name, declared] : found.items())
    written += (written.empty() ? "{\n" : ",\n") + PictureJson(name).dump() + ": " + declared.dump();
  written += "\n}\n";
  if (std::getenv("VITRINE_WRITE_DOCS") != nullptr) std::ofstream(path) << written;
  std::ifstream in(path);
  EXPECT_EQ(written, std::string(std::istreambuf_iterator<char>(in), {})) << "run this test with VITRINE_WRITE_DOCS=1";
}

}  // namespace
}  // namespace vitrine
