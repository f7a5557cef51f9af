// Documents of pages for research: what is not known, what is left out, and what is refused.
#include "picture/data/study.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json_of.h"
#include "inspect/head_words.h"
#include "support.h"

namespace vitrine {
namespace {

// Scores of two layers with two heads; 1.1 is an induction head.
StudiedHeads made_up_heads(const std::string& name, double induction) {
  StudiedHeads run;
  run.name = name;
  run.scores.ids = {1, 2, 3, 1, 2, 3};
  run.scores.queries = {5, 3, 3, 0};
  for (int64_t layer = 0; layer < 2; ++layer)
    for (int64_t head = 0; head < 2; ++head)
      run.scores.heads.push_back({layer, head, {0.1, 0.2, layer == 1 && head == 1 ? induction : 0.01, 0}});
  run.logprobs = {-1, -2, -3, -0.5F, -0.25F};
  return run;
}

TEST(Study, LossesAreThoseOfEachHalf) {
  const StudiedHeads run = made_up_heads("step 1", 0.5);
  EXPECT_DOUBLE_EQ(run.loss(0, false), 6.75 / 5);
  EXPECT_DOUBLE_EQ(run.loss(2, false), 2);
  EXPECT_DOUBLE_EQ(run.loss(2, true), 0.375);
  EXPECT_TRUE(std::isnan(StudiedHeads().loss(0, false)));
}

TEST(Study, SentencesNameTheHeads) {
  const StudiedHeads run = made_up_heads("step 1", 0.5);
  const PictureJson section = json_of(heads_section(std::span(&run, 1), nullptr, 3, "--repeat 3"));
  const auto sentences = section.at("runs")[0].at("sentences").get<std::vector<std::string>>();
  EXPECT_EQ(sentences,
            (std::vector<std::string>{"No head looks mostly at the previous token; the most is 0.0, 10.0 %",
                                      "`1.1` looks at what followed the last time (induction), 50.0 %",
                                      "No head looks mostly at earlier copies of the same token; the most is 0.0, 20.0 %"}));
  EXPECT_TRUE(section.at("circuits").is_null());
  EXPECT_TRUE(section.at("runs")[0].at("step").is_null());
  EXPECT_EQ(section.at("heads").dump(), "[[0,0],[0,1],[1,0],[1,1]]");
}

TEST(Study, RunsMustHaveTheSameHeads) {
  StudiedHeads runs[] = {made_up_heads("step 1", 0), made_up_heads("step 2", 0.5)};
  EXPECT_EQ(heads_section(runs, nullptr, 0, "").runs.size(), 2u);
  runs[1].scores.heads.pop_back();
  EXPECT_CONTAINS(message_of<InputError>([&] { heads_section(runs, nullptr, 0, ""); }), "step 2 has 3 heads, and step 1 has 4");
}

TEST(Study, ManyPairsOfHeadsAreLeftToTheLinks) {
  const StudiedHeads run = made_up_heads("a model", 0.5);
  CircuitTable table;
  table.heads.resize(1);
  for (int64_t i = 0; i < 50001; ++i) table.composition.push_back({0, i, 1, 0, 0.001, i == 7 ? 0.5 : 0.002, 0.003});
  const CircuitsData circuits = *heads_section(std::span(&run, 1), &table, 0, "").circuits;
  EXPECT_EQ(circuits.composition.size(), 0u);
  EXPECT_EQ(circuits.links[0].words, "the keys of 1.0 read what 0.7 writes");
  EXPECT_EQ(circuits.links[0].score, 0.5);
}

TEST(Study, WordsWithoutALossAreNull) {
  const Engine engine(Golden::open("gpt2_a").model(), kF32);
  const LikelyTokens likely = likely_tokens({{3, std::log(0.25F)}, {5, std::log(0.125F)}});
  LossesData::Run run{.engine = &engine, .name = "a", .texts = {{{"<b>", "king"}, {std::nullopt, 0.5}, {{}, likely}, 4}}};
  const PictureJson document = study_document(engine, {"k", "</title>", {"a", "b"}, "vitrine"}, {losses_section({run}, false)});
  const PictureJson& section = document.at("sections")[0];
  const PictureJson& text = section.at("runs")[0].at("texts")[0];
  EXPECT_EQ(text.at("nll").dump(), "[null,0.5]");
  EXPECT_EQ(text.at("likely").dump(), "[[],[3,0.25,5,0.125]]");
  EXPECT_EQ(text.at("left_out"), 4);
  EXPECT_EQ(section.at("runs")[0].at("pieces").at("3"), engine.piece(3).value());
  // A word ends no element of the page.
  const std::string page = study_page(document);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_CONTAINS(page, "<title>&lt;/title&gt;</title>");
  EXPECT_CONTAINS(page, "<p>a b The pictures of this page need scripts");
}

TEST(Study, AGridIsNeeded) {
  EXPECT_CONTAINS(message_of<InputError>([] { patch_section({}, {}); }), "the recipe has no grid");
}

}  // namespace
}  // namespace vitrine
