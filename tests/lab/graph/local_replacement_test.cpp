// Effects against runs in which patterns, scales and MLPs are held still by hand, in every family; and what is refused.
#include "graph/local_replacement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "graph/attribution_graph.h"
#include "graph/influence.h"
#include "graph/json.h"
#include "hooks/partial_run.h"
#include "hooks/trace.h"
#include "inspect/support.h"
#include "sae/sae_file.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::vector<int32_t> kPrompt = {5, 33, 7, 12, 11, 2, 40, 30, 17, 9, 6, 21};
constexpr int64_t kFeatures = 10;

// A transcoder of random numbers; every second layer has a skip.
std::shared_ptr<const SparseAutoencoder> random_transcoder(int64_t d, int64_t layer, const std::string& hook_in) {
  std::mt19937 random(static_cast<uint32_t>(layer + 1));
  const auto numbers = [&](int64_t count, double scale) {
    FloatVector made(static_cast<size_t>(count));
    for (float& x : made) x = static_cast<float>(scale * (static_cast<double>(random() % 2001) / 1000 - 1));
    return made;
  };
  auto sae = std::make_shared<SparseAutoencoder>();
  sae->transcoder = true;
  sae->apply_b_dec_to_input = false;
  sae->d_in = sae->d_out = d;
  sae->d_sae = kFeatures;
  sae->hook_name = "blocks." + std::to_string(layer) + "." + hook_in;
  sae->hook_name_out = "blocks." + std::to_string(layer) + ".hook_mlp_out";
  sae->W_enc = numbers(d * kFeatures, 2 / std::sqrt(static_cast<double>(d)));
  sae->W_dec = numbers(kFeatures * d, 0.5);
  sae->b_enc = numbers(kFeatures, 0.1);
  sae->b_dec = numbers(d, 0.1);
  if (layer % 2 == 1) sae->W_skip = numbers(d * d, 0.5 / std::sqrt(static_cast<double>(d)));
  sae->check("random");
  return sae;
}

TranscoderSet random_set(const Engine& engine, const std::string& hook_in) {
  std::vector<std::shared_ptr<const SparseAutoencoder>> layers;
  for (int64_t l = 0; l < engine.shape().n_layers; ++l) layers.push_back(random_transcoder(engine.shape().d_model, l, hook_in));
  return transcoder_set(std::move(layers), "random", "random");
}

// A run that repeats the values of another at some hooks, with something added.
class Held final : public Listener {
 public:
  std::map<std::string, FloatVector, std::less<>> values;
  const TranscoderSet* set = nullptr;
  std::string at;  // where `added` goes
  int64_t position = 0;
  std::vector<float> added;

  bool wants(std::string_view name) const override { return values.contains(name) || name == at || input_of(name) >= 0; }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    if (const int64_t layer = input_of(name); layer >= 0) {
      inputs_[layer].assign(value.data<float>(), value.data<float>() + value.count());
      if (!values.contains(name) && name != at) return {};
    }
    const Tensor result = ctx.empty(value.shape());
    std::memcpy(result.raw(), value.raw(), value.bytes());
    auto* to = result.data<float>();
    if (const auto held = values.find(name); held != values.end()) {
      std::copy(held->second.begin(), held->second.end(), to);
      add_skip(name, to, value.rows());
    }
    if (name == at)
      for (size_t i = 0; i < added.size(); ++i) to[static_cast<size_t>(position) * added.size() + i] += added[i];
    return result;
  }

 private:
  int64_t input_of(std::string_view name) const {
    for (int64_t l = 0; l < set->n_layers(); ++l)
      if (set->layers[static_cast<size_t>(l)]->hook_name == name) return l;
    return -1;
  }
  // The skip moves with what is read; the rest of an MLP's output stays.
  void add_skip(std::string_view name, float* to, int64_t rows) {
    for (int64_t l = 0; l < set->n_layers(); ++l) {
      const SparseAutoencoder& sae = *set->layers[static_cast<size_t>(l)];
      if (sae.hook_name_out != name || sae.W_skip.empty()) continue;
      const FloatVector& before = clean_inputs.at(l);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t o = 0; o < sae.d_out; ++o) {
          double sum = 0;
          for (int64_t i = 0; i < sae.d_in; ++i)
            sum += static_cast<double>(sae.W_skip[static_cast<size_t>(o * sae.d_in + i)]) *
                   (static_cast<double>(inputs_[l][static_cast<size_t>(r * sae.d_in + i)]) -
                    static_cast<double>(before[static_cast<size_t>(r * sae.d_in + i)]));
          to[r * sae.d_out + o] += static_cast<float>(sum);
        }
    }
  }
  std::map<int64_t, FloatVector> inputs_;

 public:
  std::map<int64_t, FloatVector> clean_inputs;
};

class EveryFamilysGraph : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(EveryFamilysGraph, EffectsAreWhatHeldRunsChange) {
  const auto& [family, hook_in] = GetParam();
  Engine engine(Golden::open(family).model(), {.numerics = {.f32 = true}});
  const TranscoderSet set = random_set(engine, hook_in);
  const AttributionGraph g = attribution_graph(engine, set, kPrompt, {.max_logits = 3, .ignored_positions = 0});
  ASSERT_GT(g.features(), 20);
  const int64_t d = engine.shape().d_model, n = g.positions();

  std::vector<std::string> kept, read;
  for (const std::string& name : engine.model().hook_names()) {
    const bool scale = name.ends_with(".hook_scale") && (name.starts_with("ln_final") || name.find(".ln") != std::string::npos);
    if (scale || name.ends_with("attn.hook_pattern") || name.ends_with(".hook_mlp_out")) kept.push_back(name);
  }
  for (const auto& layer : set.layers) read.push_back(layer->hook_name);
  read.emplace_back("ln_final.hook_normalized");
  std::vector<std::string> all = kept;
  all.insert(all.end(), read.begin(), read.end());
  all.emplace_back("hook_embed");
  const PartialResult clean = run_partly(engine, {&kPrompt, 1}, {.hooks = all});
  Held held;
  held.set = &set;
  for (const std::string& name : kept) held.values[name] = clean.values.at(name).values;
  for (int64_t l = 0; l < set.n_layers(); ++l)
    held.clean_inputs[l] = clean.values.at(set.layers[static_cast<size_t>(l)]->hook_name).values;

  // Sources: features of every layer, a token.
  int64_t acting = 0;  // a last layer's feature acts on logits alone, and only at the last position
  std::set<int64_t> sources = {g.first_token() + 2, 0, g.features() - 1};
  for (int64_t i = 0; i < g.features(); i += 1 + g.features() / 8) sources.insert(i);
  for (const int64_t source : sources) {
    if (source < g.features()) {
      const GraphFeature& f = g.active[static_cast<size_t>(g.selected[static_cast<size_t>(source)])];
      const SparseAutoencoder& sae = *set.layers[static_cast<size_t>(f.layer)];
      held.at = sae.hook_name_out;
      held.position = f.position;
      held.added.clear();
      for (const float x : sae.direction(f.feature)) held.added.push_back(x * f.value);
    } else {
      held.at = "hook_embed";
      held.position = source - g.first_token();
      const FloatVector& embedded = clean.values.at("hook_embed").values;
      held.added.assign(embedded.begin() + held.position * d, embedded.begin() + (held.position + 1) * d);
    }
    std::vector<std::string> edited = kept;
    edited.insert(edited.end(), {held.at});
    const PartialResult changed = run_partly(engine, {&kPrompt, 1}, {.hooks = read, .edits = &held, .edited = edited});
    std::vector<double> expected, found;
    double read_there = 0;  // what is read is the difference of two f32 runs, each rounded
    for (int64_t r = 0; r < g.rows(); ++r) {
      const bool feature = r < g.features();
      const GraphFeature f = feature ? g.active[static_cast<size_t>(g.selected[static_cast<size_t>(r)])]
                                     : GraphFeature{0, static_cast<int32_t>(n - 1), 0, 0};
      const std::string& hook = feature ? set.layers[static_cast<size_t>(f.layer)]->hook_name : read.back();
      const FloatVector &after = changed.values.at(hook).values, &before = clean.values.at(hook).values;
      double sum = 0;
      double size = 0;
      if (feature) {
        const SparseAutoencoder& sae = *set.layers[static_cast<size_t>(f.layer)];
        for (int64_t i = 0; i < d; ++i)
          size += std::abs(static_cast<double>(before[static_cast<size_t>(f.position * d + i)]) *
                           static_cast<double>(sae.W_enc[static_cast<size_t>(i * kFeatures + f.feature)]));
        for (int64_t i = 0; i < d; ++i)
          sum += (static_cast<double>(after[static_cast<size_t>(f.position * d + i)]) -
                  static_cast<double>(before[static_cast<size_t>(f.position * d + i)])) *
                 static_cast<double>(sae.W_enc[static_cast<size_t>(i * kFeatures + f.feature)]);
      } else {
        const Head head = engine.model().head();
        const int32_t token = g.logits[static_cast<size_t>(r - g.features())].token;
        for (int64_t i = 0; i < d; ++i) {
          double mean = 0;
          for (int64_t v = 0; v < head.weight->out; ++v)
            mean += head.weight->at<double>(v, i) / static_cast<double>(head.weight->out);
          sum += head.scale *
                 (static_cast<double>(after[static_cast<size_t>(f.position * d + i)]) -
                  static_cast<double>(before[static_cast<size_t>(f.position * d + i)])) *
                 (head.weight->at<double>(token, i) - mean);
        }
      }
      read_there = std::max(read_there, size);
      expected.push_back(sum);
      found.push_back(static_cast<double>(g.row(r)[static_cast<size_t>(source)]));
    }
    double largest = 0;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    acting += largest > 0 ? 1 : 0;
    EXPECT_CLOSE(found, expected, (Tolerance{.abs = 2e-4 * largest + 2e-7 * read_there, .rel = 1e-3})) << "source " << source;
  }
  EXPECT_GE(acting, 4);
}

std::vector<std::tuple<std::string, std::string>> families() {
  std::vector<std::tuple<std::string, std::string>> list;
  for (const char* name :
       {"gemma", "gemma2",  "gemma3",  "glm4",  "gpt2_a", "gpt2_b", "gpt_neo", "opt",       "gpt_oss", "granite",
        "llama", "mistral", "mixtral", "olmo2", "phi3",   "qwen2",  "qwen3",   "qwen3_moe", "smollm3", "classic_pre"})
    list.emplace_back(name, "hook_resid_mid");
  for (const char* name : {"gemma2", "gpt2_a", "gpt_neox", "gptj", "llama"})
    for (const char* hook : {"ln2.hook_normalized", "ln2.hook_normalized_pre"}) list.emplace_back(name, hook);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Models, EveryFamilysGraph, testing::ValuesIn(families()), [](const auto& one) {
  std::string name = std::get<0>(one.param) + "_" + std::get<1>(one.param);
  std::ranges::replace(name, '.', '_');
  return name;
});

std::string graph_error(const std::string& model, const TranscoderSet& set, const std::vector<int32_t>& ids,
                        const GraphOptions& options = {}) {
  Engine engine(Golden::open(model).model());
  return message_of<InputError>([&] { attribution_graph(engine, set, ids, options); });
}

TEST(AttributionGraphs, OneTokenIsAPromptWhereItCounts) {
  Engine engine(Golden::open("llama").model());
  const TranscoderSet set = random_set(engine, "hook_resid_mid");
  EXPECT_CONTAINS(graph_error("llama", set, {5}), "the prompt has 1 token, of which the first 1 (BOS)");
  const AttributionGraph g = attribution_graph(engine, set, std::vector<int32_t>{5}, {.ignored_positions = 0});
  EXPECT_GT(g.features(), 0);
  EXPECT_FALSE(prune(g).edges.empty());
}

TEST(AttributionGraphs, WhatCannotBeMadeIsRefused) {
  Engine engine(Golden::open("llama").model());
  const TranscoderSet set = random_set(engine, "hook_resid_mid");
  EXPECT_CONTAINS(graph_error("gemma2", set, kPrompt), "there are transcoders for 3 layers");
  EXPECT_CONTAINS(graph_error("gpt2_a", set, kPrompt), "has 48 numbers a token");
  EXPECT_CONTAINS(graph_error("llama", set, kPrompt, {.memory = 1000}), "--max-features");
  EXPECT_CONTAINS(graph_error("llama", set, kPrompt, {.targets = {7, 512}}), "target token 512 is not in the vocabulary");
  EXPECT_CONTAINS(graph_error("llama", set, {5, 600}), "600");
  EXPECT_CONTAINS(graph_error("llama", set, kPrompt, {.max_features = 0}), "max_features is 0");
  const AttributionGraph g = attribution_graph(engine, set, kPrompt);
  EXPECT_CONTAINS(message_of<InputError>([&] { prune(g, 1.1, 0.5); }), "node threshold must be from 0 to 1");
  EXPECT_CONTAINS(message_of<InputError>([&] { prune(g, 0.5, std::nan("")); }), "edge threshold must be from 0 to 1");

  for (const auto& [model, words] : {std::pair("qwen3_5", "recurrences"), std::pair("lfm2", "convolutions"),
                                     std::pair("gemma4", "embeddings of each layer")}) {
    Engine other(Golden::open(model).model());
    EXPECT_CONTAINS(graph_error(model, random_set(other, "hook_resid_mid"), kPrompt), words) << model;
  }
}

TEST(AttributionGraphs, SetsThatAreNoSets) {
  const auto set_of = [](const std::vector<std::shared_ptr<const SparseAutoencoder>>& layers) {
    return message_of<InputError>([&] { transcoder_set(layers, "x", "the set"); });
  };
  const auto one = random_transcoder(8, 1, "hook_resid_mid"), zero = random_transcoder(8, 0, "hook_resid_mid");
  EXPECT_CONTAINS(set_of({}), "there is no transcoder");
  EXPECT_CONTAINS(set_of({one}), "there is a transcoder of layer 1, but only 1 in all");
  EXPECT_CONTAINS(set_of({zero, zero}), "two transcoders of layer 0");
  auto autoencoder = std::make_shared<SparseAutoencoder>(*zero);
  autoencoder->transcoder = false;
  EXPECT_CONTAINS(set_of({autoencoder}), "is an autoencoder; expected a transcoder");
  auto elsewhere = std::make_shared<SparseAutoencoder>(*zero);
  elsewhere->hook_name = "blocks.1.hook_resid_mid";
  EXPECT_CONTAINS(set_of({elsewhere}), "expected two hooks of one layer");
}

TEST(AttributionGraphs, FoldersThatAreNoSets) {
  const Scratch scratch;
  const std::string good = std::string(VITRINE_GOLDEN) + "/attribution_graphs/gemma2/transcoders";
  EXPECT_CONTAINS(message_of([&] { read_transcoders(scratch / "nothing"); }), "is no folder");
  EXPECT_CONTAINS(message_of([&] { read_transcoders(scratch.path()); }), "there are no transcoders");
  std::filesystem::copy(good, scratch / "gap");
  std::filesystem::remove(scratch / "gap/layer_1.safetensors");
  EXPECT_CONTAINS(message_of([&] { read_transcoders(scratch / "gap"); }), "layer_1.safetensors");
  std::filesystem::copy(good, scratch / "nan");
  std::vector<OwnedTensor> tensors;
  const Checkpoint layer = open_safetensors(good + "/layer_2.safetensors");
  for (const auto& [name, tensor] : layer.tensors()) tensors.push_back(owned(tensor));
  for (OwnedTensor& t : tensors)
    if (t.name == "W_dec") t.bytes[0] = t.bytes[1] = std::byte{0xff};
  write_tensors(scratch / "nan/layer_2.safetensors", tensors);
  EXPECT_CONTAINS(message_of<InputError>([&] { read_transcoders(scratch / "nan"); }), "W_dec holds NaN or infinity");
  // Folders of SAELens's files, found below the one that is named.
  const TranscoderSet set = read_transcoders(good);
  for (int64_t l = 0; l < set.n_layers(); ++l) {
    std::filesystem::create_directories(scratch / "lens");
    write_sae(scratch / "lens/layer_" + std::to_string(l), *set.layers[static_cast<size_t>(l)]);
  }
  const TranscoderSet again = read_transcoders(scratch / "lens");
  ASSERT_EQ(again.n_layers(), 4);
  EXPECT_EQ(again.name, "lens");
  for (size_t l = 0; l < 4; ++l) {
    EXPECT_EQ(again.layers[l]->hook_name, set.layers[l]->hook_name);
    EXPECT_EQ(again.layers[l]->W_enc, set.layers[l]->W_enc);
  }
}

TEST(AttributionGraphs, TheViewersListKeepsOtherGraphs) {
  const nlohmann::ordered_json a = {{"metadata", {{"slug", "a"}, {"scan", "x"}}}},
                               b = {{"metadata", {{"slug", "b"}, {"scan", "x"}}}};
  auto list = graph_list(graph_list(graph_list(nullptr, a), b), a);
  ASSERT_EQ(list["graphs"].size(), 2U);
  EXPECT_EQ(list["graphs"][1]["slug"], "a");
  EXPECT_CONTAINS(message_of<InputError>([&] { graph_list({{"other", 1}}, a); }), "holds no list");
}

}  // namespace
}  // namespace vitrine
