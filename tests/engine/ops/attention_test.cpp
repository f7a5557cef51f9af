// Attention's fused and stepwise forms hold each other in f32, forward and backward, over more than one block of keys; dropout
// depends on seed, step, site and element alone.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include "gradients.h"
#include "kernels/table.h"
#include "ops/elementwise.h"
#include "ops/recorder.h"
#include "support/close.h"

namespace vitrine {
namespace {

struct Form {
  std::vector<float> z, dq, dk, dv, dsinks;
};

std::vector<float> narrow(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.count()}; }

// One pass and its backward over sequences of these lengths; a listener on `sequence` makes that one stepwise.
Form run(const std::vector<int64_t>& lengths, int64_t heads, int64_t kv_heads, AttentionSpec spec, Listener* listener,
         int sequence, int threads, bool bf16 = false, bool with_sinks = false) {
  constexpr int64_t kDim = 9, kValues = 7;
  const std::vector<double> sinks = noise(heads, 5);
  const std::vector<float> sink_values(sinks.begin(), sinks.end());
  std::vector<float> dsinks(sinks.size());
  Vector sink_scores;
  sink_scores.name = "sinks";
  sink_scores.data = sink_values.data();
  sink_scores.size = heads;
  sink_scores.grad = {dsinks.data(), 1};
  if (with_sinks) spec.sinks = &sink_scores;
  ThreadPool pool(threads);
  Context ctx(pool);
  ctx.numerics.bf16 = bf16;
  Tape tape;
  ctx.record_on(&tape);
  Step step;
  for (const int64_t n : lengths) step.add(std::vector<int32_t>(static_cast<size_t>(n), 0));
  const auto tensor = [&](int64_t n_heads, int64_t d, uint64_t seed) {
    const Tensor t = ctx.empty({step.rows(), n_heads, d});
    const std::vector<double> numbers = noise(t.count(), seed);
    for (size_t i = 0; i < numbers.size(); ++i) t.data<float>()[i] = static_cast<float>(numbers[i]);
    return t;
  };
  const Tensor q = tensor(heads, kDim, 1), k = tensor(kv_heads, kDim, 2), v = tensor(kv_heads, kValues, 3);
  ctx.listen(listener, sequence);
  ctx.enter(step);
  const Tensor z = attention(ctx, "attn", q, k, v, step, 0, spec);
  ctx.listen(nullptr);
  const std::vector<double> wide = noise(z.count(), 4);
  const std::vector<float> factors(wide.begin(), wide.end());
  Weight sum;
  sum.name = "sum";
  sum.out = 1;
  sum.in = z.count();
  sum.stride = sizeof(float) * factors.size();
  sum.data = reinterpret_cast<const std::byte*>(factors.data());
  const Tensor loss = linear(ctx, z.view({1, z.count()}), sum).view({1});
  tape.backward(ctx, loss);
  return {narrow(z), narrow(tape.gradient(q)), narrow(tape.gradient(k)), narrow(tape.gradient(v)), dsinks};
}

// In bf16 every value is near the exact one, and what a sequence gets depends neither on the others nor on the threads.
TEST(Attention, RoundedFormIsNearAndByItself) {
  if (kernels().packed_bf16.rows == 0) GTEST_SKIP() << "left out: this machine has no products of bf16";
  for (const int64_t window : {kNoWindow, int64_t{1}, int64_t{90}})
    for (const double cap : {0.0, 2.0})
      for (const bool causal : {true, false}) {
        if (!causal && window != kNoWindow) continue;
        AttentionSpec spec{.scale = 0.5, .softcap = cap, .window = window, .causal = causal, .alibi = cap == 0 && window == 90};
        spec.chunked = cap != 0;
        for (const int64_t n : {2, 31, 64, 129, 301}) {
          SCOPED_TRACE(std::to_string(n) + " window " + std::to_string(window) + " causal " + std::to_string(causal));
          const bool sinks = cap == 0;
          const Form exact = run({n}, 4, 2, spec, nullptr, 0, 2, false, sinks),
                     rounded = run({n}, 4, 2, spec, nullptr, 0, 2, true, sinks),
                     beside = run({n, 200, 1}, 4, 2, spec, nullptr, 0, 3, true, sinks);
          for (size_t i = 0; i < exact.z.size(); ++i) ASSERT_NEAR(rounded.z[i], exact.z[i], 0.02) << i;
          EXPECT_NE(rounded.z, exact.z);
          const size_t count = exact.z.size();  // noise is drawn number by number: the first sequence has the same
          EXPECT_EQ(std::vector<float>(beside.z.begin(), beside.z.begin() + static_cast<std::ptrdiff_t>(count)), rounded.z);
        }
      }
}

TEST(Attention, FusedAndStepwiseAgree) {
  struct Case {
    const char* name;
    int64_t heads, kv_heads, window;
    double softcap;
    bool causal, sinks = false, alibi = false, chunked = false;
  };
  for (const Case& c :
       {Case{"plain", 2, 2, kNoWindow, 0, true}, Case{"grouped", 6, 2, kNoWindow, 0, true},
        Case{"one kv head", 4, 1, kNoWindow, 0, true}, Case{"window 1", 2, 1, 1, 0, true}, Case{"window 40", 4, 2, 40, 0, true},
        Case{"window 257", 4, 2, 257, 3, true}, Case{"cap", 4, 4, kNoWindow, 2, true}, Case{"no mask", 2, 1, kNoWindow, 0, false},
        Case{"sinks", 4, 2, kNoWindow, 0, true, true}, Case{"window 40, sinks", 4, 2, 40, 0, true, true},
        Case{"alibi", 6, 2, kNoWindow, 0, true, false, true}, Case{"window 40, alibi", 3, 1, 40, 0, true, false, true},
        Case{"chunks of 1", 2, 1, 1, 0, true, false, false, true}, Case{"chunks of 40", 4, 2, 40, 0, true, false, false, true},
        Case{"chunks of 64, sinks", 4, 2, 64, 0, true, true, false, true},
        Case{"chunks of 257", 4, 2, 257, 3, true, false, false, true}}) {
    SCOPED_TRACE(c.name);
    AttentionSpec spec;
    spec.scale = 1 / 3.0;
    spec.softcap = c.softcap;
    spec.window = c.window;
    spec.causal = c.causal;
    spec.alibi = c.alibi;
    spec.chunked = c.chunked;
    const std::vector<int64_t> lengths = {3, 301, 1};
    const Form fused = run(lengths, c.heads, c.kv_heads, spec, nullptr, 0, 2, false, c.sinks);
    Recorder seen({{"*"}});
    const Form steps = run(lengths, c.heads, c.kv_heads, spec, &seen, 1, 2, false, c.sinks);
    ASSERT_EQ(seen.values().at("attn.hook_pattern").shape, (std::vector<int64_t>{c.heads, 301, 301}));
    const Tolerance close{.abs = 1e-5, .rel = 1e-5};
    EXPECT_CLOSE(steps.z, fused.z, close);
    EXPECT_CLOSE(steps.dq, fused.dq, close);
    EXPECT_CLOSE(steps.dk, fused.dk, close);
    EXPECT_CLOSE(steps.dv, fused.dv, close);
    EXPECT_CLOSE(steps.dsinks, fused.dsinks, close);
    const auto rows = [&](const std::vector<float>& all, size_t first, size_t n) {
      const size_t each = all.size() / 305;
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(first * each),
                                all.begin() + static_cast<std::ptrdiff_t>((first + n) * each));
    };
    EXPECT_EQ(rows(steps.z, 0, 3), rows(fused.z, 0, 3));
    EXPECT_EQ(rows(steps.z, 304, 1), rows(fused.z, 304, 1));
    const Form one = run(lengths, c.heads, c.kv_heads, spec, nullptr, 0, 1, false, c.sinks),
               four = run(lengths, c.heads, c.kv_heads, spec, nullptr, 0, 4, false, c.sinks);
    EXPECT_EQ(one.z, four.z);
    EXPECT_EQ(one.dq, four.dq);
    EXPECT_EQ(one.dk, four.dk);
    EXPECT_EQ(one.dv, four.dv);
    EXPECT_EQ(one.dsinks, four.dsinks);
  }
}

// The slopes of the paper's code, which transformers' BLOOM has too.
TEST(Attention, SlopesOfAlibi) {
  EXPECT_EQ(alibi_slope(0, 8), 0.5);
  EXPECT_EQ(alibi_slope(7, 8), 1.0 / 256);
  EXPECT_DOUBLE_EQ(alibi_slope(0, 16), 0.70710678118654752);
  const double of_six[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  for (int64_t head = 0; head < 6; ++head) EXPECT_DOUBLE_EQ(alibi_slope(head, 6), of_six[head]);
}

// Later tokens cannot change an earlier row, whatever they hold, in either form.
TEST(Attention, AnInfinityOfALaterTokenDoesNotReachAnEarlierOne) {
  const auto z_of = [](float last, bool listens) {
    ThreadPool pool(1);
    Context ctx(pool);
    Step step;
    step.add(std::vector<int32_t>(21, 0));
    const auto tensor = [&](int64_t d, uint64_t seed) {
      const Tensor t = ctx.empty({21, 2, d});
      const std::vector<double> numbers = noise(t.count(), seed);
      for (size_t i = 0; i < numbers.size(); ++i) t.data<float>()[i] = static_cast<float>(numbers[i]);
      return t;
    };
    const Tensor q = tensor(8, 1), k = tensor(8, 2), v = tensor(5, 3);
    v.row<float>(20)[0] = last;
    Recorder recorder({{"*.hook_pattern"}});
    if (listens) ctx.listen(&recorder);
    ctx.enter(step);
    AttentionSpec spec;
    spec.scale = 0.3;
    const std::vector<float> z = narrow(attention(ctx, "attn", q, k, v, step, 0, spec));
    return std::vector<float>(z.begin(), z.begin() + 20 * 2 * 5);
  };
  for (const bool listens : {false, true})
    EXPECT_EQ(z_of(1.0f, listens), z_of(std::numeric_limits<float>::infinity(), listens)) << "listens " << listens;
}

TEST(Attention, PatternsSumToOneWhereTheyMayLookAndAreZeroElsewhere) {
  for (const bool chunked : {false, true}) {
    AttentionSpec spec;
    spec.window = 5;
    spec.chunked = chunked;
    Recorder seen({{"attn.hook_pattern"}, {"attn.hook_attn_scores"}});
    run({12}, 2, 1, spec, &seen, 0, 1);
    const FloatVector &pattern = seen.values().at("attn.hook_pattern").values,
                      &scores = seen.values().at("attn.hook_attn_scores").values;
    for (size_t h = 0; h < 2; ++h)
      for (size_t i = 0; i < 12; ++i) {
        double sum = 0;
        for (size_t j = 0; j < 12; ++j) {
          const float p = pattern[(h * 12 + i) * 12 + j], s = scores[(h * 12 + i) * 12 + j];
          const bool sees = j <= i && (chunked ? j / 5 == i / 5 : i < j + 5);  // of one chunk, or i - window < j <= i
          EXPECT_EQ(p > 0, sees) << chunked << " " << i << " " << j;
          EXPECT_EQ(std::isfinite(s), sees);
          sum += static_cast<double>(p);
        }
        EXPECT_NEAR(sum, 1, 1e-6);
      }
  }
}

std::vector<float> dropped(uint64_t seed, uint64_t step_number, uint64_t site, int threads, int64_t first_row = 0) {
  ThreadPool pool(threads);
  Context ctx(pool);
  ctx.step_of_training.seed = seed;
  ctx.step_of_training.number = step_number;
  ctx.step_of_training.first_row = static_cast<uint64_t>(first_row);
  Tape tape;
  ctx.record_on(&tape);
  const Tensor x = ctx.empty({300 - first_row, 301});
  std::fill(x.data<float>(), x.data<float>() + x.count(), 1.0f);
  return narrow(dropout(ctx, x, 0.25, site));
}

TEST(DropoutOp, DependsOnSeedStepSiteAndElementAlone) {
  const std::vector<float> first = dropped(1, 2, 3, 1);
  EXPECT_EQ(first, dropped(1, 2, 3, 2));
  EXPECT_EQ(first, dropped(1, 2, 3, 4));
  EXPECT_NE(first, dropped(9, 2, 3, 1));
  EXPECT_NE(first, dropped(1, 9, 3, 1));
  EXPECT_NE(first, dropped(1, 2, 9, 1));
  // The last rows by themselves, as a rank has them.
  EXPECT_EQ(std::vector<float>(first.begin() + 123 * 301, first.end()), dropped(1, 2, 3, 1, 123));
  size_t zeros = 0;
  for (const float x : first) {
    EXPECT_TRUE(x == 0 || x == 1 / 0.75f);
    zeros += x == 0 ? 1 : 0;
  }
  // 90,300 draws: four standard deviations are 0.006.
  EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(first.size()), 0.25, 0.006);
}

TEST(DropoutOp, DoesNothingWithoutATapeAndRefusesOne) {
  ThreadPool pool(1);
  Context ctx(pool);
  const Tensor x = ctx.zeros({2, 3});
  EXPECT_EQ(dropout(ctx, x, 0.5, 0).raw(), x.raw());
  Tape tape;
  ctx.record_on(&tape);
  EXPECT_THROW(dropout(ctx, x, 1.0, 0), UsageError);
}

}  // namespace
}  // namespace vitrine
