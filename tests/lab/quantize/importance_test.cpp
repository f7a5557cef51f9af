// Importance matrices: against llama-imatrix on the same text (tests/golden/quantize/make_importance.py), and files.
#include "quantize/importance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "base/json.h"
#include "base/mapped_file.h"
#include "io/gguf_writer.h"
#include "quantize/encoding.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/quantize";

// llama-imatrix on the shipped model and the fables, two chunks of 256 tokens: some matrices of the file, each value.
TEST(Importance, EqualsLlamaImatrix) {
  const ImportanceMatrix want = read_importance(kFolder + "/llama_imatrix.gguf");
  EXPECT_EQ(want.chunks, 2u);
  EXPECT_EQ(want.chunk_size, 256u);
  Engine engine(std::string(VITRINE_SOURCE) + "/models/tales9m", {.numerics = {.f32 = true}});
  const std::vector<int32_t> ids = engine.prompt_ids(read_file(std::string(VITRINE_SOURCE) + "/examples/fables.txt"));
  const ImportanceMatrix got = collect_importance(engine, ids, 256, 2);
  EXPECT_EQ(got.entries.size(), 8u * 7);  // every matrix of eight layers; no embedding, which is looked up
  ASSERT_GE(want.entries.size(), 5u);
  for (const auto& [name, entry] : want.entries) {
    const auto mine = got.entries.find(name);
    ASSERT_NE(mine, got.entries.end()) << name;
    EXPECT_EQ(mine->second.counts, entry.counts) << name;
    ASSERT_EQ(mine->second.sums.size(), entry.sums.size()) << name;
    for (size_t i = 0; i < entry.sums.size(); ++i)
      EXPECT_NEAR(mine->second.sums[i], entry.sums[i], 2e-3f * entry.sums[i] + 1e-4f) << name << " " << i;
  }
}

// llama-imatrix on the golden Mixtral without its window, which GGUF has no word for: a count for each expert.
OpenedModel mixtral_without_window() {
  ModelFiles files = resolve_model(Golden::open("mixtral").model());
  files.config["sliding_window"] = nullptr;
  return open_model(files);
}

TEST(Importance, CountsEachExpertAsLlamaImatrix) {
  const ImportanceMatrix want = read_importance(kFolder + "/llama_imatrix_experts.gguf");
  Engine engine(mixtral_without_window(), {.numerics = {.f32 = true}});
  // The file has no key for the tokenizer that adds no space in front: llama.cpp added one.
  const std::string text = " " + read_file(std::string(VITRINE_SOURCE) + "/examples/fables.txt").substr(0, 3000);
  const ImportanceMatrix got = collect_importance(engine, engine.prompt_ids(text), 64, 2);
  ASSERT_EQ(got.entries.size(), want.entries.size());
  for (const auto& [name, entry] : want.entries) {
    SCOPED_TRACE(name);
    const auto mine = got.entries.find(name);
    ASSERT_NE(mine, got.entries.end());
    EXPECT_EQ(mine->second.counts, entry.counts);
    EXPECT_EQ(entry.counts.size(), name.find("_exps") == std::string::npos ? 1u : 4u);
    ASSERT_EQ(mine->second.sums.size(), entry.sums.size());
    for (size_t i = 0; i < entry.sums.size(); ++i)
      EXPECT_NEAR(mine->second.sums[i], entry.sums[i], 2e-3f * entry.sums[i] + 1e-4f) << i;
  }
}

TEST(Importance, OfEachExpertWeighsItsOwnRows) {
  const ImportanceMatrix matrix = read_importance(kFolder + "/llama_imatrix_experts.gguf");
  const OpenedModel opened = mixtral_without_window();
  GgufEncoding encoding = mixture_encoding(opened, *find_mixture("IQ4_NL"), {.importance = &matrix, .importance_file = "i.gguf"});
  const std::string name = "blk.1.ffn_down_exps.weight";
  EXPECT_EQ(encoding.type_of({name, {4, 32, 32}, {}}), DType::iq4_nl);
  for (int64_t expert = 0; expert < 4; ++expert) {
    const float* const weights = encoding.importance(name, expert);
    EXPECT_EQ(std::vector<float>(weights, weights + 32), matrix.means(name, 32, expert, 4, "i.gguf")) << expert;
  }
  // Every row is encoded with the weights of its expert, though one call may hold rows of several.
  std::map<const float*, size_t> encoded;
  std::mutex mutex;
  const auto encode = encoding.encode;
  encoding.encode = [&](DType type, const float* rows, size_t n, size_t row, const float* weights, std::byte* out) {
    const std::lock_guard lock(mutex);
    encoded[weights] += n;
    encode(type, rows, n, row, weights, out);
  };
  const Scratch scratch;
  ThreadPool pool(2);
  write_gguf(opened, plan_gguf(opened, {}, encoding), encoding, scratch / "q.gguf", pool);
  for (int64_t expert = 0; expert < 4; ++expert) EXPECT_EQ(encoded[encoding.importance(name, expert)], 32u * 32u);
}

TEST(Importance, IsWrittenAndRead) {
  ImportanceMatrix matrix;
  matrix.entries["blk.0.attn_q.weight"] = {{1, 4, 9}, {2}};
  matrix.entries["blk.0.ffn_down_exps.weight"] = {{1, 2, 3, 4}, {2, 0}};
  matrix.datasets = {"a.txt"};
  matrix.chunks = 3;
  matrix.chunk_size = 512;
  const Scratch scratch;
  write_importance(matrix, scratch / "i.gguf");
  const ImportanceMatrix read = read_importance(scratch / "i.gguf");
  EXPECT_EQ(read.datasets, matrix.datasets);
  EXPECT_EQ(read.chunks, 3u);
  EXPECT_EQ(read.chunk_size, 512u);
  EXPECT_EQ(read.means("blk.0.attn_q.weight", 3, 0, 1, "i.gguf"), (std::vector<float>{0.5f, 2, 4.5f}));
  EXPECT_EQ(read.means("blk.0.ffn_down_exps.weight", 2, 0, 2, "i.gguf"), (std::vector<float>{0.5f, 1}));
  EXPECT_EQ(read.means("blk.0.ffn_down_exps.weight", 2, 1, 2, "i.gguf"), (std::vector<float>{1, 1}));  // met by no row
  EXPECT_TRUE(read.means("output.weight", 3, 0, 1, "i.gguf").empty());
  EXPECT_CONTAINS(message_of<InputError>([&] { read.means("blk.0.attn_q.weight", 4, 0, 1, "i.gguf"); }),
                  "i.gguf: \"blk.0.attn_q.weight\" has 3 values; expected 4");
}

std::string number(int32_t n) { return {reinterpret_cast<const char*>(&n), 4}; }
std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(std::data(values)), values.size() * sizeof(float)};
}

TEST(Importance, ReadsTheOlderFiles) {
  const std::string entry = number(5) + "blk.0" + number(4) + number(2) + floats({8, 12});
  const Scratch scratch;
  scratch.write("i.dat", number(1) + entry + number(4) + number(5) + "a.txt");
  const ImportanceMatrix matrix = read_importance(scratch / "i.dat");
  EXPECT_EQ(matrix.chunks, 4u);
  EXPECT_EQ(matrix.datasets, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(matrix.means("blk.0", 2, 0, 1, ""), (std::vector<float>{2, 3}));
  const auto refused = [&](const std::string& bytes) {
    scratch.write("bad.dat", bytes);
    return message_of([&] { read_importance(scratch / "bad.dat"); });
  };
  EXPECT_CONTAINS(refused(""), "is followed by 0 bytes, not 4");
  EXPECT_CONTAINS(refused(number(-1)), "byte 0 gives -1 as the number of entries");
  EXPECT_CONTAINS(refused(number(1) + number(1 << 30)), "as the length of a name");
  EXPECT_CONTAINS(refused(number(1) + number(5) + "blk.0" + number(4) + number(INT32_MAX) + floats({8})), "is followed by");
  EXPECT_CONTAINS(refused(number(1) + number(5) + "blk.0" + number(4) + number(1) + floats({NAN})), "ends values of blk.0");
  EXPECT_CONTAINS(refused(number(1) + number(5) + "blk.0" + number(4) + number(1) + floats({-1})), "ends values of blk.0");
  for (size_t n = 0; n < 4 + entry.size(); ++n)
    EXPECT_CONTAINS(refused((number(1) + entry).substr(0, n)), "is no importance matrix");
}

TEST(Importance, RefusesOtherGguf) {
  EXPECT_CONTAINS(message_of([] { read_importance(std::string(VITRINE_GOLDEN) + "/gguf/llama_q8_0.gguf"); }),
                  "expected \"imatrix\"");
  const Scratch scratch;
  const auto refused = [&](const std::vector<TensorPlan>& plans, const std::vector<std::vector<float>>& values) {
    GgufWriter writer(scratch / "bad.gguf", {{"general.type", std::string("imatrix")}}, plans);
    for (size_t i = 0; i < values.size(); ++i) writer.write(i, std::as_bytes(std::span(values[i])));
    writer.finish();
    return message_of([&] { read_importance(scratch / "bad.gguf"); });
  };
  EXPECT_CONTAINS(refused({{"w.in_sum2", DType::f32, {1, 2}}}, {{1, 2}}), "without \"w.counts\"");
  EXPECT_CONTAINS(refused({{"w.in_sum2", DType::f32, {1, 2}}, {"w.counts", DType::f32, {1, 1}}}, {{1, -2}, {1}}),
                  "expected sums of squares");
  EXPECT_CONTAINS(refused({{"w.in_sum2", DType::f32, {1, 2}}, {"w.counts", DType::f32, {1, 1}}}, {{1, INFINITY}, {1}}),
                  "holds inf");
  EXPECT_CONTAINS(refused({{"w.in_sum2", DType::f32, {1, 3}}, {"w.counts", DType::f32, {2, 1}}}, {{1, 2, 3}, {1, 1}}),
                  "expected sums for each count");
}

TEST(Importance, RefusesTextThatIsTooShort) {
  Engine engine(Golden::open("llama").model());
  const std::vector<int32_t> ids = {1, 2, 3};
  EXPECT_CONTAINS(message_of<InputError>([&] { collect_importance(engine, ids, 4, 9); }),
                  "the text has 3 tokens, less than one chunk of 4");
  EXPECT_CONTAINS(message_of<InputError>([&] { collect_importance(engine, ids, 1 << 30, 9); }), "the context of the model");
}

}  // namespace
}  // namespace vitrine
