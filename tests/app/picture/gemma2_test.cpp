// The pictures of the chapter about Gemma 2: sizes counted by hand and by transformers, a layer recomputed in plain loops,
// formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>

#include "picture/data/attention_layer.h"
#include "picture/data/designs.h"
#include "picture/data/tables.h"
#include "support.h"

namespace vitrine {
namespace {

const std::string kConfigs = std::string(VITRINE_GOLDEN) + "/configs/";

PictureJson without_weights(const std::string& configuration, const char* name) {
  Engine engine(open_configuration(configuration), kF32);
  PicturePrompt prompt;
  prompt.model = configuration;
  return picture_of(engine, prompt, name);
}

PictureJson of_golden(const std::string& model, const char* name) {
  Engine engine(Golden::open(model).model(), kF32);
  return picture_of(engine, ids_prompt({5, 3, 7, 9, 2, 11}), name);
}

const PictureJson& named(const PictureJson& designs, const std::string& title) {
  for (const PictureJson& design : designs.at("designs"))
    if (design.at("title") == title) return design;
  throw InputError("no design " + title);
}

TEST(Designs, ParametersAreThoseThatTransformersCounts) {
  const Json counts = read_json(kConfigs + "parameters.json");
  ASSERT_GE(designs().size(), 10u);
  for (const Design& design : designs()) {
    const OpenedModel opened = open_configuration(design.name);
    EXPECT_EQ(parameters_by_part(*opened.model).total(), counts.at(design.name)) << design.name;
    EXPECT_EQ(parameter_count(*opened.model), counts.at(design.name)) << design.name;
    EXPECT_FALSE(design.source.empty());
    // What we ship says the same as the configuration that transformers was given.
    EXPECT_EQ(opened.model->config(ConfigFormat::huggingface),
              open_configuration(kConfigs + design.name + ".json").model->config(ConfigFormat::huggingface))
        << design.name;
  }
}

// By hand, from table 1 of arXiv:2408.00118.
TEST(Designs, PartsOfGemma2) {
  constexpr int64_t D = 2304, F = 9216, V = 256000, L = 26, N = 8, G = 4, H = 256;
  const PictureJson picture = without_weights("gemma-2b", "designs");
  const PictureJson& d = named(picture, "Gemma 2 2B");
  EXPECT_EQ(d.at("parameters").at("embedding"), V * D);
  EXPECT_EQ(d.at("parameters").at("attention"), L * (2 * D * N * H + 2 * D * G * H));
  EXPECT_EQ(d.at("parameters").at("mlp"), L * 3 * D * F);
  EXPECT_EQ(d.at("parameters").at("norms"), (4 * L + 1) * D);
  EXPECT_EQ(d.at("parameters").at("head"), 0);
  EXPECT_EQ(d.at("sharing"), "GQA");
  EXPECT_EQ(d.at("window"), "4096 in 13 of 26 layers");
  EXPECT_EQ(d.at("caps"), "scores 50, logits 30");
  EXPECT_EQ(d.at("norms"), "RMSNorm before and after");
  // The token at position 8191 reads every matrix once, and the embedding again as the head.
  EXPECT_EQ(d.at("multiplyAdds").at("attention"), d.at("parameters").at("attention"));
  EXPECT_EQ(d.at("multiplyAdds").at("mlp"), d.at("parameters").at("mlp"));
  EXPECT_EQ(d.at("multiplyAdds").at("head"), V * D);
  EXPECT_EQ(d.at("multiplyAdds").at("scores"), L / 2 * (8192 + 4096) * N * 2 * H);
  EXPECT_EQ(d.at("cacheBytes"), L / 2 * (8192 + 4096) * G * 2 * H * 2);
  // A learned table is a part of the embedding; a head of its own is counted by itself.
  const PictureJson& gpt2 = named(picture, "GPT-2");
  EXPECT_EQ(gpt2.at("parameters").at("embedding"), (50257 + 1024) * 768);
  EXPECT_EQ(gpt2.at("comparedPositions"), 1024);
  EXPECT_EQ(named(picture, "Llama 3 8B").at("parameters").at("head"), 128256 * 4096);
  // Of 128 experts a token goes through 8; the router reads the whole stream.
  const PictureJson& mixture = named(picture, "Qwen3 30B-A3B");
  EXPECT_EQ(mixture.at("parameters").at("mlp"), int64_t{48} * (128 * 3 * 2048 * 768 + 128 * 2048));
  EXPECT_EQ(mixture.at("multiplyAdds").at("mlp"), int64_t{48} * (8 * 3 * 2048 * 768 + 128 * 2048));
  EXPECT_TRUE(picture.at("designs").back().at("own"));
}

TEST(Designs, WavelengthsOfGemma2BWithoutItsWeights) {
  const PictureJson p = without_weights("gemma-2b", "rope-wavelengths");
  const std::vector<double> wavelengths = doubles(p.at("wavelengths"));
  ASSERT_EQ(wavelengths.size(), 128u);
  EXPECT_NEAR(wavelengths.front(), 2 * std::numbers::pi, 1e-5);
  EXPECT_NEAR(wavelengths.back(), 2 * std::numbers::pi * std::pow(10000.0, 254.0 / 256), 1);
  EXPECT_EQ(std::lround(wavelengths.back()), 58470);
  EXPECT_EQ(p.at("contextLength"), 8192);
  EXPECT_EQ(p.at("rules")[0].at("y"), 8192);
}

// What shows no run and reads no weights.
TEST(Designs, ToysLogsAndSizesNeedNoWeights) {
  Engine whole(Golden::open("gpt2_a").model(), kF32), sizes(open_configuration("gpt2"), kF32);
  const PictureJson all = DocumentRuns(whole, ids_prompt({5, 3, 7}), {}, {}).take().at("pictures"),
                    some = DocumentRuns(sizes, PicturePrompt(), {}, {}).take().at("pictures");
  size_t found = 0;
  for (const auto& [name, picture] : all.items()) {
    if (!picture.at("available").get<bool>()) continue;
    const PictureJson& made = picture.at("made");
    if (std::any_of(made.begin(), made.end(), [](const PictureJson& of) { return of == "run" || of == "model"; })) continue;
    ++found;
    EXPECT_TRUE(some.contains(name) && some.at(name).at("available").get<bool>()) << name;
  }
  EXPECT_GE(found, 18u);
}

TEST(Designs, WhatNeedsNoWeightsWorksForEveryConfiguration) {
  const Json counts = read_json(kConfigs + "parameters.json");
  for (const auto& [name, count] : counts.items()) {
    Engine engine(open_configuration(kConfigs + name + ".json"), kF32);
    PicturePrompt prompt;
    prompt.model = name;
    const PictureJson document = DocumentRuns(engine, prompt, {}, {}).take();
    EXPECT_EQ(document.at("prompt").at("shell"), "--config " + name);
    EXPECT_GE(document.at("pictures").size(), 12u);
    for (const auto& [picture, data] : document.at("pictures").items()) {
      if (!data.at("available").get<bool>()) continue;
      EXPECT_FALSE(picture_svg(document, picture).empty()) << name << " " << picture;
      EXPECT_FALSE(picture_tables(document, picture).empty()) << name << " " << picture;
    }
  }
}

TEST(Designs, PublishedOnesAreNotThoseOfAFolder) {
  const Scratch folder;
  folder.write("gemma-2-2b/config.json", "{}");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  PictureJson picture;
  EXPECT_NO_THROW(picture = of_golden("gpt2_a", "designs"));
  std::filesystem::current_path(before);
  ASSERT_TRUE(picture.is_object());
  EXPECT_EQ(named(picture, "Gemma 2 2B").at("layers"), 26);
}

TEST(Designs, OthersSayWhatIsMissing) {
  try {
    without_weights("gpt2", "attention");
    FAIL();
  } catch (const InputError& error) {
    for (const char* part : {"gpt2", "without weights", "attention", "designs", "rope-wavelengths"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
  try {
    open_configuration("gemma-3-2b-that-is-not");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("gemma-2-2b"), std::string::npos) << error.what();
  }
}

TEST(HeadSharing, BytesOfTheCache) {
  const PictureJson p = of_golden("gemma2", "head-sharing");
  const std::vector<double> bytes = column(p.at("kinds"), "bytes");
  ASSERT_EQ(bytes.size(), 4u);
  EXPECT_EQ(bytes[0], 8192.0 * 32 * 2 * 32 * 128 * 2);  // positions, layers, keys and values, heads, numbers, bytes
  EXPECT_EQ(bytes[1], bytes[0] / 4);
  EXPECT_EQ(bytes[2], bytes[0] / 32);
}

TEST(Masks, CellsAreSharesOfPairs) {
  for (const char* model : {"gemma2", "gpt2_a"}) {
    const PictureJson p = of_golden(model, "masks");
    const auto n = p.at("positions").get<int64_t>(), per = p.at("perCell").get<int64_t>();
    for (const PictureJson& mask : p.at("masks")) {
      const int64_t window = mask.at("window").is_number() ? mask.at("window").get<int64_t>() : n;
      const auto bins = static_cast<int64_t>(mask.at("cells").size());
      std::vector<double> seen(static_cast<size_t>(bins * bins), 0), all = seen;
      double pairs = 0;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const bool sees = j <= i && i - j < window;
          seen[static_cast<size_t>(i / per * bins + j / per)] += sees;
          all[static_cast<size_t>(i / per * bins + j / per)] += 1;
          pairs += sees;
        }
      EXPECT_EQ(mask.at("pairs"), pairs) << model;
      const std::vector<double> cells = flat(mask.at("cells"));
      for (size_t c = 0; c < cells.size(); ++c)
        EXPECT_NEAR(cells[c], all[c] == 0 ? 0 : seen[c] / all[c], 1e-6) << model << " " << c;
    }
  }
  EXPECT_EQ(of_golden("gemma2", "masks").at("masks").size(), 2u);
}

// In double, without ops: q, k, v of heads, softmax over a sequence's tokens, and W_O.
TEST(AttentionLayer, IsThatOfPlainLoops) {
  const AttentionLayerSizes s{.batch = 2, .length = 5, .d_model = 48, .n_heads = 6, .n_kv_heads = 2};
  const int64_t D = s.d_model, H = s.head_dim(), rows = s.batch * s.length;
  ThreadPool pool(2);
  const AttentionLayerRun run = run_attention_layer(pool, s);
  const std::vector<float> input = attention_layer_input(static_cast<size_t>(rows * D));
  const std::vector<double> x(input.begin(), input.end());
  const auto product = [&](const std::vector<double>& in, int matrix, int64_t out) {
    const auto width = static_cast<int64_t>(in.size()) / rows;
    std::vector<double> y(static_cast<size_t>(rows * out));
    std::vector<float> w(static_cast<size_t>(out * width));
    attention_layer_weights(matrix, width, 0, w);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < width; ++i)
          y[static_cast<size_t>(r * out + o)] += in[static_cast<size_t>(r * width + i)] * w[static_cast<size_t>(o * width + i)];
    return y;
  };
  const std::vector<double> q = product(x, 0, s.n_heads * H), k = product(x, 1, s.n_kv_heads * H),
                            v = product(x, 2, s.n_kv_heads * H);
  std::vector<double> z(static_cast<size_t>(rows * s.n_heads * H));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t h = 0; h < s.n_heads; ++h) {
      const int64_t g = h / (s.n_heads / s.n_kv_heads), first = r / s.length * s.length;
      const auto at = [&](int64_t row, int64_t head, int64_t heads, int64_t i) {
        return static_cast<size_t>((row * heads + head) * H + i);
      };
      double sum = 0;
      std::vector<double> weights;
      for (int64_t t = first; t < first + s.length; ++t) {
        double score = 0;
        for (int64_t i = 0; i < H; ++i) score += q[at(r, h, s.n_heads, i)] * k[at(t, g, s.n_kv_heads, i)];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(H))));
        sum += weights.back();
      }
      for (int64_t t = 0; t < s.length; ++t)
        for (int64_t i = 0; i < H; ++i)
          z[at(r, h, s.n_heads, i)] += weights[static_cast<size_t>(t)] / sum * v[at(first + t, g, s.n_kv_heads, i)];
    }
  const std::vector<double> out = product(z, 3, D);
  ASSERT_EQ(run.out.size(), out.size());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(run.out[i], out[i], 1e-5);
  EXPECT_LT(run.repeated, 1e-6);
}

TEST(AttentionLayer, ShapesOfTheExample) {
  const PictureJson p = of_golden("gpt2_a", "attention-layer");
  std::vector<std::string> shapes;
  for (const PictureJson& value : p.at("values")) shapes.push_back(value.at("written"));
  EXPECT_EQ(shapes,
            (std::vector<std::string>{"(2, 32, 4096)", "(2, 32, 4096)", "(2, 32, 32, 128)", "(2, 32, 1024)", "(2, 32, 8, 128)",
                                      "(2, 32, 1024)", "(2, 32, 8, 128)", "(2, 32, 32, 128)", "(2, 32, 4096)"}));
  EXPECT_LT(p.at("repeated").get<double>(), 1e-5);
  // nn.Linear's weights have variance 1 / (3 · 4096), the input 1: so q has 1/√3.
  EXPECT_NEAR(p.at("values")[1].at("deviation").get<double>(), 1 / std::sqrt(3.0), 0.01);
}

// Pairs (1, 0), really turned: what the picture says of the sum of their products.
TEST(RopeDecay, IsTheDotProductOfTurnedVectors) {
  const PictureJson p = of_golden("gemma2", "rope-decay");
  Engine engine(Golden::open("gemma2").model(), kF32);
  const RopeSpec spec = *engine.model().layer(0).rope;
  const std::vector<double> equal = doubles(p.at("equal")), bound = doubles(p.at("bound"));
  for (const int64_t distance : {0, 1, 3, 17, 200}) {
    double dot = 0;
    for (int64_t i = 0; i < spec.rotary_dim / 2; ++i) {
      const double angle = std::pow(spec.theta, -2.0 * static_cast<double>(i) / static_cast<double>(spec.rotary_dim));
      const double at = 40 * angle, other = static_cast<double>(40 + distance) * angle;
      dot += std::cos(at) * std::cos(other) + std::sin(at) * std::sin(other);
    }
    EXPECT_NEAR(equal[static_cast<size_t>(distance)], dot / static_cast<double>(spec.rotary_dim / 2), 1e-4) << distance;
    // arXiv:2104.09864, section 3.4.3: the sum over j of |S_j|, where S_j is the sum of e^(i distance angle) of the first j
    // pairs.
    double real = 0, imaginary = 0, sum = 0, most = 0;
    for (int64_t i = 0; i < spec.rotary_dim / 2; ++i) {
      const double angle = std::pow(spec.theta, -2.0 * static_cast<double>(i) / static_cast<double>(spec.rotary_dim));
      real += std::cos(static_cast<double>(distance) * angle);
      imaginary += std::sin(static_cast<double>(distance) * angle);
      sum += std::hypot(real, imaginary);
      most += static_cast<double>(i + 1);
    }
    EXPECT_NEAR(bound[static_cast<size_t>(distance)], sum / most, 1e-4) << distance;
  }
  EXPECT_EQ(equal[0], 1);
  EXPECT_EQ(bound[0], 1);
}

TEST(RotatedValues, OnlyTheyTellThePlace) {
  const PictureJson p = of_golden("gpt2_a", "rotated-values");
  const std::vector<double> plain = doubles(p.at("unrotated")), turned = doubles(p.at("rotated"));
  EXPECT_EQ(turned[0], 0);
  for (size_t i = 1; i < plain.size(); ++i) {
    EXPECT_LT(plain[i], 1e-5) << i;
    EXPECT_GT(turned[i], 0.05) << i;
  }
  // Turning values by one position more turns each pair of what is read by that pair's angle: the length of the change is known.
  EXPECT_LT(turned[1], 1.0);
}

TEST(Clipping, DerivativesAreThoseOfDifferences) {
  const PictureJson p = of_golden("gpt2_a", "clipping");
  const std::vector<double> x = doubles(p.at("x")), soft = doubles(p.at("soft")), hard = doubles(p.at("hard")),
                            soft_gradient = doubles(p.at("softGradient")), hard_gradient = doubles(p.at("hardGradient"));
  constexpr double kStep = 1e-4;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(soft[i], (1 - std::exp(-2 * x[i])) / (1 + std::exp(-2 * x[i])), 1e-6);
    EXPECT_NEAR(hard[i], x[i] < -1 ? -1 : x[i] > 1 ? 1 : x[i], 1e-6);
    EXPECT_NEAR(soft_gradient[i], (std::tanh(x[i] + kStep) - std::tanh(x[i] - kStep)) / (2 * kStep), 1e-6);
    if (std::abs(std::abs(x[i]) - 1) > 1e-3) {
      EXPECT_EQ(hard_gradient[i], std::abs(x[i]) < 1 ? 1 : 0);
    }
  }
  // torch: 2 * tanh(tensor([0.5, 1.0, 2.0, 3.0]) / 2)
  const std::vector<double> capped = column(p.at("examples"), "soft");
  for (const auto& [i, value] :
       {std::pair{0, 0.4898373}, std::pair{1, 0.9242343}, std::pair{2, 1.5231884}, std::pair{3, 1.8102965}})
    EXPECT_NEAR(capped[static_cast<size_t>(i)], value, 1e-6);
}

TEST(Teaching, CurvesAreThoseOfTheLogsThatShip) {
  const std::string logs = std::string(VITRINE_SOURCE) + "/models/training/";
  const Json length = read_json(logs + "length/length.json"), student = read_json(logs + "student/curve.json");
  const PictureJson beyond = of_golden("gpt2_a", "beyond-training"), distillation = of_golden("gpt2_a", "distillation");
  for (const char* key : {"places", "whole", "short", "counts"})
    EXPECT_EQ(beyond.at(key), PictureJson::parse(length.at(key).dump())) << key;
  EXPECT_EQ(beyond.at("trained"), 512);
  // Up to the length of training both have the same tokens in front; far beyond it the whole tale makes the loss worse.
  EXPECT_EQ(beyond.at("whole")[0], beyond.at("short")[0]);
  EXPECT_GT(beyond.at("whole").back().get<double>(), beyond.at("short").back().get<double>());
  for (const char* key : {"tokens", "text", "teacher"})
    EXPECT_EQ(distillation.at(key), PictureJson::parse(student.at(key).dump())) << key;
  EXPECT_EQ(distillation.at("text")[0], distillation.at("teacher")[0]) << "both begin with the same weights";
  EXPECT_LT(distillation.at("teacher").back().get<double>(), distillation.at("text").back().get<double>());
}

TEST(Teaching, TargetsOfTheLastToken) {
  const PictureJson p = of_golden("gpt2_a", "targets");
  Engine engine(Golden::open("gpt2_a").model(), kF32);
  const std::vector<int32_t> ids = {5, 3, 7, 9, 2, 11};
  const std::vector<Prediction> all = engine.predict(ids, engine.shape().vocab_size, true);
  std::map<int32_t, double> known;
  for (const TokenLogprob& next : all.at(4).top) known[next.token] = next.prob();
  double shown = 0, text = 0;
  for (const PictureJson& row : p.at("rows")) {
    const auto id = row.at("id").get<int32_t>();
    EXPECT_NEAR(row.at("teacher").get<double>(), known.at(id), 1e-6) << id;
    EXPECT_EQ(row.at("text"), id == 11 ? 1 : 0);
    shown += known.at(id);
    text += row.at("text").get<double>();
  }
  EXPECT_EQ(text, 1);
  EXPECT_NEAR(p.at("others").get<double>(), 1 - shown, 1e-6);
}

}  // namespace
}  // namespace vitrine
