// What an autoencoder's features mean in a model: against what the same numbers give by hand.
#include "inspect/features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "hooks/listening.h"
#include "hooks/trace.h"
#include "inspect/weights.h"
#include "intervene/intervene.h"
#include "intervene/run.h"
#include "sae/cross_layer_splice.h"
#include "sae/sae_file.h"
#include "sae/splice.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::vector<int32_t> kPromptIds = {5, 33, 7, 12, 11, 2, 40, 30, 17, 9, 6};

std::string model_path() { return Golden::open("qwen3").model(); }

FloatVector random_numbers(int64_t count, float scale, uint32_t seed) {
  std::mt19937 random(seed);
  FloatVector numbers(static_cast<size_t>(count));
  for (float& x : numbers) x = scale * (static_cast<float>(random() % 2001) / 1000 - 1);
  return numbers;
}

SparseAutoencoder random_sae(const Engine& engine, const std::string& hook, const std::string& out) {
  const int64_t d = engine.shape().d_model;
  SparseAutoencoder sae;
  sae.d_in = sae.d_out = d;
  sae.d_sae = 30;
  sae.hook_name = hook;
  sae.hook_name_out = out;
  sae.transcoder = hook != out;
  sae.W_enc = random_numbers(d * 30, 0.5F, 1);
  sae.W_dec = random_numbers(30 * d, 0.5F, 2);
  sae.b_enc = random_numbers(30, 0.1F, 3);
  sae.b_dec = random_numbers(d, 0.1F, 4);
  sae.check("random");
  return sae;
}

TEST(Features, AreThoseOfTheTracedValue) {
  Engine engine(model_path());
  const SparseAutoencoder sae = random_sae(engine, "blocks.1.hook_resid_post", "blocks.1.hook_resid_post");
  const std::vector<std::string> hooks = {sae.hook_name};
  const Recorder traced = trace_to_memory(engine, kPromptIds, hooks);
  const SparseFeatures expected =
      encode(engine.context(), sae, traced.values().at(sae.hook_name).values.data(), static_cast<int64_t>(kPromptIds.size()));
  const SparseFeatures found = features_of(engine, sae, kPromptIds);
  EXPECT_EQ(found.index, expected.index);
  EXPECT_EQ(found.value, expected.value);

  // Two windows of the same tokens: everything counts twice, and the largest context is the first window's.
  const FeatureTable table =
      feature_table(engine, sae, {kPromptIds, kPromptIds}, {.features = {7, 3}, .contexts = 2, .before = 2, .behind = 1});
  EXPECT_EQ(table.tokens, 22);
  EXPECT_DOUBLE_EQ(table.l0, static_cast<double>(found.index.size()) / 11);
  std::vector<float> dense(kPromptIds.size() * 30);
  to_dense(found, 30, dense.data());
  ASSERT_EQ(table.features.size(), 2U);
  for (const FeatureSummary& s : table.features) {
    int64_t active = 0, counted = 0;
    size_t best = 0;
    for (size_t r = 0; r < kPromptIds.size(); ++r) {
      const float v = dense[r * 30 + static_cast<size_t>(s.feature)];
      active += v > 0 ? 2 : 0;
      if (v > dense[best * 30 + static_cast<size_t>(s.feature)]) best = r;
    }
    for (const int64_t n : s.histogram) counted += n;
    EXPECT_EQ(s.active, active);
    EXPECT_EQ(counted, active);
    EXPECT_EQ(table.active[static_cast<size_t>(s.feature)], active);
    ASSERT_EQ(s.contexts.size(), 2U);
    const FeatureContext& first = s.contexts[0];
    EXPECT_EQ(first.value, s.largest);
    EXPECT_EQ(first.position, static_cast<int64_t>(best));
    EXPECT_EQ(s.contexts[1].position, static_cast<int64_t>(best) + 11);
    EXPECT_EQ(first.tokens[static_cast<size_t>(first.at)], kPromptIds[best]);
    EXPECT_EQ(first.values[static_cast<size_t>(first.at)], first.value);
  }
}

TEST(Features, LogitsAreTheDirectionThroughTheUnembedding) {
  Engine engine(model_path());
  const SparseAutoencoder sae = random_sae(engine, "blocks.1.hook_resid_post", "blocks.1.hook_resid_post");
  const FeatureLogits found = feature_logits(engine, sae, 4, 3);
  const NamedWeights weights(*engine.opened().model);
  const FrozenNorm norm = frozen_norm(weights, engine.model().layer(0), "ln_final");
  const Weight& head = *engine.model().head().weight;
  std::vector<std::pair<double, int32_t>> all;
  for (int64_t v = 0; v < head.out; ++v) {
    double sum = 0;
    for (int64_t i = 0; i < head.in; ++i)
      sum += static_cast<double>(sae.direction(4)[static_cast<size_t>(i)]) * norm.gain[static_cast<size_t>(i)] *
             head.at<double>(v, i);
    all.emplace_back(sum, static_cast<int32_t>(v));
  }
  std::ranges::sort(all, std::greater<>());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found.raised[i].token, all[i].second);
    EXPECT_NEAR(found.raised[i].logit, all[i].first, 1e-4);
    EXPECT_EQ(found.lowered[i].token, all[all.size() - 1 - i].second);
  }
}

// A recipe's edit, a listener's, and the change computed by hand give the same stream.
TEST(Features, RecipesAndListenersChangeTheSame) {
  const Scratch scratch;
  Engine engine(model_path());
  for (const auto& [hook, out] : {std::pair("blocks.0.hook_resid_post", "blocks.0.hook_resid_post"),
                                  std::pair("blocks.0.ln2.hook_normalized", "blocks.0.hook_mlp_out")}) {
    SCOPED_TRACE(out);
    const SparseAutoencoder sae = random_sae(engine, hook, out);
    write_sae(scratch / "sae", sae);
    const std::vector<std::string> hooks = {sae.hook_name_out};
    const Recorder before = trace_to_memory(engine, kPromptIds, hooks);
    SpliceListener listener({{std::make_shared<const SparseAutoencoder>(sae), {parse_feature_edit("5=3")}}}, true);
    const Recorder after = trace_to_memory(engine, kPromptIds, hooks, &listener);
    const SparseFeatures features = features_of(engine, sae, kPromptIds);
    std::vector<float> dense(kPromptIds.size() * 30);
    to_dense(features, 30, dense.data());
    std::vector<float> expected(before.values().at(out).values.begin(), before.values().at(out).values.end());
    const auto d = static_cast<size_t>(sae.d_out);
    for (size_t r = 0; r < kPromptIds.size(); ++r)
      for (size_t i = 0; i < d; ++i) expected[r * d + i] += (3 - dense[r * 30 + 5]) * sae.direction(5)[i];
    EXPECT_CLOSE(after.values().at(out).values, expected, Tolerance{.abs = 2e-5, .rel = 1e-5});
    EXPECT_EQ(listener.features(0).rows(), 11);

    std::string ids;
    for (const int32_t id : kPromptIds) ids += (ids.empty() ? "" : ", ") + std::to_string(id);
    const std::string yaml =
        "prompt: {tokens: [" + ids + "]}\ninterventions:\n  - sae: " + (scratch / "sae") + "\n    features: [5=3]\n";
    const Recipe recipe = recipe_of(YamlValue::parse(yaml, "r.yaml"), "r.yaml");
    const Recipe again = recipe_of(YamlValue::parse(to_yaml(recipe), "again.yaml"), "again.yaml");
    EXPECT_EQ(again.interventions[0].features, (std::vector<std::string>{"5=3"}));
    SpliceListener for_logits({{std::make_shared<const SparseAutoencoder>(sae), {parse_feature_edit("5=3")}}});
    std::vector<Prediction> predicted;
    {
      const Listening listening(engine.context(), for_logits);
      predicted = engine.predict(kPromptIds, 5, false);
    }
    const InterveneResult result = intervene(engine, again, {.top = 5});
    ASSERT_EQ(result.after.size(), 1U);
    EXPECT_EQ(result.interventions[0].hooks, (std::vector<std::string>{out}));
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(result.after[0].top[i].token, predicted[0].top[i].token);
      EXPECT_NEAR(result.after[0].top[i].logprob, predicted[0].top[i].logprob, 1e-5);
    }
    EXPECT_GT(result.kl[0], 0);
  }
}

// An edit of layer 0 changes what the feature writes into layer 0 and into layer 1.
TEST(Features, CrossLayerEditsReachLaterLayers) {
  Engine engine(model_path());
  const int64_t d = engine.shape().d_model;
  auto t = std::make_shared<CrossLayerTranscoder>();
  t->n_layers = 2;
  t->d_model = d;
  t->d_sae = 30;
  for (int64_t i = 0; i < 2; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    SparseAutoencoder layer = random_sae(engine, block + "hook_resid_mid", block + "hook_mlp_out");
    layer.d_out = (2 - i) * d;
    layer.W_dec = random_numbers(30 * layer.d_out, 0.5F, 7 + static_cast<uint32_t>(i));
    layer.b_dec.assign(static_cast<size_t>(layer.d_out), 0.0F);
    layer.check("layer");
    t->layers.push_back(layer);
    t->b_dec.emplace_back(static_cast<size_t>(d), 0.0F);
  }
  check_fits(engine, *t);
  const std::vector<std::string> hooks = {"blocks.1.hook_resid_post", "blocks.0.hook_resid_mid"};
  const Recorder before = trace_to_memory(engine, kPromptIds, hooks);
  CrossLayerSplice splice(t, {parse_layer_feature_edit("0:5=3")});
  const Recorder after = trace_to_memory(engine, kPromptIds, hooks, &splice);

  const SparseAutoencoder& first = t->layers[0];
  const SparseFeatures features =
      encode(engine.context(), first, before.values().at("blocks.0.hook_resid_mid").values.data(), 11);
  std::vector<float> dense(kPromptIds.size() * 30);
  to_dense(features, 30, dense.data());
  std::vector<ValueEdit> adds(2);
  for (size_t l = 0; l < 2; ++l) {
    adds[l].hook = "blocks." + std::to_string(l) + ".hook_mlp_out";
    adds[l].kind = ValueEdit::Kind::add;
    adds[l].shape = {11, d};
    for (size_t r = 0; r < kPromptIds.size(); ++r)
      for (int64_t i = 0; i < d; ++i)
        adds[l].values.push_back((3 - dense[r * 30 + 5]) *
                                 first.direction(5)[l * static_cast<size_t>(d) + static_cast<size_t>(i)]);
  }
  Interventions expected(adds);
  const Recorder by_hand = trace_to_memory(engine, kPromptIds, hooks, &expected);
  EXPECT_CLOSE(after.values().at(hooks[0]).values, by_hand.values().at(hooks[0]).values, Tolerance{.abs = 2e-5, .rel = 1e-5});
  EXPECT_NE(after.values().at(hooks[0]).values, before.values().at(hooks[0]).values);
  EXPECT_CONTAINS(message_of<InputError>([&] { CrossLayerSplice(t, {parse_layer_feature_edit("2:1=0")}); }), "layers 0 to 1");
  EXPECT_CONTAINS(message_of<InputError>([] { parse_layer_feature_edit("5=3"); }), "LAYER:FEATURE=VALUE");
}

TEST(Features, SayWhatDoesNotFit) {
  Engine engine(model_path());
  SparseAutoencoder sae = random_sae(engine, "blocks.1.hook_resid_post", "blocks.1.hook_resid_post");
  EXPECT_CONTAINS(message_of<InputError>([&] { feature_logits(engine, sae, 30, 5); }), "features 0 to 29");
  sae.hook_name = "blocks.99.hook_resid_post";
  EXPECT_CONTAINS(message_of<InputError>([&] { features_of(engine, sae, kPromptIds); }), "does not have");
  sae.hook_name = "";
  EXPECT_CONTAINS(message_of<InputError>([&] { features_of(engine, sae, kPromptIds); }), "do not say at which hook");
  sae.hook_name = sae.hook_name_out = "blocks.1.mlp.hook_post";
  EXPECT_CONTAINS(message_of<InputError>([&] { features_of(engine, sae, kPromptIds); }), "is it of another model?");
}

}  // namespace
}  // namespace vitrine
