// Numbers that can be computed without weights, and how data, pages and drawings are written.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "base/base64.h"
#include "hooks/trace.h"
#include "inspect/info.h"
#include "picture/data/facts.h"
#include "picture/data/observe.h"
#include "support.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::vector<double> list(std::initializer_list<double> values) { return values; }
constexpr Tolerance kFourDigits{.abs = 5e-5, .rel = 0};
constexpr Tolerance kSixDigits{.abs = 1e-7, .rel = 1e-6};  // the data has seven

const Json& random_gemma_config() {  // Gemma's head of 256 components and context, everything else small
  static const Json config = {{"architectures", {"GemmaForCausalLM"}},
                              {"model_type", "gemma"},
                              {"hidden_size", 16},
                              {"num_hidden_layers", 2},
                              {"num_attention_heads", 2},
                              {"num_key_value_heads", 1},
                              {"head_dim", 256},
                              {"intermediate_size", 24},
                              {"vocab_size", 64},
                              {"max_position_embeddings", 8192},
                              {"rope_theta", 10000.0},
                              {"hidden_act", "gelu_pytorch_tanh"}};
  return config;
}

Json random_gemma2_config(double query_pre_attn_scalar, int64_t window, double cap) {  // the same with caps and windows
  Json config = random_gemma_config();
  config.erase("hidden_act");
  config.update({{"architectures", {"Gemma2ForCausalLM"}},
                 {"model_type", "gemma2"},
                 {"hidden_activation", "gelu_pytorch_tanh"},
                 {"query_pre_attn_scalar", query_pre_attn_scalar},
                 {"sliding_window", window},
                 {"attn_logit_softcapping", cap},
                 {"final_logit_softcapping", cap}});
  return config;
}

class Formulas : public testing::Test {
 protected:
  Formulas() { write_random_model(folder.path(), random_gemma_config()); }
  Scratch folder;
  const Json torch = read_json(std::string(VITRINE_GOLDEN) + "/pictures/functions.json");
  PictureJson one(const char* name, std::vector<int32_t> ids = {2, 5, 9, 3, 7}) {
    Engine engine(folder.path(), kF32);
    return picture_of(engine, ids_prompt(std::move(ids)), name);
  }
};

TEST_F(Formulas, DotProducts) {
  const PictureJson p = one("dot-product");
  const double r = std::sqrt(0.5);
  EXPECT_CLOSE(column(p.at("vectors"), "dot"), list({2, r, 0, -r, -1}), kFourDigits);
  for (const PictureJson& v : p.at("vectors")) EXPECT_EQ(v.at("x")[0], v.at("dot"));  // a is (1, 0)
}

TEST_F(Formulas, NormsOfTwoAndThreeNumbers) {
  const PictureJson p = one("layer-norm");
  EXPECT_CLOSE(doubles(p.at("centered")), list({-2, 2}), (Tolerance{0, 0}));
  EXPECT_CLOSE(doubles(p.at("scaled")), list({-1, 1}), (Tolerance{0, 0}));
  EXPECT_CLOSE(doubles(p.at("layerNorm")), list({-0.5, 1.5}), kFourDigits);
  EXPECT_CLOSE(doubles(p.at("rmsScaled")), list({1 / std::sqrt(13.0), 5 / std::sqrt(13.0)}), kFourDigits);
  EXPECT_CLOSE(doubles(p.at("three").at("scaled")), list({-1.2247, 0, 1.2247}), kFourDigits);
  EXPECT_CLOSE(doubles(p.at("three").at("scaled")), doubles(torch["three"]), kSixDigits);
  EXPECT_NEAR(p.at("three").at("variance").get<double>(), 8.0 / 3.0, 1e-6);
}

TEST_F(Formulas, SoftCapSoftmaxAndToyGrowth) {
  const PictureJson cap = one("soft-cap");
  EXPECT_CLOSE(doubles(cap.at("example").at("y")), list({0.4898, 0.9242, 1.5232, 1.8103}), kFourDigits);
  EXPECT_CLOSE(doubles(cap.at("example").at("y")), doubles(torch["cap2"]), kSixDigits);
  EXPECT_CLOSE(doubles(cap.at("curve").at("x")), doubles(torch["x"]), kSixDigits);
  EXPECT_CLOSE(doubles(cap.at("curve").at("y")), doubles(torch["tanh"]), kSixDigits);
  EXPECT_TRUE(cap.at("attention").is_null());  // Gemma has no caps
  const std::vector<double> pair = doubles(one("softmax").at("pair").at("weights"));
  EXPECT_CLOSE(pair, list({2.0 / 3, 1.0 / 3}), kFourDigits);
  EXPECT_CLOSE(pair, doubles(torch["softmaxPair"]), kSixDigits);
  const PictureJson toy = one("residual-scale").at("toy");
  EXPECT_EQ(toy.at("without").back(), 387420489);
  EXPECT_EQ(toy.at("with").back(), 37);
  EXPECT_EQ(toy.at("with").size(), 19u);
}

// Where no token sees a second position a head has nothing to choose from: no flatness, no rank.
TEST_F(Formulas, NoFlatnessWithoutAChoice) {
  const PictureJson p = one("attention", {5});
  for (const char* key : {"flatness", "onFirst", "onPrevious", "onSelf"})
    for (const PictureJson& layer : p.at(key))
      for (const PictureJson& head : layer) EXPECT_TRUE(head.is_null()) << key;
  EXPECT_EQ(p.at("flatToSpiky").dump(), "[[0,1],[0,1]]");  // every head is drawn
  EXPECT_EQ(p.at("alt"), "4 grids of 1 × 1 token. No token sees more than one position, so no head is flatter than another.");

  write_random_model(folder.path(), random_gemma2_config(256, 1, 30));
  const PictureJson window = one("attention");
  for (const PictureJson& head : window.at("flatness")[0]) EXPECT_TRUE(head.is_null());
  for (const PictureJson& head : window.at("flatness")[1]) EXPECT_TRUE(head.is_number());
  for (const PictureJson& head : window.at("onSelf")[0]) EXPECT_EQ(head, 1);
  EXPECT_NE(window.at("alt").get<std::string>().find("The flattest head is layer 1"), std::string::npos) << window.at("alt");
  EXPECT_NE(window.at("alt").get<std::string>().find("the spikiest layer 1"), std::string::npos) << window.at("alt");
}

TEST_F(Formulas, ActivationsAreTorchs) {
  const PictureJson p = one("activation-curves");
  const std::vector<double> x = doubles(torch["x"]);
  for (const char* key : {"x", "relu", "geluTanh", "geluExact", "silu"}) {
    std::vector<double> expected;  // from −2 to 2: further out the curves are one
    for (size_t i = 0; i < x.size(); ++i)
      if (std::abs(x[i]) < 2.01) expected.push_back(doubles(torch[key])[i]);
    EXPECT_EQ(expected.size(), 81u);
    EXPECT_CLOSE(doubles(p.at(key)), expected, kSixDigits) << key;
  }
}

TEST_F(Formulas, GemmasWavelengths) {
  const PictureJson p = one("rope-wavelengths");
  EXPECT_EQ(p.at("wavelengths").size(), 128u);
  EXPECT_NEAR(p.at("wavelengths").front().get<double>(), 6.2832, 1e-4);
  EXPECT_NEAR(p.at("wavelengths").back().get<double>(), 58470, 1);
  EXPECT_EQ(p.at("firstBeyondContext"), 100);
  EXPECT_EQ(p.at("layout"), "halves");
  EXPECT_CLOSE(doubles(p.at("frequencies")), doubles(torch["gemmaFrequencies"]), kSixDigits);
  const PictureJson rotation = one("rope-rotation");
  EXPECT_EQ(rotation.at("components")[1].at("component"), 20);
  EXPECT_NEAR(rotation.at("components")[1].at("frequency").get<double>(), 0.2371, 1e-4);
  for (int i = 0; i + 2 < 5; ++i)
    EXPECT_NEAR(rotation.at("dot")[i][i + 1].get<double>(), rotation.at("dot")[i + 1][i + 2].get<double>(), 1e-6);
  EXPECT_NEAR(rotation.at("dot")[0][2].get<double>(), std::cos(2.0), 1e-6);
}

// Llama 7B's groups and Gemma's table, from shapes alone.
TEST(Shapes, GroupsAndTablesOfWellKnownModels) {
  ModelFacts gemma;
  gemma.shape.vocab_size = 256000;
  gemma.shape.d_model = 2048;
  EXPECT_EQ(to_json(gemma, "", "").at("embeddingParameters"), 524288000);
  ModelFacts heads;
  heads.shape.n_heads = 32;
  for (const auto& [kv, title] : {std::pair{8, "GQA"}, std::pair{32, "MHA"}, std::pair{1, "MQA"}}) {
    heads.shape.n_kv_heads = kv;
    EXPECT_EQ(heads.heads_title(), title);
  }
}

TEST(GroupedQueries, HaveTheShapesOfTheText) {  // 32 heads of 128, 8 of them for keys and values; a narrow stream
  Scratch folder;
  write_random_model(folder.path(), {{"architectures", {"LlamaForCausalLM"}},
                                     {"model_type", "llama"},
                                     {"hidden_size", 32},
                                     {"head_dim", 128},
                                     {"num_hidden_layers", 1},
                                     {"num_attention_heads", 32},
                                     {"num_key_value_heads", 8},
                                     {"intermediate_size", 16},
                                     {"vocab_size", 40},
                                     {"max_position_embeddings", 2048}});
  Engine engine(folder.path(), kF32);
  const PictureJson document = explain_document(engine, ids_prompt(std::vector<int32_t>(6, 5)));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const PictureJson& step : document.at("steps"))
    for (const PictureJson& shape : step.at("shapes"))
      shapes[shape.at("name").get<std::string>()] = shape.at("shape").get<std::vector<int64_t>>();
  EXPECT_EQ(shapes.at("q"), (std::vector<int64_t>{6, 32, 128}));
  EXPECT_EQ(shapes.at("k"), (std::vector<int64_t>{6, 8, 128}));
  EXPECT_EQ(shapes.at("v"), (std::vector<int64_t>{6, 8, 128}));
  const PictureJson& grouping = document.at("pictures").at("head-grouping");
  EXPECT_EQ(grouping.at("kind"), "GQA");
  EXPECT_EQ(grouping.at("groups").size(), 8u);
  EXPECT_EQ(grouping.at("groups")[1].get<std::vector<int>>(), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(grouping.at("parameters").at("k"), 32 * 1024);
}

TEST(Merges, OfTheToyVocabulary) {  // Sennrich et al., arXiv:1508.07909: the commonest pair first
  Scratch folder;
  write_toy_gpt2(folder.path());
  Engine engine(folder.path(), kF32);
  const PicturePrompt prompt = text_prompt(engine, "aaabdaaabac");
  const PictureJson p = picture_of(engine, prompt, "merges");
  EXPECT_EQ(p.at("end").get<std::vector<int>>(), (std::vector<int>{258, 100, 258, 97, 99}));
  EXPECT_EQ(p.at("start").size(), 11u);
  std::vector<std::string> made;
  for (const PictureJson& step : p.at("steps")) made.push_back(step.at("piece"));
  EXPECT_EQ(made, (std::vector<std::string>{"aa", "aa", "ab", "ab", "aaab", "aaab"}));
  EXPECT_EQ(column(p.at("steps"), "order"), list({0, 0, 1, 1, 2, 2}));
  // "aaab" has six cuts (aaab, aa·ab, aa·a·b, a·aa·b, a·a·ab, a·a·a·b); the rest has one.
  const PictureJson splits = picture_of(engine, prompt, "splits");
  EXPECT_NEAR(splits.at("log10Count").get<double>(), std::log10(6.0 * 6.0), 1e-6);
}

// A capped f32 tells what it was up to some caps only.
TEST_F(Formulas, ScoresFarBeyondTheCap) {
  write_random_model(folder.path(), random_gemma2_config(1, 16, 0.01));
  const PictureJson p = one("soft-cap");
  for (const double largest : doubles(p.at("attention").at("largest")[1])) EXPECT_NEAR(largest, 0.06, 1e-6);
  EXPECT_NEAR(p.at("final").at("largest").get<double>(), 0.06, 1e-6);
  EXPECT_CONTAINS(p.at("alt").get<std::string>(), "the largest was at least 0.06");
}

// A tokenizer may hold more pieces than the model has embeddings.
TEST_F(Formulas, SplitsAreCutIntoTheModelsTokens) {
  Json config = random_gemma_config();
  config["vocab_size"] = 1000;
  write_random_model(folder.path(), config);
  std::filesystem::copy_file(std::string(VITRINE_SOURCE) + "/models/tales9m/tokenizer.model", folder.path() + "/tokenizer.model");
  Engine engine(folder.path(), kF32);
  const PictureJson p = picture_of(engine, text_prompt(engine, "and then"), "splits");
  EXPECT_GE(p.at("splits").size(), 2u);
  for (const PictureJson& split : p.at("splits"))
    for (const int id : split.at("ids").get<std::vector<int>>()) EXPECT_LT(id, 1000);
}

// All splits are run together, and each is worth what it is worth alone.
TEST(Splits, HaveTheProbabilityOfTheirTokens) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PictureJson p = picture_of(engine, text_prompt(engine, "Once upon a time there was a king"), "splits");
  ASSERT_EQ(p.at("splits").size(), 8u);
  for (const PictureJson& split : p.at("splits")) {
    std::vector<int32_t> ids = split.at("ids").get<std::vector<int32_t>>();
    ids.insert(ids.begin(), *engine.tokenizer().bos());
    const std::vector<float> alone = engine.token_logprobs(ids);
    EXPECT_NEAR(split.at("logprob").get<double>(), std::accumulate(alone.begin(), alone.end(), 0.0), 1e-4) << split.at("pieces");
  }
}

TEST_F(Formulas, GroupsAndReach) {
  const PictureJson heads = one("head-grouping");
  EXPECT_EQ(heads.at("kind"), "MQA");
  EXPECT_EQ(heads.at("groups"), PictureJson::parse("[[0,1]]"));
  EXPECT_EQ(heads.at("cacheBytesPerPosition"), 2 * 256 * 4 * 2);  // keys and values, f32, two layers
  Engine engine(Golden::open("gemma2").model(), kF32);
  std::vector<int32_t> ids(24, 5);
  const PictureJson reach = picture_of(engine, ids_prompt(ids), "reach");
  const std::vector<CacheLayer> layers = engine.model().cache_layers();
  int64_t shift = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const int64_t window = layers[l].window;
    EXPECT_EQ(reach.at("layers")[l].at("sees"), window == kNoWindow ? 0 : std::max<int64_t>(0, 23 - window + 1)) << l;
    shift = window == kNoWindow ? 24 : shift + window - 1;
    EXPECT_EQ(reach.at("layers")[l].at("receives"), std::max<int64_t>(0, 23 - shift)) << l;
    EXPECT_EQ(reach.at("layers")[l].at("cached"), window == kNoWindow ? 24 : std::min<int64_t>(24, window - 1)) << l;
  }
  // What the model's own cache allocates at its full context, whose rings are whole pages.
  const auto cache = engine.make_cache(0);
  EXPECT_EQ(reach.at("bytesAtContext").get<size_t>(), cache->bytes_for(cache->context()));
  EXPECT_LE(reach.at("bytesAtContext").get<int64_t>(), reach.at("bytesAtContextGlobal").get<int64_t>());
}

// Where nothing else is asked for, decoding a model of 16-bit weights takes f16: every picture counts what `vitrine info` counts.
TEST(Reach, TheCacheIsThatOfDecoding) {
  const std::string shipped = std::string(VITRINE_SOURCE) + "/models/tales9m";
  const ModelInfo info = model_info(shipped, {});
  Engine engine(shipped, {.threads = 2, .decode_narrow = true});
  const PicturePrompt prompt = ids_prompt({2, 5, 9});
  const PictureJson reach = picture_of(engine, prompt, "reach");
  EXPECT_EQ(reach.at("bytesAtContext").get<int64_t>(), info.cache_bytes);
  EXPECT_EQ(reach.at("bytesAtContextGlobal").get<int64_t>(), info.cache_bytes_full);
  EXPECT_EQ(info.bytes_per_position, 8 * 2 * 2 * 64 * 2);  // keys and values of two heads in eight layers, two bytes a number
  for (const PictureJson& layer : reach.at("layers"))
    EXPECT_EQ(layer.at("bytes").get<int64_t>(), 3 * info.bytes_per_position / 8) << layer.at("layer");
  EXPECT_EQ(picture_of(engine, prompt, "head-grouping").at("cacheBytesPerPosition").get<int64_t>(), info.bytes_per_position);
  const auto each = static_cast<double>(info.bytes_per_position);
  EXPECT_EQ(column(picture_of(engine, prompt, "head-sizes").at("sharing"), "cacheBytes"), list({each / 2, each, each * 2}));
  // A cache of other types, as --cache-type-k and --cache-type-v ask for.
  Engine told(shipped, {.threads = 2, .cache = {DType::q8_0, DType::f32}});
  const auto cache = told.decoding_cache(0);
  EXPECT_EQ(picture_of(told, prompt, "reach").at("bytesAtContext").get<size_t>(), cache->bytes_for(cache->context()));
}

// tales9m keeps 8.0 MiB in f32 although its windows hold 4.5: `vitrine info --compute f32` says the same.
TEST(Reach, TheCacheIsWhatIsAllocated) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PictureJson reach = picture_of(engine, ids_prompt({2, 5, 9}), "reach");
  const auto cache = engine.make_cache(0);
  EXPECT_EQ(reach.at("bytesAtContext").get<size_t>(), cache->bytes_for(cache->context()));
  EXPECT_EQ(reach.at("bytesAtContext").get<int64_t>(), int64_t{8} << 20);
  EXPECT_EQ(reach.at("layers")[0].at("room"), 1024);
  EXPECT_EQ(reach.at("alt"),
            "4 of 8 layers see the whole context. At 1024 positions the cache takes 8.0 MiB; it would take 8.0 MiB if all did.");
}

TEST_F(Formulas, SixRegionsAndSurfacesOfTheToy) {
  const PictureJson p = one("mlp-surfaces");
  const std::vector<double> regions = unpacked(p.at("regions")), surfaces = unpacked(p.at("surfaces")), x = doubles(p.at("x"));
  EXPECT_EQ(std::set<double>(regions.begin(), regions.end()).size(), 6u);
  const auto weight = [&](const char* m, size_t i, size_t j) { return p.at("weights").at(m)[i][j].get<double>(); };
  const size_t n = x.size();
  for (size_t a = 0; a < n; a += 5)
    for (size_t b = 0; b < n; b += 5) {
      double relu = 0, reglu = 0, geglu = 0;
      for (size_t i = 0; i < 3; ++i) {
        const double g = x[a] * weight("gate", 0, i) + x[b] * weight("gate", 1, i),
                     u = x[a] * weight("up", 0, i) + x[b] * weight("up", 1, i);
        relu += std::max(0.0, g) * weight("down", i, 0);
        reglu += std::max(0.0, g) * u * weight("down", i, 0);
        geglu += 0.5 * g * (1 + std::tanh(0.7978845608 * (g + 0.044715 * g * g * g))) * u * weight("down", i, 0);
      }
      const double linear = x[a] * weight("proj", 0, 0) + x[b] * weight("proj", 1, 0);
      const double expected[] = {linear, relu, reglu, geglu};
      for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(surfaces[(k * n + a) * n + b], expected[k], 1e-5) << k;
    }
}

TEST_F(Formulas, OneFormulaForEachRegionOfTheToy) {
  const PictureJson p = one("mlp-surfaces");
  const std::vector<double> regions = unpacked(p.at("regions")), surfaces = unpacked(p.at("surfaces")), x = doubles(p.at("x"));
  std::map<int, PictureJson> pieces;
  for (const PictureJson& piece : p.at("pieces")) pieces[piece.at("mask")] = piece;
  EXPECT_EQ(pieces.size(), 6u);
  EXPECT_EQ(pieces.at(7).at("units"), "all");
  EXPECT_EQ(pieces.at(0).at("units"), "none");
  EXPECT_EQ(pieces.at(0).at("relu"), "0");
  EXPECT_EQ(pieces.at(6).at("on"), "011");
  const size_t n = x.size();
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b) {
      const PictureJson& piece = pieces.at(static_cast<int>(regions[a * n + b]));
      const auto linear = doubles(piece.at("linear")), quadratic = doubles(piece.at("quadratic"));
      EXPECT_NEAR(surfaces[(1 * n + a) * n + b], linear[0] * x[a] + linear[1] * x[b], 1e-5);
      EXPECT_NEAR(surfaces[(2 * n + a) * n + b],
                  quadratic[0] * x[a] * x[a] + quadratic[1] * x[a] * x[b] + quadratic[2] * x[b] * x[b], 1e-5);
    }
}

// Cover's count of the cells that hyperplanes through the origin make, in Python: 2 * sum(comb(m - 1, k) for k in range(min(n,
// m))).
TEST_F(Formulas, RegionsOfAnMlp) {
  const PictureJson p = one("mlp-regions");
  EXPECT_EQ(column(p.at("rows"), "inputs"), list({2, 16, 2048}));
  EXPECT_EQ(p.at("rows")[0].at("regions"), "6");
  EXPECT_EQ(p.at("rows")[1].at("regions"), "15995904");           // 16 inputs, 24 hidden units
  EXPECT_EQ(p.at("rows")[2].at("regions"), "about 2.2·10^2678");  // 2048 and 16384: 2.187e2678
  EXPECT_NEAR(p.at("log10").back().get<double>(), 7.204009, 1e-6);
  EXPECT_TRUE(p.at("throughOrigin").get<bool>());
}

TEST(Regions, WithBiasesHyperplanesMissTheOrigin) {  // sum(comb(m, k) for k in range(min(n, m) + 1))
  Scratch folder;
  write_toy_gpt2(folder.path(), false);
  Engine engine(folder.path(), kF32);
  const PictureJson p = picture_of(engine, ids_prompt({3, 5}), "mlp-regions");
  EXPECT_FALSE(p.at("throughOrigin").get<bool>());
  EXPECT_EQ(p.at("rows")[1].at("regions"), "about 7.1·10^14");  // 16 inputs, 64 hidden units: 713250450657109
}

TEST_F(Formulas, WhatOtherNumbersOfHeadsWouldCost) {
  const PictureJson p = one("head-sizes");  // 2 heads of 256, one key and value head, d_model 16, two layers, 5 tokens
  std::map<int, PictureJson> heads;
  for (const PictureJson& row : p.at("heads")) heads[row.at("heads")] = row;
  EXPECT_TRUE(heads.at(2).at("here").get<bool>());
  EXPECT_FALSE(heads.at(8).at("here").get<bool>());
  EXPECT_EQ(heads.at(8).at("size"), 64);
  EXPECT_EQ(heads.at(8).at("patterns"), 16);
  EXPECT_EQ(heads.at(8).at("weights"), 8 * 2 * 15);     // 5 · 6 / 2 pairs of target and source
  EXPECT_EQ(heads.at(8).at("products"), 512 * 2 * 15);  // the same for every number of heads
  EXPECT_EQ(heads.at(2).at("products"), heads.at(8).at("products"));
  EXPECT_EQ(column(p.at("sharing"), "kvHeads"), list({1, 2}));
  EXPECT_EQ(column(p.at("sharing"), "cacheBytes"), list({2 * 256 * 2 * 4, 2 * 512 * 2 * 4}));
  EXPECT_EQ(column(p.at("sharing"), "parameters"), list({2 * 16 * 256 * 2, 2 * 16 * 512 * 2}));
}

TEST_F(Formulas, TheScaleOfLogitsAtTheStart) {
  const PictureJson p = one("initial-scale");
  const std::vector<double> widths = doubles(p.at("widths")), plain = doubles(p.at("plain")), scaled = doubles(p.at("scaled"));
  EXPECT_EQ(widths, list({16, 64, 256, 1024, 2048}));
  for (size_t i = 0; i < widths.size(); ++i) {
    EXPECT_NEAR(doubles(p.at("hidden"))[i], 1, 4 / std::sqrt(2 * 10 * widths[i]));  // four standard errors of a deviation
    EXPECT_NEAR(plain[i] / scaled[i], std::sqrt(widths[i]), 1e-4 * std::sqrt(widths[i]));
    EXPECT_NEAR(scaled[i], 1, 0.15) << widths[i];
  }
  EXPECT_EQ(one("initial-scale"), p);  // the seed is fixed
}

TEST_F(Formulas, WhereSquaresLeaveFloat16) {
  const PictureJson p = one("half-range");
  // From 65520 on f16 rounds to infinity. Its numbers from 128 to 256 are 1/8 apart: 255.875² = 65472.02, 256² = 65536.
  EXPECT_EQ(p.at("largest"), 255.875);
  // 2⁻²⁵ is halfway between 0 and the least number 2⁻²⁴ and rounds to 0: x² must be larger, x > 2^-12.5 = 1.7263e-4.
  EXPECT_NEAR(p.at("smallest").get<double>(), 1.7263e-4, 2e-7);
  const std::vector<double> x = doubles(p.at("x"));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(p.at("f16Text")[i] == "∞", x[i] >= 256) << x[i];
  EXPECT_EQ(p.at("norm").at("f16"), "∞");
  EXPECT_EQ(p.at("norm").at("f16y")[0], "0");
  EXPECT_NEAR(std::stod(p.at("norm").at("f32").get<std::string>()), std::sqrt((90000 + 1600 + 4 + 0.25) / 4), 1e-3);
}

TEST_F(Formulas, ALookupMixesTheValues) {
  const PictureJson p = one("lookup");
  double sum = 0;
  for (const double weight : doubles(p.at("weights"))) sum += weight;
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_LT(p.at("error").get<double>(), 1e-5);
  const std::vector<double> weights = doubles(p.at("weights"));
  const size_t n = weights.size();
  ASSERT_EQ(p.at("values").size(), n + 1);
  for (size_t i = 0; i < p.at("shown").get<size_t>(); ++i) {
    double mixed = 0;
    for (size_t s = 0; s < n; ++s) mixed += weights[s] * p.at("values")[s][i].get<double>();
    EXPECT_NEAR(mixed, p.at("values")[n][i].get<double>(), 1e-5);
  }
  EXPECT_EQ(p.at("best").get<size_t>(), static_cast<size_t>(std::max_element(weights.begin(), weights.end()) - weights.begin()));
}

TEST(VocabularySize, OfTheToyVocabulary) {  // aa, ab, aaab: of these the fable has "ab" alone, in "Crab", as often as that word
  Scratch folder;
  write_toy_gpt2(folder.path());
  Engine engine(folder.path(), kF32);
  const PictureJson p = picture_of(engine, text_prompt(engine, "ab"), "vocabulary-size");
  const std::string text = p.at("text");
  size_t crabs = 0;
  for (size_t at = text.find("Crab"); at != std::string::npos; at = text.find("Crab", at + 1)) ++crabs;
  EXPECT_EQ(crabs, 2u);
  EXPECT_EQ(doubles(p.at("entries")), list({256, 259}));
  EXPECT_EQ(doubles(p.at("tokens")),
            (std::vector<double>{static_cast<double>(text.size()), static_cast<double>(text.size() - crabs)}));
  EXPECT_EQ(doubles(p.at("table")), list({256 * 16, 259 * 16}));
}

TEST(VocabularySize, EndsWithWhatTheTokenizerGives) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PictureJson p = picture_of(engine, ids_prompt({3}), "vocabulary-size");
  const std::string text = p.at("text");
  const std::vector<double> tokens = doubles(p.at("tokens"));
  EXPECT_EQ(tokens.back(), static_cast<double>(engine.tokenizer().encode(text, false).size()));
  EXPECT_TRUE(std::is_sorted(tokens.rbegin(), tokens.rend()));
  EXPECT_EQ(p.at("entries").back(), engine.tokenizer().vocab_size());
  EXPECT_GE(tokens.front(), static_cast<double>(text.size()));  // one a character, and the space that is put in front
  EXPECT_LE(tokens.front(), static_cast<double>(text.size() + 1));
}

TEST(EmbeddingCosine, AWordOfSeveralTokensIsTheirMean) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PictureJson p = picture_of(engine, ids_prompt({3}), "embedding-cosine", {.words = {"xylophonist", "king"}});
  const auto ids = p.at("words")[0].at("ids").get<std::vector<int32_t>>();
  ASSERT_GT(ids.size(), 1u);
  EXPECT_EQ(engine.tokenizer().decode(ids), "xylophonist");
  EXPECT_EQ(p.at("words")[0].at("label"), fmt::format("xylophonist ({})", ids.size()));
  EXPECT_EQ(p.at("words")[1].at("tokens"), 1);
  const NamedParameters parameters = parameters_of(engine.model());
  const Weight& table = *parameters.matrix("W_E");
  const auto width = static_cast<size_t>(engine.model().shape().d_model);
  std::vector<double> mean(width), king(width);
  for (size_t i = 0; i < width; ++i) {
    for (const int32_t id : ids)
      mean[i] += static_cast<double>(element_at(table.dtype, table.stored_row(id), i)) / static_cast<double>(ids.size());
    king[i] = static_cast<double>(element_at(table.dtype, table.stored_row(p.at("words")[1].at("ids")[0].get<int32_t>()), i));
  }
  double dot = 0, a = 0, b = 0;
  for (size_t i = 0; i < width; ++i) dot += mean[i] * king[i], a += mean[i] * mean[i], b += king[i] * king[i];
  EXPECT_NEAR(p.at("cosine")[0][1].get<double>(), dot / std::sqrt(a * b), 1e-6);
}

// ---- Sizes --------------------------------------------------------------------------------------------------------------

TEST(PatternLevel, KeepsPagesSmall) {
  EXPECT_TRUE(pattern_level(12, 18, 8).full);
  EXPECT_LT(base64_size(pattern_level(12, 18, 8).bytes), size_t{1} << 20);
  for (const int64_t tokens : {200, 2000, 8192}) {
    const PatternLevel level = pattern_level(tokens, 18, 8);
    EXPECT_FALSE(level.full);
    EXPECT_LE(base64_size(level.bytes), size_t{20} << 20);
    EXPECT_GE(level.bins * level.tokens_per_bin, tokens);
    EXPECT_LT((level.bins - 1) * level.tokens_per_bin, tokens);
  }
  EXPECT_GE(pattern_level(2000, 18, 8).top, 4);
  EXPECT_EQ(pattern_level(70000, 18, 8).top, 0);  // sources would not fit into 16 bits
}

TEST(LongPrompts, TilesAndTopRowsAreThoseOfTheWholePatterns) {
  Scratch folder;
  Json config = random_gemma_config();
  config["head_dim"] = 16;
  config["num_hidden_layers"] = 18;
  config["num_attention_heads"] = 8;
  write_random_model(folder.path(), config);
  Engine engine(folder.path(), kF32);
  std::vector<int32_t> ids;
  for (int i = 0; i < 600; ++i) ids.push_back((i * 37 + i / 7) % 64);  // more than one chunk
  const PictureJson document = picture_document(engine, ids_prompt(ids), "attention");
  const PictureJson& p = document.at("pictures").at("attention");
  ASSERT_EQ(p.at("level"), "tiles");
  const std::vector<std::string> hooks = {"blocks.17.attn.hook_pattern"};
  const Recorder whole = trace_to_memory(engine, ids, hooks);
  const FloatVector& pattern = whole.values().at(hooks[0]).values;
  const size_t n = ids.size(), bins = p.at("tiles").at("bins"), per = p.at("tiles").at("tokensPerBin"), k = p.at("top").at("k");
  const std::vector<double> tiles = unpacked(p.at("tiles").at("max")[17]), sources = unpacked(p.at("top").at("sources")[17]),
                            weights = unpacked(p.at("top").at("weights")[17]);
  for (size_t head = 0; head < 8; ++head) {
    std::vector<double> expected(bins * bins);
    for (size_t t = 0; t < n; ++t) {
      std::vector<std::pair<double, size_t>> row;
      for (size_t s = 0; s <= t; ++s) {
        const auto w = static_cast<double>(pattern[(head * n + t) * n + s]);
        double& tile = expected[(t / per) * bins + s / per];
        tile = std::max(tile, w);
        row.emplace_back(-w, s);
      }
      std::sort(row.begin(), row.end());
      for (size_t i = 0; i < std::min(k, row.size()); ++i) {
        EXPECT_NEAR(weights[(head * n + t) * k + i], -row[i].first, 2e-5);
        const auto source = static_cast<size_t>(sources[(head * n + t) * k + i]);
        EXPECT_NEAR(static_cast<double>(pattern[(head * n + t) * n + source]), -row[i].first, 2e-5);
      }
    }
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(tiles[head * bins * bins + i], expected[i], 0.5 / 255 + 2e-5) << i;
  }
}

TEST(Sizes, TwelveTokensOfEighteenLayersAreBelowFiveMegabytes) {
  Scratch folder;
  Json config = random_gemma_config();
  config["num_hidden_layers"] = 18;
  config["num_attention_heads"] = 8;
  config["vocab_size"] = 4096;
  write_random_model(folder.path(), config);
  Engine engine(folder.path(), kF32);
  const PictureJson document = explain_document(engine, ids_prompt({2, 5, 9, 3, 7, 8, 1, 4, 6, 10, 11, 12}));
  EXPECT_LT(script_json(document).size(), size_t{4} << 20);
}

TEST(Memory, IsRefusedWithBothNumbers) {
  Engine engine(Golden::open("llama").model(), kF32);
  const std::string message =
      message_of<InputError>([&] { picture_document(engine, ids_prompt({5, 3, 7}), "attention", {.memory = 16}); });
  EXPECT_CONTAINS(message, "attention grids");
  EXPECT_CONTAINS(message, "1 KiB");
}

// ---- Text that may hold anything ----------------------------------------------------------------------------------------

TEST(Escapes, NothingEndsTheScriptOrTheElement) {
  const std::string hostile = "</script><!-- <b>\"'&\xE2\x80\xA8\xE2\x80\xA9\xF0\x9F\x98\x80\x01\xFF";
  const PictureJson document = {{"text", hostile}};
  const std::string json = script_json(document);
  for (const char* part : {"<", "\xE2\x80\xA8", "\xE2\x80\xA9"}) EXPECT_EQ(json.find(part), std::string::npos) << part;
  std::string expected = hostile;
  expected.replace(expected.size() - 1, 1, "\xEF\xBF\xBD");  // the byte that is not UTF-8
  EXPECT_EQ(PictureJson::parse(json).at("text"), expected);
  EXPECT_EQ(markup_text("<a href=\"x\">'&\x01\xFF</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\xEF\xBF\xBD\xEF\xBF\xBD&lt;/a&gt;");
}

TEST(Escapes, PackedNumbersReadBack) {
  const std::vector<float> values = {0.5f, -3, 1e30f};
  EXPECT_CLOSE(unpacked(packed(std::span<const float>(values), {3})), list({0.5, -3, static_cast<double>(1e30f)}),
               (Tolerance{0, 0}));
}

TEST(Escapes, NumbersHaveSevenDigitsAndNothingInfinite) {
  EXPECT_EQ(number(1.0 / 3).dump(), "0.3333333");
  EXPECT_EQ(number(387420489.0).dump(), "387420489");
  EXPECT_EQ(number(-0.0).dump(), "0");
  EXPECT_TRUE(number(NAN).is_null());
  EXPECT_TRUE(number(INFINITY).is_null());
}

// ---- Every family -------------------------------------------------------------------------------------------------------

// Tags balance, attributes are quoted, references are known: what an XML reader insists on.
std::string xml_problem(const std::string& text) {
  std::vector<std::string> open;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '&') {
      const std::string_view rest = std::string_view(text).substr(i, 6);
      if (!rest.starts_with("&amp;") && !rest.starts_with("&lt;") && !rest.starts_with("&gt;") && !rest.starts_with("&quot;") &&
          !rest.starts_with("&#39;"))
        return "a bare & at byte " + std::to_string(i);
    }
    if (static_cast<unsigned char>(text[i]) < 0x20 && text[i] != '\n') return "a control character at byte " + std::to_string(i);
    if (text[i] != '<') {
      ++i;
      continue;
    }
    const size_t end = text.find('>', i);
    if (end == std::string::npos) return "a tag without its end at byte " + std::to_string(i);
    std::string tag = text.substr(i + 1, end - i - 1);
    i = end + 1;
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return "</" + tag.substr(1) + "> closes nothing";
      open.pop_back();
      continue;
    }
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0 || tag.find('<') != std::string::npos)
      return "<" + tag + "> has an open quote";
    if (!tag.ends_with('/')) open.push_back(tag.substr(0, tag.find(' ')));
  }
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

class PicturesOfEveryFamily : public testing::TestWithParam<std::string> {
 protected:
  Engine engine{Golden::open(GetParam()).model(), kF32};
};

TEST_P(PicturesOfEveryFamily, EveryPictureIsThereOrSaysWhyNot) {
  const PictureJson document = explain_document(engine, ids_prompt({5, 3, 7, 9, 2, 11}));
  const bool rotary = document.at("model").at("positions") == "rotary";
  ASSERT_EQ(document.at("pictures").size(), chapter_pictures().size());
  for (const PictureInfo& info : chapter_pictures()) {
    const PictureJson& p = document.at("pictures").at(info.name);
    EXPECT_EQ(p.at("name"), info.name);
    if (!p.at("available").get<bool>()) {
      EXPECT_GT(p.at("reason").get<std::string>().size(), 20u) << info.name;
      EXPECT_CONTAINS(message_of<InputError>([&] { picture_svg(document, info.name); }), p.at("reason").get<std::string>());
      continue;
    }
    EXPECT_GT(p.at("caption").get<std::string>().size(), 30u) << info.name;
    EXPECT_GT(p.at("alt").get<std::string>().size(), 10u) << info.name;
    const std::string svg = picture_svg(document, info.name);
    EXPECT_EQ(xml_problem(svg), "") << info.name;
    EXPECT_CONTAINS(svg, "<title id=\"title\">");
    EXPECT_CONTAINS(svg, "<desc id=\"desc\">");
  }
  for (const char* name : {"rope-rotation", "rope-wavelengths", "query-length"})
    EXPECT_EQ(document.at("pictures").at(name).at("available"), rotary) << name;
  EXPECT_EQ(document.at("pictures").at("position-vectors").at("available"),
            !rotary && document.at("model").at("positions") != "alibi");
}

TEST_P(PicturesOfEveryFamily, StepsQuoteLinesThatAreThere) {
  const PictureJson document = explain_document(engine, ids_prompt({5, 3, 7, 9, 2, 11}));
  std::set<std::string> shown, asked;
  size_t quoted = 0;
  for (const PictureJson& step : document.at("steps")) {
    EXPECT_FALSE(step.at("text").empty());
    const std::string question = step.at("question");
    EXPECT_TRUE(question.ends_with("?")) << question;
    EXPECT_TRUE(asked.insert(question).second) << question << " is asked twice";
    for (const PictureJson& part : {step, step.at("engineers")})
      for (const PictureJson& name : part.at("pictures")) {
        EXPECT_TRUE(document.at("pictures").contains(name.get<std::string>())) << name;
        EXPECT_TRUE(shown.insert(name).second) << name << " is shown twice";
      }
    for (const PictureJson& shape : step.at("shapes")) EXPECT_EQ(shape.at("shape").size(), shape.at("axes").size());
    for (const PictureJson& excerpt : step.at("source")) {
      std::ifstream file(std::string(VITRINE_SOURCE) + "/" + excerpt.at("file").get<std::string>());
      std::vector<std::string> lines;
      for (std::string line; std::getline(file, line);) lines.push_back(line);
      std::istringstream code(excerpt.at("code").get<std::string>());
      size_t at = excerpt.at("line").get<size_t>() - 1;
      for (std::string line; std::getline(code, line); ++at) {
        ASSERT_LT(at, lines.size());
        std::string stored = lines[at];  // its tags are not shown
        if (const size_t comment = stored.find("//"); comment != std::string::npos) {
          stored.resize(std::min(stored.find(" #", comment), stored.size()));
          if (stored.ends_with("//")) stored.resize(stored.find_last_not_of(" /") + 1);
        }
        EXPECT_TRUE(stored.ends_with(line)) << step.at("id") << ": " << line << "\n against " << lines[at];
        EXPECT_EQ(lines[at].find_first_not_of(' ') == std::string::npos, line.find_first_not_of(' ') == std::string::npos);
      }
      ++quoted;
    }
  }
  EXPECT_GE(quoted, 9u);
  EXPECT_EQ(shown.size() + (shown.contains("position-vectors") ? 0u : 1u) + (shown.contains("rope-rotation") ? 0u : 3u) +
                (shown.contains("embedding-rescaling") ? 0u : 2u) + (shown.contains("soft-cap") ? 0u : 1u) +
                (shown.contains("final-norm") ? 0u : 1u) + (shown.contains("experts") ? 0u : 2u),
            chapter_pictures().size());
}

INSTANTIATE_TEST_SUITE_P(Golden, PicturesOfEveryFamily, testing::ValuesIn(models_with_attention()),
                         [](const auto& test) { return test.param; });

TEST(Pages, HoldTheDocumentAndTheBundleWhateverThePromptSays) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  for (const std::string& text : {std::string("\"It's\" </script><script>alert(1)</script> <!--"),
                                  std::string("\xF0\x9F\x98\x80 \xE2\x80\xA8 caf\xC3\xA9"), std::string()}) {
    const PicturePrompt prompt = text_prompt(engine, text);
    const PictureJson document = explain_document(engine, prompt);
    const std::string page = explain_page(document);
    const std::string begin = "<script id=\"vitrine-data\" type=\"application/json\">";
    const size_t from = page.find(begin) + begin.size(), to = page.find("</script>", from);
    ASSERT_NE(page.find(begin), std::string::npos);
    EXPECT_EQ(PictureJson::parse(page.substr(from, to - from)), document);
    EXPECT_EQ(PictureJson::parse(page.substr(from, to - from)).at("prompt").at("text"), text);
    EXPECT_EQ(page.find("alert(1)</script> <!--", 0), std::string::npos);
    EXPECT_CONTAINS(page, "window.vitrine = JSON.parse");
    // What a site that links to the page shows of it, and what a reader without scripts sees.
    const std::string head = page.substr(0, page.find("<style>"));
    for (const char* name : {"property=\"og:title\"", "property=\"og:description\"", "name=\"description\""}) {
      EXPECT_CONTAINS(head, name);
      EXPECT_EQ(head.find(name), head.rfind(name)) << name;
    }
    EXPECT_EQ(head.find("\u2581"), std::string::npos) << head;
    const std::string still = opening_svg(document).value_or("");
    EXPECT_EQ(xml_problem(still), "");
    EXPECT_CONTAINS(page.substr(0, page.find("</noscript>")), still);
    const PictureJson& lens = document.at("pictures").at("logit-lens");
    for (const PictureJson& row : lens.at("ids"))
      EXPECT_CONTAINS(still, markup_text(shortened(document.at("pieces").at(std::to_string(row.back()[0].get<int>())), 14)));
    for (const PictureInfo& info : chapter_pictures()) {
      if (!document.at("pictures").at(info.name).at("available").get<bool>()) continue;
      EXPECT_EQ(xml_problem(picture_svg(document, info.name)), "") << info.name;
    }
  }
}

TEST(Choices, AreRefusedWithTheReason) {
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", kF32);
  const PicturePrompt prompt = text_prompt(engine, "The king");
  const auto refused = [&](const char* name, const PictureOptions& options) {
    return message_of<InputError>([&] { picture_document(engine, prompt, name, options); });
  };
  EXPECT_CONTAINS(message_of<UsageError>([&] { picture_document(engine, prompt, "atention"); }), "Did you mean \"attention\"?");
  EXPECT_CONTAINS(refused("softmax", {.layer = 8}), "layer 8 does not exist: this model has 8, 0 to 7");
  EXPECT_CONTAINS(refused("softmax", {.head = 4}), "head 4 does not exist");
  EXPECT_CONTAINS(refused("logit-attribution", {.position = 99}), "position 99 does not exist");
  EXPECT_CONTAINS(refused("embedding-neighbors", {.sum = "king queen"}), "where a sign should stand");
  EXPECT_CONTAINS(refused("embedding-neighbors", {.sum = "king - xylophonist"}), "\"xylophonist\", which is no single token");
  EXPECT_CONTAINS(refused("embedding-neighbors", {.sum = "king -"}), "ends with a sign");
  EXPECT_CONTAINS(refused("embedding-neighbors", {.sum = "king - king"}), "adds up to zero");
  EXPECT_CONTAINS(refused("embedding-cosine", {.words = {"king"}}), "one word was given");
  EXPECT_CONTAINS(refused("attention", {.layer = 99}), "layer 99 does not exist");
}

}  // namespace
}  // namespace vitrine
