// Rotary settings of every family, silent, null, of each type, at the top and by type of layer: what is read from a config.json
// rotates as transformers does (tests/golden/rope/make.py), or is refused by name.
#include <gtest/gtest.h>

#include "model/load.h"
#include "model/registry.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// The configuration of a golden model without its rotary settings, with those of a case.
ModelFiles files_of(const Json& one) {
  Json config = read_json(Golden::open(one.at("model")).model() + "/config.json");
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "partial_rotary_factor",
                          "original_max_position_embeddings"})
    config.erase(key);
  config["max_position_embeddings"] = 256;
  config.update(one.at("set"));
  ModelFiles files;
  files.config = std::move(config);
  files.config_path = "config.json";
  return files;
}

// Of the first layer of a kind that rotates.
RopeSpec rope_of(const Model& model, const std::string& layer_type) {
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer) {
    const LayerRecord& block = model.layer(layer);
    const bool sliding = block.attention.window != kNoWindow;
    if (block.rope && (layer_type == "any" || sliding == (layer_type == "sliding_attention"))) return *block.rope;
  }
  ADD_FAILURE() << "no layer rotates: " << layer_type;
  return {};
}

TEST(RopeConfig, ReadsWhatTransformersReads) {
  int compared = 0, refused = 0;
  for (const Json& one : read_json(std::string(VITRINE_GOLDEN) + "/rope/cases.json")) {
    SCOPED_TRACE(one.at("model").get<std::string>() + " " + one.at("name").get<std::string>() + " " + one.at("set").dump());
    if (one.contains("refused")) {
      EXPECT_CONTAINS(message_of([&] { model_from_config(files_of(one)); }), one.at("refused").get<std::string>());
      ++refused;
      continue;
    }
    std::unique_ptr<Model> model;
    ASSERT_NO_THROW(model = model_from_config(files_of(one))) << message_of([&] { model_from_config(files_of(one)); });
    for (const Json& want : one.at("rope")) {
      const RopeSpec rope = rope_of(*model, want.at("layer_type"));
      const std::vector<float> got = rope_frequencies(rope, want.at("tokens").get<int64_t>());
      const auto expected = want.at("inv_freq").get<std::vector<double>>();
      ASSERT_EQ(got.size(), expected.size()) << want.at("layer_type");
      for (size_t i = 0; i < got.size(); ++i)  // in the last bits: a power in f32
        EXPECT_NEAR(static_cast<double>(got[i]), expected[i], 3e-7 * expected[i])
            << want.at("layer_type") << " after " << want.at("tokens") << " tokens, pair " << i;
      EXPECT_NEAR(rope.attention_factor, want.at("attention_factor").get<double>(), 1e-12) << want.at("layer_type");
    }
    ++compared;
  }
  EXPECT_GT(compared, 600);
  EXPECT_GT(refused, 20);
}

// Whatever a config.json can say survives being written and read again.
TEST(RopeConfig, WritesWhatItReads) {
  int written = 0;
  for (const Json& one : read_json(std::string(VITRINE_GOLDEN) + "/rope/cases.json")) {
    if (one.contains("refused") || one.at("model") == "gemma3") continue;  // Gemma 3 is written in its older form
    SCOPED_TRACE(one.at("model").get<std::string>() + " " + one.at("name").get<std::string>());
    ModelFiles files = files_of(one);
    const std::unique_ptr<Model> model = model_from_config(files);
    files.config = model->config(ConfigFormat::huggingface);
    std::unique_ptr<Model> again;
    ASSERT_NO_THROW(again = model_from_config(files)) << message_of([&] { model_from_config(files); }) << files.config.dump();
    for (const Json& want : one.at("rope")) {
      const RopeSpec a = rope_of(*model, want.at("layer_type")), b = rope_of(*again, want.at("layer_type"));
      const auto tokens = want.at("tokens").get<int64_t>();
      EXPECT_EQ(rope_frequencies(a, tokens), rope_frequencies(b, tokens)) << files.config.dump();
      EXPECT_NEAR(a.attention_factor, b.attention_factor, 1e-7 * a.attention_factor);
    }
    ++written;
  }
  EXPECT_GT(written, 500);
}

}  // namespace
}  // namespace vitrine
