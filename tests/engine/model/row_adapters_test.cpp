// Adapters of some rows of a step (Context::row_adapters) against PEFT, and against adapters that stand at the weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/adapter.h"
#include "model/adapter_gguf.h"
#include "model/export.h"
#include "ops/label_scores.h"
#include "ops/tape.h"
#include "run.h"
#include "support/lora.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Logits of several sequences in one step, with adapters of each.
std::vector<float> logits_with(const Model& model, const std::vector<std::vector<int32_t>>& texts,
                               const std::vector<ScaledAdapters>& adapters, bool exact = false) {
  ThreadPool pool(2);
  Context ctx(pool);
  ctx.numerics = {.f32 = true, .exact = exact};
  Step step;
  std::vector<RowAdapter> rows;
  for (size_t i = 0; i < texts.size(); ++i) {
    add_row_adapters(adapters[i], step.rows(), std::ssize(texts[i]), rows);
    step.add(texts[i]);
  }
  ctx.row_adapters = rows;
  return all_logits(ctx, model, step);
}

TEST(RowAdapters, ABatchOfTextsWithTheirOwnAdaptersMatchesPeft) {
  const Checkpoint gold = open_safetensors(lora_folder("mixed/golden.safetensors"));
  const OpenedModel opened = open_model(Golden::open("llama").model());
  const ScaledAdapter first{read_adapter(opened, lora_folder("llama/adapter"))},
      second{read_adapter(opened, lora_folder("mixed/second"))};
  const GoldenTensor ids = golden_tensor(gold, "ids");
  const std::vector<std::vector<int32_t>> texts = {ids_of(ids.at(0)), ids_of(ids.at(1)), ids_of(ids.at(2))};
  const std::vector<float> all = logits_with(*opened.model, texts, {{first}, {}, {second}});
  const auto size = static_cast<std::ptrdiff_t>(all.size() / 3);
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    EXPECT_CLOSE(std::vector<float>(all.begin() + i * size, all.begin() + (i + 1) * size),
                 golden_tensor(gold, "mixed/" + std::to_string(i)), Golden::open("llama").tolerance());
  }
  const ScaledAdapters both = {{first.adapter, 0.5}, {second.adapter, -1.5}};
  EXPECT_CLOSE(logits_with(*opened.model, {texts[0]}, {both}), golden_tensor(gold, "both"), Golden::open("llama").tolerance());
}

class AdapterOfRows : public testing::TestWithParam<std::string> {};

// The first has the adapter, the second none, the third half of it: each as if it were alone, to the bit.
TEST_P(AdapterOfRows, ChangesItsRowsAsAtTheWeightsAndNoOthers) {
  const Checkpoint gold = open_safetensors(lora_folder(GetParam() + "/golden.safetensors"));
  const GoldenTensor ids = golden_tensor(gold, "ids");
  std::vector<std::vector<int32_t>> texts = {ids_of(ids.at(0)), ids_of(ids.at(1)), ids_of(ids.at(2))};
  texts[1].resize(3);
  OpenedModel opened = open_model(lora_base(GetParam()));
  const std::shared_ptr<const Adapter> adapter = read_adapter(opened, lora_folder(GetParam() + "/adapter"));
  for (const bool exact : {false, true}) {
    SCOPED_TRACE(exact);
    const std::vector<float> together = logits_with(*opened.model, texts, {{{adapter}}, {}, {{adapter, 0.5}}}, exact);
    std::vector<float> alone, plain;
    for (size_t i = 0; i < 3; ++i) {
      const ScaledAdapters with = i == 1 ? ScaledAdapters{} : ScaledAdapters{{adapter, i == 0 ? 1.0 : 0.5}};
      const std::vector<float> own = logits_with(*opened.model, {texts[i]}, {with}, exact),
                               without = logits_with(*opened.model, {texts[i]}, {{}}, exact);
      EXPECT_EQ(own == without, i == 1);
      alone.insert(alone.end(), own.begin(), own.end());
      plain.insert(plain.end(), without.begin(), without.end());
    }
    if (exact)
      EXPECT_EQ(together, alone);
    else
      EXPECT_CLOSE(together, alone, Tolerance(2e-5, 1e-4));
  }
  EXPECT_CLOSE(logits_with(*opened.model, {texts[0]}, {{{adapter}}}), golden_tensor(gold, "logits"), lora_tolerance(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Every, AdapterOfRows, testing::ValuesIn(golden_adapters()), [](const auto& test) { return test.param; });

// A head that is read in pieces, and one that is read for some rows, know which rows of the step they have.
TEST(RowAdapters, OfTheHeadActOnItsRows) {
  for (const std::string name : {"saved_modules", "embeddings", "tokens"}) {
    SCOPED_TRACE(name);
    const OpenedModel opened = open_model(lora_base(name));
    const ScaledAdapter adapter{read_adapter(opened, lora_folder(name + "/adapter"))};
    ThreadPool pool(2);
    Context ctx(pool);
    ctx.numerics = {.f32 = true, .exact = true};
    const std::vector<std::vector<int32_t>> texts = {{3, 17, 40}, {5, 9, 3, 40}, {17, 4}};
    Step step;
    std::vector<RowAdapter> rows;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0) add_row_adapters({{adapter.adapter, i == 1 ? 1.0 : 0.5}}, step.rows(), std::ssize(texts[i]), rows);
      step.add(texts[i]);
    }
    ctx.row_adapters = rows;
    const Tensor x = opened.model->residual(ctx, step);
    const Head head = opened.model->head();
    const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8}, some = {8, 1, 3, 4};
    const Tensor z = logits(ctx, x, head, all), few = logits(ctx, x, head, some);
    for (size_t i = 0; i < some.size(); ++i)
      EXPECT_TRUE(std::equal(few.row<float>(static_cast<int64_t>(i)), few.row<float>(static_cast<int64_t>(i)) + z.row_size(),
                             z.row<float>(some[i])));
    const std::vector<int32_t> labels = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const std::vector<LabelScore> pieces = label_scores(ctx, x, head, labels), whole = label_scores(ctx, z, labels);
    for (size_t i = 0; i < labels.size(); ++i) EXPECT_NEAR(pieces[i].logprob, whole[i].logprob, 1e-5);
    ctx.row_adapters = {};
    const Tensor plain = logits(ctx, x, head, all);
    EXPECT_TRUE(std::equal(plain.row<float>(2), plain.row<float>(2) + z.row_size(), z.row<float>(2)));
    EXPECT_FALSE(std::equal(plain.row<float>(5), plain.row<float>(5) + z.row_size(), z.row<float>(5)));
  }
}

// Every matrix of every family meets the rows of the step in their order, or says which it has.
TEST(RowAdapters, OnEveryMatrixEqualThoseAtTheWeights) {
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(VITRINE_GOLDEN) + "/models"))
    if (entry.is_directory()) models.push_back(entry.path() / "model");
  for (const std::string& name : golden_folders("variants")) models.push_back(std::string(VITRINE_GOLDEN) + "/variants/" + name);
  for (const std::string& name : golden_folders("roformer")) models.push_back(std::string(VITRINE_GOLDEN) + "/roformer/" + name);
  ASSERT_GT(models.size(), 40U);
  for (const std::string& name : models) {
    SCOPED_TRACE(name);
    OpenedModel attached = open_model(name);
    add_fresh_adapter(attached, {.rank = 2, .alpha = 3, .targets = {"all-linear"}}, 5);
    for (const Adapter::Module& m : attached.adapter->modules())
      for (int64_t i = 0; i < m.b_count(); ++i) const_cast<float*>(m.B())[i] = 0.02f * static_cast<float>((i * 7 + 3) % 11 - 5);
    const std::vector<int32_t> ids = {3, 17, 4, 5, 9, 12, 7, 21, 6, 8, 30};
    for (const bool exact : {false, true}) {
      const std::vector<float> wanted = logits_with(*attached.model, {ids}, {{}}, exact);
      // The same adapter taken off the weights.
      const std::shared_ptr<const Adapter> adapter = attached.adapter;
      for (const Adapter::Module& m : adapter->modules())
        for (Weight* const weight : m.weights) weight->adapter = nullptr;
      const std::vector<float> plain = logits_with(*attached.model, {ids}, {{}}, exact);
      EXPECT_NE(wanted, plain);
      EXPECT_EQ(logits_with(*attached.model, {ids}, {{{adapter}}}, exact), wanted);
      const auto width = static_cast<std::ptrdiff_t>(plain.size());
      const std::vector<float> beside = logits_with(*attached.model, {ids, ids, ids}, {{}, {{adapter}}, {}}, true),
                               alone = logits_with(*attached.model, {ids}, {{{adapter}}}, true),
                               without = logits_with(*attached.model, {ids}, {{}}, true);
      EXPECT_TRUE(std::equal(beside.begin(), beside.begin() + width, without.begin()));
      EXPECT_TRUE(std::equal(beside.begin() + width, beside.begin() + 2 * width, alone.begin()));
      EXPECT_TRUE(std::equal(beside.begin() + 2 * width, beside.end(), without.begin()));
      for (const Adapter::Module& m : adapter->modules())
        for (size_t i = 0; i < m.weights.size(); ++i) m.weights[i]->adapter = &m.parts[i];
    }
  }
}

// What one head adds to the stream, too.
TEST(RowAdapters, ActOnTheResultsOfHeads) {
  const OpenedModel opened = open_model(Golden::open("llama").model());
  const ScaledAdapters adapters = {{read_adapter(opened, lora_folder("llama/adapter")), 0.5}};
  ThreadPool pool(2);
  Context ctx(pool);
  ctx.numerics = {.f32 = true};
  Recorder seen({{"blocks.*.attn.hook_result"}, {"blocks.*.attn.hook_out"}});
  ctx.listen(&seen);
  std::vector<RowAdapter> rows;
  add_row_adapters(adapters, 0, RowAdapter::kAllRows, rows);
  ctx.row_adapters = rows;
  const std::vector<int32_t> ids = {3, 17, 4, 5};
  all_logits(ctx, *opened.model, Step::of(ids));
  const auto& result = seen.values().at("blocks.0.attn.hook_result").values;
  const auto& out = seen.values().at("blocks.0.attn.hook_out").values;
  const auto d_model = static_cast<size_t>(opened.model->shape().d_model),
             heads = static_cast<size_t>(opened.model->shape().n_heads);
  for (size_t row = 0; row < ids.size(); ++row)
    for (size_t j = 0; j < d_model; ++j) {
      float sum = 0;
      for (size_t h = 0; h < heads; ++h) sum += result[(row * heads + h) * d_model + j];
      EXPECT_NEAR(sum, out[row * d_model + j], 1e-5);
    }
}

// Files that llama.cpp's converter made of PEFT's, beside the model in either kind of file. It does not know rsLoRA's scale.
TEST(GgufAdapter, OfLlamaCppMatchesPeft) {
  for (const std::string name : {"llama", "gemma2", "phi3", "glm4", "gpt_neox"})
    for (const std::string& base : {Golden::open(name).model(), std::string(VITRINE_GOLDEN) + "/gguf/" + name + ".gguf"}) {
      SCOPED_TRACE(base);
      const Checkpoint gold = open_safetensors(lora_folder(name + "/golden.safetensors"));
      const OpenedModel opened = open_model(base);
      const ScaledAdapter adapter{read_adapter(opened, lora_folder(name + "/llama_cpp.gguf")),
                                  name == "llama" ? std::sqrt(2.0) : 1.0};
      EXPECT_EQ(adapter.adapter->files(), std::vector<std::string>{lora_folder(name + "/llama_cpp.gguf")});
      EXPECT_CLOSE(logits_with(*opened.model, {ids_of(golden_tensor(gold, "ids").at(0))}, {{adapter}}),
                   golden_tensor(gold, "logits"), Golden::open(name).tolerance());
    }
}

// Ranks and scales of their own for each matrix go into B; of experts all in one tensor.
TEST(GgufAdapter, WrittenOnesAreReadBesideBothKindsOfFiles) {
  for (const std::string name :
       {"llama", "gemma2", "phi3", "glm4", "gpt_neox", "gpt2_a", "qwen3_moe", "mixtral", "llama4", "falcon_h1", "embeddings"}) {
    SCOPED_TRACE(name);
    const Scratch scratch;
    const std::string base = name == "embeddings" ? "stablelm" : name;
    const Checkpoint gold = open_safetensors(lora_folder(name + "/golden.safetensors"));
    OpenedModel from = open_model(Golden::open(base).model());
    open_adapter(from, lora_folder(name + "/adapter"));
    write_gguf_adapter(from, *from.adapter, scratch / "adapter.gguf");
    for (const std::string& path : {Golden::open(base).model(), std::string(VITRINE_GOLDEN) + "/gguf/" + base + ".gguf"}) {
      OpenedModel opened = open_model(path);
      open_adapter(opened, scratch / "adapter.gguf");
      EXPECT_CLOSE(logits_with(*opened.model, {ids_of(golden_tensor(gold, "ids").at(0))}, {{}}), golden_tensor(gold, "logits"),
                   Golden::open(base).tolerance());
    }
  }
}

// Experts of one tensor have one rank in the file: those with less get zeros.
TEST(GgufAdapter, ExpertsOfOtherRanks) {
  const std::vector<std::vector<int32_t>> text = {{3, 17, 4, 5, 9, 12, 7}};
  for (const std::string smaller : {"experts.0", "experts.1"}) {
    SCOPED_TRACE(smaller);
    const Scratch scratch;
    const std::string base = Golden::open("qwen3_moe").model();
    OpenedModel fresh = open_model(base);
    AdapterOptions options = {.rank = 2, .alpha = 4, .targets = {}};
    for (int64_t i = 0; i < fresh.model->layer(0).experts->count; ++i)
      options.targets.push_back("experts." + std::to_string(i) + ".down_proj");
    add_fresh_adapter(fresh, options, 3);
    write_adapter(*fresh.adapter, scratch / ".", "base");
    const Checkpoint stored = open_safetensors(scratch / "adapter_model.safetensors");
    std::vector<TensorToWrite> tensors;
    std::vector<std::vector<float>> numbers;
    for (const auto& [name, tensor] : stored.tensors()) {
      std::vector<int64_t> shape = tensor.shape;
      if (name.find(smaller + ".") != std::string::npos) shape[name.ends_with("lora_A.weight") ? 0 : 1] = 1;
      std::vector<float>& own = numbers.emplace_back();
      for (int64_t i = 0; i < shape[0] * shape[1]; ++i) own.push_back(0.1f * static_cast<float>((i * 7 + 3) % 11 - 5));
      tensors.push_back({name, DType::f32, shape, own.data()});
    }
    Json config = read_json(scratch / "adapter_config.json");
    config["rank_pattern"] = {{smaller + ".down_proj", 1}};
    std::filesystem::create_directory(scratch / "mixed");
    scratch.write("mixed/adapter_config.json", config.dump());
    write_safetensors(scratch / "mixed/adapter_model.safetensors", tensors, {});
    OpenedModel opened = open_model(base);
    const std::vector<float> plain = logits_with(*opened.model, text, {{}});
    open_adapter(opened, scratch / "mixed");
    write_gguf_adapter(opened, *opened.adapter, scratch / "adapter.gguf");
    OpenedModel again = open_model(base);
    open_adapter(again, scratch / "adapter.gguf");
    const std::vector<float> wanted = logits_with(*opened.model, text, {{}});
    EXPECT_CLOSE(logits_with(*again.model, text, {{}}), wanted, Tolerance(2e-5, 1e-4));
    EXPECT_FALSE(close_ranges(plain, wanted, Tolerance(2e-5, 1e-4)));
  }
}

TEST(GgufAdapter, FilesThatDoNotFitAreRefused) {
  const auto refusal = [](const std::string& model, const std::string& path) {
    const OpenedModel opened = open_model(model);
    return message_of<FileError>([&] { read_adapter(opened, path); });
  };
  const std::string llama = Golden::open("llama").model();
  EXPECT_CONTAINS(refusal(llama, lora_folder("gemma2/llama_cpp.gguf")), "general.architecture is \"gemma2\"; expected \"llama\"");
  EXPECT_CONTAINS(refusal(llama, std::string(VITRINE_GOLDEN) + "/gguf/llama.gguf"), "general.type");
  EXPECT_CONTAINS(refusal(Golden::open("smollm3").model(), lora_folder("phi3/llama_cpp.gguf")), "general.architecture");
  EXPECT_CONTAINS(refusal(std::string(VITRINE_GOLDEN) + "/variants/llama_biases", lora_folder("llama/llama_cpp.gguf")),
                  "expected [");
  const Scratch scratch;
  OpenedModel dora = open_model(Golden::open("phi").model());
  open_adapter(dora, lora_folder("dora/adapter"));
  EXPECT_CONTAINS(message_of<InputError>([&] { write_gguf_adapter(dora, *dora.adapter, scratch / "a.gguf"); }), "DoRA");
}

// Trained tokens of a tied model are the head's too, also where an adapter at the weights has parted the two.
TEST(RowAdapters, TrainedTokensBesideAModelThatIsUntied) {
  const std::vector<std::vector<int32_t>> text = {{3, 17, 4, 40}};
  const Scratch scratch;
  OpenedModel merged = open_model(lora_base("tokens"));
  open_adapter(merged, lora_folder("tokens/adapter"));
  write_huggingface(merged, {}, scratch / "merged", DType::f32);
  for (const std::string target : {"lm_head", "embed_tokens"}) {
    SCOPED_TRACE(target);
    OpenedModel expected = open_model(scratch / "merged"), opened = open_model(lora_base("tokens"));
    for (OpenedModel* model : {&expected, &opened}) {
      EXPECT_TRUE(model->model->shape().tied);
      add_fresh_adapter(*model, {.rank = 2, .targets = {target}}, 7);
      EXPECT_FALSE(model->model->shape().tied);
      const Adapter::Module& m = model->adapter->modules().front();
      for (int64_t i = 0; i < m.b_count(); ++i) const_cast<float*>(m.B())[i] = 0.02f * static_cast<float>((i * 7 + 3) % 11 - 5);
    }
    const ScaledAdapter tokens{read_adapter(opened, lora_folder("tokens/adapter"))};
    EXPECT_CLOSE(logits_with(*opened.model, text, {{tokens}}), logits_with(*expected.model, text, {{}}), Tolerance(2e-5, 1e-4));
  }
}

TEST(RowAdapters, AreRefusedOnATape) {
  const OpenedModel opened = open_model(Golden::open("llama").model());
  const ScaledAdapters adapters = {{read_adapter(opened, lora_folder("llama/adapter"))}};
  ThreadPool pool(1);
  Context ctx(pool);
  Tape tape;
  ctx.record_on(&tape);
  std::vector<RowAdapter> rows;
  add_row_adapters(adapters, 0, RowAdapter::kAllRows, rows);
  ctx.row_adapters = rows;
  const std::vector<int32_t> ids = {3, 17};
  EXPECT_THROW(opened.model->residual(ctx, Step::of(ids)), UsageError);
}

TEST(ReadAdapter, LeavesTheModelAsItIsAndKeepsToItsBytes) {
  const OpenedModel opened = open_model(Golden::open("llama").model());
  const std::vector<std::vector<int32_t>> text = {{3, 17, 4}};
  const std::vector<float> before = logits_with(*opened.model, text, {{}});
  const std::shared_ptr<const Adapter> adapter = read_adapter(opened, lora_folder("llama/adapter"));
  EXPECT_EQ(logits_with(*opened.model, text, {{}}), before);
  EXPECT_EQ(opened.adapter, nullptr);
  const auto bytes = static_cast<size_t>(adapter->parameter_count()) * sizeof(float);
  EXPECT_NE(read_adapter(opened, lora_folder("llama/adapter"), bytes)->id(), adapter->id());
  try {
    read_adapter(opened, lora_folder("llama/adapter"), bytes - 1);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("llama/adapter/adapter_model.safetensors"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("expected at most what is left for adapters"), std::string::npos) << error.what();
  }
}

// Attention sinks are read by an op that knows no rows.
TEST(ReadAdapter, WholeTensorsThatActOnAllRowsOnlyAreRefused) {
  const Scratch scratch;
  OpenedModel opened = open_model(std::string(VITRINE_GOLDEN) + "/variants/gpt_oss_default_rope");
  std::filesystem::copy(lora_folder("gpt_oss_default_rope/adapter"), scratch / "adapter");
  Json config = read_json(scratch / "adapter/adapter_config.json");
  config["target_modules"] = config["target_parameters"] = Json::array();
  scratch.write("adapter/adapter_config.json", config.dump());
  const std::vector<float> sinks(static_cast<size_t>(opened.model->shape().n_heads), 0.5f);
  write_safetensors(scratch / "adapter/adapter_model.safetensors",
                    {{"base_model.model.model.layers.0.self_attn.sinks", DType::f32, {std::ssize(sinks)}, sinks.data()}}, {});
  EXPECT_CONTAINS(message_of<FileError>([&] { read_adapter(opened, scratch / "adapter"); }), "for some texts only");
  const std::vector<float> before = logits_with(*opened.model, {{3, 17, 4}}, {{}});
  open_adapter(opened, scratch / "adapter");
  EXPECT_NE(logits_with(*opened.model, {{3, 17, 4}}, {{}}), before);
}

// An adapter that is one tensor of the model, all whose numbers are another.
std::string whole_tensor(const Scratch& scratch, const std::string& name, const OpenedModel& opened) {
  Json config = read_json(lora_folder("saved_modules/adapter/adapter_config.json"));
  config["target_modules"] = Json::array();
  scratch.write("adapter_config.json", config.dump());
  const StoredTensor& own = *opened.checkpoint.find(name);
  std::vector<float> numbers;
  for (size_t i = 0; i < own.bytes / sizeof(float); ++i) numbers.push_back(0.5f + 0.1f * static_cast<float>(i % 7));
  write_safetensors(scratch / "adapter_model.safetensors", {{"base_model.model." + name, DType::f32, own.shape, numbers.data()}},
                    {});
  return scratch / ".";
}

// Norms without a weight or a bias of their own stand beside those that an adapter changes for some rows.
TEST(RowAdapters, WholeNormsOfModelsWithoutWeightsOrBiases) {
  const std::vector<std::vector<int32_t>> texts = {{3, 17, 4}, {5, 9, 3, 40}};
  for (const auto& [model, norm] : std::vector<std::pair<std::string, std::string>>{
           {"mamba2", "backbone.norm_f.weight"}, {"cohere", "model.layers.0.input_layernorm.weight"}}) {
    SCOPED_TRACE(model);
    const Scratch scratch;
    OpenedModel opened = open_model(Golden::open(model).model());
    const std::string folder = whole_tensor(scratch, norm, opened);
    const std::vector<float> plain = logits_with(*opened.model, {texts[1]}, {{}}, true),
                             both = logits_with(*opened.model, texts, {{{read_adapter(opened, folder)}}, {}}, true);
    open_adapter(opened, folder);
    const std::vector<float> attached = logits_with(*opened.model, {texts[0]}, {{}}, true);
    EXPECT_EQ(std::vector<float>(both.begin() + std::ssize(attached), both.end()), plain);
    EXPECT_CLOSE(std::vector<float>(both.begin(), both.begin() + std::ssize(attached)), attached, Tolerance(2e-5, 1e-4));
  }
}

// The norm of a state space is a factor for each number of all its heads, which knows no rows.
TEST(ReadAdapter, TheNormOfAStateSpaceActsOnAllRowsOnly) {
  const Scratch scratch;
  const OpenedModel opened = open_model(Golden::open("mamba2").model());
  const std::string folder = whole_tensor(scratch, "backbone.layers.0.mixer.norm.weight", opened);
  EXPECT_CONTAINS(message_of<FileError>([&] { read_adapter(opened, folder); }), "for some texts only");
}

TEST(ReadAdapter, NumbersThatAreNotFiniteAndOtherFilesAreRefused) {
  const OpenedModel opened = open_model(Golden::open("llama").model());
  const auto refusal = [&](const std::string& path) -> std::string {
    try {
      read_adapter(opened, path);
      return "accepted";
    } catch (const FileError& error) {
      return error.what();
    }
  };
  EXPECT_NE(refusal("a.gguf").find("a.gguf"), std::string::npos) << refusal("a.gguf");
  const Scratch scratch;
  std::filesystem::copy(lora_folder("mixed/second"), scratch / "adapter");
  const std::string file = scratch / "adapter/adapter_model.safetensors";
  std::string bytes = read_file(file, size_t{1} << 20);
  const float infinite = std::numeric_limits<float>::infinity();
  std::memcpy(bytes.data() + bytes.size() - sizeof infinite, &infinite, sizeof infinite);
  scratch.write("adapter/adapter_model.safetensors", bytes);
  const std::string message = refusal(scratch / "adapter");
  EXPECT_NE(message.find("adapter_model.safetensors: tensor \"base_model.model."), std::string::npos) << message;
  EXPECT_NE(message.find("is inf; expected finite numbers"), std::string::npos) << message;
}

}  // namespace
}  // namespace vitrine
