// Pictures' data against transformers, torch and NumPy (tests/golden/pictures/make.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "support.h"

namespace vitrine {
namespace {

constexpr Tolerance kClose{.abs = 2e-5, .rel = 1e-4};

class PicturesGolden : public testing::TestWithParam<std::string> {
 protected:
  const Json gold = read_json(std::string(VITRINE_GOLDEN) + "/pictures/" + GetParam() + ".json");
  const bool tales = GetParam() == "tales9m";
  Engine engine{tales ? std::string(VITRINE_SOURCE) + "/models/tales9m" : Golden::open(GetParam()).model(), kF32};
  const PicturePrompt prompt = tales ? text_prompt(engine, gold["prompt"]) : ids_prompt(gold["ids"]);
  const PictureJson document = explain_document(engine, prompt);
  const PictureJson& picture(const char* name) const { return document.at("pictures").at(name); }
};

TEST_P(PicturesGolden, UpdateScalesAndStream) {
  ASSERT_EQ(Json(prompt.ids), gold["ids"]);
  const PictureJson& sublayers = picture("update-scale").at("sublayers");
  for (const char* key : {"layer", "scale", "sigmaSkip", "sigmaUpdate"})
    EXPECT_CLOSE(column(sublayers, key), column(gold["update"], key), kClose) << key;
  for (size_t i = 0; i < sublayers.size(); ++i) EXPECT_EQ(sublayers[i].at("part"), i % 2 == 0 ? "attention" : "mlp");
  EXPECT_CLOSE(doubles(picture("residual-scale").at("withNorms")), doubles(gold["stream"]), kClose);
  // Without norms rounding is amplified from layer to layer; both overflow f32 at the same place.
  const std::vector<double> without = doubles(picture("residual-scale").at("withoutNorms")),
                            expected = doubles(gold["streamWithoutNorms"]);
  ASSERT_EQ(without.size(), expected.size());
  for (size_t i = 0; i < without.size(); ++i) {
    EXPECT_EQ(std::isnan(without[i]), std::isnan(expected[i])) << i;
    if (std::isnan(expected[i])) continue;
    EXPECT_NEAR(without[i], expected[i], 1e-4 * expected[i]) << i;
  }
}

TEST_P(PicturesGolden, NormsAttentionAndPredictions) {
  if (!gold.contains("norms")) {
    EXPECT_FALSE(picture("final-norm").at("available").get<bool>());  // the classic decoder with norms after each sub-layer
    return;
  }
  const PictureJson& norms = picture("norm-statistics");
  for (size_t i = 0; i < gold["norms"].size(); ++i)
    EXPECT_EQ(norms.at("norms").at(i), gold["norms"][i]["name"].get<std::string>());
  for (const char* key : {"inMean", "inSigma", "inRms", "outMean", "outSigma", "outRms"})
    EXPECT_CLOSE(doubles(norms.at(key)), column(gold["norms"], key), kClose) << key;
  const std::vector<double> each = unpacked(norms.at("perToken"));
  const size_t n = prompt.ids.size();
  for (size_t i = 0; i < gold["norms"].size(); ++i)
    EXPECT_CLOSE((std::vector<double>(each.begin() + static_cast<std::ptrdiff_t>(2 * i * n),
                                      each.begin() + static_cast<std::ptrdiff_t>((2 * i + 1) * n))),
                 doubles(gold["norms"][i]["inRmsByToken"]), kClose);
  for (const char* key : {"before", "after"})
    EXPECT_CLOSE(doubles(picture("final-norm").at(key)), doubles(gold["finalNorm"][key]), kClose);

  const PictureJson& attention = picture("attention");
  ASSERT_EQ(attention.at("level"), "full");
  for (const char* key : {"flatness", "onFirst", "onPrevious", "onSelf"})
    EXPECT_CLOSE(flat(attention.at(key)), flat(gold["attention"][key]), kClose) << key;
  for (size_t layer = 0; layer < attention.at("patterns").size(); ++layer) {
    std::vector<double> expected;
    for (const Json& head : gold["patterns"][layer])
      for (const double weight : flat(head)) expected.push_back(weight);
    // 16 bits: half of 1/65535, and the reference's own tolerance.
    EXPECT_CLOSE(unpacked(attention.at("patterns")[layer]), expected, (Tolerance{.abs = 0.5 / 65535 + 2e-6, .rel = 0}));
  }
  for (size_t layer = 0; layer < attention.at("flatToSpiky").size(); ++layer) {
    const auto order = attention.at("flatToSpiky")[layer].get<std::vector<size_t>>();
    for (size_t i = 1; i < order.size(); ++i)
      EXPECT_GE(attention.at("flatness")[layer][order[i - 1]], attention.at("flatness")[layer][order[i]]);
  }

  EXPECT_EQ(Json::parse(picture("next-tokens").at("ids").dump()), gold["next"]["ids"]);
  EXPECT_CLOSE(flat(picture("next-tokens").at("probs")), flat(gold["next"]["probs"]), kClose);
  std::vector<double> actual;
  for (const PictureJson& a : picture("next-tokens").at("actual"))
    if (!a.is_null()) actual.push_back(a.at("prob"));
  EXPECT_CLOSE(actual, doubles(gold["actual"]), kClose);
  if (!gold.contains("queryLength")) return;
  for (size_t layer = 0; layer < gold["queryLength"].size(); ++layer)
    EXPECT_CLOSE(unpacked(picture("query-length").at("layers")[layer]), flat(gold["queryLength"][layer]), kClose);
}

TEST_P(PicturesGolden, PartsAddUpToTheLogit) {
  const PictureJson& attribution = picture("logit-attribution");
  const PictureJson& lens = picture("logit-lens");
  const double cap = document.at("model").at("finalSoftcap");
  for (const PictureJson& target : attribution.at("targets")) {
    double sum = target.at("remainder");
    for (const double part : doubles(target.at("parts"))) sum += part;
    const double uncapped = target.at("uncapped"), logit = target.at("logit");
    EXPECT_NEAR(sum, uncapped, 1e-4 * std::max(1.0, std::abs(uncapped)));
    EXPECT_LT(std::abs(target.at("remainder").get<double>()), 1e-4 * std::max(1.0, std::abs(uncapped)));
    EXPECT_NEAR(logit, cap == 0 ? uncapped : cap * std::tanh(uncapped / cap), 1e-4);
    EXPECT_EQ(target.at("parts").size(), attribution.at("components").size());
  }
  // The last depth of the lens is the prediction.
  EXPECT_EQ(lens.at("ids").back().back()[0], picture("next-tokens").at("ids").back()[0]);
  EXPECT_NEAR(lens.at("probs").back().back()[0].get<double>(), picture("next-tokens").at("probs").back()[0].get<double>(), 1e-4);
  EXPECT_EQ(lens.at("finalRank").back().back(), 0);
  EXPECT_NEAR(lens.at("kl").back().back().get<double>(), 0, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, PicturesGolden, testing::Values("tales9m", "gpt2_a", "llama", "classic_post"),
                         [](const auto& test) { return test.param; });

class PicturesOfTales : public testing::Test {
 protected:
  const Json gold = read_json(std::string(VITRINE_GOLDEN) + "/pictures/tales9m.json");
  Engine engine{std::string(VITRINE_SOURCE) + "/models/tales9m", kF32};
  const PicturePrompt prompt = text_prompt(engine, gold["prompt"]);
  PictureJson one(const char* name, const PictureOptions& options = {}) {
    return picture_document(engine, prompt, name, options).at("pictures").at(name);
  }
};

TEST_F(PicturesOfTales, SoftCapCountsAreTheReferences) {
  const PictureJson attention = one("soft-cap").at("attention");
  EXPECT_EQ(attention.at("cap"), 50);
  for (const char* key : {"changed", "beyondHalf", "largest"})
    EXPECT_CLOSE(flat(attention.at(key)), flat(gold["softCap"][key]), kClose) << key;
}

TEST_F(PicturesOfTales, SumsAndCosinesOfEmbeddings) {
  const PictureJson neighbours = one("embedding-neighbours", {.sum = "king - man + woman"});
  EXPECT_CLOSE(column(neighbours.at("neighbours"), "id"), doubles(gold["neighbours"]["ids"]), (Tolerance{0, 0}));
  EXPECT_CLOSE(column(neighbours.at("neighbours"), "cosine"), doubles(gold["neighbours"]["cosine"]), kClose);
  EXPECT_TRUE(neighbours.at("neighbours")[0].at("term").get<bool>());

  const PictureJson cosine = one("embedding-cosine", {.words = {"upon", "time", "king", "there"}});
  const auto ids = cosine.at("ids").get<std::vector<int32_t>>();
  ASSERT_EQ(ids.size(), 4u);
  const std::vector<int32_t> all = gold["ids"];
  for (size_t i = 0; i < ids.size(); ++i)
    for (size_t j = 0; j < ids.size(); ++j) {
      const auto place = [&](int32_t id) { return static_cast<size_t>(std::find(all.begin(), all.end(), id) - all.begin()); };
      EXPECT_NEAR(cosine.at("cosine")[i][j].get<double>(), gold["cosine"][place(ids[i])][place(ids[j])].get<double>(), 1e-6);
      EXPECT_NEAR(cosine.at("lengths")[i].get<double>(), gold["lengths"][place(ids[i])].get<double>(), 1e-5);
    }
}

TEST_F(PicturesOfTales, TheFirstLayerWithoutTheEmbeddingsFactor) {
  const PictureJson p = one("embedding-rescaling");
  EXPECT_EQ(p.at("factor"), 16);
  EXPECT_NEAR(p.at("sigmaWithout").get<double>(), gold["rescaling"]["sigmaWithout"].get<double>(), 1e-6);
  EXPECT_NEAR(p.at("attention").at("without").get<double>(), gold["rescaling"]["attention"].get<double>(), 1e-5);
  EXPECT_NEAR(p.at("mlp").at("without").get<double>(), gold["rescaling"]["mlp"].get<double>(), 1e-5);
  EXPECT_NEAR(p.at("attention").at("with").get<double>(), gold["update"][0]["scale"].get<double>(), 1e-5);
}

TEST_F(PicturesOfTales, MergesAreSentencePieces) {
  const PictureJson p = one("merges");
  // The reference merged word by word; the picture interleaves the words, and each word's own order is the same.
  std::multiset<std::string> expected, found;
  for (const Json& word : gold["wordMerges"])
    for (const std::string piece : word) expected.insert(piece);
  std::vector<std::string> parts;
  for (const PictureJson& part : p.at("start")) parts.push_back(part.at("piece"));
  EXPECT_EQ(parts.size(), 33u);  // the letters, and a space in front of all words but the first
  double last_in_order = -1e30;
  for (const PictureJson& step : p.at("steps")) {
    const size_t at = step.at("at");
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    EXPECT_EQ(parts[at], step.at("piece"));
    found.insert(parts[at]);
    last_in_order = std::max(last_in_order, step.at("order").get<double>());
  }
  std::vector<std::string> pieces = gold["pieces"];
  pieces.erase(pieces.begin());  // BOS
  EXPECT_EQ(parts, pieces);
  expected.erase(
      expected.find("▁O"));  // SentencePiece puts a space in front of the first word here, this vocabulary's rule does not
  expected.erase(expected.find("▁On"));
  found.erase(found.find("On"));
  EXPECT_EQ(found, expected);
}

TEST_F(PicturesOfTales, SplitsSpellTheSameStringAndTheOwnOneIsThere) {
  const PictureJson p = one("splits");
  int chosen = 0;
  double previous = 0;  // ln of a probability
  for (const PictureJson& split : p.at("splits")) {
    std::string joined;
    for (const PictureJson& piece : split.at("pieces")) joined += piece.get<std::string>();
    EXPECT_EQ(joined, p.at("spelled"));
    const double logprob = split.at("logprob");
    EXPECT_LE(logprob, previous);
    previous = logprob;
    if (!split.at("chosen").get<bool>()) continue;
    ++chosen;
    const std::vector<int32_t> all = gold["ids"];
    EXPECT_EQ(split.at("ids").get<std::vector<int32_t>>(), std::vector<int32_t>(all.begin() + 1, all.end()));
    double expected = 0;  // of the tokens that really follow, from the reference's probabilities
    for (const double prob : doubles(gold["actual"])) expected += std::log(prob);
    EXPECT_NEAR(logprob, expected, 1e-3);
  }
  EXPECT_EQ(chosen, 1);
}

}  // namespace
}  // namespace vitrine
