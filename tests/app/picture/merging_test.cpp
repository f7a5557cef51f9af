// The pictures of merging against mergekit and NumPy (tests/golden/pictures/make_merging.py), and what they say where there is
// nothing between two rows.
#include <gtest/gtest.h>

#include <cmath>

#include "picture/data/interpolate.h"
#include "picture/data/tables.h"
#include "support.h"
#include "support/random_model.h"

namespace vitrine {
namespace {

constexpr Tolerance kDoubles{.abs = 1e-12, .rel = 1e-9};
constexpr Tolerance kSevenDigits{.abs = 1e-7, .rel = 1e-6};

const Json& merging_gold() {
  static const Json gold = read_json(std::string(VITRINE_GOLDEN) + "/pictures/merging.json");
  return gold;
}

double length(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

TEST(Interpolation, IsMergekits) {
  int straight = 0;
  for (const Json& pair : merging_gold()["slerp"]) {
    const std::vector<double> a = doubles(pair["a"]), b = doubles(pair["b"]);
    const double la = length(a), lb = length(b);
    double dot = 0;
    for (size_t i = 0; i < a.size(); ++i) dot += a[i] * b[i];
    const double cosine = la > 0 && lb > 0 ? dot / (la * lb) : 0;
    for (const Json& at : pair["results"]) {
      const Mix mix = slerp_mix(at["t"], cosine);
      straight += mix.straight ? 1 : 0;
      std::vector<double> result;
      for (size_t i = 0; i < a.size(); ++i) result.push_back(mix.first * a[i] + mix.second * b[i]);
      EXPECT_CLOSE(result, doubles(at["result"]), kDoubles) << pair["name"] << " at " << at["t"];
      EXPECT_NEAR(mixed_length(mix, la, lb, cosine), length(result), 1e-7) << pair["name"];
    }
  }
  EXPECT_EQ(straight, 10);  // nearly parallel and nearly opposite, at five t each
}

TEST(Interpolation, AveragesShrinkByTheCosineOfHalfTheAngle) {
  for (const double angle : {0.1, 1.0, 2.0, 3.0}) {
    const double cosine = std::cos(angle);
    EXPECT_NEAR(mixed_length(straight_mix(0.5), 3, 3, cosine), 3 * std::cos(angle / 2), 1e-12);
    for (const double t : {0.0, 0.2, 0.5, 1.0}) EXPECT_NEAR(mixed_length(slerp_mix(t, cosine), 3, 3, cosine), 3, 1e-12);
  }
}

class MergingPictures : public testing::TestWithParam<std::string> {
 protected:
  const Json& gold = merging_gold()["models"][GetParam()];
  Engine engine{GetParam() == "tales9m" ? std::string(VITRINE_SOURCE) + "/models/tales9m" : Golden::open(GetParam()).model(),
                kF32};
  PictureJson one(const char* name, const PictureOptions& options = {}) {
    return picture_of(engine, ids_prompt({3, 5}), name, options);
  }
};

// The distance of a point of the plane from another.
double apart(const PictureJson& p, const PictureJson& q) {
  return std::hypot(p[0].get<double>() - q[0].get<double>(), p[1].get<double>() - q[1].get<double>());
}

TEST_P(MergingPictures, InterpolationIsTheReferences) {
  const PictureJson p = one("interpolation");
  EXPECT_EQ(p.at("layer"), gold["layer"].get<int64_t>());
  EXPECT_EQ(p.at("matrix"), "blocks." + std::to_string(gold["layer"].get<int64_t>()) + ".mlp.W_in");
  EXPECT_EQ(p.at("shape").dump(), gold["shape"].dump());
  ASSERT_EQ(p.at("pairs").size(), gold["pairs"].size());
  for (size_t i = 0; i < gold["pairs"].size(); ++i) {
    const PictureJson& pair = p.at("pairs")[i];
    const Json& expected = gold["pairs"][i];
    EXPECT_EQ(pair.at("rows").dump(), expected["rows"].dump());
    for (const char* key : {"cosine", "angle"}) EXPECT_NEAR(pair.at(key).get<double>(), expected[key].get<double>(), 1e-6) << key;
    for (const char* key : {"lengths", "linearLengths", "slerpLengths"})
      EXPECT_CLOSE(doubles(pair.at(key)), doubles(expected[key]), kSevenDigits) << key;
    std::vector<double> to_a, to_b;
    for (const PictureJson& point : pair.at("arc")) {
      to_a.push_back(apart(point, pair.at("a")));
      to_b.push_back(apart(point, pair.at("b")));
    }
    constexpr Tolerance kDrawn{.abs = 3e-6, .rel = 1e-6};
    EXPECT_CLOSE(to_a, doubles(expected["slerpToA"]), kDrawn);
    EXPECT_CLOSE(to_b, doubles(expected["slerpToB"]), kDrawn);
    EXPECT_EQ(pair.at("averageLength"), pair.at("linearLengths")[20]);
    EXPECT_EQ(pair.at("slerpLength"), pair.at("slerpLengths")[20]);
    EXPECT_NEAR(pair.at("cosHalf").get<double>(), std::cos(expected["angle"].get<double>() / 2), 1e-6);
  }
}

TEST_P(MergingPictures, TaskVectorsAreTheReferences) {
  const PictureJson p = one("task-vectors");
  const Json& expected = gold["tasks"];
  EXPECT_EQ(p.at("rows").dump(), gold["pairs"][0]["rows"].dump());
  for (const char* key : {"initialLength", "taskCosine", "averageLength", "slerpLength"})
    EXPECT_NEAR(p.at(key).get<double>(), expected[key].get<double>(), 1e-6) << key;
  EXPECT_CLOSE(doubles(p.at("taskLengths")), doubles(expected["taskLengths"]), kSevenDigits);
  EXPECT_CLOSE(doubles(p.at("lengths")), doubles(gold["pairs"][0]["lengths"]), kSevenDigits);
  EXPECT_NEAR(p.at("cosine").get<double>(), gold["pairs"][0]["cosine"].get<double>(), 1e-6);
  for (const char* key : {"average", "slerp"})
    EXPECT_NEAR(p.at("mergedLengths").at(key).get<double>(), expected["mergedLengths"][key].get<double>(), 1e-6) << key;
  EXPECT_CLOSE(doubles(p.at("liti").at("distances")), doubles(expected["litiDistances"]), kSevenDigits);
  EXPECT_CLOSE(doubles(p.at("liti").at("lengths")), doubles(expected["litiLengths"]), kSevenDigits);
  EXPECT_NEAR(apart(p.at("slerp"), p.at("a")), expected["slerpToA"].get<double>(), 3e-6);
  EXPECT_NEAR(apart(p.at("slerp"), p.at("b")), expected["slerpToB"].get<double>(), 3e-6);
}

TEST_P(MergingPictures, TakeTheLayerThatIsAskedFor) {
  PictureOptions options;
  options.layer = 0;
  EXPECT_EQ(one("interpolation", options).at("matrix"), "blocks.0.mlp.W_in");
  EXPECT_EQ(one("task-vectors", options).at("matrix"), "blocks.0.mlp.W_in");
  EXPECT_NE(one("interpolation", options).at("pairs").dump(), one("interpolation").at("pairs").dump());
  options.layer = engine.shape().n_layers;
  EXPECT_CONTAINS(message_of<InputError>([&] { one("interpolation", options); }), "layer");
}

INSTANTIATE_TEST_SUITE_P(Models, MergingPictures, testing::Values("tales9m", "gemma2", "gpt2_a"),
                         [](const auto& one) { return one.param; });

// A hidden layer of one unit: one row.
TEST(MergingPicturesOf, OneRowAreAbsentAndTheStepIsLeftOut) {
  Json config = small_gemma(1, 2);
  config["intermediate_size"] = 1;
  const Scratch folder;
  write_random_model(folder.path(), config);
  Engine engine(folder.path(), kF32);
  const PictureJson document = explain_document(engine, ids_prompt({3, 5}));
  for (const char* name : {"interpolation", "task-vectors"})
    EXPECT_EQ(document.at("pictures").at(name).at("reason"),
              "blocks.0.mlp.W_in has fewer than two rows that are not zero, so there is nothing between them.");
  for (const PictureJson& step : document.at("steps")) EXPECT_NE(step.at("id"), "merging");
}

// Two rows: their differences from their mean are opposite, and have no arc.
TEST(MergingPicturesOf, TwoRowsHaveOppositeTaskVectors) {
  Json config = small_gemma(1, 2);
  config["intermediate_size"] = 2;
  const Scratch folder;
  write_random_model(folder.path(), config);
  Engine engine(folder.path(), kF32);
  const PictureJson document = explain_document(engine, ids_prompt({3, 5}));
  const PictureJson& p = document.at("pictures").at("task-vectors");
  EXPECT_EQ(p.at("straight"), true);
  EXPECT_NEAR(p.at("taskCosine").get<double>(), -1, 1e-6);
  EXPECT_NEAR(p.at("slerpLength").get<double>(), 0, 1e-6);
  EXPECT_EQ(document.at("pictures").at("interpolation").at("pairs").size(), 1u);
  EXPECT_EQ(document.at("steps")[document.at("steps").size() - 2].at("id"), "merging");
  for (const char* name : {"interpolation", "task-vectors"}) {
    EXPECT_EQ(picture_svg(document, name).find("nan"), std::string::npos);
    EXPECT_GE(picture_tables(document, name).size(), 2u);
  }
}

}  // namespace
}  // namespace vitrine
