// Every hook of every family against other implementations (tests/golden/hooks), what a replaced hook decides, and that
// watching changes nothing on stored types other than f32 and while decoding. tests/engine/model/laws_test.cpp holds the same
// laws on whole prompts in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <set>

#include "model/abilities.h"
#include "model/layer_name.h"
#include "ops/recorder.h"
#include "runtime/engine.h"
#include "support/golden.h"

namespace vitrine {
namespace {

bool stepwise(std::string_view hook) { return hook.ends_with("hook_attn_scores") || hook.ends_with("hook_pattern"); }

std::vector<int32_t> some_ids(const Engine& engine, int64_t n, int64_t from = 3) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * i * 5 + 13 * i + from) % engine.shape().vocab_size));
  return ids;
}

// Logits of all rows of a step with `listener` at one of its sequences.
template <class T = float>
std::vector<T> run(Engine& engine, const Step& step, Listener* listener = nullptr, int sequence = 0) {
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  ctx.listen(listener, sequence);
  std::vector<int64_t> rows(static_cast<size_t>(step.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  const Tensor z = logits(ctx, engine.model().residual(ctx, step), engine.model().head(), rows);
  ctx.listen(nullptr);
  return {z.data<T>(), z.data<T>() + z.count()};
}

using Values = std::map<std::string, Recorder::Value, std::less<>>;

Values everything(Engine& engine, std::span<const int32_t> ids, const std::string& pattern = "*") {
  Recorder seen({{.glob = pattern}});
  run(engine, Step::of(ids), &seen);
  return std::move(seen).take_values();
}

// Puts what another run had in place of each named value, and keeps what else goes by.
class Transplant final : public Listener {
 public:
  Transplant(const Values& donor, std::set<std::string, std::less<>> names) : donor_(donor), names_(std::move(names)) {}
  Values seen;

  bool wants(std::string_view) const override { return true; }
  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    if (!names_.contains(name)) {
      seen[std::string(name)] = {{}, {value.data<float>(), value.data<float>() + value.count()}};
      return {};
    }
    const Recorder::Value& other = donor_.find(name)->second;
    return {const_cast<float*>(other.values.data()), DType::f32, value.shape()};
  }

 private:
  const Values& donor_;
  std::set<std::string, std::less<>> names_;
};

// Puts what another run had in place of these values, and asks for no others.
class Put final : public Listener {
 public:
  Put(const Values& donor, const std::set<std::string, std::less<>>& names) : donor_(donor), names_(names) {}
  bool wants(std::string_view name) const override { return names_.contains(name); }
  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    return {const_cast<float*>(donor_.find(name)->second.values.data()), DType::f32, value.shape()};
  }

 private:
  const Values& donor_;
  const std::set<std::string, std::less<>>& names_;
};

class EveryHook : public testing::TestWithParam<std::string> {
 protected:
  EveryHook()
      : gold(Golden::open(GetParam())),
        engine(gold.model(), {2, {}}),
        file(open_safetensors(std::string(VITRINE_GOLDEN) + "/hooks/" + GetParam() + ".safetensors")) {
    const GoldenTensor stored = golden_tensor(file, "ids");
    ids.assign(stored.begin(), stored.end());
  }
  void expect_reference(const Values& seen) {
    for (const auto& [name, value] : seen) {
      const GoldenTensor expected = golden_tensor(file, name);
      EXPECT_EQ(value.shape, expected.shape) << name;
      EXPECT_TRUE((close_to<float, float>(value.values, expected.values, gold.tolerance(), expected.shape))) << name;
    }
  }
  Golden gold;
  Engine engine;
  Checkpoint file;
  std::vector<int32_t> ids;
};

TEST_P(EveryHook, IsWhatTheReferenceComputes) {
  std::vector<std::string> names = engine.model().hook_names(), stored = Golden::names_in(file);
  stored.erase(std::find(stored.begin(), stored.end(), "ids"));
  std::sort(names.begin(), names.end());
  ASSERT_EQ(names, stored);
  expect_reference(everything(engine, ids));
  for (const std::string& name : names)  // alone: the fused form, where nobody asks for scores or patterns
    if (!stepwise(name)) expect_reference(everything(engine, ids, name));
}

TEST_P(EveryHook, IsTheSameInChunksThroughTheCache) {
  Recorder seen({{.glob = "*"}});
  const auto cache = engine.make_cache(static_cast<int64_t>(ids.size()));
  CacheSequence sequence = cache->sequence();
  for (const auto& [begin, n] : {std::pair(0, 4), std::pair(4, 1), std::pair(5, 5)}) {
    Step step;
    step.add(std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(n)), &sequence);
    run(engine, step, &seen);
    step.commit();
  }
  expect_reference(seen.values());
}

// The whole stream at one point decides everything behind it.
TEST_P(EveryHook, TheStreamOfAnotherPromptGivesThatPromptsLogits) {
  const std::vector<int32_t> other = some_ids(engine, static_cast<int64_t>(ids.size()));
  // Asked for on their own, as listening to scores changes their last bits.
  Values donor;
  for (const char* pattern : {"*hook_resid*", "hook_per_layer", "*.attn.hook_rot_k", "*.attn.hook_v"})
    donor.merge(everything(engine, other, pattern));
  const std::vector<float> expected = run(engine, Step::of(other));
  ASSERT_NE(run(engine, Step::of(ids)), expected);
  std::set<std::string, std::less<>>
      beside;  // what goes past the stream: a per-layer embedding, keys and values for later layers
  if (donor.contains("hook_per_layer")) beside.insert("hook_per_layer");
  for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer)
    if (const int64_t giver = engine.model().layer(layer).keys_of; giver >= 0)
      for (const char* name : {"attn.hook_rot_k", "attn.hook_v"}) beside.insert("blocks." + std::to_string(giver) + "." + name);
  for (const auto& [name, value] : donor) {
    if (name.find("hook_resid") == std::string::npos) continue;
    std::set<std::string, std::less<>> names = beside;
    names.insert(name);
    Put put(donor, names);
    EXPECT_EQ(run(engine, Step::of(ids), &put), expected) << name;  // bit for bit
  }
}

// What a hook feeds and nothing else does.
TEST_P(EveryHook, DecidesWhatIsComputedFromIt) {
  const std::vector<int32_t> other = some_ids(engine, static_cast<int64_t>(ids.size()));
  const Values donor = everything(engine, other);
  const bool after = engine.model().layer(0).norms_after;
  const bool one_sublayer = !donor.contains("blocks.0.hook_resid_mid") && !donor.contains("blocks.0.hook_mlp_out");
  std::vector<std::pair<std::vector<std::string>, std::string>> links = {
      {{"attn.hook_q"}, "attn.hook_rot_q"},
      {{"attn.hook_k"}, "attn.hook_rot_k"},
      {{"attn.hook_attn_scores"}, "attn.hook_pattern"},
      {{"attn.hook_pattern", "attn.hook_v"}, "attn.hook_z"},
      {{"attn.hook_result"}, "attn.hook_out"},
      {{"conv.hook_B", "conv.hook_x"}, "conv.hook_in"},
      {{"conv.hook_in"}, "conv.hook_conv"},
      {{"conv.hook_C", "conv.hook_conv"}, "conv.hook_post"},
      {{"conv.hook_post"}, "conv.hook_out"},
      {{"conv.hook_out"}, "hook_attn_out"},
      {{"mlp.hook_pre", "mlp.hook_pre_linear"}, "mlp.hook_post"},
      {{"hook_resid_mid", "hook_mlp_out", "hook_per_layer_out"}, after ? "ln2.hook_normalized" : "hook_resid_post"},
      {{"hook_resid_pre", "hook_attn_out", "hook_ssm_out"}, after ? "ln1.hook_normalized" : "hook_resid_mid"}};
  links.push_back({{"attn.hook_rot_q", "attn.hook_rot_k"}, "attn.hook_attn_scores"});  // in layers that turn them
  links.push_back({{"attn.hook_q", "attn.hook_k"}, "attn.hook_attn_scores"});
  links.push_back({{"attn.hook_q", "attn.hook_k", "attn.hook_temperature"}, "attn.hook_attn_scores"});
  const bool gated = std::any_of(donor.begin(), donor.end(), [](const auto& value) { return value.first.ends_with("gated_z"); });
  links.push_back({{gated ? "attn.hook_gated_z" : "attn.hook_z"}, "attn.hook_result"});
  links.push_back({{"attn.hook_z", "attn.hook_gate"}, "attn.hook_gated_z"});
  for (const char* read : {"delta.hook_q", "delta.hook_k", "delta.hook_v"}) links.push_back({{"delta.hook_pre"}, read});
  links.push_back({{"delta.hook_q", "delta.hook_k", "delta.hook_v", "delta.hook_beta", "delta.hook_log_decay"}, "delta.hook_z"});
  links.push_back({{"delta.hook_z"}, "delta.norm.hook_normalized"});
  links.push_back({{"delta.norm.hook_normalized", "delta.hook_gate"}, "delta.hook_gated_z"});
  links.push_back({{"delta.hook_gated_z"}, "delta.hook_result"});
  links.push_back({{"delta.hook_result"}, "delta.hook_out"});
  links.push_back({{"delta.hook_out"}, "hook_attn_out"});
  for (const char* read : {"ssm.hook_x", "ssm.hook_B", "ssm.hook_C"}) links.push_back({{"ssm.hook_pre"}, read});
  links.push_back({{"ssm.hook_time_step"}, "ssm.hook_log_decay"});
  links.push_back({{"ssm.hook_x", "ssm.hook_B", "ssm.hook_C", "ssm.hook_time_step", "ssm.hook_log_decay"}, "ssm.hook_state_z"});
  links.push_back({{"ssm.hook_state_z", "ssm.hook_x"}, "ssm.hook_z"});
  links.push_back({{"ssm.hook_z", "ssm.hook_gate"}, "ssm.hook_gated_z"});
  links.push_back({{"ssm.hook_gated_z"}, "ssm.norm.hook_normalized"});
  links.push_back({{"ssm.norm.hook_normalized"}, "ssm.hook_normed_z"});
  links.push_back({{"ssm.hook_normed_z"}, "ssm.hook_result"});
  links.push_back({{"ssm.hook_result"}, "ssm.hook_out"});
  links.push_back({{"ssm.hook_out"}, donor.contains("blocks.0.hook_ssm_out") ? "hook_ssm_out" : "hook_attn_out"});
  for (const char* read : {"ssm.hook_pre", "ssm.hook_time_step", "ssm.hook_gate"})
    links.push_back({{"ln1.hook_normalized"}, read});
  for (const std::string norm : {"ln1", "ln2", "ln1_post", "ln2_post"})
    links.push_back({{norm + ".hook_normalized_pre"}, norm + ".hook_normalized"});
  if (after) {
    links.push_back({{"ln1.hook_normalized"}, "hook_resid_mid"});
    links.push_back({{"ln2.hook_normalized"}, "hook_resid_post"});
  } else {
    for (const char* read : {"attn.hook_q", "attn.hook_k", "attn.hook_v", "conv.hook_B", "conv.hook_C", "conv.hook_x"})
      links.push_back({{"ln1.hook_normalized"}, read});
    for (const char* read : {"attn.hook_gate", "delta.hook_pre", "delta.hook_beta", "delta.hook_log_decay", "delta.hook_gate"})
      links.push_back({{"ln1.hook_normalized"}, read});
    links.push_back({{"ln2.hook_normalized"}, "mlp.hook_pre"});
    links.push_back({{"ln2.hook_normalized"}, "mlp.hook_pre_linear"});
  }
  const bool post = donor.contains("blocks.0.ln1_post.hook_normalized");
  links.push_back({{post ? "ln1_post.hook_normalized" : "attn.hook_out"}, "hook_attn_out"});
  if (engine.model().layer(0).experts_beside) {
    links.push_back({{"router_norm.hook_normalized"}, "experts.hook_router_logits"});
    links.push_back({{"experts.hook_router_logits"}, "experts.hook_expert_indices"});
    links.push_back({{"experts.hook_expert_indices", "experts.hook_post"}, "experts.hook_expert_out"});
    links.push_back({{"mlp_post.hook_normalized", "experts_post.hook_normalized"}, "hook_mlp_out"});
    links.push_back({{"ln2_post.hook_normalized"}, "hook_mlp_out"});
  } else if (engine.model().layer(engine.shape().n_layers - 1).experts) {  // the first may have an MLP
    links.push_back({{"ln2.hook_normalized"}, "mlp.hook_router_logits"});
    links.push_back({{"mlp.hook_router_logits"}, "mlp.hook_expert_indices"});
    links.push_back({{"mlp.hook_router_logits"}, "mlp.hook_expert_weights"});
    links.push_back({{"mlp.hook_expert_indices", "mlp.hook_post"}, "mlp.hook_expert_out"});
    links.push_back({{"ln2.hook_normalized"}, "shared.hook_pre"});
    links.push_back({{"shared.hook_pre", "shared.hook_pre_linear"}, "shared.hook_post"});
    links.push_back({{"mlp.hook_expert_out", "mlp.hook_expert_weights", "shared.hook_out"}, "hook_mlp_out"});
  } else {
    links.push_back({{post ? "ln2_post.hook_normalized" : "mlp.hook_post"}, "hook_mlp_out"});
  }

  if (engine.model().layer(0).per_layer_dim > 0) {
    links.push_back({{"per_layer.hook_pre", "per_layer.hook_pre_linear"}, "per_layer.hook_post"});
    links.push_back({{"per_layer.hook_post"}, "hook_per_layer_out"});
  }

  if (one_sublayer) links.push_back({{"ln1.hook_normalized"}, "mlp.hook_pre"});
  if (!donor.contains("blocks.0.hook_resid_mid"))  // attention and MLP are added together, or a layer has one of them
    for (auto& [from, to] : links)
      if (to == "hook_resid_post") from = {"hook_resid_pre", "hook_attn_out", "hook_mlp_out"};

  size_t followed = 0;
  for (const auto& [from, to] : links)
    for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer) {
      const std::string block = "blocks." + std::to_string(layer) + ".";
      std::set<std::string, std::less<>> put;
      const int64_t giver = engine.model().layer(layer).keys_of;  // of its keys and values, if they are not its own
      const std::string of_keys = giver < 0 ? block : "blocks." + std::to_string(giver) + ".";
      for (const std::string& name : from) {
        const bool keys = name == "attn.hook_k" || name == "attn.hook_rot_k" || name == "attn.hook_v";
        if (donor.contains((keys ? of_keys : block) + name)) put.insert((keys ? of_keys : block) + name);
      }
      if (put.empty() || !donor.contains(block + to)) continue;
      Transplant transplant(donor, put);
      run(engine, Step::of(ids), &transplant);
      const FloatVector &made = transplant.seen.at(block + to).values, &expected = donor.at(block + to).values;
      if (to == "attn.hook_out" || to == "delta.hook_out" ||
          to == "ssm.hook_out") {  // replaced results are summed head by head, W_O's product is not
        EXPECT_CLOSE(made, expected, (Tolerance{.abs = 1e-5, .rel = 1e-5})) << block << to;
      } else {
        EXPECT_EQ(made, expected) << block << to;
      }
      ++followed;
    }
  const unsigned least = !has_attention(engine.model()) ? 13 : one_sublayer ? 9 : 14;
  EXPECT_GE(followed, least * static_cast<size_t>(engine.shape().n_layers));
}

// Without mask and positions a decoder does not know the order of its tokens: f(Px) = P f(x). With either it does.
class Order final : public Listener {
 public:
  Order(const Model& model, bool masked, bool placed) : model_(model), masked_(masked), placed_(placed) {}

  bool wants(std::string_view name) const override {
    return name == "hook_pos_embed" || name.find(".attn.hook_") != std::string_view::npos;
  }
  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    if (name == "hook_pos_embed")
      return placed_ ? Tensor{} : kept(std::vector<double>(static_cast<size_t>(value.count())), value);
    const int64_t layer = split_layer(name).first;
    Tensor* const remembered = name.ends_with("_q") ? &q_ : name.ends_with("_k") ? &keys_[layer] : nullptr;
    if (remembered != nullptr) {
      if (name.find("_rot_") != std::string_view::npos && !placed_) return *remembered;
      *remembered = kept({value.data<double>(), value.data<double>() + value.count()}, value);
    }
    if (masked_ || !name.ends_with("hook_attn_scores")) return {};
    const AttentionSpec spec = model_.layer(layer).attention;
    const int64_t giver = model_.layer(layer).keys_of;
    const Tensor& k = keys_.at(giver < 0 ? layer : giver);
    std::vector<double> scores;
    for (int64_t head = 0; head < q_.dim(1); ++head)
      for (int64_t i = 0; i < q_.dim(0); ++i)
        for (int64_t j = 0; j < q_.dim(0); ++j) {
          const double* query = q_.row<double>(i) + head * q_.dim(2);
          const double* key = k.row<double>(j) + head / (q_.dim(1) / k.dim(1)) * q_.dim(2);
          const double s = spec.scale * std::inner_product(query, query + q_.dim(2), key, 0.0);
          const double slope = spec.alibi && placed_ ? alibi_slope(head, q_.dim(1)) : 0;
          scores.push_back((spec.softcap != 0 ? spec.softcap * std::tanh(s / spec.softcap) : s) +
                           slope * static_cast<double>(j - i));
        }
    return kept(std::move(scores), value);
  }

 private:
  Tensor kept(std::vector<double> numbers, const Tensor& like) {
    return {alive_.emplace_back(std::move(numbers)).data(), DType::f64, like.shape()};
  }
  const Model& model_;
  const bool masked_, placed_;
  Tensor q_;
  std::map<int64_t, Tensor> keys_;  // by layer
  std::deque<std::vector<double>> alive_;
};

TEST_P(EveryHook, WithoutMaskAndPositionsAPermutedPromptGivesPermutedLogits) {
  for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer)
    if (const LayerRecord& of = engine.model().layer(layer); !of.has_attention() || of.delta)
      GTEST_SKIP() << "what is no attention knows the order of its inputs";
  const std::vector<size_t> order = {3, 9, 0, 6, 1, 5, 8, 2, 4, 7};
  std::vector<int32_t> shuffled;
  for (const size_t i : order) shuffled.push_back(ids[i]);
  Context& ctx = engine.context();
  ctx.activations = DType::f64;  // so that what is left is far below any difference
  const auto logits_of = [&](std::span<const int32_t> tokens, bool masked, bool placed) {
    Order listener(engine.model(), masked, placed);
    const Step step = Step::of(tokens);
    const auto frame = ctx.frame();
    ctx.listen(&listener);
    std::vector<int64_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    const Tensor z = logits(ctx, engine.model().residual(ctx, step), engine.model().head(), rows);
    ctx.listen(nullptr);
    return std::vector<double>(z.data<double>(), z.data<double>() + z.count());
  };
  for (const auto& [masked, placed] : {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    const std::vector<double> a = logits_of(ids, masked, placed), b = logits_of(shuffled, masked, placed);
    const size_t vocab = a.size() / ids.size();
    double most = 0;
    for (size_t r = 0; r < order.size(); ++r)
      for (size_t i = 0; i < vocab; ++i) most = std::max(most, std::abs(b[r * vocab + i] - a[order[r] * vocab + i]));
    if (masked || placed) {
      EXPECT_GT(most, 1e-2) << (masked ? "with the mask" : "with positions");
    } else {
      EXPECT_LT(most, 1e-9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, EveryHook, testing::ValuesIn(Golden::all()), [](const auto& test) { return test.param; });

// What the model file stores, and how products are computed.
class StoredType : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  StoredType()
      : engine(std::string(VITRINE_GOLDEN) + "/gguf/" + std::get<0>(GetParam()) + ".gguf",
               {2, {.f32 = std::get<1>(GetParam())}}) {}
  Engine engine;
};

TEST_P(StoredType, ListeningChangesNoLogit) {
  const Step step = Step::of(some_ids(engine, 19));
  const std::vector<float> alone = run(engine, step);
  Context& ctx = engine.context();
  ctx.activations = DType::f64;
  const std::vector<double> exact = run<double>(engine, step);
  ctx.activations = DType::f32;
  const auto far_from_exact = [&](const std::vector<float>& logits) {
    double most = 0;
    for (size_t i = 0; i < exact.size(); ++i) most = std::max(most, std::abs(static_cast<double>(logits[i]) - exact[i]));
    return most;
  };
  for (const std::string& hook : engine.model().hook_names()) {
    Recorder seen({{.glob = hook}});
    if (!stepwise(hook)) {
      EXPECT_EQ(run(engine, step, &seen), alone) << hook;
    } else if (std::get<1>(GetParam())) {  // else operands are rounded to 8 bits, where another last bit of an input may show
      // Attention's two forms sum in another order: neither is further from double than rounding takes the other.
      EXPECT_LT(far_from_exact(run(engine, step, &seen)), 2 * far_from_exact(alone)) << hook;
    }
  }
}

// What a head adds is what is left of attn.hook_out, the bias aside, when the other heads' z are zero; also where a head of 8
// columns begins inside a block of 32 quantized ones.
TEST_P(StoredType, AHeadsResultIsItsPartOfTheOutput) {
  class OneHead final : public Listener {
   public:
    bool wants(std::string_view name) const override {
      return name == "blocks.1.attn.hook_z" || name == "blocks.1.attn.hook_out";
    }
    Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
      if (name.ends_with("hook_out")) {
        out.assign(value.data<float>(), value.data<float>() + value.count());
        return {};
      }
      const Tensor z = ctx.zeros(value.shape());
      for (int64_t r = 0; r < value.rows() && head >= 0; ++r)
        std::copy_n(value.row<float>(r) + head * value.dim(2), value.dim(2), z.row<float>(r) + head * value.dim(2));
      return z;
    }
    int64_t head = -1;  // none
    std::vector<float> out;
  };
  const Step step = Step::of(some_ids(engine, 19));
  Recorder seen({{.glob = "blocks.1.attn.hook_result"}});
  run(engine, step, &seen);
  const Recorder::Value& result = seen.values().at("blocks.1.attn.hook_result");  // [row, head, component]
  const int64_t heads = result.shape[1], d = result.shape[2];
  OneHead listener;
  run(engine, step, &listener);
  const std::vector<float> bias = listener.out;
  for (int64_t h = 0; h < heads; ++h) {
    listener.head = h;
    run(engine, step, &listener);
    std::vector<float> added, expected;
    for (int64_t r = 0; r < result.shape[0]; ++r)
      for (int64_t j = 0; j < d; ++j) {
        added.push_back(result.values[static_cast<size_t>((r * heads + h) * d + j)]);
        expected.push_back(listener.out[static_cast<size_t>(r * d + j)] - bias[static_cast<size_t>(r * d + j)]);
      }
    EXPECT_CLOSE(added, expected, (Tolerance{.abs = 1e-6, .rel = 1e-5})) << "head " << h;
  }
}

TEST_P(StoredType, ListeningWhileDecodingChangesNoLogit) {
  const std::vector<int32_t> ids = some_ids(engine, 12);
  const auto decode = [&](Listener* listener) {
    const auto cache = engine.make_cache(static_cast<int64_t>(ids.size()));
    CacheSequence sequence = cache->sequence();
    std::vector<float> all;
    for (size_t begin = 0; begin < ids.size(); begin += begin == 0 ? 7 : 1) {
      Step step;
      step.add(std::span(ids).subspan(begin, begin == 0 ? 7 : 1), &sequence);
      const std::vector<float> z = run(engine, step, begin == 0 ? nullptr : listener);
      all.insert(all.end(), z.begin(), z.end());
      step.commit();
    }
    return all;
  };
  const std::vector<float> alone = decode(nullptr);
  for (const char* hook :
       {"blocks.*.hook_resid_*", "blocks.*.attn.hook_z", "*.hook_normalized", "blocks.*.mlp.*", "hook_logits"}) {
    Recorder seen({{.glob = hook}});
    EXPECT_EQ(decode(&seen), alone) << hook;
    EXPECT_FALSE(seen.values().empty()) << hook;
  }
}

// Whatever is put into one sequence of a batch, the others' logits keep their bits.
TEST_P(StoredType, ReplacedValuesStayInTheirSequence) {
  class Wreck final : public Listener {
   public:
    explicit Wreck(std::string name) : name_(std::move(name)) {}
    int times = 0;
    bool wants(std::string_view name) const override { return name == name_; }
    Tensor see(Context&, std::string_view, const Tensor& value) override {
      ++times;
      numbers_.assign(static_cast<size_t>(value.count()), 0);
      for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = static_cast<float>(i % 7) * 3 - 8;
      return {numbers_.data(), DType::f32, value.shape()};
    }

   private:
    std::string name_;
    std::vector<float> numbers_;
  };
  Step step;
  for (const auto& [n, from] : {std::pair(10, 3), std::pair(13, 40), std::pair(9, 77)}) step.add(some_ids(engine, n, from));
  const std::vector<float> alone = run(engine, step);
  const auto vocab = static_cast<std::ptrdiff_t>(engine.shape().vocab_size);
  for (const std::string& hook : engine.model().hook_names()) {
    Wreck wreck(hook);
    const std::vector<float> after = run(engine, step, &wreck, 1);
    EXPECT_EQ(wreck.times, 1) << hook;
    EXPECT_TRUE(std::equal(after.begin(), after.begin() + 10 * vocab, alone.begin())) << hook;
    EXPECT_TRUE(std::equal(after.begin() + 23 * vocab, after.end(), alone.begin() + 23 * vocab)) << hook;
    EXPECT_FALSE(std::equal(after.begin() + 10 * vocab, after.begin() + 23 * vocab, alone.begin() + 10 * vocab)) << hook;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, StoredType,
                         testing::Combine(testing::Values("gemma2", "gpt2_a", "llama_f16", "llama_q8_0", "llama_q4_0"),
                                          testing::Bool()),
                         [](const auto& test) { return std::get<0>(test.param) + (std::get<1>(test.param) ? "_f32" : "_auto"); });

}  // namespace
}  // namespace vitrine
