// The losses of distillation: against torch, against finite differences, stored tokens against whole rows, threads.
#include "ops/divergence.h"

#include <deque>
#include <span>

#include "gradients.h"
#include "io/config_reader.h"
#include "io/safetensors.h"
#include "support/close.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

using Kind = DivergenceSpec::Kind;
using Inputs = GradientCheck::Inputs;
constexpr Kind kKinds[] = {Kind::forward_kl, Kind::reverse_kl, Kind::jensen_shannon};

Kind kind_of(const std::string& name) {
  return name == "forward_kl" ? Kind::forward_kl : name == "reverse_kl" ? Kind::reverse_kl : Kind::jensen_shannon;
}

std::span<const double> doubles(const Checkpoint& file, const std::string& name) {
  const StoredTensor* t = file.find(name);
  if (t == nullptr) return {};
  return {reinterpret_cast<const double*>(t->data), t->bytes / sizeof(double)};
}

// A head whose numbers are copied as T, with places for its gradients.
template <class T>
struct OwnHead {
  std::vector<T> w, b, dw, db;
  Weight weight;
  Head head;
  OwnHead(std::span<const double> numbers, std::span<const double> bias, int64_t out, double cap)
      : w(numbers.begin(), numbers.end()), b(bias.begin(), bias.end()), dw(w.size()), db(b.size()) {
    const DType dtype = std::is_same_v<T, double> ? DType::f64 : DType::f32;
    weight.out = out;
    weight.in = static_cast<int64_t>(w.size()) / out;
    weight.dtype = dtype;
    weight.data = reinterpret_cast<const std::byte*>(w.data());
    weight.stride = static_cast<size_t>(weight.in) * sizeof(T);
    weight.grad = {dw.data(), static_cast<size_t>(weight.in)};
    if (!b.empty()) {
      weight.bias.data = b.data();
      weight.bias.dtype = dtype;
      weight.bias.size = out;
      weight.bias.grad = {db.data(), 1};
    }
    head = {&weight, cap};
  }
};

template <class T>
Tensor tensor_of(Context& ctx, std::span<const double> numbers, int64_t rows) {
  const Tensor t = ctx.empty({rows, static_cast<int64_t>(numbers.size()) / rows});
  std::copy(numbers.begin(), numbers.end(), t.data<T>());
  return t;
}

template <class T>
struct Outcome {
  double loss = 0;
  std::vector<T> dx, dw, db;
};

// One case of the golden file. top: of the stored tokens; 0: against the model.
template <class T>
Outcome<T> outcome(const Checkpoint& file, const Json& c, const std::string& n, int64_t top, int threads) {
  const int64_t vocab = c.at("vocab");
  OwnHead<T> own(doubles(file, n + "w"), doubles(file, n + "b"), vocab, c.at("cap").get<double>());
  OwnHead<T> target(doubles(file, n + "target_w"), doubles(file, n + "target_b"), vocab, c.at("target_cap").get<double>());
  const StoredTensor* stored = file.find(n + "labels");
  const std::span<const int32_t> labels(reinterpret_cast<const int32_t*>(stored->data), stored->bytes / sizeof(int32_t));
  const DivergenceSpec spec{kind_of(c.at("kind")), c.at("beta").get<double>(), c.at("temperature").get<double>()};
  ThreadPool pool(threads);
  Context ctx(pool);
  if constexpr (std::is_same_v<T, double>) ctx.activations = DType::f64;
  const auto rows = static_cast<int64_t>(labels.size());
  const Tensor target_x = tensor_of<T>(ctx, doubles(file, n + "target_x"), rows);
  Tape tape;
  ctx.record_on(&tape);
  const Tensor x = tensor_of<T>(ctx, doubles(file, n + "x"), rows);
  const Tensor loss =
      top > 0 ? divergence(ctx, x, own.head, top_tokens(ctx, target_x, target.head, top, spec.temperature), labels, spec)
              : divergence(ctx, x, own.head, target_x, target.head, labels, spec);
  tape.backward(ctx, loss);
  const Tensor dx = tape.gradient(x);
  return {static_cast<double>(*loss.data<T>()), {dx.data<T>(), dx.data<T>() + dx.count()}, own.dw, own.db};
}

template <class T>
void expect_near(const std::vector<T>& got, std::span<const double> expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  double size = 0;
  for (const double e : expected) size = std::max(size, std::abs(e));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(static_cast<double>(got[i]), expected[i], tolerance * size) << i;
}

template <class T>
void expect_golden(double tolerance) {
  const std::string folder = std::string(VITRINE_GOLDEN) + "/divergence/";
  const Checkpoint file = open_safetensors(folder + "divergence.safetensors");
  const Json cases = read_json(folder + "cases.json", 1 << 20).at("cases");
  ASSERT_EQ(cases.size(), 14u);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& c = cases[i];
    SCOPED_TRACE(c.dump());
    const std::string n = std::to_string(i) + "/";
    const Outcome<T> got = outcome<T>(file, c, n, c.at("top"), 2);
    const double loss = c.at("loss");
    EXPECT_NEAR(got.loss, loss, tolerance * loss);
    expect_near(got.dx, doubles(file, n + "dx"), tolerance);
    expect_near(got.dw, doubles(file, n + "dw"), tolerance);
    expect_near(got.db, doubles(file, n + "db"), tolerance);
  }
}

// Stored log-probabilities are f32, which is where 1e-6 comes from.
TEST(DivergenceGolden, EqualsTorchInDouble) { expect_golden<double>(1e-6); }
TEST(DivergenceGolden, EqualsTorchInSingle) { expect_golden<float>(1e-4); }

TEST(Divergence, StoredTokensOfTheWholeVocabularyAreTheWholeDivergence) {
  const std::string folder = std::string(VITRINE_GOLDEN) + "/divergence/";
  const Checkpoint file = open_safetensors(folder + "divergence.safetensors");
  const Json cases = read_json(folder + "cases.json", 1 << 20).at("cases");
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].dump());
    const std::string n = std::to_string(i) + "/";
    const auto whole = outcome<float>(file, cases[i], n, 0, 1),
               stored = outcome<float>(file, cases[i], n, cases[i].at("vocab"), 1), few = outcome<float>(file, cases[i], n, 2, 1);
    EXPECT_NEAR(stored.loss, whole.loss, 1e-5 * whole.loss);
    expect_near(stored.dx, std::vector<double>(whole.dx.begin(), whole.dx.end()), 1e-5);
    expect_near(stored.dw, std::vector<double>(whole.dw.begin(), whole.dw.end()), 1e-5);
    EXPECT_LE(few.loss, whole.loss);  // joining events loses divergence
  }
}

TEST(Divergence, GradientsMatchFiniteDifferences) {
  const std::vector<int32_t> labels = {0, kNotScored, 0, 0};
  for (const Kind kind : kKinds)
    for (const double cap : {0.0, 1.3}) {
      const DivergenceSpec spec{kind, 0.3, 1.7};
      GradientCheck check;
      check.input({4, 5});
      const Weight& w = check.weight(11, 5, false, true);
      GradientCheck fixed;  // the target's own numbers, of another width
      const Weight& target = fixed.weight(11, 3, false, true);
      std::vector<double> numbers = noise(12, 5);
      const Tensor target_x(numbers.data(), DType::f64, {4, 3});
      check.expect_match([&](Context& ctx, const Inputs& x) {
        return divergence(ctx, x[0], {&w, cap, 0.6}, target_x, {&target, 2.0, 1.7}, labels, spec);
      });
      ThreadPool pool(1);
      Context plain(pool);
      const TopTokens top = top_tokens(plain, target_x, {&target, 2.0}, 4, spec.temperature);
      check.expect_match([&](Context& ctx, const Inputs& x) { return divergence(ctx, x[0], {&w, cap, 0.6}, top, labels, spec); });
    }
}

TEST(Divergence, IsZeroWhereTheTwoAgree) {
  const std::vector<double> numbers = noise(6 * 5, 1), w = noise(11 * 5, 2), b = noise(11, 3);
  const std::vector<int32_t> labels(6, 0);
  OwnHead<double> own(w, b, 11, 2.0);
  ThreadPool pool(1);
  for (const Kind kind : kKinds) {
    Context ctx(pool);
    ctx.activations = DType::f64;
    const Tensor target_x = tensor_of<double>(ctx, numbers, 6);
    Tape tape;
    ctx.record_on(&tape);
    const Tensor x = tensor_of<double>(ctx, numbers, 6);
    const Tensor loss = divergence(ctx, x, own.head, target_x, own.head, labels, {kind, 0.5, 2.0});
    tape.backward(ctx, loss);
    EXPECT_NEAR(*loss.data<double>(), 0, 1e-14);
    for (int64_t i = 0; i < x.count(); ++i) EXPECT_NEAR(tape.gradient(x).data<double>()[i], 0, 1e-14);
  }
}

// More rows and more tokens than one chunk has; one and two threads.
TEST(Divergence, ThreadsAndChunksChangeNoBit) {
  constexpr int64_t kRows = 1030, kVocab = 4100;
  const std::vector<double> x = noise(kRows * 5, 1), w = noise(kVocab * 5, 2), b = noise(kVocab, 3), t = noise(kRows * 7, 4),
                            tw = noise(kVocab * 7, 5);
  std::vector<int32_t> labels(kRows, 0);
  labels[3] = labels[1025] = kNotScored;
  for (const Kind kind : kKinds)
    for (const int64_t top : {0, 6}) {
      std::vector<Outcome<float>> outcomes;
      for (const int threads : {1, 2}) {
        OwnHead<float> own(w, b, kVocab, 3.0), target(tw, {}, kVocab, 0);
        ThreadPool pool(threads);
        Context ctx(pool);
        const Tensor target_x = tensor_of<float>(ctx, t, kRows);
        const TopTokens stored = top_tokens(ctx, target_x, target.head, 6, 2.0);
        Tape tape;
        ctx.record_on(&tape);
        const Tensor own_x = tensor_of<float>(ctx, x, kRows);
        const DivergenceSpec spec{kind, 0.5, 2.0};
        const Tensor loss = top > 0 ? divergence(ctx, own_x, own.head, stored, labels, spec)
                                    : divergence(ctx, own_x, own.head, target_x, target.head, labels, spec);
        tape.backward(ctx, loss);
        const Tensor dx = tape.gradient(own_x);
        outcomes.push_back(
            {static_cast<double>(*loss.data<float>()), {dx.data<float>(), dx.data<float>() + dx.count()}, own.dw, own.db});
      }
      EXPECT_EQ(outcomes[0].loss, outcomes[1].loss);
      EXPECT_EQ(outcomes[0].dx, outcomes[1].dx);
      EXPECT_EQ(outcomes[0].dw, outcomes[1].dw);
      EXPECT_EQ(outcomes[0].db, outcomes[1].db);
      for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(outcomes[0].dx[3 * 5 + static_cast<size_t>(i)], 0);
    }
}

// What a damaged teacher expects is not stored as if it were something.
TEST(Divergence, NoLikeliestTokensOfNaN) {
  std::vector<double> w = noise(11 * 5, 2);
  w[3 * 5 + 1] = std::nan("");
  OwnHead<float> own(w, {}, 11, 0);
  ThreadPool pool(2);
  Context ctx(pool);
  const Tensor x = tensor_of<float>(ctx, noise(10, 1), 2);
  EXPECT_CONTAINS(message_of<RunError>([&] { top_tokens(ctx, x, own.head, 3, 1); }), "NaN or infinite");
}

TEST(Divergence, RefusesSizesThatDisagree) {
  const std::vector<double> w = noise(11 * 5, 2);
  OwnHead<float> own(w, {}, 11, 0), other(noise(12 * 5, 2), {}, 12, 0);
  ThreadPool pool(1);
  Context ctx(pool);
  const Tensor x = tensor_of<float>(ctx, noise(10, 1), 2);
  const std::vector<int32_t> labels = {0, 0};
  EXPECT_CONTAINS(message_of<ShapeError>([&] { divergence(ctx, x, own.head, x, other.head, labels, {}); }),
                  "the target's vocabulary has 12 tokens, the learner's 11");
  TopTokens top = top_tokens(ctx, x, own.head, 3, 1);
  top.tokens[4] = 11;
  EXPECT_CONTAINS(message_of<InputError>([&] { divergence(ctx, x, own.head, top, labels, {}); }),
                  "token 11 of the target is outside the vocabulary of 11");
  top.tokens.resize(3);
  EXPECT_CONTAINS(message_of<ShapeError>([&] { divergence(ctx, x, own.head, top, labels, {}); }), "1 rows of the target");
}

}  // namespace
}  // namespace vitrine
