// Causal convolutions: values and gradients against PyTorch in float64 (tests/golden/formulas/make_conv.py) and against central
// differences; the same bits with a cache, in any chunks, on any number of threads.
#include "ops/causal_conv.h"

#include "base/error.h"
#include "gradients.h"
#include "io/safetensors.h"
#include "ops/elementwise.h"
#include "ops/recorder.h"
#include "support/close.h"

namespace vitrine {
namespace {

Vector vector_of(const std::vector<double>& numbers) {
  Vector v;
  v.name = "w";
  v.data = numbers.data();
  v.dtype = DType::f64;
  v.size = static_cast<int64_t>(numbers.size());
  return v;
}

Step step_of(const std::vector<int64_t>& lengths) {
  Step step;
  for (const int64_t n : lengths) step.add(std::vector<int32_t>(static_cast<size_t>(n), 0));
  return step;
}

std::vector<double> numbers(const Tensor& t) {
  std::vector<double> result;
  visit_scalar(t, [&](auto zero) {
    const auto* data = t.data<decltype(zero)>();
    result.assign(data, data + t.count());
  });
  return result;
}

class CausalConv : public testing::TestWithParam<DType> {};

TEST_P(CausalConv, ValuesAndGradientsArePyTorchs) {
  const Checkpoint file = open_safetensors(std::string(VITRINE_GOLDEN) + "/formulas/conv.safetensors");
  const bool f64 = GetParam() == DType::f64;
  const Tolerance tolerance{.abs = f64 ? 1e-13 : 3e-6, .rel = f64 ? 1e-13 : 3e-6};
  for (const int64_t taps : {1, 3, 4, 9}) {
    SCOPED_TRACE(taps);
    const auto golden = [&](const std::string& name) {
      const StoredTensor& t = *file.find("conv" + std::to_string(taps) + "/" + name);
      const auto* data = reinterpret_cast<const double*>(t.data);
      return std::vector<double>(data, data + t.bytes / sizeof(double));
    };
    const auto w = golden("w"), b = golden("b"), dy = golden("dy");
    ThreadPool pool(2);
    Context ctx(pool);
    ctx.activations = GetParam();
    Tape tape;
    ctx.record_on(&tape);
    const auto tensor = [&](const Shape& shape, const std::vector<double>& values) {
      const Tensor t = ctx.empty(shape);
      visit_scalar(t, [&](auto zero) { std::copy(values.begin(), values.end(), t.data<decltype(zero)>()); });
      return t;
    };
    const Step step = step_of({7});
    Vector kernel = vector_of(w), bias = vector_of(b);
    std::vector<double> gradients(w.size() + b.size(), 0);  // read as floats where those are used
    visit_scalar(ctx.empty({1}), [&](auto zero) {
      auto* data = reinterpret_cast<decltype(zero)*>(gradients.data());
      kernel.grad = {data, 1};
      bias.grad = {data + w.size(), 1};
    });
    const Tensor x = tensor({7, 5}, golden("x"));
    EXPECT_CLOSE(numbers(causal_conv(ctx, "conv", x, kernel, {}, step, 0)), golden("y"), tolerance);
    const Tensor y = causal_conv(ctx, "conv", x, kernel, bias, step, 0, Activation::silu);
    EXPECT_CLOSE(numbers(y), golden("silu"), tolerance);
    Weight sum;
    sum.name = "dy";
    sum.dtype = DType::f64;
    sum.out = 1;
    sum.in = 35;
    sum.stride = sizeof(double) * 35;
    sum.data = reinterpret_cast<const std::byte*>(dy.data());
    std::vector<float> narrow(dy.begin(), dy.end());
    if (!f64) {
      sum.dtype = DType::f32;
      sum.stride = sizeof(float) * 35;
      sum.data = reinterpret_cast<const std::byte*>(narrow.data());
    }
    tape.backward(ctx, linear(ctx, y.view({1, 35}), sum).view({1}));
    EXPECT_CLOSE(numbers(tape.gradient(x)), golden("dx"), tolerance);
    visit_scalar(x, [&](auto zero) {
      const auto* data = reinterpret_cast<const decltype(zero)*>(gradients.data());
      EXPECT_CLOSE(std::vector<double>(data, data + w.size()), golden("dw"), tolerance);
      EXPECT_CLOSE(std::vector<double>(data + w.size(), data + w.size() + b.size()), golden("db"), tolerance);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Every, CausalConv, testing::Values(DType::f32, DType::f64),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST(CausalConvGradient, MatchesDifferences) {
  const Step step = step_of({6, 1, 4});
  Recorder seen({{"*"}});
  for (const int64_t taps : {1, 2, 4, 7})
    for (const Activation f : {Activation::none, Activation::silu})
      for (Listener* listener : {static_cast<Listener*>(nullptr), static_cast<Listener*>(&seen)}) {
        GradientCheck check;
        check.input({11, 3});
        const Vector &w = check.vector(3 * taps), &b = check.vector(3);
        const Vector none;
        check.expect_match(
            [&](Context& ctx, const GradientCheck::Inputs& x) {
              ctx.enter(step);
              const Tensor y = causal_conv(ctx, "conv", x[0], w, b, step, 0, f);
              return add(ctx, y, causal_conv(ctx, "conv", y, w, none, step, 0));  // x and w used twice
            },
            listener, 20);
      }
  EXPECT_TRUE(seen.values().contains("conv.hook_pre"));
}

TEST(CausalConvGradient, OfManyChannelsMatchesDifferences) {
  const Step step = step_of({40, 30});
  GradientCheck check;
  check.input({70, 600});
  const Vector &w = check.vector(600 * 3), &b = check.vector(600);
  check.expect_match([&](Context& ctx, const GradientCheck::Inputs& x) { return causal_conv(ctx, "conv", x[0], w, b, step, 0); },
                     nullptr, 9);
}

// f32 values of a wide layer, through a cache or without one.
class Wide {
 public:
  static constexpr int64_t kChannels = 700, kTaps = 4;

  /// state_at: of inputs that the cache's state holds; -1: it has rows.
  std::vector<float> run(const Step& step, std::span<const float> x, int threads = 2, int64_t state_at = -1) const {
    ThreadPool pool(threads);
    Context ctx(pool);
    const Tensor in = ctx.empty({step.rows(), kChannels});
    std::copy(x.begin(), x.end(), in.data<float>());
    const Tensor y = causal_conv(ctx, "conv", in, vector_of(w_), vector_of(b_), step, 0, Activation::silu, state_at);
    return {y.data<float>(), y.data<float>() + y.count()};
  }
  /// The next `rows` of x through the sequence's cache; not committed.
  std::vector<float> next(Step& step, CacheSequence& sequence, std::span<const float> x, int64_t rows) const {
    step.add(std::vector<int32_t>(static_cast<size_t>(rows), 0), &sequence);
    return run(step, rows_of(x, sequence.length(), rows));
  }
  static std::span<const float> rows_of(std::span<const float> x, int64_t first, int64_t rows) {
    return x.subspan(static_cast<size_t>(first * kChannels), static_cast<size_t>(rows * kChannels));
  }
  static std::vector<float> inputs(int64_t rows, uint64_t seed) {
    const std::vector<double> values = noise(rows * kChannels, seed);
    return {values.begin(), values.end()};
  }
  static KvCache cache(int64_t context, int64_t largest_step) {
    return {{CacheLayer::of_rows(kTaps, kChannels)}, context, largest_step};
  }

 private:
  std::vector<double> w_ = noise(kChannels * kTaps, 1), b_ = noise(kChannels, 2);
};

std::vector<float> copy_of(std::span<const float> x) { return {x.begin(), x.end()}; }

TEST(CausalConvBits, ThreadsAndOtherSequencesChangeNone) {
  const Wide wide;
  const std::vector<float> x = Wide::inputs(90, 3);
  const std::vector<float> expected = wide.run(step_of({60, 30}), x, 1);
  for (const int threads : {2, 3}) EXPECT_EQ(wide.run(step_of({60, 30}), x, threads), expected);
  EXPECT_EQ(wide.run(step_of({30}), Wide::rows_of(x, 60, 30)), copy_of(Wide::rows_of(expected, 60, 30)));
}

TEST(CausalConvBits, ChunksThroughACacheChangeNone) {
  const Wide wide;
  constexpr int64_t kRows = 1200;  // more than the ring holds
  const std::vector<float> x = Wide::inputs(kRows, 4), expected = wide.run(step_of({kRows}), x);
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{1}, {1, 1, 5, 17}, {64}, {2, 253, 1, 300}}) {
    SCOPED_TRACE(sizes[0]);
    KvCache cache = Wide::cache(kRows, 300);
    CacheSequence sequence = cache.sequence();
    for (size_t i = 0; sequence.length() < kRows; ++i) {
      const int64_t first = sequence.length(), n = std::min(sizes[std::min(i, sizes.size() - 1)], kRows - first);
      Step step;
      ASSERT_EQ(wide.next(step, sequence, x, n), copy_of(Wide::rows_of(expected, first, n))) << "rows from " << first;
      step.commit();
    }
    EXPECT_EQ(cache.bytes_for(kRows), 3 * 256 * Wide::kChannels * sizeof(float));
  }
}

// Behind other numbers of the state, which stay for their op to write.
TEST(CausalConvBits, ChunksThroughAStateChangeNone) {
  const Wide wide;
  constexpr int64_t kRows = 200, kBefore = 7;
  const std::vector<float> x = Wide::inputs(kRows, 4), expected = wide.run(step_of({kRows}), x);
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{1}, {2, 1, 5, 17}, {64}, {kRows}}) {
    SCOPED_TRACE(sizes[0]);
    KvCache cache({{.state = kBefore + (Wide::kTaps - 1) * Wide::kChannels}}, kRows, kRows);
    CacheSequence sequence = cache.sequence();
    for (size_t i = 0; sequence.length() < kRows; ++i) {
      const int64_t first = sequence.length(), n = std::min(sizes[std::min(i, sizes.size() - 1)], kRows - first);
      Step step;
      step.add(std::vector<int32_t>(static_cast<size_t>(n), 0), &sequence);
      ASSERT_EQ(wide.run(step, Wide::rows_of(x, first, n), 2, kBefore), copy_of(Wide::rows_of(expected, first, n))) << first;
      step.commit();
    }
  }
}

// What a step wrote beyond what it commits, a cut and a copy that goes another way leave no trace.
TEST(CausalConvBits, ForgottenRowsLeaveNoTrace) {
  const Wide wide;
  const std::vector<float> x = Wide::inputs(40, 5), other = Wide::inputs(40, 6), expected = wide.run(step_of({40}), x);
  KvCache cache = Wide::cache(64, 32);
  CacheSequence sequence = cache.sequence();
  const auto expect_next = [&](CacheSequence& s, int64_t rows, int64_t committed) {
    const int64_t first = s.length();
    Step step;
    EXPECT_EQ(wide.next(step, s, x, rows), copy_of(Wide::rows_of(expected, first, rows))) << "rows from " << first;
    step.commit(0, committed);
  };
  expect_next(sequence, 10, 10);
  Step draft;
  wide.next(draft, sequence, other, 8);  // not committed at all
  expect_next(sequence, 8, 3);           // committed in part
  expect_next(sequence, 5, 5);
  sequence.truncate(12);
  CacheSequence beam = sequence;
  Step elsewhere;
  wide.next(elsewhere, beam, other, 6);
  elsewhere.commit();
  expect_next(sequence, 7, 7);
  expect_next(sequence, 21, 21);
}

TEST(CausalConvErrors, NameTheSizes) {
  ThreadPool pool(1);
  Context ctx(pool);
  const std::vector<double> seven(7, 1), two(2, 1), six(6, 1);
  const Tensor x = ctx.zeros({4, 3});
  const Step step = step_of({4});
  const auto message = [&](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(
      message([&] { causal_conv(ctx, "conv", x, vector_of(seven), {}, step, 0); }),
      "causal convolution: x [4, 3] for 4 rows, and w of 7 numbers; expected [rows, channels], and the kernel's size for each "
      "channel");
  EXPECT_EQ(message([&] { causal_conv(ctx, "conv", x, vector_of(six), vector_of(two), step, 0); }),
            "causal convolution: w has 2 numbers for 3 channels; expected one for each");
  KvCache cache({CacheLayer::of_rows(2, 3)}, 16, 4);
  CacheSequence sequence = cache.sequence();
  Step cached;
  cached.add(std::vector<int32_t>(4, 0), &sequence);
  Tape tape;
  ctx.record_on(&tape);
  EXPECT_EQ(message([&] { causal_conv(ctx, "conv", x, vector_of(six), {}, cached, 0); }),
            "causal convolution: a cache cannot be used while a tape records or in f64");
}

}  // namespace
}  // namespace vitrine
