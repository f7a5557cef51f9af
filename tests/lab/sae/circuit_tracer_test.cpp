// tests/golden/sae/make_circuit_tracer.py: transcoders as circuit-tracer saves them, and what it computes with them.
#include "sae/circuit_tracer.h"

#include <gtest/gtest.h>

#include <filesystem>
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

const std::string kCircuitTracer = std::string(VITRINE_GOLDEN) + "/sae/circuit_tracer/";
constexpr Tolerance kWithin{.abs = 2e-6, .rel = 1e-5};

std::vector<float> of_run(const std::string& file, const char* name) {
  const Checkpoint checkpoint = open_safetensors(kCircuitTracer + file);
  return as_floats(*checkpoint.find(name)).values;
}

TEST(CircuitTracer, ATranscoderOfOneLayer) {
  const SparseAutoencoder sae = read_sae(kCircuitTracer + "layer_1.safetensors");
  EXPECT_EQ(architecture_name(sae), "jumprelu_skip_transcoder");
  EXPECT_EQ(sae.hook_name, "blocks.1.ln2.hook_normalized");
  EXPECT_EQ(sae.hook_name_out, "blocks.1.hook_mlp_out");
  const std::vector<float> x = of_run("layer_1_run.safetensors", "x");
  const int64_t rows = static_cast<int64_t>(x.size()) / sae.d_in;
  ThreadPool pool(1);
  Context ctx(pool);
  const SparseFeatures features = encode(ctx, sae, x.data(), rows);
  std::vector<float> dense(static_cast<size_t>(rows * sae.d_sae)), y(static_cast<size_t>(rows * sae.d_out));
  to_dense(features, sae.d_sae, dense.data());
  decode(ctx, sae, features, x.data(), y.data());
  EXPECT_CLOSE(dense, of_run("layer_1_run.safetensors", "features"), kWithin);
  EXPECT_CLOSE(y, of_run("layer_1_run.safetensors", "y"), kWithin);
}

TEST(CircuitTracer, ACrossLayerTranscoder) {
  const CrossLayerTranscoder t = read_cross_layer(kCircuitTracer + "clt");
  ASSERT_EQ(t.n_layers, 3);
  EXPECT_EQ(t.layers[2].hook_name, "blocks.2.hook_resid_mid");
  const std::vector<float> x = of_run("clt_run.safetensors", "x");
  const int64_t rows = static_cast<int64_t>(x.size()) / t.d_model / t.n_layers;
  ThreadPool pool(1);
  Context ctx(pool);
  std::vector<SparseFeatures> features;
  std::vector<float> dense(static_cast<size_t>(t.n_layers * rows * t.d_sae)), y;
  for (int64_t i = 0; i < t.n_layers; ++i) {
    features.push_back(encode(ctx, t.layers[static_cast<size_t>(i)], x.data() + i * rows * t.d_model, rows));
    to_dense(features.back(), t.d_sae, dense.data() + i * rows * t.d_sae);
  }
  EXPECT_CLOSE(dense, of_run("clt_run.safetensors", "features"), kWithin);
  for (const FloatVector& layer : decode(ctx, t, features)) y.insert(y.end(), layer.begin(), layer.end());
  EXPECT_CLOSE(y, of_run("clt_run.safetensors", "y"), kWithin);
  features.pop_back();
  EXPECT_THROW(decode(ctx, t, features), UsageError);
}

TEST(CircuitTracer, FilesThatAreMissingOrDisagree) {
  const Scratch scratch;
  EXPECT_CONTAINS(message_of([&] { read_cross_layer(scratch.path()); }), "W_enc_0.safetensors");
  std::filesystem::copy(kCircuitTracer + "clt", scratch / "clt", std::filesystem::copy_options::recursive);
  std::filesystem::copy_file(kCircuitTracer + "clt/W_dec_1.safetensors", scratch / "clt/W_dec_2.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_CONTAINS(message_of([&] { read_cross_layer(scratch / "clt"); }), "there is no tensor \"W_dec_2\"");
}

}  // namespace
}  // namespace vitrine
