// Mamba 2's state space: its recurrence in plain loops, its gradients against central differences, and what a cache's state
// promises.
#include "ops/state_space.h"

#include "base/error.h"
#include "gradients.h"
#include "ops/embed.h"
#include "support/close.h"

namespace vitrine {
namespace of_state_space {
namespace {

constexpr int64_t kHeads = 4, kGroups = 2, kState = 3, kHead = 37, kRows = 70;  // a head is more than one strip of columns

Step ragged(const std::vector<int64_t>& lengths) {
  Step step;
  for (const int64_t n : lengths) step.add(std::vector<int32_t>(static_cast<size_t>(n), 0));
  return step;
}

float wave(int64_t i, int seed) {
  return std::cos(1.3f * static_cast<float>(i) + 0.37f * static_cast<float>(i * i % 7) + static_cast<float>(seed));
}
Tensor waves(Context& ctx, const Shape& all, int seed, int64_t first, int64_t n) {
  const Tensor whole = ctx.empty(all);
  for (int64_t i = 0; i < whole.count(); ++i) whole.data<float>()[i] = wave(i, seed);
  return whole.rows_view(first, n);
}

struct SpaceRun {
  std::vector<float> D = {0.5f, -1, 2, 0.25f};
  std::vector<float> operator()(Context& ctx, const Step& step, int64_t first) const {
    const int64_t n = step.sequences()[0].rows;
    const Tensor x = waves(ctx, {kRows, kHeads, kHead}, 1, first, n), B = waves(ctx, {kRows, kGroups, kState}, 2, first, n),
                 C = waves(ctx, {kRows, kGroups, kState}, 3, first, n), delta = waves(ctx, {kRows, kHeads}, 4, first, n),
                 decay = waves(ctx, {kRows, kHeads}, 5, first, n);
    for (int64_t i = 0; i < decay.count(); ++i) decay.data<float>()[i] -= 1;
    Vector skip;
    skip.data = D.data();
    skip.size = kHeads;
    const Tensor z = state_space(ctx, "ssm", x, B, C, delta, decay, skip, step, 0);
    return {z.data<float>(), z.data<float>() + z.count()};
  }
};

TEST(StateSpace, IsTheRecurrence) {
  ThreadPool pool(2);
  Context ctx(pool);
  const SpaceRun run;
  const std::vector<float> z = run(ctx, ragged({kRows}), 0);
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t j = 0; j < kHead; ++j) {
      double S[kState] = {};
      for (int64_t t = 0; t < kRows; ++t) {
        const int64_t group = t * kGroups + h / (kHeads / kGroups), at = (t * kHeads + h) * kHead + j;
        const double x = wave(at, 1), delta = wave(t * kHeads + h, 4), decay = std::exp(wave(t * kHeads + h, 5) - 1.0);
        double want = run.D[static_cast<size_t>(h)] * x;
        for (int64_t i = 0; i < kState; ++i) {
          S[i] = decay * S[i] + delta * wave(group * kState + i, 2) * x;
          want += S[i] * wave(group * kState + i, 3);
        }
        ASSERT_NEAR(z[static_cast<size_t>(at)], want, 2e-5) << t << " " << h << " " << j;
      }
    }
}

TEST(StateSpace, BitsDependOnNoCutAndNoThread) {
  ThreadPool pool(2), one(1);
  Context ctx(pool), alone(one);
  const SpaceRun run;
  const std::vector<float> whole = run(ctx, ragged({kRows}), 0);
  EXPECT_EQ(run(alone, ragged({kRows}), 0), whole);
  for (const int64_t size : {1, 7, 64}) {
    KvCache pages({{.state = kHeads * kState * kHead}}, kRows, kRows);
    CacheSequence sequence = pages.sequence();
    std::vector<float> parts;
    for (int64_t done = 0; done < kRows; done += size) {
      Step step;
      step.add(std::vector<int32_t>(static_cast<size_t>(std::min(size, kRows - done)), 0), &sequence);
      const std::vector<float> part = run(ctx, step, done);
      step.commit();
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, whole) << size;
  }
}

TEST(StateSpaceGradient, MatchesDifferences) {
  const Step step = ragged({1, 68, 3});
  GradientCheck check;
  check.input({72, 4, 2});
  check.input({72, 2, 3});
  check.input({72, 2, 3});
  check.input({72, 4});
  const Vector &A = check.vector(4), &bias = check.vector(4), &D = check.vector(4);
  check.expect_match(
      [&](Context& ctx, const GradientCheck::Inputs& x) {
        const Tensor delta = time_step(ctx, x[3], bias, {.least = 0.2, .most = 1.5});
        return state_space(ctx, "ssm", x[0], x[1], x[2], delta, scale_heads(ctx, delta, A, true), D, step, 0);
      },
      nullptr, 40);
}

TEST(StateSpace, RefusesShapesThatDisagree) {
  ThreadPool pool(1);
  Context ctx(pool);
  const Step step = ragged({3});
  const Tensor x = ctx.zeros({3, 4, 2}), B = ctx.zeros({3, 3, 4}), delta = ctx.zeros({3, 4});
  EXPECT_THROW(state_space(ctx, "ssm", x, B, B, delta, delta, {}, step, 0), ShapeError);
  EXPECT_THROW(time_step(ctx, delta, {}), ShapeError);
  EXPECT_THROW(scale_heads(ctx, x, {}), ShapeError);
}

}  // namespace
}  // namespace of_state_space
}  // namespace vitrine
