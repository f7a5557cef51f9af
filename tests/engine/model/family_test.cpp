// What a family says of itself: its configuration written and read again is the same model, and the block of all families in
// one text (model/rearranged.h) is each family's own.
#include <gtest/gtest.h>

#include <functional>

#include "model/gguf_keys.h"
#include "model/rearranged.h"
#include "model/registry.h"
#include "model/run.h"
#include "support/close.h"

namespace vitrine {
namespace {

// everything: also what GGUF has no key for.
void expect_same_model(const Model& a, const Model& b, bool everything) {
  const ModelShape &x = a.shape(), &y = b.shape();
  EXPECT_EQ(std::tie(x.family, x.d_model, x.n_layers, x.n_heads, x.n_kv_heads, x.head_dim, x.d_ff, x.vocab_size),
            std::tie(y.family, y.d_model, y.n_layers, y.n_heads, y.n_kv_heads, y.head_dim, y.d_ff, y.vocab_size));
  EXPECT_EQ(x.context_length, y.context_length);
  EXPECT_EQ(x.tied, y.tied);
  const bool folded = !everything && std::any_of(a.tensors().begin(), a.tensors().end(), [](const TensorLine& line) {
    return static_cast<bool>(line.layout.gguf_factors);
  });  // factors are in the weights
  if (!folded) {
    EXPECT_EQ(x.embedding_scale, y.embedding_scale);
    EXPECT_EQ(a.head().scale, b.head().scale);
  }
  EXPECT_EQ(a.head().softcap, b.head().softcap);
  EXPECT_EQ(a.hook_names(), b.hook_names());
  for (int64_t layer = 0; layer < x.n_layers; ++layer) {
    const LayerRecord &s = a.layer(layer), &t = b.layer(layer);
    if (!folded) {
      EXPECT_EQ(s.attention.scale, t.attention.scale);
      EXPECT_EQ(s.residual_scale, t.residual_scale);
      EXPECT_EQ(s.mlp_scale, t.mlp_scale);
    }
    EXPECT_EQ(s.attention.softcap, t.attention.softcap);
    EXPECT_EQ(s.attention.window, t.attention.window);
    EXPECT_EQ(s.norm.eps, t.norm.eps);
    EXPECT_EQ(s.norms_after, t.norms_after);
    EXPECT_EQ(s.rope.has_value(), t.rope.has_value());
    if (s.rope && t.rope) {
      for (const int64_t prompt : {1, 100000}) EXPECT_EQ(rope_frequencies(*s.rope, prompt), rope_frequencies(*t.rope, prompt));
      EXPECT_NEAR(s.rope->attention_factor, t.rope->attention_factor, 1e-7);
    }
    if (everything) {
      EXPECT_EQ(s.activation, t.activation);
      EXPECT_EQ(s.attention.dropout, t.attention.dropout);
      EXPECT_EQ(s.attention_dropout.p, t.attention_dropout.p);
      EXPECT_EQ(s.mlp_dropout.p, t.mlp_dropout.p);
    }
  }
  const std::vector<FileTensor> in_a = file_tensors(a, !everything), in_b = file_tensors(b, !everything);
  ASSERT_EQ(in_a.size(), in_b.size());
  for (size_t i = 0; i < in_a.size(); ++i) {
    EXPECT_EQ(in_a[i].name, in_b[i].name);
    EXPECT_EQ(in_a[i].shape, in_b[i].shape);
    EXPECT_EQ(in_a[i].parts.front()->huggingface, in_b[i].parts.front()->huggingface);
  }
}

class EveryFamily : public testing::TestWithParam<std::string> {};

TEST_P(EveryFamily, WritesTheConfigurationItReads) {
  ModelFiles files = resolve_model(Golden::open(GetParam()).model());
  const std::unique_ptr<Model> model = model_from_config(files);
  files.config = model->config(ConfigFormat::huggingface);
  expect_same_model(*model, *model_from_config(files), true);
}

// The model of a family's GGUF metadata, which `edit` may change.
std::unique_ptr<Model> through_gguf(const Model& model, const std::function<void(Json&)>& edit = {}) {
  const Family& family = family_of(model);
  Json metadata = model.config(ConfigFormat::gguf);
  metadata["model_type"] = family.gguf;
  metadata["tie_word_embeddings"] = model.shape().tied;  // of a file: whether it holds output.weight
  const Json own = model.config(ConfigFormat::huggingface);
  metadata["attention_k_eq_v"] = own.value("attention_k_eq_v", false);            // whether layers lack attn_v.weight
  metadata["use_qk_norm"] = own.value("use_qk_norm", false);                      // whether they have attn_q_norm.weight
  metadata["use_ssm_norm"] = own.value("mamba_rms_norm", false);                  // whether they have ssm_norm.weight
  metadata["num_ln_in_parallel_attn"] = own.value("num_ln_in_parallel_attn", 1);  // whether they have attn_norm_2.weight
  metadata["head_bias"] = own.value("lm_head_bias", false);                       // whether they have output.bias
  for (const char* key : {"use_bias", "use_qkv_bias", "attention_bias"})          // whether layers have attn_q.bias
    if (own.contains(key)) metadata["attention_bias"] = own[key];
  if (edit) edit(metadata);
  ModelConfig config{ConfigReader(metadata, "metadata"), true};
  if (const auto rope = model.layer(0).rope; rope && rope->scaling == RopeSpec::Scaling::longrope) {  // tensors of the file
    config.rope_short = rope->divisors;
    config.rope_long = rope->long_divisors;
  }
  const GgufRopeTensors divisors = gguf_rope_tensors(model);
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer)
    if (const auto rope = model.layer(layer).rope; rope && rope->scaling == RopeSpec::Scaling::proportional)
      config.rope_divisors = divisors.frequencies.data();
  return family.make(config);
}

class FamilyWithGguf : public testing::TestWithParam<std::string> {};

TEST_P(FamilyWithGguf, WritesGgufMetadataItReads) {
  const std::unique_ptr<Model> model = model_from_config(resolve_model(Golden::open(GetParam()).model()));
  expect_same_model(*model, *through_gguf(*model), false);
}

TEST(NemotronKinds, AreWrittenAsTheFamilyReadsThem) {
  ModelFiles files = resolve_model(Golden::open("nemotron_h").model());
  files.config.erase("layers_block_type");
  for (const char* pattern : {"M", "*", "-", "E", "--", "ME*E", "M-*-"}) {
    SCOPED_TRACE(pattern);
    files.config["hybrid_override_pattern"] = pattern;
    const std::unique_ptr<Model> model = model_from_config(files);
    ModelFiles written = files;
    written.config = model->config(ConfigFormat::huggingface);
    expect_same_model(*model, *model_from_config(written), true);
    expect_same_model(*model, *through_gguf(*model), false);
  }
}

TEST(Gemma3Windows, AreWrittenAsTheFamilyReadsThem) {
  ModelFiles files = resolve_model(Golden::open("gemma3").model());
  const auto types = [&](const std::string& letters) {
    files.config["layer_types"] = Json::array();
    for (const char c : letters) files.config["layer_types"].push_back(c == 'g' ? "full_attention" : "sliding_attention");
    return model_from_config(files);
  };
  for (const char* letters : {"wwgwwgw", "wwwwwww", "ggggggg", "wgwgwgw"}) {
    const std::unique_ptr<Model> model = types(letters);
    expect_same_model(*model, *through_gguf(*model), false);
  }
  const std::unique_ptr<Model> global = types("ggggggg");
  EXPECT_TRUE(global->config(ConfigFormat::huggingface).at("sliding_window").is_number());  // transformers wants one
  const std::unique_ptr<Model> silent = through_gguf(*types("wwwwwgw"), [](Json& keys) {    // as llama.cpp writes such a model
    keys.erase("attention.sliding_window");
    keys.erase("attention.sliding_window_pattern");
  });
  for (int64_t layer = 0; layer < 7; ++layer) EXPECT_EQ(silent->layer(layer).attention.window, kNoWindow);
}

class FamilyWithForms : public testing::TestWithParam<std::string> {};

TEST_P(FamilyWithForms, OwnFormOfTheRearrangedBlockHasTheBitsOfTheFamilys) {
  const OpenedModel opened = open_model(Golden::open(GetParam()).model());
  const std::vector<int32_t> ids = {5, 3, 7, 9, 11, 2, 4, 6, 8, 10, 12, 1};
  ThreadPool pool(2);
  const Rearranged same(*opened.model, {});
  EXPECT_EQ(same.hook_names(), opened.model->hook_names());
  for (const bool f32 : {true, false}) {
    const Forward own = run_forward(*opened.model, ids, {.f32 = f32}, pool), other = run_forward(same, ids, {.f32 = f32}, pool);
    EXPECT_EQ(own.logits, other.logits);
    EXPECT_EQ(own.hidden, other.hidden);
  }
}

// Golden models whose family fulfills `f`.
std::vector<std::string> models_where(bool (*f)(const Family& family)) {
  std::vector<std::string> names = Golden::all();
  std::erase_if(names,
                [&](const std::string& name) { return !f(*family_of(read_json(Golden::open(name).model() + "/config.json"))); });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Golden, EveryFamily, testing::ValuesIn(Golden::all()), [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(Golden, FamilyWithGguf,
                         testing::ValuesIn(models_where([](const Family& family) {  // a dense Granite 4 is read as a Granite 3
                           return family.gguf != nullptr && std::string_view(family.name) != "granitemoehybrid";
                         })),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(Golden, FamilyWithForms, testing::ValuesIn(models_where([](const Family& family) {
                           return family.norm_order_key == nullptr && family.has_forms;
                         })),
                         [](const auto& test) { return test.param; });

TEST(Families, DescribeThemselves) {
  for (const std::string& name : Golden::all()) {
    const Family& family = family_of(*open_model(Golden::open(name).model()).model);
    EXPECT_GT(std::string(family.title).size(), 2u);
    EXPECT_GT(std::string(family.paper).size(), 9u);
    EXPECT_TRUE(std::filesystem::exists(std::string(VITRINE_SOURCE) + "/" + family.source)) << family.source;
  }
}

}  // namespace
}  // namespace vitrine
