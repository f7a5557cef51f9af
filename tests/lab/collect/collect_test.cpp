// Activations of a corpus: each row is that of the context run by itself, and a run that was cut off goes on with the same bytes.
#include "collect/collect.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "hooks/partial_run.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Documents of given lengths, in pieces of three ids.
class MadeDocuments final : public DocumentTokens {
 public:
  explicit MadeDocuments(std::vector<size_t> lengths, int32_t vocab = 50) : lengths_(std::move(lengths)), vocab_(vocab) {}
  bool next(std::vector<int32_t>& ids, bool& begins) override {
    while (document_ < lengths_.size() && at_ == lengths_[document_]) at_ = 0, ++document_;
    if (document_ == lengths_.size()) return false;
    begins = at_ == 0;
    ids.clear();
    for (; at_ < lengths_[document_] && ids.size() < 3; ++at_)
      ids.push_back(static_cast<int32_t>((document_ * 31 + at_ * 7 + at_ * at_) % static_cast<size_t>(vocab_)));
    return true;
  }
  double share() const override {
    return static_cast<double>(document_) / static_cast<double>(std::max<size_t>(lengths_.size(), 1));
  }

 private:
  std::vector<size_t> lengths_;
  int32_t vocab_;
  size_t document_ = 0, at_ = 0;
};

const std::vector<size_t> kLengths = {5, 1, 20, 8, 16, 3, 30, 2, 9};

std::string whole(const std::string& path) { return read_file(path); }

TEST(Collect, EveryRowIsThatOfItsContextAlone) {
  const Scratch folder;
  for (const char* family : {"gpt2_a", "gemma2", "qwen3", "mixtral", "lfm2", "qwen3_5"}) {
    SCOPED_TRACE(family);
    Engine engine(Golden::open(family).model(), {2, {}});
    MadeDocuments documents(kLengths, static_cast<int32_t>(std::min<int64_t>(engine.shape().vocab_size, 50)));
    const CollectOptions options{
        .hooks = {"blocks.1.hook_resid_post", "blocks.0.hook_mlp_out"}, .out = folder / family, .context = 8, .special = false};
    const Collected made = collect(engine, documents, options);
    EXPECT_EQ(made.computed, 94U);
    const Activations read = Activations::open(options.out);
    ASSERT_EQ(read.manifest().hooks.size(), 2U);
    EXPECT_EQ(read.manifest().hooks[0].name, "blocks.0.hook_mlp_out");  // in the order of the run
    EXPECT_TRUE(read.manifest().complete);
    ASSERT_EQ(read.tokens(), 94U);
    const auto d = static_cast<size_t>(engine.shape().d_model);
    size_t contexts = 0;
    for (uint64_t t = 0; t < read.tokens();) {
      std::vector<int32_t> ids;
      do ids.push_back(read.token(t + ids.size()));
      while (t + ids.size() < read.tokens() && read.position(t + ids.size()) > 0);
      EXPECT_LE(ids.size(), 8U);
      const PartialResult alone = run_partly(engine, {&ids, 1}, {.hooks = options.hooks});
      for (size_t hook = 0; hook < 2; ++hook) {
        std::vector<float> rows(ids.size() * d);
        for (size_t i = 0; i < ids.size(); ++i) read.read(hook, t + i, rows.data() + i * d);
        const auto& expected = alone.values.find(read.manifest().hooks[hook].name)->second.values;
        EXPECT_CLOSE(rows, std::vector<float>(expected.begin(), expected.end()), (Tolerance{.abs = 2e-5, .rel = 1e-4}));
      }
      t += ids.size();
      ++contexts;
    }
    // 20 ids are three contexts of 8, 8 and 4; none holds two documents.
    EXPECT_EQ(contexts, 1U + 1 + 3 + 1 + 2 + 1 + 4 + 1 + 2);
    EXPECT_EQ(read.manifest().contexts(), contexts);
  }
}

TEST(Collect, EveryContextBeginsWithBosWhereTheTokenizerPutsIt) {
  const Scratch folder;
  Engine engine(Golden::open("gemma2").model(), {2, {}});
  ASSERT_TRUE(engine.tokenizer().adds_bos());
  MadeDocuments documents({9, 4});
  collect(engine, documents, {.hooks = {"blocks.0.hook_resid_post"}, .out = folder / "a", .context = 5});
  const Activations read = Activations::open(folder / "a");
  std::vector<uint64_t> begins;
  for (uint64_t t = 0; t < read.tokens(); ++t) {
    if (read.position(t) == 0) begins.push_back(t);
    EXPECT_EQ(read.position(t) == 0, read.token(t) == *engine.tokenizer().bos()) << t;
  }
  EXPECT_EQ(begins, (std::vector<uint64_t>{0, 5, 10, 12}));  // 4 + 4 + 1 ids of the first document, 4 of the second
  EXPECT_EQ(read.tokens(), 17U);
}

TEST(Collect, NarrowTypesAreTheRoundedValues) {
  const Scratch folder;
  Engine engine(Golden::open("qwen3").model(), {2, {}});
  CollectOptions options{.hooks = {"blocks.0.attn.hook_q"}, .out = folder / "f32", .context = 8};
  MadeDocuments documents(kLengths);
  collect(engine, documents, options);
  const Activations exact = Activations::open(options.out);
  EXPECT_EQ(exact.manifest().hooks[0].shape.size(), 2U);  // heads and their components
  const auto n = static_cast<size_t>(exact.manifest().hooks[0].numbers());
  for (const DType type : {DType::f16, DType::bf16}) {
    options.type = type;
    options.out = folder / std::string(name_of(type));
    MadeDocuments again(kLengths);
    collect(engine, again, options);
    const Activations narrow = Activations::open(options.out);
    std::vector<float> a(n), b(n);
    for (uint64_t t = 0; t < exact.tokens(); ++t) {
      exact.read(0, t, a.data());
      narrow.read(0, t, b.data());
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(b[i], type == DType::f16 ? f16_to_f32(f32_to_f16(a[i])) : bf16_to_f32(f32_to_bf16(a[i])));
    }
  }
}

TEST(Collect, ResumedGivesTheBytesOfARunThatWasNotCutOff) {
  const Scratch folder;
  Engine engine(Golden::open("gemma2").model(), {2, {}});
  CollectOptions options{.hooks = {"blocks.0.hook_resid_post"}, .out = folder / "whole", .context = 8, .max_tokens = 80};
  options.shard_bytes = 24 * (2 * 4 + static_cast<uint64_t>(engine.shape().d_model) * 4);  // of 24 tokens
  MadeDocuments documents(kLengths);
  const Collected made = collect(engine, documents, options);
  EXPECT_EQ(made.manifest.tokens(), 80U);
  ASSERT_GE(made.manifest.shards.size(), 4U);
  struct CutOff {};
  CollectOptions part = options;
  part.out = folder / "part";
  MadeDocuments first(kLengths), second(kLengths);
  EXPECT_THROW(collect(engine, first, part,
                       [](const CollectProgress& now) {
                         if (now.tokens > 60) throw CutOff();
                       }),
               CutOff);
  EXPECT_FALSE(read_activation_manifest(part.out).complete);
  part.resume = true;
  const Collected rest = collect(engine, second, part);
  EXPECT_LT(rest.computed, 80U);
  EXPECT_GT(rest.computed, 0U);
  for (const auto& entry : std::filesystem::directory_iterator(options.out)) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(whole(part.out + "/" + name), whole(options.out + "/" + name)) << name;
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(part.out)) files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, made.manifest.shards.size() + 1);  // nothing unfinished is left
  MadeDocuments third(kLengths);
  EXPECT_EQ(collect(engine, third, part).computed, 0U);  // complete
}

TEST(Collect, RefusesToResumeWhatIsNotTheSame) {
  const Scratch folder;
  Engine engine(Golden::open("gemma2").model(), {2, {}});
  CollectOptions options{.hooks = {"blocks.0.hook_resid_post"}, .out = folder / "a", .context = 8, .shard_bytes = 1};
  const auto cut_off = [](const CollectProgress& now) {
    if (now.tokens > 40) throw RunError("cut off");
  };
  const auto resume = [&](Engine& by, CollectOptions with, std::vector<size_t> lengths) {
    MadeDocuments documents(std::move(lengths));
    with.resume = true;
    return message_of<InputError>([&] { collect(by, documents, with); });
  };
  MadeDocuments documents(kLengths);
  EXPECT_THROW(collect(engine, documents, options, cut_off), RunError);
  CollectOptions other = options;
  other.context = 7;
  EXPECT_CONTAINS(resume(engine, other, kLengths), "was made with contexts of 8 tokens");
  other = options;
  other.type = DType::bf16;
  EXPECT_CONTAINS(resume(engine, other, kLengths), "was made as f32");
  other = options;
  other.hooks = {"blocks.1.hook_resid_post"};
  EXPECT_CONTAINS(resume(engine, other, kLengths), "was made with other hooks");
  std::vector<size_t> lengths = kLengths;
  lengths[1] = 2;
  EXPECT_CONTAINS(resume(engine, options, lengths), "was made from another text");
  MadeDocuments fresh(kLengths);
  EXPECT_CONTAINS(message_of<InputError>([&] { collect(engine, fresh, options); }), "exists and holds something");
  options.out = folder / "empty";
  EXPECT_CONTAINS(resume(engine, options, kLengths), "holds no run to resume");
}

TEST(Collect, SaysWhatItCannotCollect) {
  const Scratch folder;
  Engine engine(Golden::open("gemma2").model(), {2, {}});
  const auto refused = [&](CollectOptions options, std::vector<size_t> lengths = kLengths) {
    MadeDocuments documents(std::move(lengths));
    if (options.out.empty()) options.out = folder / "out";
    return message_of<InputError>([&] { collect(engine, documents, options); });
  };
  EXPECT_CONTAINS(refused({.hooks = {}}), "no hooks are named");
  EXPECT_CONTAINS(refused({.hooks = {"blocks.0.hook_resid_pots"}}), "hook_resid_post");
  EXPECT_CONTAINS(refused({.hooks = {"pattern.0"}, .context = 8}), "a row for each token");
  EXPECT_CONTAINS(refused({.hooks = {"hook_logits"}, .context = 8}), "cannot be collected");
  EXPECT_CONTAINS(refused({.hooks = {"blocks.0.attn.hook_q[heads=0]"}, .context = 8}), "asked for in part");
  EXPECT_CONTAINS(refused({.hooks = {"blocks.0.hook_resid_post"}, .context = 1 << 20}), "is longer than that of");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  EXPECT_CONTAINS(refused({.hooks = {"blocks.0.hook_resid_post"}, .context = 8}, {}), "the text is empty");
  folder.write("file", "x");
  EXPECT_CONTAINS(refused({.hooks = {"blocks.0.hook_resid_post"}, .out = folder / "file", .context = 8}), "is a file");
}

TEST(Activations, SayWhatIsDamaged) {
  const Scratch folder;
  Engine engine(Golden::open("gemma2").model(), {2, {}});
  MadeDocuments documents(kLengths);
  const std::string out = folder / "a";
  collect(engine, documents, {.hooks = {"blocks.0.hook_resid_post"}, .out = out, .context = 8, .special = false});
  const std::string manifest = read_file(out + "/manifest.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = manifest;
    changed.replace(changed.find(from), from.size(), to);
    folder.write("a/manifest.json", changed);
    return message_of<FileError>([&] { Activations::open(out); });
  };
  EXPECT_CONTAINS(with("\"type\": \"f32\"", "\"type\": \"q8_0\""), "expected f32, f16 or bf16");
  EXPECT_CONTAINS(with("\"tokens\": 94,\n   \"contexts\"", "\"tokens\": 95,\n   \"contexts\""), "expected i32 [95]");
  EXPECT_CONTAINS(with("activations-00000", "../a/activations-00000"), "expected activations-00000.safetensors");
  EXPECT_CONTAINS(with("\"hooks\": [", "\"hooks\": 3, \"x\": ["), "expected a list");
  EXPECT_CONTAINS(with("vitrine activations 1", "another"), "\"format\" is \"another\"");
  folder.write("a/manifest.json", manifest);
  std::filesystem::resize_file(out + "/activations-00000.safetensors", 500);
  EXPECT_CONTAINS(message_of<FileError>([&] { Activations::open(out); }), "activations-00000.safetensors");
  EXPECT_CONTAINS(message_of<FileError>([&] { Activations::open(folder / "nothing"); }), "holds no manifest.json");
}

}  // namespace
}  // namespace vitrine
