// The gated delta rule: against transformers' (tests/golden/gated_delta), its gradients against central differences, and what a
// cache's state promises.
#include "ops/gated_delta.h"

#include "base/error.h"
#include "gradients.h"
#include "io/safetensors.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "support/close.h"

namespace vitrine {
namespace {

constexpr int64_t kKeyHeads = 2, kHeads = 6, kKey = 8, kValue = 5, kRows = 70;

std::vector<int32_t> zeros(int64_t n) { return std::vector<int32_t>(static_cast<size_t>(n), 0); }

Step ragged(const std::vector<int64_t>& lengths) {
  Step step;
  for (const int64_t n : lengths) step.add(zeros(n));
  return step;
}

class GatedDelta : public testing::Test {
 protected:
  GatedDelta() : file_(open_safetensors(VITRINE_GOLDEN "/gated_delta/gated_delta.safetensors")) {}

  const StoredTensor& stored(const std::string& name) const {
    const StoredTensor* t = file_.find(name);
    if (t == nullptr) throw std::out_of_range(name);
    return *t;
  }
  std::vector<float> golden(const std::string& name) const {
    const StoredTensor& t = stored(name);
    const auto* numbers = reinterpret_cast<const float*>(t.data);
    return {numbers, numbers + t.bytes / sizeof(float)};
  }
  Vector vector(const std::string& name) const {
    const StoredTensor& t = stored(name);
    Vector v;
    v.name = name;
    v.data = t.data;
    v.size = static_cast<int64_t>(t.bytes / sizeof(float));
    return v;
  }
  // Rows [first, first + n) of an input.
  Tensor rows(Context& ctx, const std::string& name, const Shape& all, int64_t first, int64_t n) const {
    const std::vector<float> numbers = golden(name);
    const Tensor whole = ctx.empty(all);
    visit_scalar(whole, [&](auto zero) {
      for (size_t i = 0; i < numbers.size(); ++i) whole.data<decltype(zero)>()[i] = numbers[i];
    });
    return whole.rows_view(first, n);
  }
  // z of these rows of the golden inputs, as many times side by side as the step has sequences.
  std::vector<float> run(Context& ctx, const Step& step, int64_t first) const {
    const int64_t n = step.sequences()[0].rows;
    const auto input = [&](const std::string& name, const Shape& all) {
      const Tensor once = rows(ctx, name, all, first, n);
      const auto copies = static_cast<int64_t>(step.sequences().size());
      const Tensor many = ctx.empty(all.rank() == 2 ? Shape{copies * n, all[1]} : Shape{copies * n, all[1], all[2]});
      for (int64_t c = 0; c < copies; ++c)
        std::memcpy(static_cast<std::byte*>(many.raw()) + static_cast<size_t>(c) * once.bytes(), once.raw(), once.bytes());
      return many;
    };
    const Shape keys{kRows, kKeyHeads, kKey}, values{kRows, kHeads, kValue}, each{kRows, kHeads};
    const Tensor q = l2_norm(ctx, input("q", keys), 1e-6, 1 / std::sqrt(8.0)), k = l2_norm(ctx, input("k", keys), 1e-6);
    const Tensor g = decay_log(ctx, input("a", each), vector("A_log"), vector("dt_bias"), true);
    const Tensor beta = activation(ctx, input("b", each), Activation::sigmoid);
    const Tensor z = gated_delta(ctx, "attn", q, k, input("v", values), g, beta, step, 0);
    std::vector<float> numbers;
    visit_scalar(z, [&](auto zero) {
      for (int64_t i = 0; i < z.count(); ++i) numbers.push_back(static_cast<float>(z.data<decltype(zero)>()[i]));
    });
    return numbers;
  }
  static KvCache cache(int64_t positions) { return {{{.state = kHeads * kKey * kValue}}, positions, positions}; }

  Checkpoint file_;
  ThreadPool pool_{2};
};

TEST_F(GatedDelta, IsThatOfTransformers) {
  for (const DType type : {DType::f32, DType::f64}) {
    Context ctx(pool_);
    ctx.activations = type;
    EXPECT_CLOSE(run(ctx, ragged({kRows}), 0), golden("z"), (Tolerance{.abs = 2e-6, .rel = 1e-5}));
  }
}

TEST_F(GatedDelta, LeavesTheStateOfTransformers) {
  Context ctx(pool_);
  KvCache pages = cache(kRows);
  CacheSequence sequence = pages.sequence();
  Step step;
  step.add(zeros(kRows), &sequence);
  run(ctx, step, 0);
  step.commit();
  const float* state = sequence.state(0);
  EXPECT_CLOSE(std::vector<float>(state, state + kHeads * kKey * kValue), golden("state"), (Tolerance{.abs = 2e-6, .rel = 1e-5}));
}

TEST_F(GatedDelta, BitsDependOnNoCutNoOtherSequenceAndNoThread) {
  Context ctx(pool_);
  const std::vector<float> whole = run(ctx, ragged({kRows}), 0);
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{1}, {64, 1}, {3, 40, 5}, {kRows}}) {
    KvCache pages = cache(kRows);
    CacheSequence sequence = pages.sequence();
    std::vector<float> parts;
    for (int64_t done = 0, i = 0; done < kRows; ++i) {
      const int64_t n = std::min(sizes[std::min(static_cast<size_t>(i), sizes.size() - 1)], kRows - done);
      Step step;
      step.add(zeros(n), &sequence);
      const std::vector<float> part = run(ctx, step, done);
      step.commit();
      parts.insert(parts.end(), part.begin(), part.end());
      done += n;
    }
    EXPECT_EQ(parts, whole) << sizes[0];
  }
  ThreadPool one(1);
  Context alone(one);
  const std::vector<float> twice = run(ctx, ragged({kRows, kRows}), 0);
  EXPECT_EQ(run(alone, ragged({kRows, kRows}), 0), twice);
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), twice.begin()));
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), twice.begin() + static_cast<std::ptrdiff_t>(whole.size())));
}

TEST_F(GatedDelta, CopiesOfASequencePartCompany) {
  Context ctx(pool_);
  KvCache pages = cache(kRows);
  const auto feed = [&](CacheSequence& sequence, int64_t first, int64_t n, bool commit = true) {
    Step step;
    step.add(zeros(n), &sequence);
    std::vector<float> z = run(ctx, step, first);
    if (commit) step.commit();
    return z;
  };
  CacheSequence a = pages.sequence();
  feed(a, 0, 30);
  const size_t bytes = pages.bytes_for(30);
  CacheSequence b = a, c = a;
  EXPECT_EQ(a.state(0), b.state(0));  // shared
  feed(a, 40, 20, false);             // a step that never counts
  const std::vector<float> want = feed(a, 30, 10), again = feed(b, 30, 10);
  EXPECT_EQ(again, want);
  EXPECT_NE(feed(b, 60, 10), feed(c, 60, 10));
  a.truncate(0);
  EXPECT_EQ(a.state(0), nullptr);
  EXPECT_EQ(feed(a, 30, 10), feed(*std::make_unique<CacheSequence>(pages.sequence()), 30, 10));
  EXPECT_EQ(bytes, 2 * sizeof(float) * 240);
}

TEST_F(GatedDelta, RefusesToCountSomeRowsOfAStep) {
  Context ctx(pool_);
  KvCache pages = cache(kRows);
  CacheSequence sequence = pages.sequence();
  Step step;
  step.add(zeros(5), &sequence);
  run(ctx, step, 0);
  step.commit(0, 0);
  EXPECT_EQ(sequence.length(), 0);
  try {
    step.commit(0, 3);
    FAIL() << "the state behind the third row is not known";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "a step of 5 rows cannot count for its first 3 alone: the layers with a recurrence have their state after "
                 "the last row only. Run a step of the rows that shall count");
  }
  step.commit();
  sequence.truncate(5);
  try {
    sequence.truncate(2);
    FAIL() << "the state behind the second row is not known";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "a sequence of 5 positions cannot go back to 2: the layers with a recurrence have their state after the "
                 "last position only. Start a new sequence");
  }
}

TEST_F(GatedDelta, RefusesShapesThatDisagree) {
  Context ctx(pool_);
  const Step step = ragged({3});
  const Tensor q = ctx.zeros({3, 2, 4}), v = ctx.zeros({3, 3, 4}), g = ctx.zeros({3, 3});
  EXPECT_THROW(gated_delta(ctx, "attn", q, q, v, g, g, step, 0), ShapeError);
  EXPECT_THROW(take_columns(ctx, q, 3, 2), ShapeError);
  EXPECT_THROW(decay_log(ctx, g, {}, {}, true), ShapeError);
}

TEST(GatedDeltaGradient, MatchesDifferences) {
  for (const bool is_log : {true, false}) {  // and heads in one order and the other
    const Step step = ragged({1, 68, 3});
    GradientCheck check;
    check.input({72, 2, 3});
    check.input({72, 2, 3});
    check.input({72, 4, 4});  // of whose columns two are v
    check.input({72, 4});
    check.input({72, 4});
    const Vector &A = check.vector(4), &dt_bias = check.vector(4);
    check.expect_match(
        [&](Context& ctx, const GradientCheck::Inputs& x) {
          const Tensor q = l2_norm(ctx, x[0], 1e-6, 0.6), k = l2_norm(ctx, x[1], 1e-6), v = take_columns(ctx, x[2], 1, 2);
          Tensor g = decay_log(ctx, x[3], A, dt_bias, is_log);
          if (!is_log) g = scale(ctx, g, 0.05);  // A of either sign: states that grow, but not far
          return gated_delta(ctx, "attn", q, k, v, g, activation(ctx, x[4], Activation::sigmoid), step, 0, is_log);
        },
        nullptr, 40);
  }
}

}  // namespace
}  // namespace vitrine
