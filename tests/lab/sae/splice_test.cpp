#include "sae/splice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "io/safetensors.h"
#include "ops/linear.h"
#include "ops/tape.h"
#include "ops/weight.h"
#include "sae/sae_file.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/sae/";
constexpr Tolerance kClose{.abs = 2e-6, .rel = 1e-5};

std::vector<float> values_of(const std::string& name, const char* tensor) {
  const Checkpoint file = open_safetensors(kFolder + name + "/values.safetensors");
  return as_floats(*file.find(tensor)).values;
}

Tensor rows_of(std::vector<float>& numbers, int64_t width) {
  return {numbers.data(), DType::f32, {static_cast<int64_t>(numbers.size()) / width, width}};
}

std::vector<float> copied(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.count()}; }

TEST(Splice, KeepsWhatTheAutoencoderDoesNotExplainAsSaeLensDoes) {
  for (const char* name :
       {"standard", "standard_layer_norm", "standard_constant_norm", "gated", "topk", "topk_rescaled", "abstopk", "jumprelu"}) {
    SCOPED_TRACE(name);
    const auto sae = std::make_shared<const SparseAutoencoder>(read_sae(kFolder + name));
    std::vector<float> x = values_of(name, "x");
    const Tensor value = rows_of(x, sae->d_in);
    ThreadPool pool(2);
    Context ctx(pool);
    EXPECT_CLOSE(copied(spliced(ctx, {sae, {}}, value, value, 0)), x, Tolerance{.abs = 0, .rel = 0});
    const FeatureEdit edit{.feature = 3, .kind = FeatureEdit::Kind::set, .value = 2.5F};
    EXPECT_CLOSE(copied(spliced(ctx, {sae, {edit}}, value, value, 0)), values_of(name, "edited"), kClose);
    EXPECT_CLOSE(copied(spliced(ctx, {sae, {}, false}, value, value, 0)), values_of(name, "y"), kClose);
  }
}

TEST(Splice, EditsReachTheirPositionsAlone) {
  const SparseFeatures features{{0, 2, 3}, {1, 4, 4}, {1.0F, 2.0F, 3.0F}, {}, {}};
  const std::vector<FeatureEdit> edits = {{.feature = 4, .kind = FeatureEdit::Kind::scale, .value = 0.5F, .first = 8, .end = 9},
                                          {.feature = 2, .kind = FeatureEdit::Kind::add, .value = 7.0F},
                                          {.feature = 1, .kind = FeatureEdit::Kind::set, .value = 0.0F}};
  const SparseFeatures now = edited(features, edits, 7);
  EXPECT_EQ(now.begin, (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(now.index, (std::vector<int32_t>{2, 4, 2, 4}));
  EXPECT_EQ(now.value, (std::vector<float>{7.0F, 2.0F, 7.0F, 1.5F}));
}

TEST(Splice, ReadsEditsAndRefusesOthers) {
  const FeatureEdit edit = parse_feature_edit("12*=-0.5");
  EXPECT_EQ(edit.feature, 12);
  EXPECT_EQ(edit.kind, FeatureEdit::Kind::scale);
  EXPECT_EQ(edit.value, -0.5F);
  EXPECT_EQ(parse_feature_edit("3+=2").kind, FeatureEdit::Kind::add);
  EXPECT_EQ(parse_feature_edit("3=2").kind, FeatureEdit::Kind::set);
  for (const char* text : {"", "x=1", "-1=2", "3", "3=", "3=nan", "3=1e99", "3=1x", "3-=1"})
    EXPECT_CONTAINS(message_of<InputError>([&] { parse_feature_edit(text); }), "expected FEATURE=VALUE") << text;
}

// The gradient of sum(weights · spliced(x)), with the error held, against differences of weights · decode(edited(encode(x))).
TEST(Splice, GradientsFlowThroughEncoderAndDecoder) {
  for (const char* name : {"standard", "gated", "topk", "topk_no_norm", "jumprelu", "skip_transcoder"}) {
    SCOPED_TRACE(name);
    auto sae =
        std::make_shared<SparseAutoencoder>(read_sae(kFolder + (std::string(name) == "topk_no_norm" ? "topk_rescaled" : name)));
    sae->input_norm = SparseAutoencoder::InputNorm::none;
    std::vector<float> x = values_of(std::string(name) == "topk_no_norm" ? "topk" : name, "x");
    x.resize(static_cast<size_t>(2 * sae->d_in));
    const Splice splice{sae, {{.feature = 5, .kind = FeatureEdit::Kind::scale, .value = 0.25F, .first = 1}}, false};
    ThreadPool pool(1);
    Context ctx(pool);
    const auto loss = [&](std::vector<float>& at) {
      std::vector<float> other(static_cast<size_t>(2 * sae->d_out));
      const Tensor y = spliced(ctx, splice, rows_of(at, sae->d_in), rows_of(other, sae->d_out), 0);
      double sum = 0;
      for (int64_t i = 0; i < y.count(); ++i)
        sum += std::sin(1.0 + static_cast<double>(i)) * static_cast<double>(y.data<float>()[i]);
      return sum;
    };
    Tape tape;
    ctx.record_on(&tape, false);
    const Tensor input = ctx.empty({2, sae->d_in}), value = ctx.empty({2, sae->d_out});
    std::ranges::copy(x, input.data<float>());
    std::fill_n(value.data<float>(), value.count(), 0.0F);
    const Tensor y = spliced(ctx, {sae, splice.edits, true}, input, value, 0);
    std::vector<float> factors(static_cast<size_t>(y.count()));
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = static_cast<float>(std::sin(1.0 + static_cast<double>(i)));
    Weight sum;
    sum.data = reinterpret_cast<const std::byte*>(factors.data());
    sum.out = 1;
    sum.in = y.count();
    sum.stride = factors.size() * sizeof(float);
    tape.backward(ctx, linear(ctx, y.view({1, y.count()}), sum).view({1}));
    const Tensor dx = tape.gradient(input);
    ASSERT_TRUE(static_cast<bool>(dx));
    const std::vector<float> gradient = copied(dx);
    ctx.record_on(nullptr);
    std::vector<float> differences;
    for (size_t i = 0; i < x.size(); ++i) {
      constexpr float kStep = 1e-3F;
      std::vector<float> up = x, down = x;
      up[i] += kStep;
      down[i] -= kStep;
      differences.push_back(
          static_cast<float>((loss(up) - loss(down)) / (static_cast<double>(up[i]) - static_cast<double>(down[i]))));
    }
    EXPECT_CLOSE(gradient, differences, Tolerance{.abs = 5e-3, .rel = 2e-3});
  }
}

}  // namespace
}  // namespace vitrine
