// tests/golden/sae_train/make_cross_layer.py: a hundred steps of PyTorch.
#include "sae/cross_layer_trainer.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/activations.h"
#include "io/safetensors.h"
#include "sae/circuit_tracer.h"
#include "sae/train.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

constexpr Tolerance kCrossLayerTrained{.abs = 2e-5, .rel = 1e-4};

class CrossLayerGold {
 public:
  CrossLayerGold() : file_(open_safetensors(std::string(VITRINE_GOLDEN) + "/sae_train/cross_layer.safetensors")) {}
  std::vector<float> values(const std::string& name) const { return as_floats(*file_.find(name)).values; }
  std::vector<int64_t> shape(const std::string& name) const { return file_.find(name)->shape; }
  Json options() const { return parse_json(file_.metadata().at("options"), "cross_layer"); }

 private:
  Checkpoint file_;
};

SaeLearning cross_layer_learning(const Json& o) {
  SaeLearning l;
  l.architecture = SaeLearning::Architecture::jumprelu;
  l.sparsity = SaeLearning::Sparsity::tanh;
  l.features = o.at("features");
  l.steps = o.at("steps");
  l.lr = o.at("lr");
  l.sparsity_coefficient = o.at("sparsity_coefficient");
  l.tanh_scale = o.at("tanh_scale");
  l.threshold = o.at("threshold");
  l.bandwidth = o.at("bandwidth");
  return l;
}

void set(FloatVector& to, const std::vector<float>& from) {
  ASSERT_EQ(to.size(), from.size());
  to.assign(from.begin(), from.end());
}

TEST(CrossLayerTrainer, StepsEqualPyTorch) {
  const CrossLayerGold gold;
  const SaeLearning l = cross_layer_learning(gold.options());
  const auto shape = gold.shape("x"), written = gold.shape("target");  // [batches, L, B, D], [batches, B, L, O]
  const auto batches = static_cast<size_t>(shape[0]), layers = static_cast<size_t>(shape[1]),
             rows = static_cast<size_t>(shape[2]), d = static_cast<size_t>(shape[3]), o = static_cast<size_t>(written[3]);
  const std::vector<float> x = gold.values("x"), target = gold.values("target"), losses = gold.values("losses"),
                           l0 = gold.values("l0");
  for (const int threads : {1, 3}) {
    CrossLayerTrainer trainer(l, shape[1], shape[3], written[3]);
    std::vector<float> bias;
    for (size_t i = 0; i < layers; ++i) {
      const std::string number = "_" + std::to_string(i);
      SaeParameters& q = trainer.layer(i).parameters;
      set(q.W_enc, gold.values("start.W_enc" + number));
      set(q.W_dec, gold.values("start.W_dec" + number));
      set(q.b_enc, gold.values("start.b_enc" + number));
      for (const float b : gold.values("start.b_dec" + number)) bias.push_back(b);
    }
    set(trainer.layer(0).parameters.b_dec, bias);
    ThreadPool pool(threads);
    for (size_t step = 0; step < static_cast<size_t>(l.steps); ++step) {
      const size_t batch = step % batches;
      std::vector<const float*> inputs;
      for (size_t i = 0; i < layers; ++i) inputs.push_back(x.data() + (batch * layers + i) * rows * d);
      const SaeStep now = trainer.step(pool, inputs, rows, target.data() + batch * rows * layers * o);
      EXPECT_NEAR(now.mse, losses[step * 2], 1e-4 * static_cast<double>(losses[step * 2])) << step;
      EXPECT_NEAR(now.sparsity, losses[step * 2 + 1], 1e-4 * static_cast<double>(losses[step * 2 + 1])) << step;
      EXPECT_NEAR(now.l0, l0[step], 1e-3) << step;
    }
    const auto plain = [](const FloatVector& v) { return std::vector<float>(v.begin(), v.end()); };
    std::vector<float> ended;
    for (size_t i = 0; i < layers; ++i) {
      const std::string number = "_" + std::to_string(i);
      const SaeParameters& q = trainer.layer(i).parameters;
      EXPECT_CLOSE(plain(q.W_enc), gold.values("end.W_enc" + number), kCrossLayerTrained);
      EXPECT_CLOSE(plain(q.W_dec), gold.values("end.W_dec" + number), kCrossLayerTrained);
      EXPECT_CLOSE(plain(q.b_enc), gold.values("end.b_enc" + number), kCrossLayerTrained);
      EXPECT_CLOSE(plain(q.threshold), gold.values("end.threshold" + number), kCrossLayerTrained);
      EXPECT_TRUE(i == 0 || q.b_dec.empty());
      for (const float b : gold.values("end.b_dec" + number)) ended.push_back(b);
    }
    EXPECT_CLOSE(plain(trainer.layer(0).parameters.b_dec), ended, kCrossLayerTrained);
  }
}

TEST(CrossLayerTrainer, EveryArchitectureLearnsAndActivationsThatAreNotFiniteChangeNothing) {
  const CrossLayerGold gold;
  const auto shape = gold.shape("x"), written = gold.shape("target");
  const auto rows = static_cast<size_t>(shape[2]), d = static_cast<size_t>(shape[3]);
  const std::vector<float> x = gold.values("x"), target = gold.values("target");
  using enum SaeLearning::Architecture;
  for (const auto architecture : {batchtopk, jumprelu, standard}) {
    SaeLearning l = cross_layer_learning(gold.options());
    l.architecture = architecture;
    l.k = 4;
    l.sparsity_coefficient = 0.01;
    CrossLayerTrainer trainer(l, shape[1], shape[3], written[3]);
    ThreadPool pool(2);
    std::vector<const float*> inputs;
    for (int64_t i = 0; i < shape[1]; ++i) inputs.push_back(x.data() + static_cast<size_t>(i) * rows * d);
    SaeStep first, last;
    for (int step = 0; step < 300; ++step) (step == 0 ? first : last) = trainer.step(pool, inputs, rows, target.data());
    EXPECT_LT(last.mse, 0.4 * first.mse);
    if (architecture == batchtopk) {
      EXPECT_EQ(last.l0, 12);  // 4 a layer
    }
    std::vector<float> bad(x.begin(), x.begin() + static_cast<ptrdiff_t>(rows * d));
    bad[17] = std::numeric_limits<float>::quiet_NaN();
    inputs[0] = bad.data();
    const FloatVector before = trainer.layer(1).parameters.W_dec;
    EXPECT_NE(message_of<RunError>([&] { trainer.step(pool, inputs, rows, target.data()); }).find("the loss of step 301"),
              std::string::npos);
    EXPECT_EQ(trainer.layer(1).parameters.W_dec, before);
  }
}

TEST(CrossLayerTrainer, SaysWhatIsWrong) {
  SaeLearning l;
  l.features = 8;
  l.k = 2;
  l.steps = 1;
  const auto message = [&](int64_t layers) { return message_of<InputError>([&] { CrossLayerTrainer(l, layers, 4, 4); }); };
  EXPECT_NE(message(2).find("expected batchtopk, jumprelu or standard"), std::string::npos);  // of topk
  l.architecture = SaeLearning::Architecture::standard;
  EXPECT_NE(message(0).find("at least one layer"), std::string::npos);
  l.skip = true;
  EXPECT_NE(message(2).find("no skip connection"), std::string::npos);
}

/// Three layers that read and write rows of 9 numbers, at hook_resid_mid and hook_mlp_out.
Activations three_layers(const std::string& folder) {
  std::filesystem::create_directories(folder);
  constexpr int64_t kTokens = 800, kD = 9, kSources = 20;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  ActivationManifest m{.model = "made",
                       .hooks = {},
                       .type = DType::f32,
                       .context = 8,
                       .lead = 0,
                       .shard_tokens = kTokens,
                       .shards = {{activation_shard_name(0), kTokens, kTokens / 8}},
                       .checksum = 7,
                       .complete = true};
  std::vector<float> amounts(kTokens * kSources);
  for (float& a : amounts) a = random() % 7 == 0 ? 0.5F + static_cast<float>(random() % 100) / 100 : 0;
  std::vector<int32_t> ids(kTokens, 1), positions(kTokens);
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t % 8);
  std::vector<TensorToWrite> tensors{{"tokens", DType::i32, {kTokens}, ids.data()},
                                     {"positions", DType::i32, {kTokens}, positions.data()}};
  std::vector<std::vector<float>> values(6, std::vector<float>(kTokens * kD));
  for (size_t h = 0; h < values.size(); ++h) {
    const float size = h < 3 ? 1 : static_cast<float>(h);  // each target of another scale
    for (int64_t s = 0; s < kSources; ++s)
      for (int64_t i = 0; i < kD; ++i) {
        const float direction = normal(random) * size;
        for (int64_t t = 0; t < kTokens; ++t)
          values[h][static_cast<size_t>(t * kD + i)] += amounts[static_cast<size_t>(t * kSources + s)] * direction;
      }
    const std::string name = "blocks." + std::to_string(h % 3) + (h < 3 ? ".hook_resid_mid" : ".hook_mlp_out");
    m.hooks.push_back({name, {kD}});
    tensors.push_back({name, DType::f32, {kTokens, kD}, values[h].data()});
  }
  write_safetensors(folder + "/" + activation_shard_name(0), tensors);
  write_activation_manifest(folder, m);
  return Activations::open(folder);
}

TEST(TrainCrossLayer, WritesWhatCircuitTracerReadsAndResumesToTheBit) {
  const Scratch folder;
  const Activations activations = three_layers(folder / "a");
  ThreadPool pool(2), more(3);
  using enum SaeLearning::Architecture;
  for (const auto architecture : {batchtopk, jumprelu, standard}) {
    const std::string number = std::to_string(static_cast<int>(architecture));
    SaeTrainOptions o;
    o.cross_layer = true;
    o.hook = "blocks.*.hook_resid_mid";
    o.target = "blocks.*.hook_mlp_out";
    o.learning.architecture = architecture;
    o.learning.features = 32;
    o.learning.k = 4;
    o.learning.lr = 0.005;
    o.learning.steps = 400;
    o.learning.sparsity_coefficient = 0.02;
    o.learning.threshold_lr = 0.1;
    o.batch = 100;
    o.out = folder / ("whole" + number);
    const SaeTrained done = train_sae(pool, activations, o);
    EXPECT_GT(done.last.explained_variance, 0.6);
    ASSERT_EQ(done.target_scales.size(), 3U);
    EXPECT_GT(done.target_scales[0], 1.2 * done.target_scales[2]);

    // What was written explains the activations as they were collected.
    const CrossLayerTranscoder t = read_cross_layer(o.out);
    EXPECT_EQ(t.n_layers, 3);
    EXPECT_EQ(t.layers[2].hook_name, "blocks.2.hook_resid_mid");
    EXPECT_EQ(t.layers[2].hook_name_out, "blocks.2.hook_mlp_out");
    EXPECT_EQ(t.layers[0].model_name, "made");
    const int64_t rows = 800;
    Context ctx(pool);
    std::vector<SparseFeatures> features;
    std::vector<float> x(static_cast<size_t>(rows) * 9);
    for (size_t layer = 0; layer < 3; ++layer) {
      for (size_t r = 0; r < 800; ++r) activations.read(layer, r, x.data() + r * 9);
      features.push_back(encode(ctx, t.layers[layer], x.data(), rows));
    }
    const std::vector<FloatVector> y = decode(ctx, t, features);
    for (size_t layer = 0; layer < 3; ++layer) {
      double left = 0, all = 0;
      for (size_t r = 0; r < 800; ++r) activations.read(3 + layer, r, x.data() + r * 9);
      for (size_t i = 0; i < x.size(); ++i) {
        left += std::pow(static_cast<double>(x[i] - y[layer][i]), 2);
        all += std::pow(static_cast<double>(x[i]), 2);
      }
      EXPECT_LT(left, 0.5 * all) << number << " " << layer;
    }

    SaeTrainOptions part = o;
    part.out = folder / ("part" + number);
    train_sae(more, activations, part, [](const SaeProgress& now) { return now.step < 170; });
    part.resume = true;
    EXPECT_EQ(train_sae(more, activations, part).first_step, 171);
    for (const char* file : {"W_enc_0.safetensors", "W_dec_1.safetensors", "config.yaml", "trainer.safetensors"})
      EXPECT_EQ(read_file(part.out + "/" + file), read_file(o.out + "/" + file)) << file;
  }
}

TEST(TrainCrossLayer, SaysWhichHooksAreMissing) {
  const Scratch folder;
  const Activations activations = three_layers(folder / "a");
  ThreadPool pool(1);
  SaeTrainOptions o;
  o.cross_layer = true;
  o.learning.architecture = SaeLearning::Architecture::standard;
  o.learning.features = 32;
  o.learning.steps = 1;
  o.out = folder / "out";
  o.hook = "blocks.0.hook_resid_mid";
  o.target = "blocks.*.hook_mlp_out";
  const auto message = [&] { return message_of<InputError>([&] { train_sae(pool, activations, o); }); };
  EXPECT_NE(message().find("it holds one * for the layer"), std::string::npos);
  o.hook = "blocks.*.hook_resid_pre";
  EXPECT_NE(message().find("holds no values of \"blocks.0.hook_resid_pre\""), std::string::npos);
  o.hook = "blocks.*.hook_mlp_out";
  EXPECT_NE(message().find("is both"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(o.out));
}

}  // namespace
}  // namespace vitrine
