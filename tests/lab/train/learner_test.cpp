// The laws of a step: accumulation is one big batch, threads and recomputation change no bit, NaN is named and learns nothing.
#include "train/learner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/table.h"
#include "support/random_model.h"
#include "support/scratch.h"
#include "train/support.h"

namespace vitrine {
namespace {

std::vector<float> weights_of(const Learner& learner) {
  const float* w = learner.parameters().weights();
  return {w, w + learner.parameters().size()};
}

// Sequences of random ids; every `skip`th row of sequence i is not scored.
Batch random_batch(const std::vector<int64_t>& lengths, int32_t vocab, uint64_t seed, int64_t skip = 0) {
  Batch batch;
  for (const int64_t length : lengths) {
    batch.lengths.push_back(length);
    for (int64_t i = 0; i < length; ++i) {
      const auto words = philox(seed, batch.tokens.size(), 0);
      batch.tokens.push_back(static_cast<int32_t>(words[0] % static_cast<uint32_t>(vocab)));
      const bool scored = skip == 0 || i % skip == 0;
      batch.labels.push_back(scored ? static_cast<int32_t>(words[1] % static_cast<uint32_t>(vocab)) : kNotScored);
    }
  }
  return batch;
}

LearnerOptions plain(int threads = 1) {
  LearnerOptions options;
  options.optimizer.kind = OptimizerOptions::Kind::sgd;
  options.optimizer.weight_decay = 0;
  options.threads = threads;
  return options;
}

TEST(Learner, AccumulationIsOneBigBatchWhateverIsScored) {
  const std::string model = Golden::open("gemma2").model();
  Learner apart(open_model(model), plain()), together(open_model(model), plain());
  // 24 rows of which 3 are scored, 7 all scored, and one batch in which none is.
  std::vector<Batch> batches = {random_batch({24}, 97, 1, 8), random_batch({5, 2}, 97, 2), random_batch({4}, 97, 3)};
  std::fill(batches[2].labels.begin(), batches[2].labels.end(), kNotScored);
  Batch big;
  for (const Batch& batch : batches) {
    big.tokens.insert(big.tokens.end(), batch.tokens.begin(), batch.tokens.end());
    big.labels.insert(big.labels.end(), batch.labels.begin(), batch.labels.end());
    big.lengths.insert(big.lengths.end(), batch.lengths.begin(), batch.lengths.end());
  }
  const StepReport a = apart.step(batches, 0.5), t = together.step(std::span(&big, 1), 0.5);
  EXPECT_EQ(a.tokens, 10);
  EXPECT_EQ(t.tokens, 10);
  EXPECT_NEAR(a.loss, t.loss, 1e-6 * t.loss);
  EXPECT_NEAR(a.gradient_norm, t.gradient_norm, 1e-5 * t.gradient_norm);
  const std::vector<float> apart_weights = weights_of(apart), together_weights = weights_of(together);
  EXPECT_CLOSE(apart_weights, together_weights, (Tolerance{.abs = 2e-6, .rel = 1e-5}));
  // Dividing each batch by its own tokens would give another gradient: the mean of means.
  Learner alone(open_model(model), plain());
  const double first = alone.step(std::span(&batches[0], 1), 0).loss, second = alone.step(std::span(&batches[1], 1), 0).loss;
  EXPECT_GT(std::abs((first + second) / 2 - t.loss), 1e-3);
}

TEST(Learner, ALargeBatchGoesInPassesAndIsStillOneBatch) {
  const std::string model = Golden::open("gpt2_a").model();
  Learner whole(open_model(model), plain()), halves(open_model(model), plain());
  const std::vector<int64_t> lengths(56, 80);  // 4,480 rows: three passes
  const Batch big = random_batch(lengths, 97, 1, 3);
  const std::vector<Batch> parts = parts_of(big, 1120);  // each of them one pass
  ASSERT_EQ(parts.size(), 4u);
  const Learner::Sum before = whole.evaluate(big);
  double loss = 0;
  for (const Batch& part : parts) loss += halves.evaluate(part).loss;
  EXPECT_EQ(before.tokens, 56 * 27);
  EXPECT_NEAR(before.loss, loss, 1e-6 * loss);
  const StepReport a = whole.step(std::span(&big, 1), 0.5), b = halves.step(parts, 0.5);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_NEAR(a.loss, b.loss, 1e-6 * b.loss);
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-5 * b.gradient_norm);
  EXPECT_CLOSE(weights_of(whole), weights_of(halves), (Tolerance{.abs = 2e-6, .rel = 1e-5}));
  // Twice the batch takes no more memory.
  const double peak = whole.peak_bytes();
  const Batch bigger = random_batch(std::vector<int64_t>(112, 80), 97, 1);
  whole.step(std::span(&bigger, 1), 0.5);
  EXPECT_LT(whole.peak_bytes(), 1.4 * peak);  // passes of up to 2,048 rows instead of 1,520
}

TEST(Learner, ThreadsChangeNoBit) {
  for (const char* name : {"gpt2_a", "gemma2", "llama"}) {
    SCOPED_TRACE(name);
    const std::string model = Golden::open(name).model();
    LearnerOptions one, two;
    one.clip = two.clip = 0.5;
    one.threads = 1;
    two.threads = 2;
    Learner a(open_model(model), one), b(open_model(model), two);
    for (uint64_t i = 0; i < 3; ++i) {
      const std::vector<Batch> batches = {random_batch({64, 40, 24}, 97, i), random_batch({33}, 97, i + 10)};
      const StepReport ra = a.step(batches, 1e-2), rb = b.step(batches, 1e-2);
      EXPECT_EQ(ra.loss, rb.loss);
      EXPECT_EQ(ra.gradient_norm, rb.gradient_norm);
    }
    EXPECT_EQ(weights_of(a), weights_of(b));
  }
}

TEST(Learner, MomentsInBf16LearnAlmostTheSame) {
  const std::string model = Golden::open("gemma2").model();
  LearnerOptions one, two, wide;
  one.optimizer.bf16_moments = two.optimizer.bf16_moments = true;
  one.threads = wide.threads = 1;
  two.threads = 2;
  Learner a(open_model(model), one), b(open_model(model), two), c(open_model(model), wide);
  const std::vector<float> before = weights_of(c);
  for (uint64_t i = 0; i < 12; ++i) {
    const Batch batch = random_batch({64, 40, 24}, 97, i);
    const StepReport ra = a.step(std::span(&batch, 1), 1e-3), rb = b.step(std::span(&batch, 1), 1e-3),
                     rc = c.step(std::span(&batch, 1), 1e-3);
    EXPECT_EQ(ra.loss, rb.loss);
    EXPECT_NEAR(ra.loss, rc.loss, 1e-3 * rc.loss);
  }
  EXPECT_EQ(weights_of(a), weights_of(b));
  const std::vector<float> narrow = weights_of(a), exact = weights_of(c);
  double off = 0, moved = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    off += std::pow(narrow[i] - exact[i], 2);
    moved += std::pow(exact[i] - before[i], 2);
  }
  EXPECT_GT(off, 0);
  EXPECT_LT(off, 1e-3 * moved);  // a rounding is at most 0.8 % of a moment, and another one in every step
  EXPECT_LT(Optimizer::bytes(one.optimizer, 1000, 1), 0.76 * Optimizer::bytes(wide.optimizer, 1000, 1));
}

Json small_gpt2(double dropout) {
  return {{"model_type", "gpt2"}, {"n_embd", 32},          {"n_layer", 3},          {"n_head", 2},           {"vocab_size", 61},
          {"n_positions", 64},    {"embd_pdrop", dropout}, {"attn_pdrop", dropout}, {"resid_pdrop", dropout}};
}

OpenedModel fresh(const Json& config) {
  OpenedModel opened;
  opened.files.name = opened.files.config_path = "config.json";
  opened.files.config = config;
  opened.model = model_from_config(opened.files);
  return opened;
}

// Sequences [first, first + n) of a batch whose sequences have `length` rows each.
Batch some_of(const Batch& batch, size_t first, size_t n, size_t length) {
  const auto cut = [&](const std::vector<int32_t>& all) {
    return std::vector<int32_t>(all.begin() + static_cast<std::ptrdiff_t>(first * length),
                                all.begin() + static_cast<std::ptrdiff_t>((first + n) * length));
  };
  return {.tokens = cut(batch.tokens),
          .labels = cut(batch.labels),
          .lengths = std::vector<int64_t>(n, static_cast<int64_t>(length)),
          .first_row = batch.first_row + first * length};
}

// Four long sequences go through the model in two halves; three, or one, cannot be halved. The gradients must add up.
TEST(Learner, HalvesOfAStepAddUpToTheWhole) {
  for (const double dropout : {0.0, 0.3})
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(dropout);
      Json config = small_gpt2(dropout);
      config["n_positions"] = 200;
      LearnerOptions options = plain(2);
      options.init = InitRule{};
      options.recomputed_layers = recompute ? Tape::kAllBlocks : 0;
      const Batch all = random_batch(std::vector<int64_t>(4, 200), 61, 5, 2);
      const std::vector<Batch> parts = {all, some_of(all, 0, 3, 200), some_of(all, 3, 1, 200)};
      std::vector<std::vector<float>> changes;  // lr · gradient of the mean loss
      std::vector<double> losses;
      for (const Batch& batch : parts) {
        Learner learner(fresh(config), options);
        const std::vector<float> before = weights_of(learner);
        losses.push_back(learner.step(std::span(&batch, 1), 1.0).loss);
        changes.push_back(weights_of(learner));
        for (size_t i = 0; i < before.size(); ++i) changes.back()[i] -= before[i];
      }
      EXPECT_NEAR(losses[0], (3 * losses[1] + losses[2]) / 4, 1e-6 * losses[0]);
      std::vector<float> sum(changes[0].size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = (3 * changes[1][i] + changes[2][i]) / 4;
      EXPECT_CLOSE(changes[0], sum, (Tolerance{.abs = 2e-6, .rel = 1e-4}));
    }
}

// A norm that begins at zero would never learn, and neither would what stands before it.
TEST(Learner, FreshNormsOfEveryFamilyMultiplyByOne) {
  for (const std::string& model : Golden::all()) {
    SCOPED_TRACE(model);
    LearnerOptions options = plain(2);
    options.init = InitRule{};
    const Learner learner(open_model(Golden::open(model).model()), options);
    const bool centered = model.starts_with("gemma") && !model.starts_with("gemma4");
    const float one = centered ? 0.0f : 1.0f;  // those multiply by 1 + w
    int norms = 0;
    for (const Parameter& p : learner.parameters().list()) {
      const bool norm = p.name.find("norm") != std::string::npos || p.name.find("ln_") != std::string::npos;
      if (!norm || !p.name.ends_with("weight")) continue;
      ++norms;
      const float here = model == "qwen3_5" && !p.name.ends_with("linear_attn.norm.weight") ? 0.0f : one;
      for (size_t i = 0; i < p.count; ++i) EXPECT_EQ(learner.parameters().weights(p)[i], here) << p.name;
    }
    EXPECT_GT(norms, 2);
  }
}

TEST(Learner, HalvesAreTheSameBitsOnAnyThreads) {
  std::vector<std::vector<float>> weights;
  std::vector<double> norms;
  for (const int threads : {1, 2, 3, 4, 6}) {
    LearnerOptions options;
    options.clip = 0.5;
    options.init = InitRule{};
    options.seed = 3;
    options.threads = threads;
    Learner learner(fresh(small_gpt2(0.2)), options);
    for (uint64_t i = 0; i < 3; ++i) {
      // Of the first step one half is a batch, of the second one the halves are ragged, and the third is too short for halves.
      const std::vector<std::vector<int64_t>> lengths = {std::vector<int64_t>(5, 64), {64, 63, 1, 64, 7, 64, 50}, {64, 40}};
      const std::vector<Batch> batches = {random_batch(lengths[i], 61, i), random_batch(lengths[i], 61, i + 10)};
      norms.push_back(learner.step(batches, 1e-2).gradient_norm);
    }
    weights.push_back(weights_of(learner));
  }
  for (size_t i = 1; i < weights.size(); ++i) {
    EXPECT_EQ(weights[0], weights[i]);
    for (size_t step = 0; step < 3; ++step) EXPECT_EQ(norms[step], norms[3 * i + step]);
  }
}

// What a step leaves in the gradients is no zeros (GradTarget::unset). Whoever contributes first, in whatever order and in
// however many parts, must not add to it.
struct GradientWatch final : Listener {
  explicit GradientWatch(std::string hook) : name(std::move(hook)) {}
  std::string name;
  int64_t seen = 0;
  bool wants(std::string_view hook) const override { return hook == name; }
  Tensor see(Context&, std::string_view, const Tensor&) override { return {}; }
  bool wants_gradient(std::string_view hook) const override { return hook == name; }
  void see_gradient(std::string_view, const Tensor&) override { ++seen; }
};

struct Beginning {
  const char* model;
  std::vector<int64_t> lengths;
  int batches = 1;
  bool bf16 = false, recompute = false, guided = false;
  const char* watch = nullptr;
};

TEST(Learner, AStepBeginsWithNoGradients) {
  const Beginning cases[] = {
      {"gpt2_a", {17, 9}},
      {"gpt2_b", {17, 9}, 2},
      {"gemma", {17, 9}, 1, true},
      {"gemma2", {17, 9}, 2, false, true},
      {"gemma2", {17, 9}, 1, false, false, true},
      {"llama", {17, 9}, 1, false, false, false, "blocks.0.attn.hook_result"},
      {"qwen2", {17, 9}, 1, true, false, true},
      {"mistral", std::vector<int64_t>(20, 40)},                // in halves
      {"gpt2_a", std::vector<int64_t>(24, 50), 2, true, true},  // in halves of several batches
      {"gemma2", {38, 30, 30}, 3, true, false, true},
  };
  for (const Beginning& c : cases) {
    SCOPED_TRACE(std::string(c.model) + " " + std::to_string(c.lengths.size()) + " x " + std::to_string(c.batches));
    const std::string model = Golden::open(c.model).model();
    OpenedModel teacher = open_model(model);
    const auto begin = [&] {
      LearnerOptions options = plain(2);
      options.bf16 = c.bf16;
      options.recomputed_layers = c.recompute ? Tape::kAllBlocks : 0;
      auto learner = std::make_unique<Learner>(open_model(model), options);
      if (c.guided) {
        for (size_t i = 0; i < learner->parameters().size(); i += 3) learner->parameters().weights()[i] *= 1.1f;
        learner->set_teachers({{"teacher", teacher.model.get(), {}, 0.5}}, 0.5);
      }
      return learner;
    };
    const auto batches = [&](uint64_t seed) {
      std::vector<Batch> all;
      for (int i = 0; i < c.batches; ++i) all.push_back(random_batch(c.lengths, 90, seed + static_cast<uint64_t>(i), 2));
      return all;
    };
    const auto learned = begin(), fresh = begin();
    const auto other = batches(100), own = batches(7);
    EXPECT_GT(learned->step(other, 0).gradient_norm, 0);  // a rate of 0: the weights stay
    for (const Parameter& p : learned->parameters().list())
      if (!learned->parameters().begins_with_zeros(p))
        std::fill_n(learned->parameters().gradients(p), p.count, std::numeric_limits<float>::quiet_NaN());
    fresh->set_steps_done(1);
    GradientWatch watch(c.watch != nullptr ? c.watch : "none");
    Listener* const listener = c.watch != nullptr ? &watch : nullptr;
    const StepReport again = learned->step(own, 0.1, false, listener), first = fresh->step(own, 0.1, false, listener);
    EXPECT_EQ(watch.seen > 0, c.watch != nullptr);
    EXPECT_EQ(again.gradient_norms, first.gradient_norms);
    EXPECT_EQ(weights_of(*learned), weights_of(*fresh));
  }
}

// As above, with so many rows that an MLP goes through its strips (ops/mlp_packed.h).
TEST(Learner, AStepOfManyRowsBeginsWithNoGradients) {
  const Json configs[] = {{{"model_type", "gpt2"},
                           {"n_embd", 64},
                           {"n_inner", 1024},
                           {"n_layer", 1},
                           {"n_head", 2},
                           {"vocab_size", 61},
                           {"n_positions", 256}},
                          {{"model_type", "gemma"},
                           {"hidden_size", 64},
                           {"intermediate_size", 1024},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 2},
                           {"num_key_value_heads", 1},
                           {"head_dim", 16},
                           {"vocab_size", 61},
                           {"max_position_embeddings", 256}}};
  for (const Json& config : configs) {
    SCOPED_TRACE(config["model_type"].get<std::string>());
    LearnerOptions options = plain(2);
    options.bf16 = true;
    options.init = InitRule{};
    Learner learned(fresh(config), options), fresh_one(fresh(config), options);
    const Batch other = random_batch(std::vector<int64_t>(16, 256), 61, 1),
                own = random_batch(std::vector<int64_t>(16, 256), 61, 2);
    learned.step(std::span(&other, 1), 0);
    fresh_one.set_steps_done(1);
    EXPECT_EQ(learned.step(std::span(&own, 1), 0.1).gradient_norms, fresh_one.step(std::span(&own, 1), 0.1).gradient_norms);
    EXPECT_EQ(weights_of(learned), weights_of(fresh_one));
  }
}

TEST(Parameters, WhatNothingReachedBecomesZeros) {
  const OpenedModel opened = open_model(Golden::open("gpt2_a").model());
  const Parameters parameters(*opened.model, Parameters::Grads::first_sets);
  for (const Parameter& p : parameters.list()) {
    EXPECT_EQ(parameters.begins_with_zeros(p), !p.matrix) << p.name;
    if (p.matrix) std::fill_n(parameters.gradients(p), p.count, 1.0f);
  }
  parameters.all_gradients().complete();  // nothing is unset yet
  EXPECT_EQ(parameters.gradients(parameters.list()[0])[0], 1.0f);
  parameters.all_gradients().unset();
  parameters.all_gradients().complete();
  for (size_t i = 0; i < parameters.size(); ++i) ASSERT_EQ(parameters.gradients()[i], 0.0f) << i;
}

TEST(Learner, WhatGoesWrongInOneHalfIsSaid) {
  const Batch good = random_batch(std::vector<int64_t>(10, 64), 61, 1);
  Json config = small_gpt2(0);
  config["tie_word_embeddings"] = false;
  for (const int threads : {1, 2, 4}) {
    LearnerOptions options = plain(threads);
    options.init = InitRule{};
    for (const size_t row : {size_t{3}, size_t{9 * 64 + 3}}) {  // in the first half, in the second
      Learner learner(fresh(config), options);
      const std::vector<float> before = weights_of(learner);
      Batch bad = good;
      bad.labels[row] = 61;
      try {
        learner.step(std::span(&bad, 1), 0.1);
        FAIL() << "a label beyond the vocabulary was taken";
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("61"), std::string::npos);
      }
      EXPECT_EQ(before, weights_of(learner));
      // Nothing of it is left in the gradients of either half.
      Learner never_failed(fresh(config), options);
      EXPECT_EQ(learner.step(std::span(&good, 1), 0.1).gradient_norm, never_failed.step(std::span(&good, 1), 0.1).gradient_norm);
      // A token whose embedding is NaN: the place is found.
      Learner broken(fresh(config), options);
      Batch with_nan = good;
      for (int32_t& token : with_nan.tokens) token = token == 60 ? 0 : token;
      with_nan.tokens[row] = 60;
      const Parameter& embedding = broken.parameters().list()[0];
      ASSERT_EQ(embedding.shape, (std::vector<int64_t>{61, 32}));
      broken.parameters().weights(embedding)[60 * 32] = std::numeric_limits<float>::quiet_NaN();
      try {
        broken.step(std::span(&with_nan, 1), 0.1);
        FAIL() << "NaN was learned from";
      } catch (const RunError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("hook_embed at position 3 (token 60)"), std::string::npos) << text;
      }
    }
  }
}

TEST(Learner, DropoutFallsTheSameOnAnyThreadsAndWhenRecomputed) {
  std::vector<std::vector<float>> weights;
  std::vector<double> losses;
  for (const int variant : {0, 1, 2, 3}) {
    LearnerOptions options;
    options.init = InitRule{};
    options.threads = variant == 1 ? 2 : 1;
    options.recomputed_layers = (variant == 2) ? Tape::kAllBlocks : 0;
    options.seed = 3;
    Learner learner(fresh(small_gpt2(variant == 3 ? 0.0 : 0.3)), options);
    for (uint64_t i = 0; i < 3; ++i) {
      const std::vector<Batch> batches = {random_batch({40, 24}, 61, i), random_batch({31}, 61, i + 10)};
      losses.push_back(learner.step(batches, 1e-2).loss);
    }
    weights.push_back(weights_of(learner));
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
  EXPECT_NE(weights[0], weights[3]);
  // The mask changes from step to step and from batch to batch: with the same batch twice the losses differ.
  LearnerOptions options;
  options.init = InitRule{};
  Learner learner(fresh(small_gpt2(0.3)), options);
  const Batch batch = random_batch({40}, 61, 1);
  const double first = learner.step(std::span(&batch, 1), 0).loss, second = learner.step(std::span(&batch, 1), 0).loss;
  EXPECT_NE(first, second);
  EXPECT_EQ(learner.evaluate(batch).loss, learner.evaluate(batch).loss);  // and falls nowhere when nothing is learned
}

TEST(Learner, RoundedProductsLearnAlmostTheSame) {
  const std::string model = Golden::open("llama").model();
  LearnerOptions exact = plain(2), rounded = plain(2);
  rounded.bf16 = true;
  Learner a(open_model(model), exact), b(open_model(model), rounded);
  const Batch batch = random_batch({40, 24}, 97, 4);
  double first = 0;
  for (int i = 0; i < 5; ++i) {
    const StepReport ra = a.step(std::span(&batch, 1), 0.1), rb = b.step(std::span(&batch, 1), 0.1);
    EXPECT_NEAR(ra.loss, rb.loss, 0.01 * ra.loss);
    EXPECT_NEAR(ra.gradient_norm, rb.gradient_norm, 0.05 * ra.gradient_norm);
    if (i == 0) first = rb.loss;
    if (i == 4) {
      EXPECT_LT(rb.loss, first);
    }
  }
  if (kernels().packed_bf16.rows == 0) GTEST_SKIP() << "left out: this machine has no products of bf16";
  EXPECT_NE(weights_of(a), weights_of(b));
}

TEST(Learner, ClippingScalesTheGradientToTheNorm) {
  const std::string model = Golden::open("llama").model();
  LearnerOptions clipped = plain();
  clipped.clip = 0.01;
  Learner a(open_model(model), clipped), b(open_model(model), plain());
  const std::vector<float> before = weights_of(a);
  const Batch batch = random_batch({20}, 97, 4);
  const StepReport ra = a.step(std::span(&batch, 1), 1, true), rb = b.step(std::span(&batch, 1), 1);
  EXPECT_EQ(ra.gradient_norm, rb.gradient_norm);  // reported before clipping
  EXPECT_GT(ra.gradient_norm, 0.01);
  double change = 0;
  for (const double c : ra.update.change) change += c * c;
  EXPECT_NEAR(std::sqrt(change), 0.01, 1e-5);  // lr 1: the step is the gradient
}

TEST(Learner, WeightDecayFallsOnMatricesOnly) {
  LearnerOptions options = plain();
  options.optimizer.weight_decay = 0.5;
  options.init = InitRule{.random_norms = true};
  Learner learner(fresh(small_gpt2(0)), options);
  for (size_t i = 0; i < learner.parameters().list().size(); ++i)
    EXPECT_EQ(learner.optimizer().decays(i), learner.parameters().list()[i].shape.size() == 2)
        << learner.parameters().list()[i].name;
  options.optimizer.decay = {"*c_fc*"};
  options.optimizer.no_decay = {"*.0.*", "*bias"};
  Learner chosen(fresh(small_gpt2(0)), options);
  for (size_t i = 0; i < chosen.parameters().list().size(); ++i) {
    const std::string& name = chosen.parameters().list()[i].name;
    EXPECT_EQ(chosen.optimizer().decays(i),
              name == "transformer.h.1.mlp.c_fc.weight" || name == "transformer.h.2.mlp.c_fc.weight")
        << name;
  }
  options.optimizer.decay = {"transformer.h.1.mlp.c_fd.weight"};
  const std::string message = message_of<InputError>([&] { const Learner refused(fresh(small_gpt2(0)), options); });
  EXPECT_CONTAINS(message, "optimizer.decay: \"transformer.h.1.mlp.c_fd.weight\" fits no parameter");
  EXPECT_CONTAINS(message, "the nearest name is \"transformer.h.1.mlp.c_fc.weight\"");
}

// Against torch.optim.AdamW with groups: tests/golden/optimizers/make_lr_groups.py.
TEST(Learner, RatesByGroupAreThoseOfTorch) {
  const Golden gold = Golden::open("llama");
  const Json told = read_json(std::string(VITRINE_GOLDEN) + "/optimizers/lr_groups.json");
  LearnerOptions options;
  options.optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  for (const auto& [glob, factor] : told.at("groups").items()) options.optimizer.lr_groups.emplace_back(glob, factor);
  options.clip = told.at("clip");
  options.threads = 2;
  Learner learner(open_model(gold.model()), options);
  const std::vector<float> before = weights_of(learner);
  const Batch batch = golden_batch(gold.prompt("train"));
  for (size_t i = 0; i < 10; ++i) {
    const StepReport report = learner.step(std::span(&batch, 1), told.at("lr"));
    const double loss = told.at("losses").at(i), norm = told.at("gradient_norms").at(i);
    EXPECT_NEAR(report.loss, loss, 1e-4 * loss) << i;
    EXPECT_NEAR(report.gradient_norm, norm, 1e-4 * norm) << i;
  }
  size_t frozen = 0;
  for (size_t i = 0; i < learner.parameters().list().size(); ++i) {
    const Parameter& p = learner.parameters().list()[i];
    double change = 0;
    for (size_t k = 0; k < p.count; ++k)
      change += std::pow(static_cast<double>(learner.parameters().weights(p)[k]) - static_cast<double>(before[p.begin + k]), 2);
    const double wanted = told.at("changes").at(p.name);
    EXPECT_NEAR(std::sqrt(change), wanted, 1e-4 * wanted) << p.name;
    if (learner.optimizer().rate_of(i) > 0) continue;
    EXPECT_EQ(change, 0) << p.name;
    ++frozen;
  }
  EXPECT_GE(frozen, 1u);
}

// Frozen matrices stay the same bits under every optimizer, and gradients of before do not reach the next step.
TEST(Learner, FrozenParametersStayUnderEveryOptimizer) {
  using Kind = OptimizerOptions::Kind;
  for (const Kind kind : {Kind::adamw, Kind::sgd, Kind::muon, Kind::normuon, Kind::soap}) {
    LearnerOptions options = plain();
    options.optimizer = {.kind = kind, .weight_decay = 0.1, .lr_groups = {{"*layers.0.*", 0}}};
    Learner learner(open_model(Golden::open("llama").model()), options);
    const std::vector<float> before = weights_of(learner);
    const Batch batch = random_batch({20}, 97, 4);
    StepReport report;
    for (int i = 0; i < 2; ++i) report = learner.step(std::span(&batch, 1), 1e-3, true);
    for (size_t i = 0; i < learner.parameters().list().size(); ++i) {
      const Parameter& p = learner.parameters().list()[i];
      const bool same = std::memcmp(learner.parameters().weights(p), before.data() + p.begin, p.count * sizeof(float)) == 0;
      EXPECT_EQ(same, learner.optimizer().rate_of(i) == 0) << p.name;
      if (same) {
        EXPECT_EQ(report.update.change[i], 0) << p.name;
        EXPECT_EQ(report.gradient_norms[i], 0) << p.name;
      }
    }
  }
  LearnerOptions options = plain();
  options.optimizer.lr_groups = {{"*layer.0*", 0.5}};
  EXPECT_CONTAINS(message_of<InputError>([&] { const Learner refused(open_model(Golden::open("llama").model()), options); }),
                  "optimizer.lr_groups: \"*layer.0*\" fits no parameter of this model");
}

TEST(Learner, NamesWhereNanAppearsAndLearnsNothing) {
  Learner learner(open_model(Golden::open("gemma2").model()), plain(2));
  const Batch batch = random_batch({12, 9}, 97, 4);
  learner.step(std::span(&batch, 1), 0.1);
  for (const Parameter& p : learner.parameters().list())
    if (p.ours == "blocks.2.mlp.W_in") learner.parameters().weights(p)[5] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> before = weights_of(learner);
  const std::string message = message_of<RunError>([&] { learner.step(std::span(&batch, 1), 0.1); });
  EXPECT_CONTAINS(message, "step 2: NaN or infinity appeared first in blocks.2.mlp.hook_pre");
  EXPECT_CONTAINS(message, "at position 0 (token ");
  std::vector<float> after = weights_of(learner);
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
  EXPECT_EQ(learner.steps_done(), 1);
}

TEST(Learner, NamesWhereAGradientOverflows) {
  // Attention that gives exactly zero passes its norm as zero; going backwards the norm multiplies by its weight and by
  // 1 / sqrt(eps), which together are beyond f32.
  Json config = read_json(Golden::open("gemma2").model() + "/config.json");
  config["rms_norm_eps"] = 2e-38;
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute);
    LearnerOptions options = plain();
    options.recomputed_layers = recompute ? Tape::kAllBlocks : 0;
    options.init = InitRule{};
    Learner learner(fresh(config), options);
    for (const Parameter& p : learner.parameters().list()) {
      float* const w = learner.parameters().weights(p);
      if (p.ours == "blocks.1.attn.W_O") std::fill(w, w + p.count, 0.0f);
      if (p.ours == "blocks.1.ln1_post.w") std::fill(w, w + p.count, 1e25f);
    }
    const Batch batch = random_batch({12, 9}, 97, 4);
    const std::vector<float> before = weights_of(learner);
    const std::string message = message_of<RunError>([&] { learner.step(std::span(&batch, 1), 0.1); });
    EXPECT_CONTAINS(message, "step 1: going backwards, NaN or infinity appeared first in the gradient at blocks.1.attn.hook_out");
    EXPECT_EQ(before, weights_of(learner));
  }
}

// The factor of what stays, 1 / (1 - p), takes numbers beyond f32 that are within it without dropout.
TEST(Learner, FindsWhatOnlyDropoutMadeInfinite) {
  Json config = small_gpt2(0);
  config["resid_pdrop"] = 0.999;
  LearnerOptions options = plain();
  options.init = InitRule{};
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute);
    options.recomputed_layers = recompute ? Tape::kAllBlocks : 0;
    Learner learner(fresh(config), options);
    for (const Parameter& p : learner.parameters().list())
      if (p.ours == "blocks.1.mlp.b_out") std::fill_n(learner.parameters().weights(p), p.count, 1e37f);
    const Batch batch = random_batch({40, 40}, 61, 4);
    const std::string message = message_of<RunError>([&] { learner.step(std::span(&batch, 1), 0.1); });
    EXPECT_CONTAINS(message, "step 1: NaN or infinity appeared first in blocks.1.hook_mlp_out at position ");
  }
}

TEST(Learner, RefusesWhatDoesNotFitTheModel) {
  Learner learner(fresh(small_gpt2(0)), plain());
  Batch batch = random_batch({65}, 61, 1);
  EXPECT_CONTAINS(message_of<InputError>([&] { learner.step(std::span(&batch, 1), 0.1); }),
                  "has 65 tokens; the context of the model holds 64");
  batch = random_batch({8}, 61, 1);
  batch.tokens[3] = 61;
  EXPECT_CONTAINS(message_of<InputError>([&] { learner.step(std::span(&batch, 1), 0.1); }), "61");
  batch = random_batch({8}, 61, 1);
  std::fill(batch.labels.begin(), batch.labels.end(), kNotScored);
  EXPECT_CONTAINS(message_of<InputError>([&] { learner.step(std::span(&batch, 1), 0.1); }), "nothing to learn from");
}

TEST(Learner, FreshWeightsFollowTheFamilysRule) {
  const auto statistics = [](const Learner& learner, std::string_view ours) {
    for (const Parameter& p : learner.parameters().list()) {
      if (p.ours != ours) continue;
      double sum = 0, squares = 0;
      for (size_t i = 0; i < p.count; ++i) {
        const double w = static_cast<double>(learner.parameters().weights(p)[i]);
        sum += w;
        squares += w * w;
      }
      const double mean = sum / static_cast<double>(p.count);
      return std::pair(mean, std::sqrt(squares / static_cast<double>(p.count) - mean * mean));
    }
    ADD_FAILURE() << "no parameter " << ours;
    return std::pair(0.0, 0.0);
  };
  Json config = small_gpt2(0);
  config["n_embd"] = 128;
  LearnerOptions options;
  options.init = InitRule{};
  const Learner gpt2(fresh(config), options);
  EXPECT_NEAR(statistics(gpt2, "blocks.1.attn.W_Q").second, 0.02, 0.0005);
  EXPECT_NEAR(statistics(gpt2, "blocks.1.mlp.W_out").second, 0.02 / std::sqrt(6.0), 0.0003);
  EXPECT_EQ(statistics(gpt2, "blocks.1.ln1.w"), std::pair(1.0, 0.0));
  EXPECT_NEAR(statistics(gpt2, "blocks.1.mlp.W_in").first, 0, 0.0005);
  EXPECT_NEAR(statistics(gpt2, "blocks.1.mlp.W_in").second, 0.02, 0.0005);
  // The texts' rule: randn(in) / sqrt(in), so that products keep the scale of what goes in.
  options.init = InitRule{.kind = InitRule::Kind::scale_preserving};
  const Learner preserving(fresh(config), options);
  EXPECT_NEAR(statistics(preserving, "W_E").second, 1 / std::sqrt(128.0), 0.002);
  EXPECT_NEAR(statistics(preserving, "blocks.0.mlp.W_out").second, 1 / std::sqrt(512.0), 0.001);
  // Gemma's file holds what is added to 1.
  const Json gemma = read_json(Golden::open("gemma").model() + "/config.json");
  options.init = InitRule{};
  const Learner offset(fresh(gemma), options);
  EXPECT_EQ(statistics(offset, "blocks.0.ln1.w"), std::pair(0.0, 0.0));
  // A convolution's kernel is drawn as a matrix is, though the files' norms and biases are no matrices either.
  Json lfm2 = read_json(Golden::open("lfm2").model() + "/config.json");
  lfm2["hidden_size"] = 512;
  lfm2["conv_bias"] = true;
  const Learner convolutions(fresh(lfm2), options);
  EXPECT_NEAR(statistics(convolutions, "blocks.0.conv.kernel").first, 0, 0.002);
  EXPECT_NEAR(statistics(convolutions, "blocks.0.conv.kernel").second, 0.02, 0.002);
  EXPECT_EQ(statistics(convolutions, "blocks.0.conv.bias"), std::pair(0.0, 0.0));
  // A seed says every number, another seed others.
  LearnerOptions other = options;
  other.seed = 2;
  const Learner again(fresh(gemma), options), different(fresh(gemma), other);
  EXPECT_EQ(weights_of(offset), weights_of(again));
  EXPECT_NE(weights_of(offset), weights_of(different));
}

TEST(Learner, TheMemoryEstimateOfManyRowsInBf16IsWhatABatchTakes) {
  Json config = small_gpt2(0);
  config["n_inner"] = 640;
  for (const int threads : {1, 2}) {  // two take halves at the same time
    LearnerOptions options = plain(threads);
    options.bf16 = true;
    Learner learner(fresh(config), options), measured(fresh(config), options);
    const double estimate = learner.activation_bytes(100 * 64, 64);
    const Batch batch = random_batch(std::vector<int64_t>(100, 64), 61, 1);
    measured.step(std::span(&batch, 1), 0.1);
    EXPECT_GT(estimate, 0.85 * measured.peak_bytes());
    EXPECT_LT(estimate, 1.15 * measured.peak_bytes());
    // It leaves nothing behind.
    Learner alone(fresh(config), options);
    EXPECT_EQ(learner.step(std::span(&batch, 1), 0.1).gradient_norm, alone.step(std::span(&batch, 1), 0.1).gradient_norm);
  }
}

TEST(Learner, TheMemoryEstimateCountsHalvesOfSeveralBatches) {
  Learner learner(fresh(small_gpt2(0)), plain(2)), measured(fresh(small_gpt2(0)), plain(2));
  const double estimate = learner.activation_bytes(4 * 64, 64, 4);
  const std::vector<Batch> batches(4, random_batch(std::vector<int64_t>(4, 64), 61, 1));
  measured.step(batches, 0.1);
  EXPECT_GT(estimate, 0.8 * measured.peak_bytes());
  EXPECT_LT(estimate, 1.3 * measured.peak_bytes());
}

TEST(Learner, TheMemoryEstimateIsWhatABatchTakes) {
  for (const double dropout : {0.0, 0.1})  // which makes tables of attention patterns
    for (const int64_t length : {20, 64, 300})
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(testing::Message() << length << " tokens, dropout " << dropout << ", " << threads << " threads");
        Json config = small_gpt2(dropout);
        config["n_positions"] = 300;
        Learner learner(fresh(config), plain(threads));
        const double estimate = learner.activation_bytes(20 * length, length);
        Learner measured(fresh(config), plain(threads));
        const Batch batch = random_batch(std::vector<int64_t>(20, length), 61, 1);
        measured.step(std::span(&batch, 1), 0.1);
        EXPECT_GT(estimate, 0.8 * measured.peak_bytes());
        EXPECT_LT(estimate, 1.3 * measured.peak_bytes());
      }
}

// The fewest blocks run again that the bytes ask for, the estimate is what a step takes, and no bit depends on it.
TEST(Learner, RecomputesAsFewBlocksAsTheMemoryAsksFor) {
  Json config = small_gpt2(0.1);
  config["n_layer"] = 6;
  const auto batch = random_batch(std::vector<int64_t>(20, 64), 61, 1);
  LearnerOptions options = plain(2);
  options.init = InitRule{};
  std::vector<double> bytes;  // with that many blocks recomputed
  for (int64_t blocks = 0; blocks <= 6; ++blocks) {
    options.recomputed_layers = blocks < 6 ? blocks : Tape::kAllBlocks;
    bytes.push_back(Learner(fresh(config), options).activation_bytes(20 * 64, 64));
  }
  EXPECT_LT(bytes[6], 0.5 * bytes[0]);
  options.recomputed_layers = 0;
  std::vector<float> weights;
  for (const size_t blocks : {size_t{0}, size_t{2}, size_t{4}, size_t{6}}) {
    SCOPED_TRACE(blocks);
    Learner learner(fresh(config), options);
    EXPECT_EQ(learner.recompute_within(bytes[blocks] + 1, 20 * 64, 64), bytes[blocks]);
    EXPECT_EQ(learner.recomputed_layers(), static_cast<int64_t>(blocks));
    learner.step(std::span(&batch, 1), 0.1);
    EXPECT_GT(bytes[blocks], 0.8 * learner.peak_bytes());
    EXPECT_LT(bytes[blocks], 1.3 * learner.peak_bytes());
    if (weights.empty()) weights = weights_of(learner);
    EXPECT_EQ(weights_of(learner), weights);
  }
  Learner learner(fresh(config), options);
  EXPECT_EQ(learner.recompute_within(1, 20 * 64, 64), bytes[6]);  // more than that is not to be had
  EXPECT_EQ(learner.recomputed_layers(), 6);
}

}  // namespace
}  // namespace vitrine
