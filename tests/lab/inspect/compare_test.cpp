// Two files of one model: numbers against what a plain loop over both traces gives, and files that are no such pair.
#include "inspect/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "hooks/trace.h"
#include "inspect/support.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::vector<int32_t> kComparedIds = {5, 3, 7, 9, 11, 2, 40, 17, 6, 31, 8, 5, 3};
std::string gguf(const char* name) { return std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"; }

TEST(Compare, AModelWithItself) {
  for (const char* name : {"gpt2_a", "gemma2", "classic_post"}) {
    Engine a(Golden::open(name).model(), {1, {}}), b(Golden::open(name).model(), {2, {}});
    const ModelComparison same = compare_models(a, b, kComparedIds, 0);
    EXPECT_FALSE(same.first_beyond);  // equal is not beyond zero
    ASSERT_EQ(static_cast<int64_t>(same.layers.size()), a.shape().n_layers + 1);
    for (const StreamDifference& layer : same.layers) {
      EXPECT_EQ(layer.relative, 0);
      EXPECT_EQ(layer.attention_most, 0);
      EXPECT_EQ(layer.cosine, 1);
      EXPECT_EQ(layer.distance, 0);
    }
    EXPECT_EQ(same.kl_most, 0);
    EXPECT_EQ(same.same_top, 1);
    EXPECT_EQ(same.predictions.size(), kComparedIds.size());
  }
}

TEST(Compare, NumbersAreThoseOfBothTraces) {
  Engine a(gguf("llama"), {1, {}}), b(gguf("llama_q4_0"), {1, {}});
  const ModelComparison result = compare_models(a, b, kComparedIds, 1e-3);
  EXPECT_EQ(result.a.dtypes, (std::vector<std::string>{"f32"}));
  EXPECT_NE(std::find(result.b.dtypes.begin(), result.b.dtypes.end(), "q4_0"), result.b.dtypes.end());
  const std::vector<std::string> hooks = {"blocks.*.hook_resid_post", "blocks.*.attn.hook_pattern", "hook_logits"};
  const Recorder of_a = trace_to_memory(a, kComparedIds, hooks), of_b = trace_to_memory(b, kComparedIds, hooks);
  const auto n = kComparedIds.size();
  for (size_t layer = 0; layer < 3; ++layer) {
    const std::string block = "blocks." + std::to_string(layer);
    const auto both = [&](const std::string& name) {
      return std::pair(std::cref(of_a.values().at(name).values), std::cref(of_b.values().at(name).values));
    };
    const auto [x, y] = both(block + ".hook_resid_post");
    const size_t d = x.get().size() / n;
    double mean = 0, worst = 0, apart = 0, size = 0;
    for (size_t r = 0; r < n; ++r) {
      double xx = 0, yy = 0, xy = 0;
      for (size_t i = r * d; i < (r + 1) * d; ++i) {
        const double p = static_cast<double>(x.get()[i]), q = static_cast<double>(y.get()[i]);
        xx += p * p, yy += q * q, xy += p * q, apart += (p - q) * (p - q), size += p * p;
      }
      mean += xy / std::sqrt(xx * yy) / static_cast<double>(n);
      worst = std::max(worst, 1 - xy / std::sqrt(xx * yy));
    }
    const StreamDifference& ours = result.layers[layer + 1];
    EXPECT_EQ(ours.point, "layer " + std::to_string(layer));
    EXPECT_NEAR(ours.cosine, mean, 1e-12);
    EXPECT_NEAR(ours.distance, worst, 1e-12);
    EXPECT_NEAR(ours.relative, std::sqrt(apart / size), 1e-12);
    EXPECT_GT(ours.relative, 1e-3);  // 4 bits do show
    const auto [p, q] = both(block + ".attn.hook_pattern");
    double total = 0, most = 0;
    for (size_t row = 0; row < p.get().size() / n; ++row) {
      double moved = 0;
      for (size_t j = row * n; j < (row + 1) * n; ++j)
        moved += std::abs(static_cast<double>(p.get()[j]) - static_cast<double>(q.get()[j]));
      total += moved / 2;
      most = std::max(most, moved / 2);
    }
    EXPECT_NEAR(ours.attention_mean, total / (static_cast<double>(p.get().size()) / static_cast<double>(n)), 1e-12);
    EXPECT_NEAR(ours.attention_most, most, 1e-12);
    EXPECT_LT(ours.attention_head, a.shape().n_heads);
  }
  // KL of the tables, by the definition.
  const auto &za = of_a.values().at("hook_logits").values, &zb = of_b.values().at("hook_logits").values;
  const size_t vocab = za.size() / n;
  for (size_t r = 0; r < n; ++r) {
    double sa = 0, sb = 0, kl = 0;
    for (size_t i = r * vocab; i < (r + 1) * vocab; ++i)
      sa += std::exp(static_cast<double>(za[i])), sb += std::exp(static_cast<double>(zb[i]));
    for (size_t i = r * vocab; i < (r + 1) * vocab; ++i) {
      const double pa = std::exp(static_cast<double>(za[i])) / sa, pb = std::exp(static_cast<double>(zb[i])) / sb;
      kl += pa * std::log(pa / pb);
    }
    EXPECT_NEAR(result.predictions[r].kl, kl, 1e-5 * (1 + kl));
  }
}

// Numbers of transformers in float64 on the dequantized weights (tests/golden/compare).
TEST(Compare, NumbersAreThoseOfTransformers) {
  const Checkpoint file = open_safetensors(std::string(VITRINE_GOLDEN) + "/compare/compare.safetensors");
  const std::pair<const char*, const char*> cases[] = {{"llama", "bf16"}, {"llama", "f16"},   {"llama", "q8_0"},
                                                       {"llama", "q4_0"}, {"gemma2", "bf16"}, {"gpt2_a", "bf16"}};
  for (const auto& [name, type] : cases) {
    SCOPED_TRACE(std::string(name) + " " + type);
    const Scratch scratch;
    std::string other = gguf((std::string(name) + "_" + type).c_str());
    if (type == std::string("bf16"))
      other = copy_of(Golden::open(name), scratch / "bf16", [](std::vector<OwnedTensor>& tensors) {
        for (OwnedTensor& t : tensors) t = rounded(t, false);
      });
    const EngineOptions widened{2, {.f32 = true}};  // as the reference ran: stored weights, products in full
    Engine a(Golden::open(name).model(), widened), b(other, widened);
    const GoldenTensor stored = golden_tensor(file, std::string(name) + "/ids");
    const ModelComparison ours = compare_models(a, b, std::vector<int32_t>(stored.begin(), stored.end()), 1e-3);
    EXPECT_EQ(ours.a.dtypes, std::vector<std::string>{"f32"});
    EXPECT_TRUE(std::find(ours.b.dtypes.begin(), ours.b.dtypes.end(), type) != ours.b.dtypes.end());

    std::vector<double> distance, relative, apart, mean, most, kl;
    for (const StreamDifference& d : ours.layers) {
      apart.push_back(1 - d.cosine);
      distance.push_back(d.distance);
      relative.push_back(d.relative);
      if (!d.layer) continue;
      mean.push_back(d.attention_mean);
      most.push_back(d.attention_most);
    }
    double same = 0;
    for (const PredictionDifference& d : ours.predictions) {
      kl.push_back(d.kl);
      same += d.a.token == d.b.token ? 1.0 / static_cast<double>(ours.predictions.size()) : 0;
    }
    const auto close = [&](const std::vector<double>& numbers, const char* what, Tolerance tolerance) {
      const GoldenTensor expected = golden_tensor(file, std::string(name) + "/" + type + "/" + what);
      EXPECT_TRUE((close_to<double, float>(numbers, expected.values, tolerance, expected.shape))) << what;
    };
    // f32 rounds a stream to some 1e-7 of itself; the cosine sees the square of that and its product with the difference.
    close(relative, "relative", {.abs = 1e-6, .rel = 2e-3});
    close(distance, "distance", {.abs = 1e-9, .rel = 1e-2});
    close(mean, "attention_mean", {.abs = 1e-6, .rel = 2e-3});
    close(most, "attention_most", {.abs = 1e-6, .rel = 2e-3});
    close(kl, "kl", {.abs = 1e-6, .rel = 1e-2});
    const GoldenTensor cosine = golden_tensor(file, std::string(name) + "/" + type + "/cosine");
    for (size_t i = 0; i < apart.size(); ++i) EXPECT_NEAR(1 - apart[i], static_cast<double>(cosine.values[i]), 1e-6);
    const GoldenTensor tops = golden_tensor(file, std::string(name) + "/" + type + "/same");
    EXPECT_NEAR(ours.same_top, std::accumulate(tops.begin(), tops.end(), 0.0) / static_cast<double>(tops.size()), 1e-9);
    EXPECT_NEAR(ours.same_top, same, 1e-9);
    const std::vector<float> reference = golden_tensor(file, std::string(name) + "/" + type + "/distance").values;
    const auto beyond = std::find_if(reference.begin(), reference.end(), [](float d) { return d > 1e-3f; });
    const size_t first = static_cast<size_t>(beyond - reference.begin());
    EXPECT_EQ(ours.first_beyond, first < reference.size() ? std::optional(ours.layers[first].point) : std::nullopt);
  }
}

TEST(Compare, NamesTheFirstLayerBeyondTheThreshold) {
  const Scratch scratch;  // one matrix of layer 1 differs: the embedding and layer 0 are bit-equal
  const std::string other = copy_of(Golden::open("gemma2"), scratch / "other", [](std::vector<OwnedTensor>& tensors) {
    for (OwnedTensor& t : tensors)
      if (t.name.ends_with("layers.1.mlp.down_proj.weight")) t = rounded(t, true);
  });
  Engine a(Golden::open("gemma2").model(), {1, {}}), b(other, {1, {}});
  const ModelComparison result = compare_models(a, b, kComparedIds, 0);
  EXPECT_EQ(result.layers[0].relative, 0);
  EXPECT_EQ(result.layers[1].relative, 0);
  EXPECT_GT(result.layers[2].relative, 1e-5);
  EXPECT_EQ(result.layers[2].attention_most, 0);  // its attention came before the change
  EXPECT_GT(result.layers[3].attention_most, 0);
  const ModelComparison with_room = compare_models(a, b, kComparedIds, 1.0);
  EXPECT_FALSE(with_room.first_beyond);
  double before = 0;
  for (size_t i = 0; i < result.layers.size(); ++i) {
    const double distance = result.layers[i].distance;
    if (distance > before) {
      EXPECT_EQ(compare_models(a, b, kComparedIds, (before + distance) / 2).first_beyond, result.layers[i].point);
    }
    before = std::max(before, distance);
  }
}

TEST(Compare, RefusesTwoDifferentModels) {
  Engine gpt2(Golden::open("gpt2_a").model(), {1, {}}), other_gpt2(Golden::open("gpt2_b").model(), {1, {}});
  Engine llama(Golden::open("llama").model(), {1, {}});
  const auto refused = [&](Engine& a, Engine& b, std::span<const int32_t> ids, size_t memory, const std::string& word) {
    try {
      compare_models(a, b, ids, 0.1, memory);
      ADD_FAILURE() << "accepted; expected a word about " << word;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  };
  refused(gpt2, llama, kComparedIds, 0, "family gpt2");
  refused(gpt2, other_gpt2, kComparedIds, 0, "n_layers 3");
  refused(gpt2, gpt2, std::vector<int32_t>{512}, 0, "512");
  refused(llama, llama, kComparedIds, 1000, "memory");
}

TEST(Compare, NotANumberIsAnErrorThatSaysWhere) {
  const Scratch scratch;
  const std::string broken = copy_of(Golden::open("gpt2_a"), scratch / "nan", [](std::vector<OwnedTensor>& tensors) {
    for (OwnedTensor& t : tensors)
      if (t.name.ends_with("h.1.mlp.c_fc.bias")) std::fill(t.bytes.begin(), t.bytes.end(), std::byte{0xff});
  });
  Engine a(Golden::open("gpt2_a").model(), {1, {}}), b(broken, {1, {}});
  try {
    compare_models(a, b, kComparedIds, 0.1);
    ADD_FAILURE() << "accepted";
  } catch (const RunError& e) {
    EXPECT_NE(std::string(e.what()).find("blocks.1.mlp"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace vitrine
