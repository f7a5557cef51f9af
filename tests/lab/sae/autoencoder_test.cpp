// tests/golden/sae/make.py: what SAELens computes with an autoencoder of each architecture.
#include "sae/autoencoder.h"

#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "io/safetensors.h"
#include "sae/sae_file.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kAutoencoders = std::string(VITRINE_GOLDEN) + "/sae";
constexpr Tolerance kNear{.abs = 2e-6, .rel = 1e-5};

std::vector<float> floats(const Checkpoint& file, const char* name) {
  const StoredTensor* t = file.find(name);
  if (t == nullptr) return {};
  return as_floats(*t).values;
}

std::vector<std::string> every_case() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kAutoencoders))
    if (entry.path().filename() == "values.safetensors") names.push_back(entry.path().parent_path().string());
  return names;
}

TEST(SparseAutoencoder, EqualsSaeLensOnEachArchitecture) {
  const std::vector<std::string> cases = every_case();
  EXPECT_EQ(cases.size(), 15U);
  for (const std::string& folder : cases) {
    SCOPED_TRACE(folder);
    const SparseAutoencoder sae = read_sae(folder);
    const Checkpoint values = open_safetensors(folder + "/values.safetensors");
    const std::vector<float> x = floats(values, "x");
    const int64_t rows = static_cast<int64_t>(x.size()) / sae.d_in;
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      Context ctx(pool);
      const SparseFeatures features = encode(ctx, sae, x.data(), rows);
      std::vector<float> dense(static_cast<size_t>(rows * sae.d_sae)), y(static_cast<size_t>(rows * sae.d_out));
      to_dense(features, sae.d_sae, dense.data());
      EXPECT_CLOSE(dense, floats(values, "features"), kNear);
      decode(ctx, sae, features, x.data(), y.data());
      EXPECT_CLOSE(y, floats(values, "y"), kNear);
      const SparseFeatures again = to_sparse(dense.data(), rows, sae.d_sae, &features);
      EXPECT_EQ(again.index, features.index);
      EXPECT_EQ(again.value, features.value);
      EXPECT_EQ(again.begin, features.begin);
    }
  }
}

TEST(SparseAutoencoder, WhatIsWrittenReadsBackAsTheSame) {
  const Scratch scratch;
  for (const std::string& folder : every_case()) {
    SCOPED_TRACE(folder);
    const SparseAutoencoder sae = read_sae(folder);
    write_sae(scratch / "copy", sae);
    const SparseAutoencoder copy = read_sae(scratch / "copy");
    EXPECT_EQ(architecture_name(copy), architecture_name(sae));
    EXPECT_EQ(copy.W_enc, sae.W_enc);
    EXPECT_EQ(copy.W_dec, sae.W_dec);
    EXPECT_EQ(copy.threshold, sae.threshold);
    EXPECT_EQ(copy.W_skip, sae.W_skip);
    EXPECT_EQ(copy.hook_name, sae.hook_name);
    EXPECT_EQ(copy.hook_name_out, sae.hook_name_out);
    EXPECT_EQ(copy.apply_b_dec_to_input, sae.apply_b_dec_to_input);
    EXPECT_EQ(copy.rescale_acts_by_decoder_norm, sae.rescale_acts_by_decoder_norm);
    EXPECT_EQ(copy.input_norm, sae.input_norm);
    EXPECT_EQ(copy.k, sae.k);
  }
}

TEST(SparseAutoencoder, SubtractsTheMeanByItsWeights) {
  for (const std::string& folder : every_case()) {
    SCOPED_TRACE(folder);
    const SparseAutoencoder sae = read_sae(folder);
    if (sae.input_norm == SparseAutoencoder::InputNorm::constant_norm_rescale) {
      EXPECT_CONTAINS(message_of<InputError>([&] { subtracting_the_mean(sae); }), "cannot subtract the input's mean");
      continue;
    }
    const SparseAutoencoder made = subtracting_the_mean(sae);
    std::vector<float> x = floats(open_safetensors(folder + "/values.safetensors"), "x");
    const int64_t rows = static_cast<int64_t>(x.size()) / sae.d_in;
    std::vector<float> centered = x;
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<float> row(centered.data() + r * sae.d_in, static_cast<size_t>(sae.d_in));
      const float mean = std::accumulate(row.begin(), row.end(), 0.0f) / static_cast<float>(sae.d_in);
      for (float& value : row) value -= mean;
    }
    ThreadPool pool(1);
    Context ctx(pool);
    const auto run = [&](const SparseAutoencoder& one, const std::vector<float>& input) {
      const SparseFeatures features = encode(ctx, one, input.data(), rows);
      std::vector<float> dense(static_cast<size_t>(rows * sae.d_sae)), y(static_cast<size_t>(rows * sae.d_out));
      to_dense(features, sae.d_sae, dense.data());
      // layer_norm gives the mean back with the output; features are what must be the same.
      if (sae.input_norm == SparseAutoencoder::InputNorm::none) decode(ctx, one, features, input.data(), y.data());
      dense.insert(dense.end(), y.begin(), y.end());
      return dense;
    };
    EXPECT_CLOSE(run(made, x), run(sae, centered), (Tolerance{.abs = 1e-4, .rel = 1e-4}));
  }
}

TEST(SparseAutoencoder, ReadsTheHookFromGemmaScopesPath) {
  const SparseAutoencoder sae = read_sae(kAutoencoders + "/gemma-scope-2b-pt-res/layer_1/width_16k");
  EXPECT_EQ(sae.hook_name, "blocks.1.hook_resid_post");
  EXPECT_EQ(architecture_name(sae), "jumprelu");
}

TEST(SparseAutoencoder, RefusesWhatIsNotOne) {
  const Scratch scratch;
  EXPECT_CONTAINS(message_of([&] { read_sae(scratch / "absent"); }), "the file or directory does not exist");
  EXPECT_CONTAINS(message_of([&] { read_sae(scratch.path()); }), "there is no cfg.json");

  const std::string weights = kAutoencoders + "/topk/sae_weights.safetensors";
  std::filesystem::copy_file(weights, scratch / "sae_weights.safetensors");
  const auto refused = [&](const std::string& config) {
    scratch.write("cfg.json", config);
    return message_of<InputError>([&] { read_sae(scratch.path()); });
  };
  EXPECT_CONTAINS(refused(R"({"architecture": "temporal", "d_in": 12, "d_sae": 40})"), "expected standard, gated, topk");
  EXPECT_CONTAINS(refused(R"({"architecture": "topk", "d_in": 12, "d_sae": 40})"), "\"k\"");
  EXPECT_CONTAINS(refused(R"({"architecture": "topk", "d_in": 12, "d_sae": 40, "k": 41})"), "from 1 to d_sae (40)");
  EXPECT_CONTAINS(refused(R"({"architecture": "topk", "d_in": 12, "d_sae": 40, "k": 2.5})"), "whole number");
  EXPECT_CONTAINS(refused(R"({"architecture": "standard", "d_in": 13, "d_sae": 40})"),
                  "tensor \"W_enc\" is [12, 40]; expected [13, 40]");
  EXPECT_CONTAINS(refused(R"({"architecture": "gated", "d_in": 12, "d_sae": 40})"), "there is no tensor \"r_mag\"");
  EXPECT_CONTAINS(refused(R"({"architecture": "standard", "d_in": 12, "d_sae": 40, "activation_fn": "tanh-relu"})"),
                  "expected relu");
  EXPECT_CONTAINS(refused(R"({"architecture": "standard", "d_in": 12, "d_sae": 40, "normalize_activations": "x"})"),
                  "expected none, expected_average_only_in");
}

TEST(SparseAutoencoder, WhatOverflowsIsAnError) {
  ThreadPool pool(2);
  Context ctx(pool);
  for (const auto activation : {SparseAutoencoder::Activation::topk, SparseAutoencoder::Activation::relu}) {
    SparseAutoencoder sae;
    sae.activation = activation;
    sae.d_in = sae.d_out = 4;
    sae.d_sae = 100;
    sae.k = activation == SparseAutoencoder::Activation::topk ? 40 : 0;
    sae.hook_name = sae.hook_name_out = "blocks.0.hook_resid_post";
    sae.W_enc.assign(400, 3e38F);
    sae.W_dec.assign(400, 1);
    sae.b_enc.assign(100, 0);
    sae.b_dec.assign(4, 0);
    sae.check("a test");
    const std::vector<float> x = {1, 2, 3, 4, 3e38F, -3e38F, 3e38F, -3e38F};  // of the second row, infinity less infinity
    EXPECT_CONTAINS(message_of<RunError>([&] { encode(ctx, sae, x.data() + 4, 1); }), "makes NaN or infinity of row 0");
    sae.W_enc.assign(400, 1);
    EXPECT_EQ(encode(ctx, sae, x.data(), 1).rows(), 1);
  }
  // A row of zeros has no norm to be brought to another.
  SparseAutoencoder sae = read_sae(kAutoencoders + "/standard_constant_norm");
  const std::vector<float> zeros(static_cast<size_t>(sae.d_in), 0.0F);
  EXPECT_CONTAINS(message_of<RunError>([&] { encode(ctx, sae, zeros.data(), 1); }), "its norm is zero");
}

TEST(SparseAutoencoder, TopkTakesTheFirstOfEquals) {
  SparseAutoencoder sae;
  sae.activation = SparseAutoencoder::Activation::topk;
  sae.d_in = sae.d_out = 1;
  sae.d_sae = 500;
  sae.k = 3;
  sae.W_enc.assign(500, 1.0F);
  sae.W_enc[499] = 2;
  sae.W_dec.assign(500, 1.0F);
  sae.b_enc.assign(500, 0.0F);
  sae.b_dec.assign(1, 0.0F);
  sae.check("test");
  ThreadPool pool(1);
  Context ctx(pool);
  const std::vector<float> x = {1, -1};
  const SparseFeatures features = encode(ctx, sae, x.data(), 2);
  EXPECT_EQ(features.index, (std::vector<int32_t>{0, 1, 499}));
  EXPECT_EQ(features.begin, (std::vector<int64_t>{0, 3, 3}));
  EXPECT_THROW(decode(ctx, sae, {{0, 1}, {500}, {1}, {}, {}}, nullptr, nullptr), UsageError);
}

}  // namespace
}  // namespace vitrine
