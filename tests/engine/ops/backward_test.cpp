// Gradients in f32, through the kernels, against the definitions in double; the same bits on any number of threads; and
// with operands rounded to bf16.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "gradients.h"
#include "kernels/table.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/head.h"
#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace vitrine {
namespace {

/// Inputs and parameters with the same numbers in f32 and in f64, a function of them that gives a loss, and its gradients.
class Both {
 public:
  using Function = std::function<Tensor(Context&, const std::vector<Tensor>&, const std::deque<Weight>&)>;

  void input(const Shape& shape) { inputs_.push_back({shape, floats(shape.count(), 1)}); }
  void weight(int64_t out, int64_t in, bool by_columns = false, bool bias = false) {
    shapes_.push_back({out, in, by_columns, bias});
    weights_.push_back(floats(out * in, 0.3));
    biases_.push_back(floats(bias ? out : 0, 0.5));
  }

  size_t room = Tape::kSavedBytes;  // of the tapes

  /// The loss, then the gradients of all inputs, weights and biases.
  std::vector<std::vector<double>> run(DType type, int threads, const Function& f, bool bf16 = false) const {
    return type == DType::f64 ? run_as<double>(threads, f, bf16) : run_as<float>(threads, f, bf16);
  }
  /// f32 equals f64 to `tolerance` of each gradient's largest number; 1, 2 and 3 threads give the same bits.
  void expect_match(const Function& f, double tolerance = 2e-5, bool bf16 = false) const {
    const auto want = run(DType::f64, 2, f);
    const auto got = run(DType::f32, 1, f, bf16);
    EXPECT_TRUE(run(DType::f32, 2, f, bf16) == got);
    EXPECT_TRUE(run(DType::f32, 3, f, bf16) == got);
    for (size_t t = 0; t < want.size(); ++t) {
      double largest = 1e-6;
      for (const double value : want[t]) largest = std::max(largest, std::abs(value));
      for (size_t i = 0; i < want[t].size(); ++i)
        ASSERT_NEAR(got[t][i], want[t][i], tolerance * largest) << "gradient " << t << " [" << i << "]";
    }
  }

 private:
  struct Input {
    Shape shape;
    std::vector<float> values;
  };
  struct Sizes {
    int64_t out, in;
    bool by_columns, bias;
  };
  std::vector<float> floats(int64_t n, double size) {
    const std::vector<double> numbers = noise(n, ++seed_, size);
    return {numbers.begin(), numbers.end()};
  }

  template <class T>
  std::vector<std::vector<double>> run_as(int threads, const Function& f, bool bf16) const {
    constexpr DType kType = std::is_same_v<T, double> ? DType::f64 : DType::f32;
    ThreadPool pool(threads);
    Context ctx(pool);
    ctx.activations = kType;
    ctx.numerics.bf16 = bf16;
    Tape tape(int64_t{0}, room);
    ctx.record_on(&tape);
    std::deque<std::vector<T>> numbers, gradients;
    std::deque<Weight> weights;
    const auto keep = [&](const std::vector<float>& x) {
      numbers.emplace_back(x.begin(), x.end());
      gradients.emplace_back(x.size(), T{0});
    };
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const Sizes& s = shapes_[i];
      const auto line = static_cast<size_t>(s.by_columns ? s.out : s.in);
      Weight& w = weights.emplace_back();
      keep(weights_[i]);
      w.name = "weight";
      w.dtype = kType;
      w.out = s.out;
      w.in = s.in;
      w.by_columns = s.by_columns;
      w.stride = line * sizeof(T);
      w.data = reinterpret_cast<const std::byte*>(numbers.back().data());
      w.grad = {gradients.back().data(), line};
      keep(biases_[i]);
      if (!s.bias) continue;
      w.bias.name = "bias";
      w.bias.dtype = kType;
      w.bias.size = s.out;
      w.bias.data = numbers.back().data();
      w.bias.grad = {gradients.back().data(), 1};
    }
    std::vector<Tensor> inputs;
    for (const Input& input : inputs_) {
      inputs.push_back(ctx.empty(input.shape));
      std::copy(input.values.begin(), input.values.end(), inputs.back().data<T>());
    }
    const Tensor loss = f(ctx, inputs, weights);
    tape.backward(ctx, loss);
    std::vector<std::vector<double>> result = {{static_cast<double>(*loss.data<T>())}};
    for (const Tensor& x : inputs) {
      const Tensor dx = tape.gradient(x);
      result.emplace_back(dx.data<T>(), dx.data<T>() + dx.count());
    }
    for (const auto& g : gradients) result.emplace_back(g.begin(), g.end());
    return result;
  }

  std::vector<Input> inputs_;
  std::vector<Sizes> shapes_;
  std::vector<std::vector<float>> weights_, biases_;
  uint64_t seed_ = 0;
};

std::vector<int32_t> labels_for(int64_t rows, int64_t vocab) {
  std::vector<int32_t> labels(static_cast<size_t>(rows));
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = i % 7 == 3 ? kNotScored : static_cast<int32_t>((i * 7919 + 5) % static_cast<size_t>(vocab));
  return labels;
}

// Sizes that leave a rest in every tile, panel and cut, in both layouts.
TEST(Backward, LinearOfOddSizes) {
  for (const bool by_columns : {false, true})
    for (const int64_t rows : {3, 67, 700}) {
      SCOPED_TRACE(std::to_string(rows) + (by_columns ? " rows, by columns" : " rows"));
      Both both;
      both.input({rows, 45});
      both.weight(77, 45, by_columns, true);
      both.weight(31, 45, by_columns);
      both.weight(29, 77);
      both.weight(29, 31);
      const auto labels = labels_for(rows, 29);
      const auto f = [&](Context& ctx, const std::vector<Tensor>& x, const std::deque<Weight>& w) {
        const auto [a, b] = linear(ctx, x[0], {w[0], w[1]});
        return add(ctx, cross_entropy(ctx, a, {&w[2], 0}, labels), cross_entropy(ctx, b, {&w[3], 0}, labels));
      };
      both.expect_match(f);
      both.expect_match(f, 0.03, true);
    }
}

// More rows and more tokens than one chunk of the loss has.
TEST(Backward, LossInChunksOfRowsAndTokens) {
  for (const double cap : {0.0, 2.0}) {
    Both both;
    both.input({1030, 5});
    both.weight(4100, 5, false, true);
    both.weight(31, 5);
    const auto labels = labels_for(1030, 4100), second = labels_for(1030, 31);
    const auto f = [&](Context& ctx, const std::vector<Tensor>& x, const std::deque<Weight>& w) {
      const Tensor loss = cross_entropy(ctx, x[0], {&w[0], cap}, labels);
      return add(ctx, loss, cross_entropy(ctx, x[0], {&w[1], cap}, second));
    };
    both.expect_match(f);
    both.expect_match(f, 0.03, true);
    // Logits that stay for backward, all or those of some chunks, are those that it would compute again.
    const auto want = both.run(DType::f32, 2, f);
    for (const size_t room : {size_t{0}, size_t{4000}, size_t{1024} * 4 * 4 + 5, 4 * size_t{1030} * 4100 - 1}) {
      both.room = room;
      EXPECT_TRUE(both.run(DType::f32, 2, f) == want) << room;
    }
  }
}

// What the loss kept becomes the gradients' memory.
TEST(Backward, KeptLogitsHardlyAddToTheMemory) {
  ThreadPool pool(1);
  const std::vector<float> numbers(400 * 64, 0.01f);
  std::vector<float> gradient(numbers.size());
  Weight w;
  w.name = "weight";
  w.dtype = DType::f32;
  w.out = 400;
  w.in = 64;
  w.stride = 64 * sizeof(float);
  w.data = reinterpret_cast<const std::byte*>(numbers.data());
  w.grad = {gradient.data(), 64};
  const auto peak = [&](size_t room) {
    Context ctx(pool);
    Tape tape(int64_t{0}, room);
    ctx.record_on(&tape);
    Tensor x = ctx.zeros({500, 64});
    std::vector<Tensor> branches;  // whose gradients of 128 kB exist at one time
    for (int i = 0; i < 8; ++i) branches.push_back(scale(ctx, x, i));
    for (const Tensor& branch : branches) x = add(ctx, x, branch);
    tape.backward(ctx, cross_entropy(ctx, x, {&w, 0}, labels_for(500, 400)));
    return tape.peak();
  };
  const size_t logits = 500 * 400 * sizeof(float), without = peak(0), with = peak(Tape::kSavedBytes);
  EXPECT_LT(with, without + logits / 2);
}

// Watches the hidden layer without changing anything.
class Onlooker final : public Listener {
 public:
  bool wants(std::string_view name) const override { return name == "mlp.hook_post"; }
  Tensor see(Context&, std::string_view, const Tensor&) override {
    ++seen;
    return {};
  }
  int seen = 0;
};

// Sizes that go through strips in bf16 and leave a rest in each; x is learned, too, by a path of its own before.
struct MlpCase {
  static constexpr int64_t kRows = 4101, kUnits = 523;
  MlpCase(int64_t width, bool is_gated, bool by_columns, bool bias, Activation activation)
      : gated(is_gated), f(activation), labels(labels_for(kRows, 11)) {
    both.input({kRows, width});
    both.weight(kUnits, width, by_columns, bias);
    both.weight(width, kUnits, by_columns, bias);
    both.weight(11, width);
    if (gated) both.weight(kUnits, width, !by_columns, bias);
  }
  Tensor out(Context& ctx, const Tensor& x, const std::deque<Weight>& w) const {
    return gated ? gated_mlp(ctx, "mlp", x, w[3], w[0], w[1], f) : mlp(ctx, "mlp", x, w[0], w[1], f);
  }
  Tensor operator()(Context& ctx, const std::vector<Tensor>& x, const std::deque<Weight>& w) const {
    const Tensor stream = scale(ctx, x[0], 1.5), y = out(ctx, constant ? stream.without_grad() : stream, w);
    return cross_entropy(ctx, add(ctx, stream, scale(ctx, y, 0.03)), {&w[2], 0}, labels);
  }
  bool constant = false;  // what the MLP reads
  bool gated;
  Activation f;
  std::vector<int32_t> labels;
  Both both;
};

// Where somebody watches the ops run one after the other: other sums forwards, f's slope at unrounded numbers backwards.
void expect_near_ops(const MlpCase& c) {
  if (kernels().packed_bf16.rows == 0) return;
  Onlooker onlooker;
  const auto watched = [&](Context& ctx, const std::vector<Tensor>& x, const std::deque<Weight>& w) {
    ctx.listen(&onlooker);
    const Tensor loss = c(ctx, x, w);
    ctx.listen(nullptr);
    return loss;
  };
  const auto in_strips = c.both.run(DType::f32, 2, std::cref(c), true), by_ops = c.both.run(DType::f32, 2, watched, true);
  EXPECT_EQ(onlooker.seen, 1);
  EXPECT_NEAR(in_strips[0][0], by_ops[0][0], 1e-5 * by_ops[0][0]);
  EXPECT_FALSE(in_strips == by_ops);
  for (size_t t = 1; t < by_ops.size(); ++t) {
    double largest = 1e-9, off = 0;
    for (size_t i = 0; i < by_ops[t].size(); ++i) {
      largest = std::max(largest, std::abs(by_ops[t][i]));
      off = std::max(off, std::abs(by_ops[t][i] - in_strips[t][i]));
    }
    EXPECT_LT(off, 0.01 * largest) << t;
  }
}

// Components of the stream that take several pieces.
TEST(Backward, MlpInStripsOfAWideStream) {
  for (const bool by_columns : {true, false}) expect_near_ops(MlpCase(530, true, by_columns, true, Activation::gelu_tanh));
  expect_near_ops(MlpCase(530, false, true, false, Activation::gelu_exact));
}

TEST(Backward, MlpInStrips) {
  for (const bool gated : {true, false})
    for (const bool by_columns : {true, false}) {
      if (!gated && !by_columns) continue;  // each takes seconds
      SCOPED_TRACE((gated ? "gated " : "plain ") + std::to_string(by_columns));
      MlpCase c(11, gated, by_columns, by_columns != gated, gated ? Activation::silu : Activation::gelu_tanh);
      c.constant = gated && !by_columns;
      c.both.expect_match(std::cref(c), 0.02, true);
      expect_near_ops(c);
    }
}

// A loss behind attention over sequences of these lengths; inputs are queries, keys, values.
struct AttentionCase {
  AttentionCase(const std::vector<size_t>& lengths, const AttentionSpec& s) : tokens(150, 1), spec(s) {
    for (const size_t n : lengths) step.add(std::span(tokens).subspan(0, n));
    constexpr int64_t kHeads = 4, kGroups = 2, kHeadDim = 18, kValueDim = 13;
    both.input({step.rows(), kHeads, kHeadDim});
    both.input({step.rows(), kGroups, kHeadDim});
    both.input({step.rows(), kGroups, kValueDim});
    both.weight(11, kHeads * kValueDim);
    labels = labels_for(step.rows(), 11);
  }
  Tensor operator()(Context& ctx, const std::vector<Tensor>& x, const std::deque<Weight>& w) const {
    const Tensor z = attention(ctx, "attn", x[0], x[1], x[2], step, 0, spec);
    return cross_entropy(ctx, merge_heads(ctx, z), {&w[0], 0}, labels);
  }
  std::vector<int32_t> tokens;
  AttentionSpec spec;
  Step step;
  Both both;
  std::vector<int32_t> labels;
};

TEST(Backward, AttentionOverRaggedSequences) {
  for (const auto& lengths : std::vector<std::vector<size_t>>{{5, 1, 31}, {150, 70, 1}})
    for (const bool causal : {true, false})
      for (const auto& [window, chunked] : {std::pair{kNoWindow, false}, {int64_t{20}, false}, {int64_t{20}, true}})
        for (const double cap : {0.0, 3.0}) {
          if (!causal && window != kNoWindow) continue;
          SCOPED_TRACE(std::to_string(lengths[0]) + " causal " + std::to_string(causal) + " window " + std::to_string(window) +
                       " chunked " + std::to_string(chunked));
          const AttentionCase attend(lengths,
                                     {.scale = 0.3, .softcap = cap, .window = window, .chunked = chunked, .causal = causal});
          attend.both.expect_match(std::cref(attend));
          attend.both.expect_match(std::cref(attend), 0.05, true);
        }
}

// Where a query's weight lies on one key alone the scores have no gradient: not even rounding, which large scales would raise.
TEST(Backward, AttentionToOneKeyLeavesScoresWithoutGradient) {
  for (const auto& [scale, window] : std::vector<std::pair<double, int64_t>>{{0.3, 1}, {1e6, kNoWindow}}) {
    const AttentionCase attend({150, 70, 1}, {.scale = scale, .window = window});
    for (const auto& [type, bf16] :
         std::vector<std::pair<DType, bool>>{{DType::f32, false}, {DType::f32, true}, {DType::f64, false}}) {
      const auto got = attend.both.run(type, 2, std::cref(attend), bf16);
      for (const size_t input : {1, 2})  // queries, keys
        for (const double gradient : got[input]) ASSERT_LT(std::abs(gradient), 1e-12) << scale << " " << bf16;
      EXPECT_GT(std::abs(got[3][0]), 1e-6);  // values have theirs
    }
  }
}

TEST(Backward, ActivationsNormsAndSums) {
  Both both;
  both.input({333, 67});
  both.input({333, 67});
  both.weight(67, 1, false, true);
  both.weight(67, 1, false, true);
  both.weight(23, 67);
  const auto labels = labels_for(333, 23);
  for (const Activation f : {Activation::relu, Activation::gelu_tanh, Activation::gelu_exact, Activation::silu,
                             Activation::relu_squared, Activation::quick_gelu, Activation::tanh})
    both.expect_match([&](Context& ctx, const std::vector<Tensor>& x, const std::deque<Weight>& w) {
      const Tensor a = rms_norm(ctx, "a", x[0], w[0].bias, {.eps = 1e-5, .offset = 1});
      const Tensor b = layer_norm(ctx, "b", x[1], w[0].bias, w[1].bias, {.eps = 1e-5});
      const Tensor g = gated(ctx, a, softcap(ctx, b, 2.0), f);
      return cross_entropy(ctx, add(ctx, scale(ctx, activation(ctx, g, f), 0.7), x[0]), {&w[2], 0}, labels);
    });
}

}  // namespace
}  // namespace vitrine
