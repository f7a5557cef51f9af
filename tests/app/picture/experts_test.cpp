// Pictures of routing against the references' routers, and what a head's sink takes.
#include <gtest/gtest.h>

#include <cmath>

#include "picture/data/tables.h"
#include "support.h"

namespace vitrine {
namespace {

std::string variant(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/variants/" + name; }

class PicturesOfExperts : public testing::TestWithParam<std::string> {
 protected:
  PicturesOfExperts() : hooks(open_safetensors(std::string(VITRINE_GOLDEN) + "/hooks/" + GetParam() + ".safetensors")) {
    const GoldenTensor stored = golden_tensor(hooks, "ids");
    prompt = ids_prompt({stored.begin(), stored.end()});
  }
  GoldenTensor hook(const PictureJson& layer, const std::string& name) const {
    return golden_tensor(hooks, "blocks." + layer.at("layer").dump() + ".mlp." + name);
  }
  PictureJson picture(const std::string& name, const PictureOptions& options = {}) {
    return picture_of(engine, prompt, name, options);
  }

  Checkpoint hooks;
  Engine engine{Golden::open(GetParam()).model(), kF32};
  PicturePrompt prompt;
};

// The softmax of a row of scores, in double.
std::vector<double> softmax_of(const GoldenTensor& scores, size_t row) {
  const auto n = static_cast<size_t>(scores.shape[1]);
  std::vector<double> p(n);
  double sum = 0;
  for (size_t e = 0; e < n; ++e) sum += p[e] = std::exp(static_cast<double>(scores.values[row * n + e]));
  for (double& v : p) v /= sum;
  return p;
}

TEST_P(PicturesOfExperts, ChoicesWeightsAndProbabilitiesAreTheReferences) {
  const PictureJson p = picture("experts");
  ASSERT_EQ(p.at("layers").size(), 2u);
  EXPECT_EQ(p.at("first"), 0);
  for (const PictureJson& layer : p.at("layers")) {
    const GoldenTensor scores = hook(layer, "hook_router_logits");
    EXPECT_EQ(p.at("count"), scores.shape[1]);
    const std::vector<double> chosen = unpacked(layer.at("chosen")), probabilities = unpacked(layer.at("probabilities"));
    const GoldenTensor expert = hook(layer, "hook_expert_indices");
    EXPECT_EQ(chosen, std::vector<double>(expert.begin(), expert.end()));
    EXPECT_CLOSE(unpacked(layer.at("weights")), hook(layer, "hook_expert_weights"), Tolerance(2e-5, 1e-4));
    for (size_t t = 0; t < prompt.ids.size(); ++t) {
      const std::vector<double> expected = softmax_of(scores, t);
      for (size_t e = 0; e < expected.size(); ++e)
        EXPECT_NEAR(probabilities[t * expected.size() + e], expected[e], 2e-5) << layer.at("layer") << " " << t << " " << e;
    }
  }
}

TEST_P(PicturesOfExperts, LoadsAreCountedFromTheReferences) {
  const PictureJson p = picture("expert-load");
  const auto per_token = p.at("perToken").get<double>(), count = p.at("count").get<double>();
  const auto tokens = static_cast<double>(prompt.ids.size());
  EXPECT_NEAR(p.at("ideal").get<double>(), 1 / count, 1e-7);
  for (const PictureJson& layer : p.at("layers")) {
    std::vector<double> chosen(static_cast<size_t>(count)), probability(chosen.size());
    for (const float e : hook(layer, "hook_expert_indices")) chosen[static_cast<size_t>(e)] += 1;
    for (size_t t = 0; t < prompt.ids.size(); ++t)
      for (size_t e = 0; e < chosen.size(); ++e) probability[e] += softmax_of(hook(layer, "hook_router_logits"), t)[e] / tokens;
    double balance = 0, idle = 0;
    for (size_t e = 0; e < chosen.size(); ++e) {
      EXPECT_NEAR(layer.at("share")[e].get<double>(), chosen[e] / (tokens * per_token), 1e-6);
      EXPECT_NEAR(layer.at("probability")[e].get<double>(), probability[e], 1e-5);
      balance += count * chosen[e] / tokens * probability[e];
      idle += chosen[e] > 0 ? 0 : 1;
    }
    EXPECT_NEAR(layer.at("balance").get<double>(), balance, 1e-4);
    EXPECT_EQ(layer.at("idle").get<double>(), idle);
  }
}

TEST_P(PicturesOfExperts, ALayerIsDrawnAndTabledByItself) {
  for (const char* name : {"experts", "expert-load"}) {
    const PictureOptions second{.layer = 1};
    const PictureJson document = picture_document(engine, prompt, name, second);
    const std::string svg = picture_svg(document, name, second);
    EXPECT_CONTAINS(svg, ">layer 1");
    EXPECT_EQ(svg.find(">layer 0"), std::string::npos);
    const std::vector<PictureTable> tables = picture_tables(document, name);
    EXPECT_CONTAINS(tables.front().note, "layer 1");
    if (!tables.front().grid) continue;
    ASSERT_EQ(tables.size(), 2u);  // weights, probabilities
    const auto chosen = std::count_if(tables[0].grid->values.begin(), tables[0].grid->values.end(),
                                      [](const std::optional<double>& v) { return v.has_value(); });
    EXPECT_EQ(chosen, 2 * static_cast<int64_t>(prompt.ids.size()));
    for (const std::optional<double>& v : tables[1].grid->values) EXPECT_TRUE(v.has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PicturesOfExperts, testing::Values("mixtral", "qwen3_moe"),
                         [](const auto& test) { return test.param; });

TEST(ExpertsOf, RoutersWithSigmoids) {
  for (const std::string name : {"deepseek_v3", "glm4_moe", "llama4"}) {
    SCOPED_TRACE(name);
    const Checkpoint hooks = open_safetensors(std::string(VITRINE_GOLDEN) + "/hooks/" + name + ".safetensors");
    const GoldenTensor ids = golden_tensor(hooks, "ids");
    Engine engine(Golden::open(name).model(), kF32);
    const PicturePrompt prompt = ids_prompt({ids.begin(), ids.end()});
    const PictureJson p = picture_of(engine, prompt, "experts"), load = picture_of(engine, prompt, "expert-load");
    EXPECT_EQ(p.at("share"), "share of the sigmoids");
    for (const PictureJson* one : {&p, &load})
      for (const char* word : {"probab", "softmax"})
        EXPECT_EQ(one->at("caption").get<std::string>().find(word), std::string::npos);
    EXPECT_CONTAINS(p.at("caption").get<std::string>(), "the sigmoid of each");
    for (size_t l = 0; l < p.at("layers").size(); ++l) {
      const PictureJson& layer = p.at("layers")[l];
      const GoldenTensor scores = golden_tensor(hooks, "blocks." + layer.at("layer").dump() + ".mlp.hook_router_logits");
      const auto n = static_cast<size_t>(scores.shape[1]);
      EXPECT_CLOSE(unpacked(layer.at("weights")),
                   golden_tensor(hooks, "blocks." + layer.at("layer").dump() + ".mlp.hook_expert_weights"),
                   Tolerance(4e-5, 1e-4));
      const std::vector<double> shares = unpacked(layer.at("probabilities"));
      for (size_t t = 0; t < prompt.ids.size(); ++t) {
        double sum = 0;
        const auto sigmoid = [&](size_t e) { return 1 / (1 + std::exp(-static_cast<double>(scores.values[t * n + e]))); };
        for (size_t e = 0; e < n; ++e) sum += sigmoid(e);
        for (size_t e = 0; e < n; ++e) EXPECT_NEAR(shares[t * n + e], sigmoid(e) / sum, 2e-5);
      }
    }
  }
}

TEST(ExpertsOf, ModelsWithoutThemSaySo) {
  Engine engine(Golden::open("llama").model(), kF32);
  for (const char* name : {"experts", "expert-load"}) {
    const PictureJson document = picture_document(engine, ids_prompt({5, 3, 7}), name);
    EXPECT_CONTAINS(document.at("pictures").at(name).at("reason").get<std::string>(), "This model has no experts");
    EXPECT_CONTAINS(message_of<InputError>([&] { picture_svg(document, name); }), "This model has no experts");
  }
}

TEST(ExpertsOf, SomeLayersNameTheOthers) {
  Engine engine(variant("qwen3_moe_dense_layers"), kF32);
  const PictureJson document = picture_document(engine, ids_prompt({5, 3, 7, 9}), "experts");
  const PictureJson& p = document.at("pictures").at("experts");
  EXPECT_EQ(column(p.at("layers"), "layer"), std::vector<double>{1});
  EXPECT_CONTAINS(p.at("alt").get<std::string>(), "Layers without experts: 0, 2, 3.");
  EXPECT_CONTAINS(message_of<InputError>([&] { picture_document(engine, ids_prompt({5, 3}), "expert-load", {.layer = 2}); }),
                  "layer 2 has no experts. Layers without experts: 0, 2, 3.");
}

TEST(Sinks, TakeWhatTheWeightsLeave) {
  const std::string model = variant("gpt_oss_default_rope");
  Engine engine(model, kF32);
  const GoldenTensor sinks = golden_tensor(open_safetensors(model + "/model.safetensors"), "model.layers.1.self_attn.sinks");
  for (int64_t head = 0; head < engine.shape().n_heads; ++head) {
    const PictureJson p = picture_of(engine, ids_prompt({5, 3, 7, 9, 2}), "softmax", {.layer = 1, .head = head});
    EXPECT_NEAR(p.at("sink").at("score").get<double>(), static_cast<double>(sinks.values[static_cast<size_t>(head)]), 1e-6);
    double sum = p.at("sink").at("weight");
    for (const double weight : doubles(p.at("weights"))) sum += weight;
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  const PictureJson document = explain_document(engine, ids_prompt({5, 3, 7, 9, 2}));
  const std::string page = document.dump();
  EXPECT_CONTAINS(page, "each row sums to less than 1, because the head's sink takes the rest");
  EXPECT_CONTAINS(page, "Each head of this model also has a sink");
  EXPECT_EQ(page.find("weights that sum to 1, and the head's result"), std::string::npos);
  for (const double flat : flat(document.at("pictures").at("attention").at("flatness"))) EXPECT_TRUE(flat >= 0 && flat <= 1);
}

// The text of the step about the MLP.
std::string told(const std::string& model) {
  Engine engine(model, kF32);
  const PictureJson document = explain_document(engine, ids_prompt({5, 3, 7, 9, 2}));
  for (const PictureJson& step : document.at("steps"))
    if (step.at("id") == "mlp") return step.at("text").dump() + step.at("engineers").dump();
  return "";
}

TEST(ExpertsOf, ThePageTellsWhatTheFamilyDoes) {
  const std::string mixtral = told(Golden::open("mixtral").model());
  EXPECT_CONTAINS(mixtral, "It has 4 multilayer perceptrons (MLPs), the experts, and each token goes through 2 of them.");
  EXPECT_CONTAINS(mixtral, "probabilities divided by their sum");
  EXPECT_CONTAINS(mixtral, "\"scores = W_router y\"");
  EXPECT_CONTAINS(told(variant("qwen3_moe_dense_layers")), "Layers without experts (0, 2, 3) have one MLP");
  const std::string oss = told(variant("gpt_oss_default_rope"));
  EXPECT_CONTAINS(oss, "softmax over the scores of the chosen experts alone");
  EXPECT_CONTAINS(oss, "W_router y + b_router");
  EXPECT_CONTAINS(oss, "σ(1.3 g)");
}

}  // namespace
}  // namespace vitrine
