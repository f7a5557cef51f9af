// The report of a merge: its document, what it refuses, and its page.
#include "picture/data/merge_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support.h"

namespace vitrine {
namespace {

// A made-up merge of `inputs` models with `layers` layers of `tensors` tensors, and one outside the layers.
MergeReport made_up_report(size_t inputs, int64_t layers, int64_t tensors, int base = 0) {
  MergeReport report;
  report.method = "dare_ties";
  report.method_title = "DARE with TIES";
  report.paper = "arXiv:2311.03099";
  report.base = base;
  report.recipe_yaml = "merge_method: dare_ties\nmodels:\n  - model: \"</script><b>\"\n";
  report.notes = {"lm_head.weight is tied to the embedding"};
  for (size_t i = 0; i < inputs; ++i) report.inputs.push_back(fmt::format("models/child-{}", i));
  const auto add = [&](const std::string& name, int64_t layer) {
    MergeTensorReport tensor;
    tensor.name = name;
    tensor.layer = layer;
    tensor.shape = {256, 64};
    for (size_t i = 0; i < inputs; ++i) {
      const bool is_base = static_cast<int>(i) == base;
      tensor.norms.push_back(is_base ? MergeTensorReport::kNone : 1.0 / 3 + static_cast<double>(layer) * 0.01);
      tensor.kept.push_back(is_base ? MergeTensorReport::kNone : 0.53);
      for (size_t j = i + 1; j < inputs; ++j) tensor.cosines.push_back(is_base ? MergeTensorReport::kNone : 0.123456789);
    }
    tensor.sign_conflict = 0.4375;
    tensor.angle = 1.25;
    tensor.result_norm = 12.5;
    tensor.result_distance = 0.75;
    tensor.parameters = {{"density", std::vector<double>(inputs, 0.53)}, {"lambda", {1.0}}};
    report.tensors.push_back(std::move(tensor));
  };
  add("model.embed_tokens.weight", -1);
  for (int64_t layer = 0; layer < layers; ++layer)
    for (int64_t t = 0; t < tensors; ++t)
      add(fmt::format("model.layers.{}.{}.weight", layer, t % 2 == 0 ? "self_attn.q_proj" : "mlp.up_proj"), layer);
  return report;
}

// The JSON that a page holds.
PictureJson document_in(const std::string& page) {
  const std::string opening = "<script id=\"vitrine-data\" type=\"application/json\">";
  const size_t begin = page.find(opening) + opening.size();
  return PictureJson::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(MergeReports, DocumentHoldsEveryNumber) {
  const PictureJson d = merge_report_json(made_up_report(3, 2, 2));
  EXPECT_EQ(d.at("kind"), "merge");
  EXPECT_EQ(d.at("title"), "DARE with TIES of 2 models");
  EXPECT_EQ(d.at("paperAddress"), "https://arxiv.org/abs/2311.03099");
  EXPECT_EQ(d.at("base"), 0);
  EXPECT_EQ(d.at("inputs")[2], "models/child-2");
  ASSERT_EQ(d.at("tensors").size(), 5u);
  const PictureJson& tensor = d.at("tensors")[4];
  EXPECT_EQ(tensor.at("name"), "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(tensor.at("layer"), 1);
  EXPECT_EQ(tensor.at("elements"), 256 * 64);
  EXPECT_EQ(tensor.at("norms").dump(), "[null,0.3433333,0.3433333]");
  EXPECT_EQ(tensor.at("cosines").dump(), "[null,null,0.1234568]");
  EXPECT_EQ(tensor.at("kept").dump(), "[null,0.53,0.53]");
  EXPECT_EQ(tensor.at("signConflict"), 0.4375);
  EXPECT_EQ(tensor.at("angle"), 1.25);
  EXPECT_EQ(tensor.at("resultNorm"), 12.5);
  EXPECT_EQ(tensor.at("resultDistance"), 0.75);
  EXPECT_EQ(tensor.at("parameters").dump(), R"({"density":[0.53,0.53,0.53],"lambda":[1]})");
}

TEST(MergeReports, WhatIsNotKnownIsNull) {
  MergeReport report;
  report.method = "passthrough";
  report.inputs = {"one"};
  report.paper = "Shoemake 1985";
  report.tensors.emplace_back().name = "w";
  const PictureJson d = merge_report_json(report);
  EXPECT_EQ(d.at("title"), "passthrough of 1 model");
  EXPECT_TRUE(d.at("base").is_null());
  EXPECT_TRUE(d.at("paperAddress").is_null());
  const PictureJson& tensor = d.at("tensors")[0];
  for (const char* key : {"signConflict", "angle", "resultNorm", "resultDistance"}) EXPECT_TRUE(tensor.at(key).is_null()) << key;
  for (const char* key : {"norms", "cosines", "kept"}) EXPECT_EQ(tensor.at(key), PictureJson::array()) << key;
}

TEST(MergeReports, OnlyWebAddressesBecomeLinks) {
  MergeReport report = made_up_report(2, 1, 1);
  const auto address = [&](const char* paper) {
    report.paper = paper;
    return merge_report_json(report).at("paperAddress");
  };
  EXPECT_EQ(address("arXiv:2306.01708 section 3"), "https://arxiv.org/abs/2306.01708");
  EXPECT_EQ(address("https://example.org/paper"), "https://example.org/paper");
  EXPECT_TRUE(address("javascript:alert(1)").is_null());
  EXPECT_TRUE(address("").is_null());
}

TEST(MergeReports, WrongListsAreRefusedByName) {
  const auto message = [](auto&& spoil) {
    MergeReport report = made_up_report(3, 1, 1);
    spoil(report);
    return message_of<InputError>([&] { merge_report_page(report); });
  };
  const auto last = [](MergeReport& report) -> MergeTensorReport& { return report.tensors.back(); };
  EXPECT_EQ(
      message([&](MergeReport& r) { last(r).cosines.pop_back(); }),
      "report of a merge: tensor \"model.layers.0.self_attn.q_proj.weight\": cosines has 2 values; expected 3 (one for each "
      "pair of inputs), or none");
  EXPECT_CONTAINS(message([&](MergeReport& r) { last(r).norms.push_back(1); }), "norms has 4 values; expected 3");
  EXPECT_CONTAINS(message([&](MergeReport& r) { last(r).kept.pop_back(); }), "kept has 2 values; expected 3");
  EXPECT_CONTAINS(message([&](MergeReport& r) { last(r).parameters[0].second.pop_back(); }),
                  "parameter density has 2 values; expected 3 (one for each input, or one for all), or none");
  EXPECT_CONTAINS(message([&](MergeReport& r) { last(r).layer = -2; }), "is of layer -2");
  EXPECT_CONTAINS(message([&](MergeReport& r) { last(r).shape = {3, -1}; }), "has a dimension of -1");
  EXPECT_CONTAINS(message([](MergeReport& r) { r.base = 3; }), "the base is input 3 of 3; expected 0 to 2, or -1 for none");
  EXPECT_CONTAINS(message([](MergeReport& r) { r.inputs.clear(); }), "it has no inputs");
}

TEST(MergeReports, PageHoldsTheDocumentAndAsksForNothing) {
  const MergeReport report = made_up_report(3, 2, 2);
  const std::string page = merge_report_page(report);
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_CONTAINS(page, "<title>DARE with TIES of 2 models</title>");
  EXPECT_CONTAINS(page, "default-src 'none'");
  EXPECT_CONTAINS(page, "DARE with TIES of models/child-0, models/child-1, models/child-2: 5 tensors.");
  EXPECT_EQ(document_in(page).dump(), merge_report_json(report).dump());
  EXPECT_EQ(document_in(page).at("recipe"), report.recipe_yaml);  // whose "</script>" ends nothing
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  for (const char* element : {"<script src", "<link", "<img"}) EXPECT_EQ(page.find(element), std::string::npos) << element;
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

TEST(MergeReports, TwoThousandTensorsOfTenInputsStayBelowFiveMegabytes) {
  MergeReport report = made_up_report(10, 80, 25);
  double value = 0.1;
  for (MergeTensorReport& tensor : report.tensors) {  // numbers with all their digits
    for (std::vector<double>* list : {&tensor.norms, &tensor.cosines, &tensor.kept})
      for (double& number : *list) number = value = std::fmod(value * 1.7320508 + 0.001, 1);
  }
  ASSERT_EQ(report.tensors.size(), 2001u);
  EXPECT_LT(merge_report_page(report).size(), size_t{5'000'000});
}

}  // namespace
}  // namespace vitrine
