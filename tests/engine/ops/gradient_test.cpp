// Every op's backward against central differences in double: odd sizes, windows, caps, grouped queries, ragged steps.
#include <map>

#include "gradients.h"
#include "ops/attention.h"
#include "ops/attention_temperature.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/head.h"
#include "ops/low_rank.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/recorder.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

using Inputs = GradientCheck::Inputs;
constexpr Activation kActivations[] = {Activation::relu,    Activation::gelu_tanh,    Activation::gelu_exact, Activation::silu,
                                       Activation::sigmoid, Activation::relu_squared, Activation::quick_gelu, Activation::tanh};

Step ragged_rows(const std::vector<int64_t>& lengths) {
  Step step;
  int32_t token = 0;
  for (const int64_t n : lengths) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < n; ++i) tokens.push_back(token++ % 5);
    step.add(tokens);
  }
  return step;
}

TEST(OpGradient, Embeddings) {
  GradientCheck check;
  const Weight &W_E = check.weight(5, 7), &W_pos = check.weight(6, 7);
  const Step step = ragged_rows({4, 6});  // tokens and positions come more than once
  check.expect_match(
      [&](Context& ctx, const Inputs&) { return add(ctx, embed(ctx, step.tokens(), W_E), embed_positions(ctx, step, W_pos)); });
}

TEST(OpGradient, TakenRows) {
  GradientCheck check;
  check.input({5, 3});
  const std::vector<int64_t> rows = {4, 0, 4, 2};
  check.expect_match([&](Context& ctx, const Inputs& x) { return take_rows(ctx, x[0], rows); });
}

TEST(OpGradient, Linear) {
  for (const bool by_columns : {false, true}) {
    GradientCheck check;
    check.input({9, 5});
    const Weight& w = check.weight(7, 5, by_columns, true);
    check.expect_match([&](Context& ctx, const Inputs& x) { return linear(ctx, x[0], w); });
  }
}

TEST(OpGradient, LinearOfSeveralWeightsThatReadOneInput) {
  GradientCheck check;
  check.input({3, 5});
  const Weight &a = check.weight(4, 5), &b = check.weight(4, 5, true, true), &c = check.weight(4, 5);
  check.expect_match([&](Context& ctx, const Inputs& x) {
    const auto [p, q, r] = linear(ctx, x[0], {a, b, c});
    return add(ctx, gated(ctx, p, q, Activation::silu), r);
  });
}

TEST(OpGradient, OneWeightUsedTwice) {
  GradientCheck check;
  check.input({3, 5});
  const Weight& w = check.weight(5, 5, false, true);
  check.expect_match([&](Context& ctx, const Inputs& x) { return linear(ctx, linear(ctx, x[0], w), w); });
}

// A and B of an adapter, beside plain and by-columns weights; two of them share A as the parts of a stacked matrix do.
TEST(OpGradient, LinearWithAdapters) {
  for (const double drop : {0.0, 0.4}) {
    SCOPED_TRACE(drop);
    GradientCheck check;
    check.input({9, 5});
    const LowRank first{check.weight(3, 5), check.weight(4, 3), 0.7, drop, 1};
    const LowRank second{first.A, check.weight(4, 3), 0.7, drop, 1};
    Weight a = check.weight(4, 5, false, true), b = check.weight(4, 5, true);
    a.adapter = &first;
    b.adapter = &second;
    check.expect_match([&](Context& ctx, const Inputs& x) {
      const auto [p, q] = linear(ctx, x[0], {a, b});
      return gated(ctx, p, q, Activation::silu);
    });
  }
}

TEST(OpGradient, AdaptersPassThroughEveryHeadsResult) {
  const Step step = ragged_rows({5});
  Recorder seen({{"*hook_result"}});
  for (Listener* listener : {static_cast<Listener*>(nullptr), static_cast<Listener*>(&seen)}) {
    GradientCheck check;
    check.input({5, 6});
    const LowRank adapter{check.weight(2, 6), check.weight(4, 2), 1.5, 0, 1};
    Weight W_O = check.weight(4, 6, false, true);
    W_O.adapter = &adapter;
    check.expect_match(
        [&](Context& ctx, const Inputs& x) {
          ctx.enter(step);
          return attention_output(ctx, "attn", split_heads(ctx, x[0], 3), W_O);
        },
        listener, 30);
  }
}

TEST(OpGradient, Norms) {
  for (const double offset : {0.0, 1.0}) {
    GradientCheck check;
    check.input({4, 7});
    const Vector& w = check.vector(7);
    check.expect_match(
        [&](Context& ctx, const Inputs& x) { return rms_norm(ctx, "n", x[0], w, {.eps = 1e-3, .offset = offset}); });
  }
  GradientCheck check;
  check.input({4, 7});
  const Vector &w = check.vector(7), &b = check.vector(7);
  check.expect_match([&](Context& ctx, const Inputs& x) { return layer_norm(ctx, "n", x[0], w, b, {.eps = 1e-3}); });
  GradientCheck without;
  without.input({4, 7});
  const Vector &of_one = without.vector(7), none;
  without.expect_match([&](Context& ctx, const Inputs& x) { return layer_norm(ctx, "n", x[0], of_one, none, {.eps = 1e-3}); });
}

// Each head's vector by itself, as queries and keys are normalized; whole, and in steps where somebody listens.
TEST(OpGradient, NormsOfHeads) {
  Recorder seen({{"*"}});
  const Step step = ragged_rows({4});
  for (const bool listened : {false, true}) {
    GradientCheck check;
    check.input({4, 3, 5});
    const Vector& w = check.vector(5);
    check.expect_match(
        [&](Context& ctx, const Inputs& x) {
          ctx.enter(step);
          const Tensor y = rms_norm(ctx, "n", x[0], w, {.eps = 1e-3, .offset = 1});
          EXPECT_EQ(y.shape(), x[0].shape());
          return y;
        },
        listened ? &seen : nullptr, 20);
  }
  for (const bool listened : {false, true}) {  // weights of its own for each head
    GradientCheck check;
    check.input({4, 3, 5});
    const Vector &w = check.vector(15), &b = check.vector(15), none;
    for (const Vector* bias : {&b, &none})
      check.expect_match(
          [&](Context& ctx, const Inputs& x) {
            ctx.enter(step);
            return layer_norm(ctx, "n", x[0], w, *bias, {.eps = 1e-3});
          },
          listened ? &seen : nullptr, 20);
  }
  const auto heads_of = [&](const char* hook) {  // the recorder joins the rows of all runs
    const std::vector<int64_t>& shape = seen.values().at(hook).shape;
    return std::vector<int64_t>(shape.begin() + 1, shape.end());
  };
  EXPECT_EQ(heads_of("n.hook_scale"), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(heads_of("n.hook_normalized"), (std::vector<int64_t>{3, 5}));
}

TEST(OpGradient, NormsInSteps) {
  Recorder seen({{"*"}});
  const Step step = ragged_rows({70});  // the weights' gradients are sums of 64 rows each
  GradientCheck rms;
  rms.input({70, 7});
  const Vector& w = rms.vector(7);
  rms.expect_match(
      [&](Context& ctx, const Inputs& x) {
        ctx.enter(step);
        return rms_norm(ctx, "n", x[0], w, {.offset = 1});
      },
      &seen);
  GradientCheck layer;
  layer.input({70, 7});
  const Vector &v = layer.vector(7), &b = layer.vector(7);
  layer.expect_match(
      [&](Context& ctx, const Inputs& x) {
        ctx.enter(step);
        return layer_norm(ctx, "n", x[0], v, b, {.eps = 1e-5});
      },
      &seen);
}

TEST(OpGradient, Rope) {
  const Step step = ragged_rows({3, 4});
  for (const RopeLayout layout : {RopeLayout::halves, RopeLayout::pairs})
    for (const int64_t turning : {int64_t{6}, int64_t{4}}) {
      GradientCheck check;
      check.input({7, 3, 6});
      RopeSpec spec;
      spec.theta = 50;
      spec.rotary_dim = turning;
      spec.layout = layout;
      check.expect_match([&](Context& ctx, const Inputs& x) { return rope(ctx, x[0], step, spec); });
      spec.scaling = RopeSpec::Scaling::yarn;
      spec.factor = 4;
      spec.original_context = 30;
      spec.attention_factor = 1.3;
      check.expect_match([&](Context& ctx, const Inputs& x) { return rope(ctx, x[0], step, spec); });
    }
}

// Of heads that end in what turns, made of one head's components that all share, or of each head's own.
TEST(OpGradient, JoinedHeadsThatTurnAtTheirEnd) {
  const Step step = ragged_rows({3, 4});
  for (const int64_t heads : {1, 2})
    for (const RopeLayout layout : {RopeLayout::pairs, RopeLayout::halves}) {
      GradientCheck check;
      check.input({7, 2, 3});
      check.input({7, heads, 4});
      check.expect_match([&](Context& ctx, const Inputs& x) {
        const Tensor joined = join_heads(ctx, x[0], x[1]);
        const Tensor turned = rope(ctx, joined, step, {.theta = 50, .rotary_dim = 4, .first = 3, .layout = layout});
        return add(ctx, turned, joined);  // gradients are added to those that are there
      });
    }
}

TEST(OpGradient, ScaledRows) {
  GradientCheck check;
  check.input({5, 3});
  check.input({5, 1});
  check.expect_match([&](Context& ctx, const Inputs& x) { return scale_rows(ctx, x[0], x[1]); });
}

TEST(OpGradient, Elementwise) {
  for (const Activation f : kActivations) {
    GradientCheck check;
    check.input({3, 5}, 2);
    check.input({3, 5});
    check.expect_match([&](Context& ctx, const Inputs& x) {
      return add(ctx, gated(ctx, x[0], x[1], f), scale(ctx, activation(ctx, x[1], f), -1.7));
    });
  }
  GradientCheck check;
  check.input({3, 5}, 2);
  check.expect_match([&](Context& ctx, const Inputs& x) { return softcap(ctx, x[0], 1.5); });
  check.expect_match([&](Context& ctx, const Inputs& x) { return softcap(ctx, x[0], 0); });
  check.expect_match([&](Context& ctx, const Inputs& x) { return add(ctx, x[0], x[0]); });
  check.expect_match([&](Context& ctx, const Inputs& x) { return merge_heads(ctx, split_heads(ctx, scale(ctx, x[0], 2), 5)); });
}

TEST(OpGradient, Dropout) {
  GradientCheck check;
  check.input({7, 9});
  check.expect_match([&](Context& ctx, const Inputs& x) { return dropout(ctx, x[0], 0.4, 3); });
}

TEST(OpGradient, AttentionTemperature) {
  const Step step = ragged_rows({6, 1, 4});
  GradientCheck check;
  check.input({11, 2, 3});
  check.expect_match([&](Context& ctx, const Inputs& x) {
    ctx.enter(step);
    return attention_temperature(ctx, "attn", x[0], step, {.floor_scale = 2, .scale = 0.7});
  });
}

TEST(OpGradient, HiddenLayers) {
  for (const Activation f : kActivations) {
    GradientCheck check;
    check.input({3, 5});
    const Weight &gate = check.weight(7, 5), &in = check.weight(7, 5), &out = check.weight(5, 7, true, true);
    check.expect_match([&](Context& ctx, const Inputs& x) {
      return add(ctx, linear(ctx, gated_linear(ctx, "mlp", x[0], gate, in, f), out),
                 linear(ctx, hidden_linear(ctx, "mlp", x[0], in, f), out));
    });
  }
}

struct AttentionShape {
  const char* name;
  int64_t heads, kv_heads, head_dim, v_dim;
  AttentionSpec spec;
  bool sinks = false;
};

std::vector<AttentionShape> attention_cases() {
  std::vector<AttentionShape> cases = {{"plain", 2, 2, 3, 3, {}},       {"grouped", 4, 2, 5, 5, {}},
                                       {"one_kv_head", 3, 1, 4, 4, {}}, {"window", 4, 2, 3, 3, {}},
                                       {"cap", 2, 1, 3, 3, {}},         {"window_cap_values", 6, 3, 4, 5, {}},
                                       {"no_mask", 2, 2, 3, 3, {}},     {"dropout", 4, 2, 3, 3, {}},
                                       {"sinks", 4, 2, 3, 3, {}, true}, {"window_sinks", 2, 1, 3, 3, {}, true},
                                       {"alibi", 6, 3, 3, 3, {}},       {"chunks", 4, 2, 3, 3, {}}};
  for (AttentionShape& c : cases) c.spec.scale = 0.6;
  cases[10].spec.alibi = true;
  cases[11].spec.window = 3;
  cases[11].spec.chunked = true;
  cases[3].spec.window = 3;
  cases[4].spec.softcap = 1.2;
  cases[5].spec.window = 2;
  cases[5].spec.softcap = 0.8;
  cases[6].spec.causal = false;
  cases[7].spec.dropout = 0.3;
  cases[9].spec.window = 3;
  return cases;
}

class AttentionGradient : public testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionGradient, FusedAndStepwise) {
  const AttentionShape& c = GetParam();
  const Step step = ragged_rows({6, 1, 4});
  GradientCheck check;
  check.input({11, c.heads, c.head_dim});
  check.input({11, c.kv_heads, c.head_dim});
  check.input({11, c.kv_heads, c.v_dim});
  const Weight& W_O = check.weight(5, c.heads * c.v_dim, false, true);
  AttentionSpec spec = c.spec;
  if (c.sinks) spec.sinks = &check.vector(c.heads);
  const auto f = [&](Context& ctx, const Inputs& x) {
    ctx.enter(step);
    return attention_output(ctx, "attn", attention(ctx, "attn", x[0], x[1], x[2], step, 0, spec), W_O);
  };
  check.expect_match(f);
  const auto fused = check.input_gradients();
  const double value = check.run(f, false);
  Recorder seen({{"*"}});  // sequence 0 goes through the stepwise form, and results per head are computed
  check.expect_match(f, &seen);
  EXPECT_NEAR(check.run(f, false), value, 1e-12 * (1 + std::abs(value)));
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < fused[i].size(); ++j) EXPECT_NEAR(check.input_gradients()[i][j], fused[i][j], 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionGradient, testing::ValuesIn(attention_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(OpGradient, LogitsAndLoss) {
  const std::vector<int32_t> labels = {3, kNotScored, 0, 10};
  const std::vector<int64_t> rows = {3, 1, 3};
  for (const double cap : {0.0, 1.3}) {
    GradientCheck check;
    check.input({4, 5});
    const Weight& w = check.weight(11, 5, false, true);
    const Head head{&w, cap};
    check.expect_match([&](Context& ctx, const Inputs& x) { return cross_entropy(ctx, x[0], head, labels); });
    const Head scaled{head.weight, head.softcap, 0.4};
    check.expect_match([&](Context& ctx, const Inputs& x) { return cross_entropy(ctx, x[0], scaled, labels); });
    check.expect_match([&](Context& ctx, const Inputs& x) { return logits(ctx, x[0], head, rows); });
    for (const double temperature : {1.0, 0.7})
      check.expect_match([&](Context& ctx, const Inputs& x) { return label_logprobs(ctx, x[0], head, labels, temperature); });
  }
}

// More than one chunk of the vocabulary.
TEST(OpGradient, LossOverALargeVocabulary) {
  GradientCheck check;
  check.input({3, 2});
  const Weight& w = check.weight(4099, 2, false, true);
  const std::vector<int32_t> labels = {4098, 7, 4095};
  check.expect_match([&](Context& ctx, const Inputs& x) { return cross_entropy(ctx, x[0], {&w, 2.0}, labels); }, nullptr, 40);
  check.expect_match([&](Context& ctx, const Inputs& x) { return label_logprobs(ctx, x[0], {&w, 2.0}, labels, 1.7); }, nullptr,
                     40);
}

// A hook's replacement is a constant: what comes before it gets no gradient, what follows gets its own.
class Replace final : public Listener {
 public:
  explicit Replace(std::string name) : name_(std::move(name)) {}
  bool wants(std::string_view name) const override { return name == name_; }
  Tensor see(Context&, std::string_view, const Tensor& value) override {
    numbers_ = noise(value.count(), 77);
    for (double& x : numbers_) x = 0.1 + std::abs(x);
    return {numbers_.data(), DType::f64, value.shape()};
  }

 private:
  std::string name_;
  std::vector<double> numbers_;
};

TEST(OpGradient, ReplacedHooksAreConstants) {
  const Step step = ragged_rows({5});
  for (const std::string name :
       {"n.hook_scale", "n.hook_normalized_pre", "n.hook_normalized", "attn.hook_q", "attn.hook_attn_scores", "attn.hook_pattern",
        "attn.hook_z", "attn.hook_result", "attn.hook_out", "mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post"}) {
    SCOPED_TRACE(name);
    Replace replace(name);
    for (const bool layer : {false, true}) {
      GradientCheck check;
      check.input({5, 6});
      const Vector &w = check.vector(6), &b = check.vector(6);
      const Weight &W_Q = check.weight(6, 6), &W_K = check.weight(6, 6), &W_O = check.weight(6, 6, false, true),
                   &gate = check.weight(7, 6), &in = check.weight(7, 6);
      check.expect_match(
          [&](Context& ctx, const Inputs& x) {
            ctx.enter(step);
            const Tensor y = layer ? layer_norm(ctx, "n", x[0], w, b, {}) : rms_norm(ctx, "n", x[0], w, {.offset = 1});
            const auto [q, k] = linear(ctx, y, {W_Q, W_K});
            const Tensor shown = ctx.hook("attn.hook_q", split_heads(ctx, q, 3));
            AttentionSpec spec;
            spec.scale = 0.5;
            const Tensor z = attention(ctx, "attn", shown, split_heads(ctx, k, 3), split_heads(ctx, y, 3), step, 0, spec);
            const Tensor mid = add(ctx, x[0], attention_output(ctx, "attn", z, W_O));
            return gated_linear(ctx, "mlp", mid, gate, in, Activation::silu);
          },
          &replace, 20);
    }
  }
}

// A replacement that was built with ops on the hooked value carries gradients back through it; one that is not linear shows
// that the gradient is taken at the value that was replaced.
class Cap final : public Listener {
 public:
  explicit Cap(std::string name) : name_(std::move(name)) {}
  bool wants(std::string_view name) const override { return fits(name_, name); }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override { return softcap(ctx, value, 1.5); }

 private:
  std::string name_;
};

TEST(OpGradient, ReplacementsInsideNormsAndHeadsCarryGradients) {
  const Step step = ragged_rows({5});
  for (const std::string name : {"n.hook_scale", "n.hook_normalized_pre", "n.hook_*", "attn.hook_result", "*"})
    for (const bool layer : {false, true})
      for (const bool by_columns : {false, true}) {
        SCOPED_TRACE(name + (layer ? " LayerNorm" : " RMSNorm") + (by_columns ? " [in, out]" : ""));
        Cap cap(name);
        GradientCheck check;
        check.input({5, 6});
        const Vector &w = check.vector(6), &b = check.vector(6);
        const Weight& W_O = check.weight(6, 6, by_columns, true);
        check.expect_match(
            [&](Context& ctx, const Inputs& x) {
              ctx.enter(step);
              const Tensor y = layer ? layer_norm(ctx, "n", x[0], w, b, {}) : rms_norm(ctx, "n", x[0], w, {.offset = 1});
              return add(ctx, x[0], attention_output(ctx, "attn", split_heads(ctx, y, 3), W_O));
            },
            &cap, 30);
      }
}

// Who only watches gets the gradients at the hooks, and those of inputs and parameters stay what they are.
class Watch final : public Listener {
 public:
  bool wants(std::string_view) const override { return true; }
  Tensor see(Context&, std::string_view, const Tensor&) override { return {}; }
  bool wants_gradient(std::string_view) const override { return true; }
  void see_gradient(std::string_view name, const Tensor& gradient) override {
    gradients[std::string(name)].assign(gradient.data<double>(), gradient.data<double>() + gradient.count());
  }
  std::map<std::string, std::vector<double>> gradients;
};

TEST(OpGradient, WatchingNormsAndHeadsChangesNoGradient) {
  const Step step = ragged_rows({5});
  for (const bool layer : {false, true}) {
    GradientCheck check;
    check.input({5, 6});
    const Vector &w = check.vector(6), &b = check.vector(6);
    const Weight& W_O = check.weight(6, 6, false, true);
    Watch watch;
    check.expect_match(
        [&](Context& ctx, const Inputs& x) {
          ctx.enter(step);
          const Tensor y = layer ? layer_norm(ctx, "n", x[0], w, b, {}) : rms_norm(ctx, "n", x[0], w, {.offset = 1});
          return attention_output(ctx, "attn", split_heads(ctx, y, 3), W_O);
        },
        &watch, 30);
    for (const char* name : {"n.hook_scale", "n.hook_normalized_pre", "n.hook_normalized", "attn.hook_result", "attn.hook_out"})
      ASSERT_TRUE(watch.gradients.contains(name)) << name;
    // Every head's result is added as it is, so the gradient at each is that of their sum.
    const std::vector<double>&results = watch.gradients["attn.hook_result"], &out = watch.gradients["attn.hook_out"];
    for (size_t row = 0; row < 5; ++row)
      for (size_t i = 0; i < 12; ++i) EXPECT_EQ(results[row * 12 + i], out[row * 6 + i % 6]);
  }
}

class Halve final : public Listener {
 public:
  explicit Halve(std::string name) : name_(std::move(name)) {}
  bool wants(std::string_view name) const override { return name == name_; }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override { return scale(ctx, value, 0.5); }

 private:
  std::string name_;
};

TEST(OpGradient, ReplacementsBuiltWithOpsCarryGradients) {
  const Step step = ragged_rows({5});
  for (const std::string name : {"n.hook_normalized", "attn.hook_q", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z",
                                 "attn.hook_out", "mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post"})
    for (const double drop : {0.0, 0.3}) {
      SCOPED_TRACE(name + (drop > 0 ? " with dropout" : ""));
      Halve halve(name);
      GradientCheck check;
      check.input({5, 6});
      const Vector& w = check.vector(6);
      const Weight &W_Q = check.weight(6, 6), &W_K = check.weight(6, 6), &W_O = check.weight(6, 6, false, true),
                   &gate = check.weight(7, 6), &in = check.weight(7, 6);
      check.expect_match(
          [&](Context& ctx, const Inputs& x) {
            ctx.enter(step);
            const Tensor y = rms_norm(ctx, "n", x[0], w, {.offset = 1});
            const auto [q, k] = linear(ctx, y, {W_Q, W_K});
            const Tensor shown = ctx.hook("attn.hook_q", split_heads(ctx, q, 3));
            AttentionSpec spec;
            spec.scale = 0.5;
            spec.softcap = 2;
            spec.dropout = drop;
            const Tensor z = attention(ctx, "attn", shown, split_heads(ctx, k, 3), split_heads(ctx, y, 3), step, 0, spec);
            const Tensor mid = add(ctx, x[0], attention_output(ctx, "attn", z, W_O));
            return gated_linear(ctx, "mlp", mid, gate, in, Activation::silu);
          },
          &halve, 20);
    }
}

}  // namespace
}  // namespace vitrine
