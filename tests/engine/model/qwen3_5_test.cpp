// Qwen 3.5 beyond what every family is held to: its published directories, which also hold parts for images, its state in the
// cache, and GGUF files with layers that predict further tokens.
#include <gtest/gtest.h>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "model/load.h"
#include "run.h"
#include "support/changed_gguf.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::vector<int32_t> kIds = {5, 9, 17, 33, 8, 21, 40, 11, 60, 34, 7, 19, 200, 3, 3, 3, 77};

// The golden model as published ones are stored.
void write_multimodal(const Scratch& scratch, const std::string& prefix) {
  const std::string source = Golden::open("qwen3_5").model();
  Json text = read_json(source + "/config.json");
  text.erase("architectures");
  text.erase("tie_word_embeddings");
  const Json config = {{"model_type", "qwen3_5"},
                       {"architectures", {"Qwen3_5ForConditionalGeneration"}},
                       {"tie_word_embeddings", false},
                       {"image_token_id", 255},
                       {"vision_config", {{"model_type", "qwen3_5_vision"}, {"depth", 2}}},
                       {"text_config", text}};
  scratch.write("config.json", config.dump());
  const Checkpoint from = open_safetensors(source);
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : from.tensors())
    tensors.push_back({name.starts_with("model.") ? prefix + name.substr(6) : name, tensor.dtype, tensor.shape, tensor.data});
  const float number = 1;
  for (const char* other : {"model.visual.blocks.0.attn.qkv.weight", "mtp.fc.weight"})
    tensors.push_back({other, DType::f32, {1}, &number});
  write_safetensors(scratch / "model.safetensors", tensors);
}

TEST(Qwen35, DirectoriesWithPartsForImagesOpenAsTheirLanguageModel) {
  const OpenedModel plain = open_model(Golden::open("qwen3_5").model());
  ThreadPool pool(2);
  const Forward want = run_forward(*plain.model, kIds, {}, pool);
  for (const char* prefix : {"model.language_model.", "language_model.model."}) {
    const Scratch scratch;
    write_multimodal(scratch, prefix);
    const OpenedModel opened = open_model(scratch.path());
    EXPECT_EQ(opened.model->shape().family, "qwen3_5_text");
    EXPECT_EQ(run_forward(*opened.model, kIds, {}, pool).logits, want.logits);
  }
}

TEST(Qwen35, ATensorInsideTheLanguageModelIsNotPassedOver) {
  const Scratch scratch;
  write_multimodal(scratch, "model.language_model.");
  const Checkpoint from = open_safetensors(scratch.path());
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : from.tensors()) tensors.push_back({name, tensor.dtype, tensor.shape, tensor.data});
  const float number = 1;
  tensors.push_back({"model.language_model.layers.0.self_attn.sinks", DType::f32, {1}, &number});
  const Scratch changed;
  changed.write("config.json", read_json(scratch / "config.json").dump());
  write_safetensors(changed / "model.safetensors", tensors);
  EXPECT_CONTAINS(message_of([&] { open_model(changed.path()); }), "\"model.language_model.layers.0.self_attn.sinks\"");
}

// Through the cache in steps of any sizes, with a copy that goes another way.
TEST(Qwen35, CachedStepsHaveTheBitsOfOneRun) {
  const OpenedModel opened = open_model(Golden::open("qwen3_5").model());
  ThreadPool pool(2);
  Context ctx(pool);
  ctx.numerics.exact = true;
  const std::vector<float> want = all_logits(ctx, *opened.model, Step::of(kIds));
  for (const std::vector<size_t>& sizes : std::vector<std::vector<size_t>>{{1}, {4, 1, 1}, {17}, {9, 8}}) {
    KvCache cache(opened.model->cache_layers(), 20, 17);
    CacheSequence sequence = cache.sequence();
    std::vector<float> got;
    for (size_t done = 0, i = 0; done < kIds.size(); ++i) {
      const size_t n = std::min(sizes[std::min(i, sizes.size() - 1)], kIds.size() - done);
      CacheSequence other = sequence;
      Step astray;
      astray.add(std::span(kIds).last(2), &other);
      all_logits(ctx, *opened.model, astray);
      astray.commit();
      Step step;
      step.add(std::span(kIds).subspan(done, n), &sequence);
      const std::vector<float> part = all_logits(ctx, *opened.model, step);
      step.commit();
      got.insert(got.end(), part.begin(), part.end());
      done += n;
    }
    EXPECT_EQ(got, want) << sizes[0];
  }
}

TEST(Qwen35, StatesTakeTheSameRoomAtEveryLength) {
  const OpenedModel opened = open_model(Golden::open("qwen3_5").model());
  const KvCache cache(opened.model->cache_layers(), 4096, 512);
  // Twice three layers of 4 · 8 · 8 numbers of states and 3 inputs of 64 channels, and pages of two heads of 16 + 16 numbers.
  const auto page = [](size_t n) { return n * 256 * 2 * 32 * sizeof(float); };
  const size_t states = 2 * 3 * (256 + 3 * 64) * sizeof(float);
  EXPECT_EQ(cache.bytes_for(1), states + page(1));
  EXPECT_EQ(cache.bytes_for(4096), states + page(16));
}

TEST(Qwen35, GgufWithLayersThatPredictFurtherTokensOpensWithoutThem) {
  const std::string file = std::string(VITRINE_GOLDEN) + "/gguf/qwen3_5.gguf";
  const Scratch scratch;
  const std::string path =
      changed_gguf(scratch, file, {{"qwen35.block_count", uint32_t{5}}, {"qwen35.nextn_predict_layers", uint32_t{1}}});
  ThreadPool pool(2);
  EXPECT_EQ(run_forward(*open_model(path).model, kIds, {}, pool).logits,
            run_forward(*open_model(file).model, kIds, {}, pool).logits);
}

}  // namespace
}  // namespace vitrine
