// Pictures' data against transformers, torch and NumPy (tests/golden/pictures/make.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
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
  for (size_t i = 0; i < sublayers.size(); ++i)
    EXPECT_CLOSE(doubles(picture("update-scale").at("perToken")[i]), doubles(gold["update"][i]["byToken"]), kClose) << i;
  EXPECT_CLOSE(doubles(picture("residual-scale").at("withNorms")), doubles(gold["stream"]), kClose);
  // Without norms rounding is amplified from layer to layer. From 1e19 on scores overflow f32, and whether infinities of both
  // signs meet in a sum is a matter of its order.
  const std::vector<double> without = doubles(picture("residual-scale").at("withoutNorms")),
                            expected = doubles(gold["streamWithoutNorms"]);
  ASSERT_EQ(without.size(), expected.size());
  for (size_t i = 0; i < without.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(without[i]) || without[i] > 1e19) << i << ": " << without[i];
      continue;
    }
    EXPECT_NEAR(without[i], expected[i], 1e-4 * expected[i]) << i;
  }
}

TEST_P(PicturesGolden, NormsAttentionAndPredictions) {
  if (!gold.contains("norms")) {
    EXPECT_FALSE(picture("final-norm").at("available").get<bool>());  // the classic decoder with norms after each sub-layer
    return;
  }
  std::map<std::string, Json> norms;
  for (const Json& norm : gold["norms"]) norms[norm["name"]] = norm;
  size_t found = 0;
  for (const PictureJson& kind : picture("norm-statistics").at("kinds")) {
    std::vector<double> by_token;
    for (const PictureJson& norm : kind.at("norms")) {
      const Json& expected = norms.at(norm.at("name").get<std::string>());
      for (const char* key :
           {"inMean", "inSigma", "inRms", "outMean", "outSigma", "outRms", "weightMean", "weightMin", "weightMax"})
        EXPECT_CLOSE(std::vector{norm.at(key).get<double>()}, std::vector{expected[key].get<double>()}, kClose)
            << norm.at("name") << key;
      for (const char* key : {"inRmsByToken", "outRmsByToken"})
        for (const double rms : doubles(expected[key])) by_token.push_back(rms);
      ++found;
    }
    EXPECT_EQ(by_token.size(), 2 * kind.at("norms").size() * prompt.ids.size());
    EXPECT_CLOSE(unpacked(kind.at("perToken")), by_token, kClose);
  }
  EXPECT_EQ(found, gold["norms"].size());
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
  std::vector<double> actual, rank;
  for (const PictureJson& a : picture("next-tokens").at("actual"))
    if (!a.is_null())
      actual.push_back(a.at("prob")), rank.push_back(a.at("rank").get<double>() - 1);  // the golden ones count from 0
  EXPECT_CLOSE(actual, doubles(gold["actual"]), kClose);
  EXPECT_EQ(rank, doubles(gold["actualRank"]));
}

TEST_P(PicturesGolden, PositionsAndHeads) {
  if (gold.contains("frequencies")) {
    const PictureJson& waves = picture("rope-wavelengths");
    EXPECT_CLOSE(doubles(waves.at("frequencies")), doubles(gold["frequencies"]), kClose);
    for (size_t layer = 0; layer < gold["queryLength"].size(); ++layer)
      EXPECT_CLOSE(unpacked(picture("query-length").at("layers")[layer]), flat(gold["queryLength"][layer]), kClose);
  } else {
    EXPECT_FALSE(picture("rope-wavelengths").at("available").get<bool>());
    const PictureJson& positions = picture("position-vectors");
    EXPECT_CLOSE(flat(positions.at("cosine")), flat(gold["positions"]["cosine"]), kClose);
    EXPECT_CLOSE(doubles(positions.at("lengths")), doubles(gold["positions"]["lengths"]), kClose);
    const char* const lengths = gold.contains("lengths") ? "lengths" : "embeddedLengths";
    EXPECT_CLOSE(doubles(positions.at("tokenLengths")), doubles(gold[lengths]), kClose);
  }
  if (!gold.contains("projections")) return;
  for (const char* m : {"q", "k", "v", "o"})
    EXPECT_EQ(picture("head-grouping").at("parameters").at(m), gold["projections"][m].get<int64_t>()) << m;
  EXPECT_CLOSE(doubles(picture("activation-curves").at("active")), doubles(gold["active"]), kClose);

  const PictureJson& softmax = picture("softmax");
  for (const char* key : {"layer", "head", "target"}) EXPECT_EQ(softmax.at(key), gold["softmax"][key].get<int64_t>()) << key;
  const std::vector<double> scores = doubles(gold["softmax"]["scores"]), weights = doubles(gold["softmax"]["weights"]);
  std::vector<double> expected_scores, expected_weights;
  for (const PictureJson& source : softmax.at("sources")) {
    expected_scores.push_back(scores.at(source.get<size_t>()));
    expected_weights.push_back(weights.at(source.get<size_t>()));
  }
  const int64_t window = gold["windows"][gold["softmax"]["layer"].get<size_t>()];
  EXPECT_EQ(expected_scores.size(), window == 0 ? scores.size() : std::min<size_t>(scores.size(), static_cast<size_t>(window)));
  EXPECT_CLOSE(doubles(softmax.at("scores")), expected_scores, kClose);
  EXPECT_CLOSE(doubles(softmax.at("weights")), expected_weights, kClose);

  const auto last = static_cast<int64_t>(prompt.ids.size()) - 1;
  for (size_t layer = 0; layer < gold["windows"].size(); ++layer) {
    const int64_t w = gold["windows"][layer];
    EXPECT_EQ(picture("reach").at("layers")[layer].at("window"), w);
    EXPECT_EQ(picture("reach").at("layers")[layer].at("sees"), w == 0 ? 0 : std::max<int64_t>(0, last - w + 1));
  }
}

TEST_P(PicturesGolden, LensAtEveryDepth) {
  if (!gold.contains("lens")) return;
  const PictureJson& lens = picture("logit-lens");
  for (const char* key : {"probs", "kl", "finalProb", "finalRank"}) EXPECT_EQ(lens.at(key).size(), prompt.ids.size()) << key;
  for (size_t position = 0; position < prompt.ids.size(); ++position) {
    for (const char* key : {"kl", "finalProb"})
      EXPECT_CLOSE(doubles(lens.at(key)[position]), doubles(gold["lens"][key][position]), kClose) << key << " " << position;
    std::vector<double> ranks = doubles(gold["lens"]["finalRank"][position]);
    for (double& rank : ranks) ++rank;  // the golden ones count from 0
    EXPECT_EQ(doubles(lens.at("finalRank")[position]), ranks) << position;
    for (size_t depth = 0; depth < gold["lens"]["ids"][position].size(); ++depth) {
      const std::vector<double> probs = doubles(gold["lens"]["probs"][position][depth]);
      EXPECT_CLOSE(doubles(lens.at("probs")[position][depth]), probs, kClose) << position << " " << depth;
      for (size_t i = 0; i < probs.size(); ++i) {  // ids, wherever rounding cannot change their order
        const bool apart = i + 1 < probs.size() && probs[i] - probs[i + 1] > 1e-6 && (i == 0 || probs[i - 1] - probs[i] > 1e-6);
        if (!apart) continue;
        EXPECT_EQ(lens.at("ids")[position][depth][i], gold["lens"]["ids"][position][depth][i].get<int64_t>());
      }
    }
  }
}

TEST_P(PicturesGolden, EveryPartOfTheLogits) {
  if (!gold.contains("attribution")) return;
  const PictureJson& made = picture("logit-attribution");
  const Json& expected = gold["attribution"];
  ASSERT_EQ(made.at("targets").size(), expected["targets"].size());
  EXPECT_EQ(made.at("components").size(), expected["parts"].size());
  for (size_t t = 0; t < expected["targets"].size(); ++t) {
    const PictureJson& target = made.at("targets")[t];
    EXPECT_EQ(target.at("id"), expected["targets"][t].get<int64_t>());
    EXPECT_NEAR(target.at("uncapped").get<double>(), expected["uncapped"][t].get<double>(), 1e-4);
    EXPECT_NEAR(target.at("logit").get<double>(), expected["logits"][t].get<double>(), 1e-4);
    for (size_t part = 0; part < made.at("components").size(); ++part) {
      const std::string label = made.at("components")[part].at("label");
      ASSERT_TRUE(expected["parts"].contains(label)) << label;
      EXPECT_NEAR(target.at("parts")[part].get<double>(), expected["parts"][label][t].get<double>(), 1e-4) << label;
    }
  }
}

TEST_P(PicturesGolden, CapsOfScoresAndLogits) {
  const PictureJson& cap = picture("soft-cap");
  if (!gold.contains("softCap")) {
    EXPECT_TRUE(cap.at("attention").is_null() && cap.at("final").is_null());
    return;
  }
  EXPECT_EQ(cap.at("attention").at("cap"), 50);
  EXPECT_EQ(cap.at("final").at("cap"), 30);
  for (const char* key : {"changed", "beyondHalf", "largest"}) {
    EXPECT_CLOSE(flat(cap.at("attention").at(key)), flat(gold["softCap"][key]), kClose) << key;
    EXPECT_NEAR(cap.at("final").at(key).get<double>(), gold["finalCap"][key].get<double>(), 1e-4) << key;
  }
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
  EXPECT_EQ(lens.at("finalRank").back().back(), 1);
  EXPECT_NEAR(lens.at("kl").back().back().get<double>(), 0, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, PicturesGolden, testing::Values("tales9m", "gpt2_a", "llama", "gemma2", "classic_post"),
                         [](const auto& test) { return test.param; });

class PicturesOfTales : public testing::Test {
 protected:
  const Json gold = read_json(std::string(VITRINE_GOLDEN) + "/pictures/tales9m.json");
  Engine engine{std::string(VITRINE_SOURCE) + "/models/tales9m", kF32};
  const PicturePrompt prompt = text_prompt(engine, gold["prompt"]);
  PictureJson one(const char* name, const PictureOptions& options = {}) { return picture_of(engine, prompt, name, options); }
};

TEST_F(PicturesOfTales, SumsAndCosinesOfEmbeddings) {
  const PictureJson neighbors = one("embedding-neighbors", {.sum = "king - man + woman"});
  EXPECT_CLOSE(column(neighbors.at("neighbors"), "id"), doubles(gold["neighbors"]["ids"]), (Tolerance{0, 0}));
  EXPECT_CLOSE(column(neighbors.at("neighbors"), "cosine"), doubles(gold["neighbors"]["cosine"]), kClose);
  EXPECT_TRUE(neighbors.at("neighbors")[0].at("term").get<bool>());

  const PictureJson cosine = one("embedding-cosine", {.words = {"upon", "time", "king", "there"}});
  std::vector<int32_t> ids;
  for (const PictureJson& word : cosine.at("words")) {
    ASSERT_EQ(word.at("tokens"), 1);
    ids.push_back(word.at("ids")[0]);
  }
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
  EXPECT_NEAR(p.at("sigmaWith").get<double>(), gold["rescaling"]["sigmaWith"].get<double>(), 1e-5);
  EXPECT_NEAR(p.at("sigmaWithout").get<double>(), gold["rescaling"]["sigmaWithout"].get<double>(), 1e-6);
  EXPECT_NEAR(p.at("sublayers")[0].at("without").get<double>(), gold["rescaling"]["attention"].get<double>(), 1e-5);
  EXPECT_NEAR(p.at("sublayers")[1].at("without").get<double>(), gold["rescaling"]["mlp"].get<double>(), 1e-5);
  EXPECT_NEAR(p.at("sublayers")[0].at("with").get<double>(), gold["update"][0]["scale"].get<double>(), 1e-5);
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
    EXPECT_EQ(parts[at], step.at("piece").get<std::string>());
    found.insert(parts[at]);
    last_in_order = std::max(last_in_order, step.at("order").get<double>());
  }
  std::vector<std::string> pieces = gold["pieces"];
  pieces.erase(pieces.begin());  // BOS
  EXPECT_EQ(parts, pieces);
  EXPECT_EQ(found, expected);
}

TEST_F(PicturesOfTales, TokensStandForTheReferencesBytes) {
  const PictureJson document = picture_document(engine, prompt, "tokens");
  const PictureJson& p = document.at("pictures").at("tokens");
  const std::string text = gold["prompt"];
  ASSERT_EQ(document.at("tokens").size(), gold["pieces"].size());
  for (size_t i = 0; i < gold["pieces"].size(); ++i) {
    EXPECT_EQ(document.at("tokens")[i].at("piece"), gold["pieces"][i].get<std::string>());
    EXPECT_EQ(document.at("tokens")[i].at("offsets").get<std::vector<size_t>>(), gold["offsets"][i].get<std::vector<size_t>>());
    EXPECT_EQ(document.at("tokens")[i].at("control"), i == 0);
  }
  EXPECT_EQ(p.at("bytes").size(), text.size());
  EXPECT_EQ(p.at("bytes")[1], 'n');
  EXPECT_EQ(p.at("vocabSize"), 6144);
}

TEST_F(PicturesOfTales, SplitsSpellTheSameStringWithTheReferencesProbability) {
  const PictureJson p = one("splits");
  EXPECT_NEAR(p.at("log10Count").get<double>(), gold["splits"]["log10Count"].get<double>(), 1e-6);
  std::map<std::vector<std::string>, double> reference;
  for (const Json& cut : gold["splits"]["cuts"]) reference[cut["pieces"]] = cut["logprob"];
  int chosen = 0;
  double previous = 0;  // ln of a probability
  EXPECT_GE(p.at("splits").size(), 6u);
  for (const PictureJson& split : p.at("splits")) {
    std::string joined;
    for (const PictureJson& piece : split.at("pieces")) joined += piece.get<std::string>();
    EXPECT_EQ(joined, p.at("spelled").get<std::string>());
    const double logprob = split.at("logprob");
    EXPECT_LE(logprob, previous);
    previous = logprob;
    const auto expected = reference.find(split.at("pieces").get<std::vector<std::string>>());
    ASSERT_NE(expected, reference.end()) << split.at("pieces");
    EXPECT_NEAR(logprob, expected->second, 1e-3);
    EXPECT_NEAR(split.at("bitsPerByte").get<double>(), -expected->second / std::log(2.0) / gold["splits"]["bytes"].get<double>(),
                1e-4);
    if (!split.at("chosen").get<bool>()) continue;
    ++chosen;
    const std::vector<int32_t> all = gold["ids"];
    EXPECT_EQ(split.at("ids").get<std::vector<int32_t>>(), std::vector<int32_t>(all.begin() + 1, all.end()));
  }
  EXPECT_EQ(chosen, 1);
}

}  // namespace
}  // namespace vitrine
