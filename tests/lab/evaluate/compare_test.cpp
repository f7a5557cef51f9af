// A quantized file against its original over a text, against transformers in float64.
#include "evaluate/compare.h"

#include <cmath>

#include "evaluate/support.h"

namespace vitrine {
namespace {

std::string gguf(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"; }

TEST(CompareOnTexts, IsTheReferences) {
  const Json golden = read_json(evaluate_golden("compare.json"));
  for (const char* type : {"q8_0", "q4_0"}) {
    Engine a = open_f32(golden_llama()), b = open_f32(gguf("llama_" + std::string(type)));
    const TextComparison c = compare_on_texts(a, b, std::vector{golden_text()}, {.context = 64});
    const Json& gold = golden[type];
    const auto near = [&](double found, const char* key, double relative) {
      const double expected = gold[key];
      EXPECT_NEAR(found, expected, 1e-7 + relative * std::abs(expected)) << type << " " << key;
    };
    EXPECT_EQ(c.tokens, gold["tokens"]) << type;
    near(c.kl.mean, "kl", 1e-3);
    near(c.kl.error, "kl_error", 2e-3);
    near(c.kl_quantile(0.5), "kl_median", 5e-3);
    near(c.kl_quantile(1), "kl_most", 2e-3);
    near(c.same_top.mean, "same_top", 2e-3);
    near(c.nll_a.mean, "nll_a", 1e-6);
    near(c.nll_b.mean, "nll_b", 1e-6);
    near(c.nll_difference.error, "difference_error", 1e-3);
    near(c.prob_difference.mean, "prob_mean", 5e-3);
    near(c.prob_difference_rms, "prob_rms", 1e-3);
    ASSERT_EQ(c.layers.size(), gold["cosine"].size());
    EXPECT_EQ(c.layers[0].point, "embedding");
    EXPECT_EQ(c.layers[2].point, "layer 1");
    for (size_t i = 0; i < c.layers.size(); ++i) {
      EXPECT_NEAR(c.layers[i].cosine, gold["cosine"][i].get<double>(), 1e-6) << i;
      EXPECT_NEAR(c.layers[i].relative, gold["relative"][i].get<double>(), 1e-3 * gold["relative"][i].get<double>()) << i;
      EXPECT_NEAR(c.layers[i].distance, gold["distance"][i].get<double>(), 1e-6 + 2e-3 * gold["distance"][i].get<double>()) << i;
    }
  }
}

TEST(CompareOnTexts, AModelWithItself) {
  Engine a = open_f32(tales(), 1), b = open_f32(tales(), 2);
  const std::vector<std::string> texts = {golden_text(), "", "The end."};
  const TextComparison c = compare_on_texts(a, b, texts, {.context = 100});
  EXPECT_EQ(c.kl_quantile(1), 0);
  EXPECT_EQ(c.same_top.mean, 1);
  EXPECT_EQ(c.nll_difference.mean, 0);
  ASSERT_EQ(static_cast<int64_t>(c.layers.size()), a.shape().n_layers + 1);
  for (const TextComparison::Layer& layer : c.layers) EXPECT_EQ(layer.relative, 0);
  // Windows side by side, BOS in front: every token once, as perplexity scores it.
  const PerplexityResult same = perplexity(a, texts, {.context = 100, .stride = 99});
  EXPECT_EQ(c.tokens, same.tokens);
  EXPECT_NEAR(c.nll_a.mean, same.nll, 1e-5);
}

TEST(CompareOnTexts, RefusesWhatIsNoPair) {
  Engine a = open_f32(tales()), b = open_f32(golden_llama());
  EXPECT_CONTAINS(message_of<InputError>([&] { compare_on_texts(a, b, std::vector{golden_text()}, {}); }),
                  "not two files of one model");
  EXPECT_CONTAINS(message_of<InputError>([&] { compare_on_texts(b, b, std::vector<std::string>{""}, {}); }), "too few tokens");
}

}  // namespace
}  // namespace vitrine
