// Files that hold less than a whole model: no output matrix, as those of embedding models, and no window, as llama.cpp's of
// Mistral.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/safetensors.h"
#include "run.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::vector<int32_t> kIds = {3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9};

std::string model_of(const std::string& name) { return Golden::open(name).model(); }

// A golden model as transformers saves the model without its head: "model." is left out of the names, too.
void write_bare(const Scratch& scratch, const std::string& name, bool prefix = false) {
  scratch.write("config.json", read_json(model_of(name) + "/config.json").dump());
  const Checkpoint source = open_safetensors(model_of(name) + "/model.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const auto& [path, tensor] : source.tensors())
    if (path != "lm_head.weight")
      tensors.push_back({prefix ? path : path.substr(path.find('.') + 1), tensor.dtype, tensor.shape, tensor.data});
  write_safetensors(scratch / "model.safetensors", tensors);
}

OpenedModel open_bare(const Scratch& scratch, bool may_lack_head) {
  ModelFiles files = resolve_model(scratch.path());
  files.may_lack_head = may_lack_head;
  return open_model(std::move(files));
}

TEST(BareModel, RunsWithoutItsHead) {
  const Scratch scratch;
  write_bare(scratch, "llama");
  EXPECT_CONTAINS(message_of([&] { open_bare(scratch, false); }),
                  "holds the model without its output matrix (lm_head.weight), as files of embedding models do");
  const OpenedModel bare = open_bare(scratch, true), whole = open_model(model_of("llama"));
  ThreadPool pool(2);
  Context ctx(pool), other(pool);
  const Step step = Step::of(kIds);
  const Tensor x = bare.model->residual(ctx, step);
  EXPECT_EQ(numbers_of(x), numbers_of(whole.model->residual(other, step)));
  const std::vector<int64_t> rows = {0};
  const Head head = bare.model->head();
  const std::string refused = "the model's files hold no lm_head.weight";
  EXPECT_CONTAINS(message_of<InputError>([&] { logits(ctx, x, head, rows); }), refused);
  EXPECT_CONTAINS(message_of<InputError>([&] { cross_entropy(ctx, x, head, kIds); }), refused);
}

TEST(BareModel, IsRecordedAsAWhole) {
  const Scratch scratch;
  write_bare(scratch, "llama");
  EXPECT_EQ(open_bare(scratch, true).model->record().hooks.back().name, "hook_logits");
}

// With the names of the whole model a head that lacks is a damaged file.
TEST(BareModel, AWholeModelsFileLacksNothing) {
  const Scratch scratch;
  write_bare(scratch, "llama", true);
  EXPECT_CONTAINS(message_of([&] { open_bare(scratch, true); }), "lacks the tensor \"lm_head.weight\"");
}

TEST(BareModel, OfATiedFamilyIsTheWholeModel) {
  const Scratch scratch;
  write_bare(scratch, "qwen2");
  const OpenedModel bare = open_model(scratch.path()), whole = open_model(model_of("qwen2"));
  ThreadPool pool(2);
  EXPECT_EQ(run_forward(*bare.model, kIds, {}, pool).logits, run_forward(*whole.model, kIds, {}, pool).logits);
}

OpenedModel open_windowed(const std::string& path, int64_t window) {
  ModelFiles files = resolve_model(path);
  files.window = window;
  return open_model(std::move(files));
}

TEST(Window, IsGivenToAGgufFileWithoutOne) {
  const Scratch scratch;
  Json config = read_json(model_of("llama") + "/config.json");
  config.update({{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}, {"sliding_window", 4}});
  config.erase("attention_bias");
  config.erase("mlp_bias");
  scratch.write("config.json", config.dump());
  std::filesystem::copy(model_of("llama") + "/model.safetensors", scratch / "model.safetensors");
  const std::string file = std::string(VITRINE_GOLDEN) + "/gguf/llama.gguf";
  ThreadPool pool(2);
  const Forward mistral = run_forward(*open_model(scratch.path()).model, kIds, {}, pool),
                windowed = run_forward(*open_windowed(file, 4).model, kIds, {}, pool),
                without = run_forward(*open_model(file).model, kIds, {}, pool);
  EXPECT_CLOSE(windowed.logits, mistral.logits, (Tolerance{.abs = 2e-5, .rel = 1e-4}));
  EXPECT_GT(std::abs(windowed.logits.back() - without.logits.back()), 1e-3);
}

TEST(Window, IsRefusedWhereFilesHaveTheirOwn) {
  const std::string gguf = std::string(VITRINE_GOLDEN) + "/gguf/";
  EXPECT_CONTAINS(message_of([&] { open_windowed(gguf + "gemma2.gguf", 4); }), "names a window of its own");
  EXPECT_CONTAINS(message_of([&] { open_windowed(gguf + "qwen2.gguf", 4); }), "is a Qwen 2, whose layers read no window");
  EXPECT_CONTAINS(message_of([&] { open_windowed(model_of("llama"), 4); }), "--window is for GGUF files");
}

}  // namespace
}  // namespace vitrine
