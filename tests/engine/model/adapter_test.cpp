// Adapters that PEFT made beside golden models, and models converted to other types.
#include "model/adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/file_checks.h"
#include "model/adapter_gguf.h"
#include "model/expert_modules.h"
#include "model/export.h"
#include "model/from_gguf.h"
#include "model/module_pattern.h"
#include "run.h"
#include "support/lora.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::string golden_adapter(const std::string& name) { return lora_folder(name) + "/adapter"; }
Checkpoint golden_numbers(const std::string& name) { return open_safetensors(lora_folder(name) + "/golden.safetensors"); }
std::vector<int32_t> first_ids(const Checkpoint& gold) { return ids_of(golden_tensor(gold, "ids").at(0)); }

std::vector<float> logits_of(const OpenedModel& opened, const std::vector<int32_t>& ids, bool exact = false) {
  ThreadPool pool(2);
  Context ctx(pool);
  ctx.numerics = {.f32 = true, .exact = exact};
  return all_logits(ctx, *opened.model, Step::of(ids));
}

class GoldenAdapter : public testing::TestWithParam<std::string> {};

TEST_P(GoldenAdapter, LogitsMatchPeft) {
  const Checkpoint gold = golden_numbers(GetParam());
  OpenedModel opened = open_model(lora_base(GetParam()));
  const std::vector<float> plain = logits_of(opened, first_ids(gold));
  open_adapter(opened, golden_adapter(GetParam()));
  const Tolerance tolerance = lora_tolerance(GetParam());
  const std::vector<float> adapted = logits_of(opened, first_ids(gold));
  EXPECT_CLOSE(adapted, golden_tensor(gold, "logits"), tolerance);
  EXPECT_FALSE(close_ranges(plain, golden_tensor(gold, "logits"), tolerance)) << "the adapter changes nothing";
}

TEST_P(GoldenAdapter, FewRowsGiveWhatManyGive) {
  const Checkpoint gold = golden_numbers(GetParam());
  OpenedModel opened = open_model(lora_base(GetParam()));
  open_adapter(opened, golden_adapter(GetParam()));
  std::vector<int32_t> ids = first_ids(gold);
  ids.resize(5);
  const GoldenTensor all = golden_tensor(gold, "logits");
  const auto few = static_cast<std::ptrdiff_t>(all.size() / static_cast<size_t>(all.shape[0]) * ids.size());
  EXPECT_CLOSE(logits_of(opened, ids), std::vector<float>(all.begin(), all.begin() + few), lora_tolerance(GetParam()));
}

TEST_P(GoldenAdapter, MergedModelMatchesPeft) {
  const Scratch scratch;
  const Checkpoint gold = golden_numbers(GetParam());
  OpenedModel opened = open_model(lora_base(GetParam()));
  open_adapter(opened, golden_adapter(GetParam()));
  write_huggingface(opened, companions_in(opened.files), scratch / "merged", DType::f32);
  const OpenedModel merged = open_model(scratch / "merged");
  // PEFT merges what is beside one name of a tied matrix into both, and what is beside both twice: the result is another model
  // than the one that learned. Ours is that one.
  const std::set<std::string> merged_otherwise = {"embedding_of_two", "embeddings_tied", "head_of_two",   "both_of_two",
                                                  "head_tied",        "tokens_of_head",  "tokens_of_both"};
  const bool tied = merged_otherwise.contains(GetParam());
  EXPECT_CLOSE(logits_of(merged, first_ids(gold)), golden_tensor(gold, tied ? "logits" : "merged"), lora_tolerance(GetParam()));
  EXPECT_TRUE(std::filesystem::exists(scratch / "merged/tokenizer.json") ||
              !std::filesystem::exists(lora_base(GetParam()) + "/tokenizer.json"));
}

// Written again, the numbers are those that were read, and act as they did.
TEST_P(GoldenAdapter, WritingGivesBackWhatWasRead) {
  const Scratch scratch;
  OpenedModel opened = open_model(lora_base(GetParam()));
  open_adapter(opened, golden_adapter(GetParam()));
  check_modules_of_peft(opened, *opened.adapter);
  write_adapter(*opened.adapter, scratch / ".", lora_base_name(GetParam()));
  const Checkpoint before = open_safetensors(golden_adapter(GetParam()) + "/adapter_model.safetensors");
  const Checkpoint after = open_safetensors(scratch / "adapter_model.safetensors");
  size_t count = 0;
  for (const auto& [name, tensor] : before.tensors()) {
    if (name.ends_with(".base_layer.weight")) continue;  // the model's
    ++count;
    ASSERT_NE(after.find(name), nullptr) << name;
    EXPECT_EQ(as_floats(tensor).values, as_floats(*after.find(name)).values) << name;
    EXPECT_EQ(tensor.shape, after.find(name)->shape);
  }
  EXPECT_GT(count, 0u);
  EXPECT_EQ(after.tensors().size(), count);
  const Checkpoint gold = golden_numbers(GetParam());
  OpenedModel again = open_model(lora_base(GetParam()));
  open_adapter(again, scratch / ".");
  EXPECT_EQ(again.adapter->parameter_count(), opened.adapter->parameter_count());
  const std::vector<float> logits = logits_of(again, first_ids(gold));
  EXPECT_EQ(logits, logits_of(opened, first_ids(gold)));
  EXPECT_CLOSE(logits, golden_tensor(gold, "logits"), lora_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Every, GoldenAdapter, testing::ValuesIn(golden_adapters()), [](const auto& test) { return test.param; });

// A GGUF file spells tensors otherwise and holds the rows of q and k of a Llama in another order.
TEST(Adapter, StandsBesideGgufFiles) {
  for (const std::string name : {"gpt2_a", "gemma2", "llama", "phi3", "glm4", "gpt_neox", "qwen3_moe", "mixtral", "llama4"}) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    const Checkpoint gold = golden_numbers(name);
    OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf");
    open_adapter(opened, golden_adapter(name));
    EXPECT_CLOSE(logits_of(opened, first_ids(gold)), golden_tensor(gold, "logits"), Golden::open(name).tolerance());
    write_adapter(*opened.adapter, scratch / ".", "base");
    const Checkpoint before = open_safetensors(golden_adapter(name) + "/adapter_model.safetensors");
    const Checkpoint after = open_safetensors(scratch / "adapter_model.safetensors");
    for (const auto& [key, tensor] : before.tensors())
      EXPECT_EQ(as_floats(tensor).values, as_floats(*after.find(key)).values) << key;
  }
}

// Falcon-H1's GGUF files have its factors in their weights, and PEFT's A and B are made for weights without.
TEST(Adapter, PeftsAreRefusedBesideAGgufFileThatHoldsFactors) {
  const std::string gguf = std::string(VITRINE_GOLDEN) + "/gguf/falcon_h1.gguf";
  const auto refused = [](const std::string& message) {
    EXPECT_CONTAINS(message, "falcon_h1.gguf holds the factors of Falcon-H1 in its weights");
    EXPECT_CONTAINS(message, "Hugging Face directory");
  };
  OpenedModel opened = open_model(gguf);
  refused(message_of<FileError>([&] { open_adapter(opened, golden_adapter("falcon_h1")); }));
  refused(message_of<FileError>([&] { read_adapter(opened, golden_adapter("falcon_h1")); }));
  refused(message_of<InputError>([&] { add_fresh_adapter(opened, {.rank = 2, .targets = {"q_proj"}}, 1); }));
  OpenedModel as_directory = as_huggingface(open_model(gguf));
  refused(message_of<FileError>([&] { open_adapter(as_directory, golden_adapter("falcon_h1")); }));
  const Scratch scratch;
  OpenedModel directory = open_model(lora_base("falcon_h1"));
  open_adapter(directory, golden_adapter("falcon_h1"));
  write_gguf_adapter(directory, *directory.adapter, scratch / "adapter.gguf");
  refused(message_of<FileError>([&] { continue_adapter(opened, scratch / "adapter.gguf"); }));
}

// What learns beside A and B, too; whole tensors where the file has them as they are.
TEST(Adapter, WholeTensorsTokensAndMagnitudesStandBesideGgufFiles) {
  for (const std::string name : {"saved_modules", "saved_embedding_of_two", "saved_tied", "embeddings", "embedding_of_two",
                                 "embeddings_tied", "tokens", "tokens_untied", "dora"}) {
    SCOPED_TRACE(name);
    const Checkpoint gold = golden_numbers(name);
    OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/gguf/" + lora_base_name(name) + ".gguf");
    open_adapter(opened, golden_adapter(name));
    EXPECT_CLOSE(logits_of(opened, first_ids(gold)), golden_tensor(gold, "logits"), lora_tolerance(name));
  }
  OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/gguf/gpt_neox.gguf");
  EXPECT_CONTAINS(message_of<FileError>([&] { open_adapter(opened, golden_adapter("biases_all")); }),
                  "holds in another form. Convert the model to a Hugging Face directory first");
}

// lora_bias: what B's bias adds is in the bias of the matrix from then on.
TEST(Adapter, BiasesOfBMatchPeft) {
  const Scratch scratch;
  const Checkpoint gold = golden_numbers("lora_bias");
  OpenedModel opened = open_model(lora_base("lora_bias"));
  open_adapter(opened, golden_adapter("lora_bias"));
  EXPECT_CLOSE(logits_of(opened, first_ids(gold)), golden_tensor(gold, "logits"), lora_tolerance("lora_bias"));
  write_huggingface(opened, {}, scratch / "merged", DType::f32);
  EXPECT_CLOSE(logits_of(open_model(scratch / "merged"), first_ids(gold)), golden_tensor(gold, "merged"),
               lora_tolerance("lora_bias"));
  std::filesystem::create_directory(scratch / "again");
  write_adapter(*opened.adapter, scratch / "again", "phi");
  OpenedModel again = open_model(lora_base("lora_bias"));
  open_adapter(again, scratch / "again");
  EXPECT_EQ(logits_of(again, first_ids(gold)), logits_of(opened, first_ids(gold)));
}

// The same modules as PEFT takes, those beside the blocks too.
TEST(Adapter, AllLinearIsWhatPeftTakes) {
  for (const std::string name : {"llama", "gemma4", "gemma4_moe"}) {
    SCOPED_TRACE(name);
    OpenedModel opened = open_model(lora_base(name));
    add_fresh_adapter(opened, {.rank = 1, .targets = {"all-linear"}}, 7);
    std::set<std::string> ours, peft;
    for (const Adapter::Module& m : opened.adapter->modules())
      for (const char which : {'A', 'B'}) ours.insert(m.tensor_name(which));
    const Checkpoint stored = open_safetensors(golden_adapter(name) + "/adapter_model.safetensors");
    for (const auto& [tensor, numbers] : stored.tensors()) peft.insert(tensor);
    EXPECT_EQ(ours, peft);
  }
}

// A fresh adapter of the head of a tied model is the head's alone, or with ensure_weight_tying the embedding's too, as PEFT has
// it.
TEST(Adapter, FreshOnesOfATiedHead) {
  for (const bool saved : {false, true})
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(std::to_string(saved) + " " + std::to_string(tied));
      AdapterOptions options = {.rank = 2, .targets = {"q_proj"}};
      (saved ? options.saved : options.targets).emplace_back("lm_head");
      options.tied = tied;
      OpenedModel opened = open_model(Golden::open("starcoder2").model());
      const std::vector<float> before = logits_of(opened, {3, 17, 40, 5});
      add_fresh_adapter(opened, options, 7);
      EXPECT_EQ(opened.model->shape().tied, tied);
      EXPECT_EQ(logits_of(opened, {3, 17, 40, 5}), before);
      const Scratch scratch;
      write_adapter(*opened.adapter, scratch / ".", "starcoder2");
      const std::string like = saved ? (tied ? "saved_head_tied" : "saved_head_of_two") : tied ? "head_tied" : "head_of_two";
      std::set<std::string> ours, peft;
      const Checkpoint written = open_safetensors(scratch / "adapter_model.safetensors"),
                       stored = open_safetensors(golden_adapter(like) + "/adapter_model.safetensors");
      for (const auto& [tensor, numbers] : written.tensors()) ours.insert(tensor);
      for (const auto& [tensor, numbers] : stored.tensors())
        if (!tensor.ends_with(".base_layer.weight")) peft.insert(tensor);
      EXPECT_EQ(ours, peft);
    }
}

// A tied model whose embedding alone changes is written as an untied one.
TEST(Adapter, MergingPartsATiedModel) {
  const Scratch scratch;
  OpenedModel opened = open_model(lora_base("embedding_of_two"));
  EXPECT_TRUE(opened.model->shape().tied);
  open_adapter(opened, golden_adapter("embedding_of_two"));
  EXPECT_FALSE(opened.model->shape().tied);
  write_huggingface(opened, {}, scratch / "merged", DType::f32);
  EXPECT_EQ(read_json(scratch / "merged/config.json").at("tie_word_embeddings"), false);
  EXPECT_NE(open_safetensors(scratch / "merged/model.safetensors").find("lm_head.weight"), nullptr);
  OpenedModel together = open_model(lora_base("embeddings_tied"));
  open_adapter(together, golden_adapter("embeddings_tied"));
  EXPECT_TRUE(together.model->shape().tied);
}

TEST(Adapter, FreshOnesOfEveryKindChangeNothingAndAreReadAgain) {
  const std::vector<int32_t> ids = {3, 17, 40, 5};
  const AdapterOptions all = {.rank = 2,
                              .alpha = 4,
                              .targets = {"all-linear"},
                              .dora = true,
                              .bias = AdapterOptions::Bias::all,
                              .saved = {"ln_f", "embed_tokens", "norm", "wte"},
                              .tokens = {},
                              .tied = true};
  AdapterOptions tokens = all, embedding = {.rank = 2, .targets = {"embed_tokens"}};
  tokens.saved = {"norm"};
  tokens.tokens = {3, 40};
  const std::vector<std::tuple<std::string, AdapterOptions, bool>> cases = {
      {"starcoder2", all, true}, {"glm4", tokens, false}, {"starcoder2", tokens, true}, {"starcoder2", embedding, false}};
  for (auto [name, options, tied] : cases) {
    SCOPED_TRACE(name);
    std::erase_if(options.saved, [](const std::string& target) { return target == "ln_f" || target == "wte"; });
    OpenedModel opened = open_model(Golden::open(name).model());
    const std::vector<float> before = logits_of(opened, ids);
    add_fresh_adapter(opened, options, 7);
    EXPECT_EQ(opened.model->shape().tied, tied);
    EXPECT_CLOSE(logits_of(opened, ids), before, Tolerance(2e-5, 1e-4));
    const Scratch scratch;
    write_adapter(*opened.adapter, scratch / ".", "base");
    OpenedModel again = open_model(Golden::open(name).model());
    open_adapter(again, scratch / ".");
    EXPECT_EQ(again.adapter->parameter_count(), opened.adapter->parameter_count());
    EXPECT_EQ(logits_of(again, ids), logits_of(opened, ids));
  }
}

// PEFT's trainable_token_indices of nothing.
TEST(Adapter, NoTrainedTokensChangeNothing) {
  const Scratch scratch;
  std::filesystem::copy(golden_adapter("tokens"), scratch / "none", std::filesystem::copy_options::recursive);
  Json config = read_json(scratch / "none/adapter_config.json");
  config["trainable_token_indices"] = Json::array();
  std::ofstream(scratch / "none/adapter_config.json") << config;
  const Checkpoint stored = open_safetensors(golden_adapter("tokens") + "/adapter_model.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : stored.tensors()) {
    tensors.push_back({name, tensor.dtype, tensor.shape, tensor.data});
    if (name.ends_with(".trainable_tokens_delta")) tensors.back().shape[0] = 0;
  }
  write_safetensors(scratch / "none/adapter_model.safetensors", tensors, {});
  OpenedModel opened = open_model(lora_base("tokens"));
  open_adapter(opened, scratch / "none");
  EXPECT_TRUE(opened.adapter->tokens().empty());
  EXPECT_FALSE(opened.adapter->modules().empty());
  logits_of(opened, {3, 17});
}

// The list of tokens says which row is which.
TEST(Adapter, TrainedTokensInAnotherOrder) {
  const Scratch scratch;
  std::filesystem::copy(golden_adapter("tokens"), scratch / "turned", std::filesystem::copy_options::recursive);
  Json config = read_json(scratch / "turned/adapter_config.json");
  ASSERT_EQ(config["trainable_token_indices"], Json({3, 17, 40}));
  config["trainable_token_indices"] = {40, 3, 17};
  std::ofstream(scratch / "turned/adapter_config.json") << config;
  const Checkpoint stored = open_safetensors(golden_adapter("tokens") + "/adapter_model.safetensors");
  std::vector<TensorToWrite> tensors;
  std::vector<float> rows;
  for (const auto& [name, tensor] : stored.tensors()) {
    tensors.push_back({name, tensor.dtype, tensor.shape, tensor.data});
    if (!name.ends_with(".trainable_tokens_delta")) continue;
    rows = as_floats(tensor).values;
    std::rotate(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(tensor.shape[1]), rows.end());
    tensors.back().data = reinterpret_cast<const std::byte*>(rows.data());
  }
  write_safetensors(scratch / "turned/adapter_model.safetensors", tensors, {});
  OpenedModel opened = open_model(lora_base("tokens"));
  open_adapter(opened, scratch / "turned");
  const Checkpoint gold = golden_numbers("tokens");
  EXPECT_CLOSE(logits_of(opened, first_ids(gold)), golden_tensor(gold, "logits"), lora_tolerance("tokens"));
}

// A head that has tokens of the embedding and something else would have two adapters.
TEST(Adapter, TiedTokensBesideAnAdaptedHeadAreRefused) {
  OpenedModel opened = open_model(Golden::open("starcoder2").model());
  AdapterOptions options = {.rank = 2, .targets = {"q_proj", "lm_head"}};
  options.tokens = {3};
  EXPECT_CONTAINS(message_of<InputError>([&] { add_fresh_adapter(opened, options, 1); }), "both together are not supported");
  const Scratch scratch;
  std::filesystem::copy(golden_adapter("tokens"), scratch / "both", std::filesystem::copy_options::recursive);
  const Checkpoint tokens = open_safetensors(golden_adapter("tokens") + "/adapter_model.safetensors"),
                   head = open_safetensors(golden_adapter("head_of_two") + "/adapter_model.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : tokens.tensors()) tensors.push_back({name, tensor.dtype, tensor.shape, tensor.data});
  for (const auto& [name, tensor] : head.tensors())
    if (name.find("lm_head.lora_") != std::string::npos) tensors.push_back({name, tensor.dtype, tensor.shape, tensor.data});
  write_safetensors(scratch / "both/adapter_model.safetensors", tensors, {});
  EXPECT_CONTAINS(message_of<FileError>([&] { open_adapter(opened, scratch / "both"); }), "both together are not supported");
  EXPECT_CONTAINS(message_of<FileError>([&] { read_adapter(open_model(lora_base("tokens")), scratch / "both"); }),
                  "both together are not supported");
}

TEST(Adapter, FreshOnesThatCannotBeAreRefused) {
  const auto refused = [](const AdapterOptions& options) {
    OpenedModel opened = open_model(Golden::open("glm4").model());
    return message_of<InputError>([&] { add_fresh_adapter(opened, options, 1); });
  };
  AdapterOptions o = {.rank = 2, .targets = {"q_proj"}};
  o.saved = {"embed_tokns"};
  EXPECT_CONTAINS(refused(o), "lora.modules_to_save: \"embed_tokns\" names no module");
  o.saved = {"q_proj"};
  EXPECT_CONTAINS(refused(o), "the same matrix twice");
  o.saved = {};
  o.tokens = {48};
  EXPECT_CONTAINS(refused(o), "trainable_token_indices has 48; expected tokens from 0 to 47");
  o.tokens = {4, 4};
  EXPECT_CONTAINS(refused(o), "trainable_token_indices has 4 twice");
  EXPECT_CONTAINS(refused({.rank = 2, .dropout = 0.1, .targets = {"lm_head"}}), "is the output matrix");
  EXPECT_CONTAINS(refused({.rank = 2, .targets = {"lm_head"}, .dora = true}), "DoRA is not supported");
}

// The sum of what the heads add is what the matrix gives, with magnitudes too.
TEST(Adapter, HeadsSumToTheOutputWithMagnitudes) {
  OpenedModel opened = open_model(lora_base("dora"));
  open_adapter(opened, golden_adapter("dora"));
  ThreadPool pool(2);
  Context ctx(pool);
  ctx.numerics = {.f32 = true};
  Recorder seen({{"blocks.*.attn.hook_result"}, {"blocks.*.attn.hook_out"}});
  ctx.listen(&seen);
  const std::vector<int32_t> ids = {3, 17, 4, 5};
  all_logits(ctx, *opened.model, Step::of(ids));
  const auto& result = seen.values().at("blocks.0.attn.hook_result").values;
  const auto& out = seen.values().at("blocks.0.attn.hook_out").values;
  const auto d = static_cast<size_t>(opened.model->shape().d_model), heads = static_cast<size_t>(opened.model->shape().n_heads);
  const Vector* bias = nullptr;
  for (const TensorLine& line : opened.model->tensors())
    if (line.ours == "blocks.0.attn.b_O") bias = line.vector;
  ASSERT_NE(bias, nullptr);
  for (size_t row = 0; row < ids.size(); ++row)
    for (size_t j = 0; j < d; ++j) {
      float sum = bias->at<float>(static_cast<int64_t>(j));
      for (size_t h = 0; h < heads; ++h) sum += result[(row * heads + h) * d + j];
      EXPECT_NEAR(sum, out[row * d + j], 1e-5);
    }
}

TEST(Adapter, FreshOnesChangeNothingAndAreSpreadAsPeftSpreadsThem) {
  OpenedModel opened = open_model(Golden::open("gpt2_a").model());
  const std::vector<int32_t> ids = {3, 17, 40, 5};
  const std::vector<float> before = logits_of(opened, ids);
  add_fresh_adapter(opened, {.rank = 4, .alpha = 8, .targets = {"all-linear"}}, 7);
  EXPECT_EQ(logits_of(opened, ids), before);
  EXPECT_EQ(opened.adapter->modules().size(), 4u * static_cast<size_t>(opened.model->shape().n_layers));
  for (const Adapter::Module& m : opened.adapter->modules()) {
    const double bound = 1 / std::sqrt(static_cast<double>(m.in));
    double largest = 0, squares = 0;
    for (int64_t i = 0; i < m.rank * m.in; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(m.A()[i])));
      squares += static_cast<double>(m.A()[i]) * static_cast<double>(m.A()[i]);
    }
    EXPECT_LE(largest, bound);
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(m.rank * m.in)), bound / std::sqrt(3.0), 0.15 * bound) << m.name;
    EXPECT_TRUE(std::all_of(m.B(), m.B() + m.rank * m.out, [](float b) { return b == 0; }));
  }
}

// Experts that are one tensor in PEFT's model, whatever the file has.
TEST(Adapter, FreshOnesStandBesideAllExperts) {
  for (const std::string name : {"variants/qwen3_moe_stacked", "models/qwen3_moe/model", "variants/gpt_oss_default_rope"}) {
    SCOPED_TRACE(name);
    OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/" + name);
    const std::vector<int32_t> ids = {3, 17, 40, 5};
    const std::vector<float> before = logits_of(opened, ids);
    add_fresh_adapter(opened, {.rank = 2, .alpha = 8, .targets = {"experts.gate_up_proj", "mlp.experts.down_proj", "q_proj"}}, 7);
    EXPECT_EQ(logits_of(opened, ids), before);
    const Adapter::Module& m = opened.adapter->modules().back();
    EXPECT_EQ(m.experts, opened.model->layer(0).experts->count);
    EXPECT_EQ(m.tensor_name('A'), "base_model.model.model.layers.1.mlp.experts.lora_A.weight");
    EXPECT_EQ(opened.adapter->modules()[opened.adapter->modules().size() - 2].tensor_name('B'),
              "base_model.model.model.layers.1.mlp.experts.base_layer.lora_B.weight");
    EXPECT_TRUE(std::none_of(m.A(), m.A() + m.a_count(), [](float a) { return a == 0; }));
    const Scratch scratch;
    write_adapter(*opened.adapter, scratch / ".", "base");
    const Json config = read_json(scratch / "adapter_config.json");
    EXPECT_EQ(config["target_modules"], Json({"q_proj"}));
    EXPECT_EQ(config["target_parameters"], Json({"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
    OpenedModel again = open_model(std::string(VITRINE_GOLDEN) + "/" + name);
    open_adapter(again, scratch / ".");
    EXPECT_EQ(again.adapter->parameter_count(), opened.adapter->parameter_count());
  }
}

TEST(Adapter, ExpertsAreAdaptedOneWayAndWithoutDropout) {
  const auto refused = [](const AdapterOptions& options) {
    OpenedModel opened = open_model(Golden::open("qwen3_moe").model());
    return message_of<InputError>([&] { add_fresh_adapter(opened, options, 1); });
  };
  const std::string twice = refused({.rank = 2, .targets = {"experts.gate_up_proj", "all-linear"}});
  EXPECT_CONTAINS(twice, "the same matrix twice");
  EXPECT_CONTAINS(twice, "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_CONTAINS(refused({.rank = 2, .dropout = 0.1, .targets = {"experts.down_proj"}}), "PEFT has no dropout. Set it to 0");
  EXPECT_CONTAINS(refused({.rank = 2, .targets = {"gate_up_proj"}}), "experts.gate_up_proj, experts.down_proj, and all-linear");
  OpenedModel stacked = open_model(std::string(VITRINE_GOLDEN) + "/variants/qwen3_moe_stacked");
  EXPECT_CONTAINS(message_of<InputError>([&] { add_fresh_adapter(stacked, {.rank = 2, .targets = {"w1"}}, 1); }),
                  "experts.gate_up_proj, experts.down_proj");
}

// Refusals ------------------------------------------------------------------------------------------------------------

std::string refusal(const std::string& directory, const std::string& model = "gpt2_a") {
  OpenedModel opened = open_model(Golden::open(model).model());
  try {
    open_adapter(opened, directory);
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

// The adapter with some keys of its configuration changed.
std::string changed(const Scratch& scratch, const Json& keys) {
  std::filesystem::copy(golden_adapter("gpt2_a"), scratch / "changed",
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  Json config = read_json(scratch / "changed/adapter_config.json");
  config.update(keys);
  std::ofstream(scratch / "changed/adapter_config.json") << config;
  return scratch / "changed";
}

TEST(Adapter, SettingsThatAreNotSupportedAreRefusedByName) {
  const Scratch scratch;
  EXPECT_EQ(refusal(changed(scratch, Json::object())), "accepted");
  EXPECT_EQ(refusal(changed(scratch, {{"a_setting_of_tomorrow", false}})), "accepted");
  const std::vector<std::pair<std::string, Json>> unsupported = {{"init_lora_weights", "pissa"},
                                                                 {"layer_replication", Json::array({0, 1})},
                                                                 {"peft_type", "LOHA"},
                                                                 {"a_setting_of_tomorrow", 3}};
  for (const auto& [key, value] : unsupported) {
    const std::string message = refusal(changed(scratch, {{key, value}}));
    EXPECT_NE(message.find("adapter_config.json: \"" + key + "\""), std::string::npos) << message;
    EXPECT_NE(message.find("not supported"), std::string::npos) << message;
  }
  const std::vector<std::pair<std::string, Json>> wrong = {{"r", 0},
                                                           {"r", 1e9},
                                                           {"lora_alpha", "much"},
                                                           {"lora_dropout", 1},
                                                           {"rank_pattern", {{"h.[01.attn", 2}}},
                                                           {"rank_pattern", {{"c_attn", 2.5}}},
                                                           {"alpha_pattern", {{"c_attn", -1}}},
                                                           {"target_modules", Json::array({"c_attn", "mlp.c_proj", "c_fc"})}};
  for (const auto& [key, value] : wrong) {
    const std::string message = refusal(changed(scratch, {{key, value}}));
    EXPECT_NE(message.find("adapter_config.json"), std::string::npos) << key << " " << value << ": " << message;
  }
}

// A copy of a golden adapter with some keys of its configuration changed, beside its own base.
std::string refusal_of(const std::string& name, const Json& keys, const std::string& base = "") {
  const Scratch scratch;
  std::filesystem::copy(golden_adapter(name), scratch / "changed", std::filesystem::copy_options::recursive);
  Json config = read_json(scratch / "changed/adapter_config.json");
  config.update(keys);
  std::ofstream(scratch / "changed/adapter_config.json") << config;
  OpenedModel opened = open_model(base.empty() ? lora_base(name) : base);
  try {
    open_adapter(opened, scratch / "changed");
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Adapter, WholeTensorsTokensAndMagnitudesThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal_of("tokens", Json::object()), "accepted");
  EXPECT_CONTAINS(refusal_of("tokens", {{"trainable_token_indices", {3, 17}}}), "expected [2, 32]");
  EXPECT_CONTAINS(refusal_of("tokens", {{"trainable_token_indices", {3, 17, 48}}}), "trainable_token_indices has 48");
  EXPECT_CONTAINS(refusal_of("tokens", {{"trainable_token_indices", {3, 3, 17}}}), "has 3 twice");
  EXPECT_CONTAINS(refusal_of("tokens", {{"trainable_token_indices", nullptr}}), "lists no tokens of model.embed_tokens");
  EXPECT_CONTAINS(refusal_of("tokens", {{"trainable_token_indices", {{"wte", {3, 17, 40}}}}}), "lists no tokens");
  EXPECT_CONTAINS(refusal_of("tokens_of_both", {{"trainable_token_indices", {{"embed_tokens", {3, 9}}}}}),
                  "lists no tokens of lm_head");
  // Two that are to be one, and are two.
  EXPECT_EQ(refusal_of("both_of_two", Json::object()), "accepted");
  EXPECT_CONTAINS(refusal_of("both_of_two", {{"ensure_weight_tying", true}}),
                  "\"ensure_weight_tying\" is true; makes lm_head and model.embed_tokens one");
  EXPECT_CONTAINS(refusal_of("head_of_two", {{"ensure_weight_tying", true}}), "expected both with the same numbers");
  EXPECT_CONTAINS(refusal_of("saved_both_of_two", {{"ensure_weight_tying", true}}), "lm_head.weight\" is not what");
  EXPECT_CONTAINS(refusal_of("saved_head_of_two", {{"ensure_weight_tying", true}}), "lm_head.weight\" is not what");
  EXPECT_CONTAINS(refusal_of("glm4", {{"use_dora", true}}), "lora_magnitude_vector\", and use_dora is true");
  EXPECT_CONTAINS(refusal_of("dora", {{"use_dora", false}}), "lora_magnitude_vector\" (header byte");
  EXPECT_CONTAINS(refusal_of("biases_all", {{"bias", "some"}}), "expected none, all or lora_only");
  const std::string variants = std::string(VITRINE_GOLDEN) + "/variants/";
  EXPECT_CONTAINS(refusal_of("embeddings", Json::object(), variants + "starcoder2_no_biases"), "expected [");
  // Tensors that are whole: one of another vocabulary, and one with a number that is none.
  const auto with = [](const std::string& name, const std::vector<int64_t>& shape, float number) {
    const Scratch scratch;
    const std::vector<float> numbers(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)), number);
    std::filesystem::copy(golden_adapter("saved_modules"), scratch / "changed", std::filesystem::copy_options::recursive);
    write_safetensors(scratch / "changed/adapter_model.safetensors", {{name, DType::f32, shape, numbers.data()}}, {});
    OpenedModel opened = open_model(lora_base("saved_modules"));
    return message_of<FileError>([&] { open_adapter(opened, scratch / "changed"); });
  };
  EXPECT_CONTAINS(with("base_model.model.model.embed_tokens.weight", {50, 12}, 1), "has 50 rows");
  EXPECT_CONTAINS(with("base_model.model.model.embed_tokens.weight", {50, 12}, 1), "Resize that of the base model first");
  EXPECT_CONTAINS(with("base_model.model.model.norm.weight", {13}, 1), "is [13] (header byte");
  EXPECT_CONTAINS(with("base_model.model.model.norm.weight", {12}, std::nanf("")), "expected finite numbers");
  EXPECT_CONTAINS(with("base_model.model.model.embed_tokens.base_layer.weight", {48, 12}, 1), "expected the same numbers");
  EXPECT_CONTAINS(with("base_model.model.model.rotary.inv_freq", {12}, 1), "nor to another of its tensors");
}

// The first key that fits, as the end of the name or as all of it.
TEST(Adapter, PatternsChooseAsPeftDoes) {
  using Ordered = nlohmann::ordered_json;
  const Scratch scratch;
  for (const Ordered& c : Ordered::parse(read_file(std::string(VITRINE_GOLDEN) + "/lora/patterns.json"))) {
    SCOPED_TRACE(c.at("keys").dump());
    Ordered config = read_json(changed(scratch, Json::object()) + "/adapter_config.json");
    config["alpha_pattern"] = Ordered::object();
    for (const auto& key : c.at("keys")) config["alpha_pattern"][key.get<std::string>()] = config["alpha_pattern"].size() + 20;
    std::ofstream(scratch / "changed/adapter_config.json") << config;
    OpenedModel opened = open_model(Golden::open("gpt2_a").model());
    open_adapter(opened, scratch / "changed");
    EXPECT_EQ(opened.adapter->modules().size(), c.at("chosen").size());
    for (const Adapter::Module& m : opened.adapter->modules()) {
      const double alpha = config["alpha_pattern"].value(c.at("chosen").at(m.name).get<std::string>(), 6.0);
      EXPECT_NEAR(m.parts.front().scale * static_cast<double>(m.rank), alpha, 1e-5) << m.name;
    }
  }
}

// Written keys fit modules of one number alone, and few of them say much.
TEST(Adapter, PatternKeysAreTheShortestThatTellModulesApart) {
  using Numbers = std::map<std::string, double>;
  EXPECT_EQ(pattern_keys({{"h.0.attn.q", 2}, {"h.1.attn.q", 2}, {"h.0.mlp.fc", 4}}, 4), (Numbers{{"q", 2}}));
  EXPECT_EQ(pattern_keys({{"h.0.attn.q", 2}, {"h.1.attn.q", 3}, {"h.2.attn.q", 4}}, 4),
            (Numbers{{"h.0.attn.q", 2}, {"h.1.attn.q", 3}}));
  EXPECT_EQ(pattern_keys({{"h.0.attn.proj", 2}, {"h.1.attn.proj", 2}, {"h.0.mlp.proj", 4}}, 4), (Numbers{{"attn.proj", 2}}));
  EXPECT_EQ(pattern_keys({{"head", 2}, {"block.head", 4}, {"other.block.head", 3}}, 4),
            (Numbers{{"^head", 2}, {"other.block.head", 3}}));
  const Numbers numbers = {{"head", 2},        {"block.head", 4},  {"h.1.head", 5},         {"a.h.1.head", 6},
                           {"h.10.mlp.fc", 7}, {"h.1.mlp.fc", 4},  {"h.0.mlp.fc", 8},       {"h.0.mlp.up", 9},
                           {"h.1.mlp.up", 9},  {"h.10.mlp.up", 9}, {"h.0.experts.0.up", 4}, {"h.1.experts.0.up", 1}};
  for (const auto& [module, number] : numbers) {
    std::set<double> fitting;
    for (const auto& [key, value] : pattern_keys(numbers, 4))
      if (ModulePattern(key).fits(module)) fitting.insert(value);
    EXPECT_EQ(fitting, number == 4 ? std::set<double>{} : std::set<double>{number}) << module;
  }
}

TEST(Adapter, PatternsThatAreNoneOrTakeTooLongAreRefused) {
  const Scratch scratch;
  EXPECT_CONTAINS(refusal(changed(scratch, {{"rank_pattern", {{"h.[01.attn", 2}}}})),
                  "\"rank_pattern\" is {\"h.[01.attn\":2}; has the pattern \"h.[01.attn\", which is no regular expression: ");
  EXPECT_CONTAINS(refusal(changed(scratch, {{"rank_pattern", {{R"(((.*)*)*\d)", 2}}}})),
                  R"(has the pattern "((.*)*)*\d", which cannot be matched with transformer.h.0.attn.c_attn: )");
}

// Patterns are read in their order; once each object before them was looked at again at the end of the next.
TEST(Adapter, ManyValuesBesideThePatterns) {
  const Scratch scratch;
  Json many = Json::array();
  for (int i = 0; i < 400'000; ++i) many.push_back(Json::object());
  EXPECT_EQ(refusal(changed(scratch, {{"alpha_pattern", {{"c_attn", 12}}}, {"auto_mapping", many}, {"eva_config", many}})),
            "accepted");
}

// Lists of targets for several families are legal, and so are targets of which parts are left out.
TEST(Adapter, TargetsOfOtherModelsAreIgnored) {
  const Scratch scratch;
  EXPECT_EQ(refusal(changed(scratch, {{"target_modules", Json::array({"c_attn", "mlp.c_proj", "q_proj"})}})), "accepted");
  EXPECT_EQ(refusal(changed(scratch, {{"target_modules", Json::array({"c_attn", "mlp.c_proj", "c_fc"})},
                                      {"exclude_modules", Json::array({"c_fc"})}})),
            "accepted");
}

TEST(Adapter, FilesThatDoNotFitAreRefused) {
  const Scratch scratch;
  EXPECT_NE(refusal(golden_adapter("gpt2_a"), "gemma2").find("belongs to no matrix of a block"), std::string::npos);
  EXPECT_NE(refusal(scratch / "none").find("is no folder"), std::string::npos);
  EXPECT_NE(refusal(Golden::open("gpt2_a").model()).find("give it as --model"), std::string::npos);
  const std::string rank = refusal(changed(scratch, {{"rank_pattern", Json::object()}}));  // h.1.attn.c_attn has another
  EXPECT_NE(rank.find("h.1.attn.c_attn.lora_A.weight\" is [2, "), std::string::npos) << rank;
  const std::string folder = changed(scratch, Json::object());
  std::filesystem::remove(folder + "/adapter_model.safetensors");
  std::ofstream(folder + "/adapter_model.bin") << "x";
  EXPECT_NE(refusal(folder).find("adapter_model.bin, which can run code"), std::string::npos);
  std::ofstream(folder + "/adapter_model.safetensors") << "short";
  EXPECT_NE(refusal(folder).find("adapter_model.safetensors"), std::string::npos);
  try {
    OpenedModel opened = open_model(Golden::open("gpt2_a").model());
    add_fresh_adapter(opened, {.targets = {"c_atn"}}, 1);
    FAIL();
  } catch (const InputError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("\"c_atn\" names no matrix"), std::string::npos) << message;
    EXPECT_NE(message.find("c_attn, c_proj, c_fc, wte, lm_head, wpe, and all-linear"), std::string::npos) << message;
  }
}

// Conversion ----------------------------------------------------------------------------------------------------------

TEST(Export, RoundsEveryNumberOnceAndSaysSo) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Scratch scratch;
    OpenedModel opened = open_model(Golden::open("gpt2_a").model());
    write_huggingface(opened, {}, scratch / "out", dtype);
    const Checkpoint before = open_weights(opened.files), after = open_safetensors(scratch / "out");
    for (const auto& [name, tensor] : after.tensors()) {
      const StoredTensor* const from = before.find(name);
      ASSERT_NE(from, nullptr) << name;
      ASSERT_EQ(tensor.shape, from->shape);
      EXPECT_EQ(tensor.dtype, dtype);
      const std::vector<float> got = as_floats(tensor).values, had = as_floats(*from).values;
      // Half a unit in the last place of 8 and 11 bits; of f16's smallest numbers.
      const double half = dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11, least = half > 0 ? 0x1p-25 : 0;
      for (size_t i = 0; i < had.size(); ++i)
        ASSERT_LE(std::abs(got[i] - had[i]), std::max(least, had[i] == 0 ? 0 : half * std::exp2(std::ilogb(had[i])))) << name;
    }
    const Json config = read_json(scratch / "out/config.json");
    const char* const name = dtype == DType::f32 ? "float32" : dtype == DType::bf16 ? "bfloat16" : "float16";
    EXPECT_EQ(config.value("dtype", config.value("torch_dtype", "")), name);
    const OpenedModel again = open_model(scratch / "out");
    EXPECT_EQ(again.model->shape().d_model, opened.model->shape().d_model);
  }
}

TEST(Export, WhatCannotBeWrittenIsRefused) {
  const Scratch scratch;
  OpenedModel opened = open_model(Golden::open("gpt2_a").model());
  add_fresh_adapter(opened, {.rank = 1, .targets = {"c_fc"}}, 1);
  std::filesystem::create_directories(scratch / "there");
  EXPECT_THROW(write_huggingface(opened, {}, scratch / "there", DType::f32), InputError);
  EXPECT_THROW(write_huggingface(opened, {}, scratch / "out", DType::q8_0), InputError);
  const_cast<float*>(opened.adapter->modules()[0].A())[0] = INFINITY;
  const_cast<float*>(opened.adapter->modules()[0].B())[0] = 1;
  try {
    write_huggingface(opened, {}, scratch / "out", DType::bf16);
    FAIL();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("transformer.h.0.mlp.c_fc.weight: number 0 is inf"), std::string::npos)
        << error.what();
  }
  const_cast<float*>(opened.adapter->modules()[0].A())[0] = 1e6f;
  try {
    write_huggingface(opened, {}, scratch / "out", DType::f16);
    FAIL();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("beyond what f16 holds"), std::string::npos) << error.what();
  }
  EXPECT_EQ(names_in(scratch / "."), std::vector<std::string>{"there"});  // nothing half-written stays
}

// PEFT finds a parameter by its name in the model, which is that of the stacked tensor where a file has one.
TEST(ExpertModules, HaveTheNamesOfTheParameters) {
  const OpenedModel beside = open_model(Golden::open("gemma4_moe").model());
  for (const Adapter::Module& m : expert_modules(beside)) EXPECT_NE(beside.checkpoint.find(m.name), nullptr) << m.name;
  const OpenedModel apart = open_model(Golden::open("mixtral").model());
  ASSERT_FALSE(expert_modules(apart).empty());
  EXPECT_EQ(expert_modules(apart).front().name, "model.layers.0.mlp.experts.gate_up_proj");
  for (const std::string granite : {"/variants/granite4_experts", "/gguf/granite4_experts.gguf"})
    EXPECT_EQ(expert_modules(open_model(VITRINE_GOLDEN + granite)).front().name,
              "model.layers.0.block_sparse_moe.experts.gate_up_proj");
}

}  // namespace
}  // namespace vitrine
