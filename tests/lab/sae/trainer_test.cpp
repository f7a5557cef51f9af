// tests/golden/sae_train/make.py: steps of SAELens's trainer on each architecture.
#include "sae/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "io/activations.h"
#include "io/safetensors.h"
#include "sae/autoencoder.h"
#include "sae/largest.h"
#include "sae/sae_file.h"
#include "sae/train.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kTrainGolden = std::string(VITRINE_GOLDEN) + "/sae_train";
constexpr Tolerance kTrained{.abs = 2e-5, .rel = 1e-4};

std::vector<float> values_of(const Checkpoint& file, const std::string& name) {
  const StoredTensor* t = file.find(name);
  return t == nullptr ? std::vector<float>() : as_floats(*t).values;
}

std::vector<float> turned(const std::vector<float>& x, size_t rows, size_t columns) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) y[j * rows + i] = x[i * columns + j];
  return y;
}

SaeLearning learning_of(const Json& o) {
  SaeLearning l;
  const std::string architecture = o.at("architecture");
  l.architecture = architecture == "topk"        ? SaeLearning::Architecture::topk
                   : architecture == "batchtopk" ? SaeLearning::Architecture::batchtopk
                   : architecture == "jumprelu"  ? SaeLearning::Architecture::jumprelu
                   : architecture == "gated"     ? SaeLearning::Architecture::gated
                                                 : SaeLearning::Architecture::standard;
  l.features = o.at("features");
  l.steps = o.at("steps");
  l.lr = o.at("lr");
  l.lr_warm_up = o.at("lr_warm_up");
  l.lr_decay = o.at("lr_decay");
  l.dead_window = o.at("dead_window");
  l.k = o.value("k", l.k);
  l.aux_coefficient = o.value("aux_coefficient", l.aux_coefficient);
  l.sparsity = o.value("sparsity", "step") == "tanh" ? SaeLearning::Sparsity::tanh : SaeLearning::Sparsity::step;
  l.sparsity_coefficient = o.value("sparsity_coefficient", l.sparsity_coefficient);
  l.sparsity_warm_up = o.value("sparsity_warm_up", l.sparsity_warm_up);
  l.threshold = o.value("threshold", l.threshold);
  l.bandwidth = o.value("bandwidth", l.bandwidth);
  l.tanh_scale = o.value("tanh_scale", l.tanh_scale);
  l.ste_to_input = o.value("ste_to_input", l.ste_to_input);
  l.widths = o.value("widths", l.widths);
  l.threshold_lr = o.value("threshold_lr", l.threshold_lr);
  l.skip = o.value("skip", l.skip);
  return l;
}

TEST(SaeTrainer, StepsEqualSaeLens) {
  for (const char* name :
       {"topk", "jumprelu_step", "jumprelu_tanh", "jumprelu_sparse", "standard", "gated", "batchtopk", "matryoshka",
        "transcoder_standard", "transcoder_jumprelu", "transcoder_batchtopk", "transcoder_matryoshka"})
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(std::string(name) + " on " + std::to_string(threads));
      const Checkpoint gold = open_safetensors(kTrainGolden + "/" + name + ".safetensors");
      const SaeLearning l = learning_of(parse_json(gold.metadata().at("options"), name));
      const auto& shape = gold.find("x")->shape;
      const auto rows = static_cast<size_t>(shape[1]), d = static_cast<size_t>(shape[2]), f = static_cast<size_t>(l.features);
      const std::vector<float> x = values_of(gold, "x"), losses = values_of(gold, "losses"), l0 = values_of(gold, "l0"),
                               dead = values_of(gold, "dead"), inner = values_of(gold, "inner"),
                               target = values_of(gold, "target");
      const auto batches = static_cast<size_t>(shape[0]);  // they come again
      const size_t width = target.empty() ? d : target.size() / (batches * rows);
      SaeTrainer trainer(l, shape[2], target.empty() ? 0 : static_cast<int64_t>(width));
      const auto set = [&](FloatVector& to, const std::vector<float>& from) { to.assign(from.begin(), from.end()); };
      set(trainer.parameters.W_enc, turned(values_of(gold, "start.W_enc"), d, f));
      if (l.architecture == SaeLearning::Architecture::gated) set(trainer.parameters.b_enc, values_of(gold, "start.b_gate"));
      for (const char* one : {"W_dec", "b_enc", "b_dec", "threshold", "r_mag", "b_mag", "W_skip"})
        for (size_t i = 0; i < SaeParameters::kCount; ++i)
          if (one == std::string(SaeParameters::kNames[i]) && gold.find(std::string("start.") + one) != nullptr)
            if (!trainer.parameters[i].empty()) set(trainer.parameters[i], values_of(gold, std::string("start.") + one));
      ThreadPool pool(threads);
      for (size_t step = 0; step < static_cast<size_t>(l.steps); ++step) {
        const size_t batch = step % batches;
        const SaeStep now = trainer.step(pool, x.data() + batch * rows * d, rows,
                                         target.empty() ? nullptr : target.data() + batch * rows * width);
        EXPECT_NEAR(now.mse, losses[step * 3], 1e-4 * std::fabs(losses[step * 3]) + 1e-5) << step;
        EXPECT_NEAR(now.sparsity, losses[step * 3 + 1], 1e-4 * std::fabs(losses[step * 3 + 1]) + 1e-5) << step;
        EXPECT_NEAR(now.aux, losses[step * 3 + 2], 1e-4 * std::fabs(losses[step * 3 + 2]) + 1e-5) << step;
        EXPECT_NEAR(now.inner, inner.empty() ? 0 : inner[step], inner.empty() ? 0 : 1e-4 * std::fabs(inner[step])) << step;
        EXPECT_NEAR(now.l0, l0[step], 1e-4) << step;
        EXPECT_EQ(static_cast<float>(now.dead), dead[step]) << step;
      }
      const SaeParameters& q = trainer.parameters;
      const auto plain = [](const FloatVector& v) { return std::vector<float>(v.begin(), v.end()); };
      EXPECT_CLOSE(turned(plain(q.W_enc), f, d), values_of(gold, "end.W_enc"), kTrained);
      EXPECT_CLOSE(plain(q.W_dec), values_of(gold, "end.W_dec"), kTrained);
      EXPECT_CLOSE(plain(q.b_enc), values_of(gold, q.r_mag.empty() ? "end.b_enc" : "end.b_gate"), kTrained);
      EXPECT_CLOSE(plain(q.b_dec), values_of(gold, "end.b_dec"), kTrained);
      EXPECT_CLOSE(plain(q.threshold), values_of(gold, "end.threshold"), kTrained);  // both empty but of jumprelu
      EXPECT_CLOSE(plain(q.r_mag), values_of(gold, "end.r_mag"), kTrained);          // or of gated
      EXPECT_CLOSE(plain(q.b_mag), values_of(gold, "end.b_mag"), kTrained);
      if (l.skip) {
        EXPECT_CLOSE(plain(q.W_skip), values_of(gold, "end.W_skip"), kTrained);
      }
      if (const StoredTensor* border = gold.find("end.topk_threshold")) {
        EXPECT_NEAR(trainer.batch_threshold, *reinterpret_cast<const double*>(border->data), 1e-5);
      }
    }
}

TEST(SaeTrainer, ActivationsThatAreNotFiniteEndTheStep) {
  for (const auto architecture : {SaeLearning::Architecture::topk, SaeLearning::Architecture::batchtopk,
                                  SaeLearning::Architecture::jumprelu, SaeLearning::Architecture::gated}) {
    SaeLearning l;
    l.architecture = architecture;
    l.features = 300;
    l.k = 200;
    l.steps = 4;
    l.dead_window = 1;
    SaeTrainer trainer(l, 8);
    ThreadPool pool(2);
    std::vector<float> x(100 * 8);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 13) - 6;
    for (int step = 0; step < 3; ++step) trainer.step(pool, x.data(), 100);
    const FloatVector before = trainer.parameters.W_enc;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38F}) {
      std::vector<float> other = x;
      for (size_t i = 160; i < 320; i += 3) other[i] = bad;
      EXPECT_NE(message_of<RunError>([&] { trainer.step(pool, other.data(), 100); }).find("the loss of step 4"),
                std::string::npos);
      EXPECT_EQ(trainer.parameters.W_enc, before);
      EXPECT_EQ(trainer.steps, 3);
    }
  }
}

TEST(Largest, AreThoseOfASort) {
  std::mt19937 random(5);
  Largest largest;
  for (const size_t n : {1U, 15U, 16U, 17U, 100U, 1000U})
    for (const size_t k : {size_t{1}, size_t{3}, n / 2, n - 1, n, n + 2}) {
      std::vector<float> x(n);
      for (float& v : x) v = static_cast<float>(random() % 64) - 32;  // with equal ones
      std::vector<int32_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(),
                [&](int32_t a, int32_t b) { return std::pair(-x[size_t(a)], a) < std::pair(-x[size_t(b)], b); });
      order.resize(std::min(n, k));
      std::sort(order.begin(), order.end());
      EXPECT_EQ(largest.of(x.data(), n, k), order) << n << " " << k;
    }
}

/// A folder of collected activations: sums of a few of 24 directions, in two shards; at hook_mlp_out other directions in the same
/// amounts.
Activations some_activations(const std::string& folder, DType type = DType::f32) {
  std::filesystem::create_directories(folder);
  constexpr int64_t kTokens = 600, kD = 16, kOut = 10;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> directions(24 * kD), others(24 * kOut);
  for (float& v : directions) v = normal(random);
  for (float& v : others) v = normal(random);
  ActivationManifest m{.model = "made",
                       .hooks = {{"blocks.0.hook_resid_post", {kD}}, {"blocks.0.hook_mlp_out", {kOut}}},
                       .type = type,
                       .context = 8,
                       .lead = 0,
                       .shard_tokens = kTokens,
                       .shards = {},
                       .checksum = 7,
                       .complete = true};
  for (size_t s = 0; s < 2; ++s) {
    std::vector<float> values(kTokens * kD);
    std::vector<float> outputs(kTokens * kOut);
    std::vector<int32_t> ids(kTokens, 1), positions(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) {
      positions[static_cast<size_t>(t)] = static_cast<int32_t>(t % 8);
      for (int active = 0; active < 2; ++active) {
        const size_t which = random() % 24;
        const float much = 1 + static_cast<float>(random() % 100) / 100;
        for (int64_t i = 0; i < kD; ++i)
          values[static_cast<size_t>(t * kD + i)] += much * directions[which * kD + static_cast<size_t>(i)];
        for (int64_t i = 0; i < kOut; ++i)
          outputs[static_cast<size_t>(t * kOut + i)] += much * others[which * kOut + static_cast<size_t>(i)];
      }
    }
    const auto narrowed = [&](const std::vector<float>& wide) {
      std::vector<uint16_t> narrow(wide.size());
      for (size_t i = 0; i < wide.size(); ++i) narrow[i] = type == DType::bf16 ? f32_to_bf16(wide[i]) : f32_to_f16(wide[i]);
      return narrow;
    };
    const std::vector<uint16_t> narrow = narrowed(values), narrow_outputs = narrowed(outputs);
    write_safetensors(folder + "/" + activation_shard_name(s),
                      {{"tokens", DType::i32, {kTokens}, ids.data()},
                       {"positions", DType::i32, {kTokens}, positions.data()},
                       {"blocks.0.hook_resid_post",
                        type,
                        {kTokens, kD},
                        type == DType::f32 ? static_cast<const void*>(values.data()) : narrow.data()},
                       {"blocks.0.hook_mlp_out",
                        type,
                        {kTokens, kOut},
                        type == DType::f32 ? static_cast<const void*>(outputs.data()) : narrow_outputs.data()}});
    m.shards.push_back({activation_shard_name(s), kTokens, kTokens / 8});
  }
  write_activation_manifest(folder, m);
  return Activations::open(folder);
}

SaeTrainOptions some_options(const std::string& out, SaeLearning::Architecture architecture) {
  SaeTrainOptions o;
  o.learning.architecture = architecture;
  o.learning.features = 64;
  o.learning.k = 3;
  o.learning.lr = 0.01;
  o.learning.steps = 300;
  o.learning.dead_window = 20;
  o.learning.sparsity_coefficient = 0.05;
  o.hook = "blocks.0.hook_resid_post";
  o.batch = 100;
  o.out = out;
  return o;
}

TEST(TrainSae, LearnsWhatActivationsAreMadeOfAndWritesWhatSaeLensReads) {
  const Scratch folder;
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string name(name_of(type));
    const Activations activations = some_activations(folder / name, type);
    ThreadPool pool(2);
    const std::string out = folder / ("sae-" + name);
    const SaeTrained done = train_sae(pool, activations, some_options(out, SaeLearning::Architecture::topk));
    EXPECT_GT(done.last.explained_variance, 0.9);
    EXPECT_LE(done.last.l0, 3);
    const SparseAutoencoder sae = read_sae(out);
    EXPECT_EQ(sae.hook_name, "blocks.0.hook_resid_post");
    EXPECT_EQ(sae.k, 3);
    // What was written explains the activations as they were collected, without the scale of training.
    const size_t rows = 200, d = 16;
    std::vector<float> x(rows * d), y(rows * d);
    for (size_t t = 0; t < rows; ++t) activations.read(0, t, x.data() + t * d);
    Context ctx(pool);
    decode(ctx, sae, encode(ctx, sae, x.data(), rows), x.data(), y.data());
    double left = 0, all = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      left += std::pow(static_cast<double>(x[i] - y[i]), 2);
      all += std::pow(static_cast<double>(x[i]), 2);
    }
    EXPECT_LT(left, 0.12 * all);
    for (int64_t f = 0; f < sae.d_sae; ++f) {
      double squares = 0;
      for (const float v : sae.direction(f)) squares += static_cast<double>(v) * static_cast<double>(v);
      EXPECT_NEAR(std::sqrt(squares), 1 / done.scales[0], 1e-4);  // of norm 1 before the scale was folded in
    }
  }
}

TEST(TrainSae, AGatedOneGivesTheTrainersFeaturesOfActivationsAsTheyWereCollected) {
  const Scratch folder;
  const Activations activations = some_activations(folder / "a");
  ThreadPool pool(2);
  const SaeTrainOptions o = some_options(folder / "gated", SaeLearning::Architecture::gated);
  const SaeTrained done = train_sae(pool, activations, o);
  EXPECT_GT(done.last.explained_variance, 0.8);
  const SparseAutoencoder sae = read_sae(o.out);
  EXPECT_EQ(architecture_name(sae), "gated");
  EXPECT_TRUE(sae.b_enc.empty());
  const size_t rows = 1200, d = 16;
  std::vector<float> x(rows * d), y(rows * d);
  for (size_t t = 0; t < rows; ++t) activations.read(0, t, x.data() + t * d);
  Context ctx(pool);
  const SparseFeatures features = encode(ctx, sae, x.data(), rows);
  EXPECT_NEAR(static_cast<double>(features.index.size()) / rows, done.last.l0, 0.25 * done.last.l0 + 1);
  decode(ctx, sae, features, x.data(), y.data());
  double left = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    left += std::pow(static_cast<double>(x[i] - y[i]), 2);
    all += std::pow(static_cast<double>(x[i]), 2);
  }
  EXPECT_LT(left, 0.25 * all);
}

TEST(TrainSae, ATranscoderExplainsTheHookItWritesAt) {
  const Scratch folder;
  const Activations activations = some_activations(folder / "a");
  ThreadPool pool(2);
  struct Case {
    SaeLearning::Architecture architecture;
    bool skip;
    std::vector<int64_t> widths;
    const char* name;
  };
  for (const Case& c : {Case{SaeLearning::Architecture::batchtopk, false, {16}, "jumprelu_transcoder"},
                        Case{SaeLearning::Architecture::jumprelu, true, {}, "jumprelu_skip_transcoder"},
                        Case{SaeLearning::Architecture::standard, false, {}, "transcoder"}}) {
    SaeTrainOptions o = some_options(folder / c.name, c.architecture);
    o.target = "blocks.0.hook_mlp_out";
    o.learning.skip = c.skip;
    o.learning.widths = c.widths;
    o.learning.steps = 800;
    o.learning.threshold_lr = 0.1;
    const SaeTrained done = train_sae(pool, activations, o);
    EXPECT_GT(done.last.explained_variance, 0.8) << c.name;
    const SparseAutoencoder sae = read_sae(o.out);
    EXPECT_EQ(architecture_name(sae), c.name);
    EXPECT_EQ(sae.hook_name, "blocks.0.hook_resid_post");
    EXPECT_EQ(sae.hook_name_out, "blocks.0.hook_mlp_out");
    const size_t rows = 1200, d = 16, width = 10;
    std::vector<float> x(rows * d), y(rows * width), target(rows * width);
    for (size_t t = 0; t < rows; ++t) {
      activations.read(0, t, x.data() + t * d);
      activations.read(1, t, target.data() + t * width);
    }
    Context ctx(pool);
    const SparseFeatures features = encode(ctx, sae, x.data(), rows);
    EXPECT_NEAR(static_cast<double>(features.index.size()) / rows, done.last.l0, 0.25 * done.last.l0 + 1);
    decode(ctx, sae, features, x.data(), y.data());
    double left = 0, all = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      left += std::pow(static_cast<double>(target[i] - y[i]), 2);
      all += std::pow(static_cast<double>(target[i]), 2);
    }
    EXPECT_LT(left, 0.25 * all) << c.name;
  }
}

TEST(SaeTrainer, ABatchsLargestAreFoundWhereOneTaskHasThemAll) {
  // 64 of 640 rows, one task's, are a hundred times as large as the others.
  SaeLearning l;
  l.architecture = SaeLearning::Architecture::batchtopk;
  l.features = 96;
  l.k = 2;
  l.steps = 1;
  SaeTrainer trainer(l, 8);
  std::vector<float> x(640 * 8);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (size_t i = 0; i < x.size(); ++i) x[i] = normal(random) * (i / 8 / 64 == 3 ? 100.0F : 1.0F);
  ThreadPool pool(2);
  std::vector<float> positive;
  for (size_t r = 0; r < 640; ++r)
    for (size_t f = 0; f < 96; ++f) {
      double h = 0;
      for (size_t i = 0; i < 8; ++i)
        h += static_cast<double>(x[r * 8 + i]) * static_cast<double>(trainer.parameters.W_enc[f * 8 + i]);
      if (h > 0) positive.push_back(static_cast<float>(h * l.decoder_norm));
    }
  std::nth_element(positive.begin(), positive.begin() + 1279, positive.end(), std::greater<>());
  const SaeStep now = trainer.step(pool, x.data(), 640);
  EXPECT_EQ(now.l0, 2);
  EXPECT_NEAR(trainer.batch_threshold, l.threshold_lr * static_cast<double>(positive[1279]),
              1e-5 * static_cast<double>(positive[1279]));
}

std::string bytes_of(const std::string& path) { return read_file(path); }

TEST(TrainSae, ResumedGivesTheBitsOfARunThatWasNotCutOff) {
  const Scratch folder;
  const Activations activations = some_activations(folder / "a");
  for (const auto architecture : {SaeLearning::Architecture::topk, SaeLearning::Architecture::batchtopk,
                                  SaeLearning::Architecture::jumprelu, SaeLearning::Architecture::gated}) {
    const std::string name = std::to_string(static_cast<int>(architecture));
    ThreadPool pool(1), more(3);
    SaeTrainOptions o = some_options(folder / ("whole" + name), architecture);
    if (architecture == SaeLearning::Architecture::batchtopk) {
      o.target = "blocks.0.hook_mlp_out";
      o.learning.skip = true;
      o.learning.widths = {10, 30};
    }
    o.learning.steps = 40;
    o.skip_positions = 1;
    train_sae(pool, activations, o);
    SaeTrainOptions part = o;
    part.out = folder / ("part" + name);
    train_sae(more, activations, part, [](const SaeProgress& now) { return now.step < 17; });
    part.resume = true;
    const SaeTrained rest = train_sae(more, activations, part);
    EXPECT_EQ(rest.first_step, 18);
    for (const char* file : {"sae_weights.safetensors", "cfg.json", "trainer.safetensors", "sparsity.safetensors"})
      EXPECT_EQ(bytes_of(part.out + "/" + file), bytes_of(o.out + "/" + file)) << file;
    part.learning.steps = 39;
    EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, part); }).find("has taken 40 steps already"),
              std::string::npos);
    part.learning.steps = 40;
    part.learning.lr = 0.02;
    EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, part); }).find("its run has lr 0.01, this one 0.02"),
              std::string::npos);
  }
}

// Between its last state and the weights, while it wrote a file, and before its first state.
TEST(TrainSae, ARunThatWasKilledGoesOn) {
  const Scratch folder;
  const Activations activations = some_activations(folder / "a");
  ThreadPool pool(1);
  SaeTrainOptions o = some_options(folder / "b", SaeLearning::Architecture::topk);
  o.learning.steps = 10;
  train_sae(pool, activations, o);
  const std::string weights = o.out + "/sae_weights.safetensors", whole = read_file(weights);
  std::filesystem::remove(weights);
  folder.write("b/trainer.safetensors.tmp.17.0", "half");
  folder.write("b/notes.tmp.txt", "the user's own");
  o.resume = true;
  const SaeTrained none = train_sae(pool, activations, o);
  EXPECT_EQ(none.first_step, 11);
  EXPECT_EQ(none.steps, 10);
  EXPECT_EQ(read_file(weights), whole);
  EXPECT_FALSE(std::filesystem::exists(o.out + "/trainer.safetensors.tmp.17.0"));
  EXPECT_TRUE(std::filesystem::exists(o.out + "/notes.tmp.txt"));

  std::filesystem::create_directory(folder / "c");
  folder.write("c/trainer.safetensors.tmp.17.0", "half");
  folder.write("c/metrics.csv", "step,loss\n1,2\n");
  o.out = folder / "c";
  EXPECT_EQ(train_sae(pool, activations, o).first_step, 1);
  EXPECT_EQ(read_file(folder / "c/sae_weights.safetensors"), whole);
}

TEST(TrainSae, SaysWhatIsWrong) {
  const Scratch folder;
  const Activations activations = some_activations(folder / "a");
  ThreadPool pool(1);
  SaeTrainOptions o = some_options(folder / "a", SaeLearning::Architecture::topk);
  EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("exists and holds something"),
            std::string::npos);
  o.out = folder / "b";
  o.hook = "blocks.1.hook_resid_post";
  EXPECT_NE(
      message_of<InputError>([&] { train_sae(pool, activations, o); }).find("holds no values of \"blocks.1.hook_resid_post\""),
      std::string::npos);
  o.hook = "";
  EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("hook"), std::string::npos);
  o.hook = "blocks.0.hook_resid_post";
  o.learning.k = 65;
  EXPECT_NE(
      message_of<InputError>([&] { train_sae(pool, activations, o); }).find("k is 65; expected 1 to the number of features, 64"),
      std::string::npos);
  o.learning.k = 3;
  o.target = "blocks.0.hook_mlp_out";
  EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("no transcoders of this architecture"),
            std::string::npos);
  o.target = o.hook = "blocks.0.hook_resid_post";
  EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("reads one hook and writes at another"),
            std::string::npos);
  o.target = "";
  o.learning.skip = true;
  EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("a skip connection is of transcoders"),
            std::string::npos);
  o.learning.skip = false;
  o.learning.architecture = SaeLearning::Architecture::batchtopk;
  for (const std::vector<int64_t>& widths : {std::vector<int64_t>{0}, {8, 8}, {64}}) {
    o.learning.widths = widths;
    EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("of an inner level: expected ascending"),
              std::string::npos);
  }
  o.learning.architecture = SaeLearning::Architecture::topk;
  EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("(matryoshka) are of batchtopk"),
            std::string::npos);
  o.learning.widths.clear();
  o.skip_positions = 8;
  EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("no context has more than 8 tokens"),
            std::string::npos);
  o.skip_positions = 0;
  o.memory = size_t{1} << 20;
  EXPECT_EQ(train_sae(pool, activations,
                      [&] {
                        o.learning.steps = 1;
                        return o;
                      }())
                .steps,
            1);
  std::filesystem::remove_all(o.out);
  o.batch = 10000;
  EXPECT_NE(message_of<InputError>([&] {
              train_sae(pool, activations, o);
            }).find("training 64 features on 10000 tokens a step would take"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(o.out));
  o.memory = 0;
  o.resume = true;
  o.out = folder / "other";
  std::filesystem::create_directory(o.out);
  folder.write("other/notes.txt", "no run");
  EXPECT_NE(message_of<InputError>([&] { train_sae(pool, activations, o); }).find("holds no trainer.safetensors to resume from"),
            std::string::npos);
}

}  // namespace
}  // namespace vitrine
