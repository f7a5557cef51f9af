// imatrix, convert to block types, and info of what came out.
#include <filesystem>
#include <span>

#include "cli/program.h"
#include "io/gguf_writer.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kShipped = std::string(VITRINE_SOURCE) + "/models/tales9m";
const std::string kFableTexts = std::string(VITRINE_SOURCE) + "/examples/fables.txt";

double divergence(const std::string& file) {
  const Outcome compared =
      vitrine({"eval", "compare", file, "--model", kShipped, "--file", kFableTexts, "--compute", "f32", "--json"});
  EXPECT_EQ(compared.code, 0) << compared.err;
  return compared.json()["kl"]["mean"].get<double>();
}

TEST(QuantizeCommands, AnImportanceMatrixBringsAFileNearer) {
  const Scratch scratch;
  const std::string matrix = scratch / "imatrix.gguf";
  const Outcome collected = vitrine({"imatrix", "--file", kFableTexts, "--context", "256", "--out", matrix, "--json"});
  ASSERT_EQ(collected.code, 0) << collected.err;
  EXPECT_EQ(collected.json()["matrices"], 56);
  const auto convert = [&](const std::string& name, std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"convert", kShipped, scratch / name, "--json"});
    const Outcome made = vitrine(flags);
    EXPECT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(made.json()["bytes"], std::filesystem::file_size(scratch / name));
    return scratch / name;
  };
  const double plain = divergence(convert("plain.gguf", {"--dtype", "Q3_K_S"}));
  const double weighed = divergence(convert("weighed.gguf", {"--dtype", "q3_k_s", "--imatrix", matrix}));
  EXPECT_LT(weighed, plain);
  EXPECT_LT(plain, 0.2);
  EXPECT_LT(divergence(convert("tiny.gguf", {"--dtype", "iq2_xs", "--imatrix", matrix})), 1.0);
  const Json info = vitrine({"info", "--model", scratch / "weighed.gguf", "--json"}).json();
  EXPECT_EQ(info["weight_bytes"]["groups"]["embedding"].size(), 1u);
  EXPECT_TRUE(info["weight_bytes"]["groups"]["embedding"].contains("q6_k"));
  EXPECT_TRUE(info["weight_bytes"]["groups"]["attention"].contains("q3_k"));
  EXPECT_NEAR(info["weight_bytes"]["bits_per_weight"].get<double>(), 3.96, 0.1);
}

TEST(QuantizeCommands, AConversionGoesOnWhereTheDiskWasFull) {
  const Scratch scratch;
  const std::string whole = scratch / "whole.gguf", file = scratch / "file.gguf", folder = scratch / ".converting-file.gguf";
  const auto convert = [&](const std::string& out, const std::string& type) {
    return vitrine({"convert", kShipped, out, "--dtype", type});
  };
  ASSERT_EQ(convert(whole, "q8_0").code, 0);
  const auto fill_disk = [&] { return vitrine_with_small_files(8000, {"convert", kShipped, file, "--dtype", "q8_0"}); };
  const Outcome full = fill_disk();
  EXPECT_EQ(full.code, 1);
  EXPECT_CONTAINS(full.err, "cannot be written at byte 4096000");
  EXPECT_CONTAINS(full.err, "What is done is kept in " + folder + "; the same command continues from there");
  EXPECT_FALSE(std::filesystem::exists(file));
  const Outcome more = convert(file, "q8_0");
  EXPECT_EQ(more.code, 0);
  EXPECT_CONTAINS(more.err, "3.9 MiB are there from a run before; going on from there");
  EXPECT_EQ(read_file(file), read_file(whole));
  EXPECT_FALSE(std::filesystem::exists(folder));
  // With another type nothing is taken over.
  std::filesystem::remove(file);
  EXPECT_EQ(fill_disk().code, 1);
  const Outcome other = convert(file, "q4_0");
  EXPECT_EQ(other.code, 0);
  EXPECT_CONTAINS(other.err, "what a run before left was made from another input, with other options or by another vitrine");
  EXPECT_EQ(convert(scratch / "q4_0.gguf", "q4_0").code, 0);
  EXPECT_EQ(read_file(file), read_file(scratch / "q4_0.gguf"));
}

TEST(QuantizeCommands, WhatIsWrongIsSaid) {
  const Scratch scratch;
  expect_refused({"convert", kShipped, scratch / "a.gguf", "--dtype", "iq1_s"},
                 {"IQ1_S puts blk.0.", "an importance matrix", "vitrine imatrix"});
  expect_refused({"convert", kShipped, scratch / "a.gguf", "--dtype", "q4_k_m", "--imatrix", kFableTexts},
                 {"fables.txt", "is no importance matrix"});
  expect_refused({"convert", kShipped, scratch / "folder", "--pure"}, {"--pure", "does not end in .gguf"});
  expect_refused({"imatrix", "--file", kFableTexts, "--context", "4000", "--out", scratch / "i.gguf"}, {"4000", "1024"});
  expect_refused({"imatrix", "--file", kFableTexts, "--out", kFableTexts}, {"a file that this run reads"});
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(QuantizeCommands, InfoOfWhatIsNotRun) {
  const Scratch scratch;
  const std::vector<float> row(64);
  GgufWriter writer(scratch / "mamba.gguf", {{"general.architecture", std::string("mamba")}},
                    {{"blk.0.ssm_a", DType::f32, {2, 32}}});
  writer.write(0, std::as_bytes(std::span(row)));
  writer.finish();
  const Outcome strange = vitrine({"info", "--model", scratch / "mamba.gguf"});
  EXPECT_EQ(strange.code, 2);
  EXPECT_CONTAINS(strange.err, "mamba");
  EXPECT_CONTAINS(strange.out, "64 numbers: f32 in 1 tensor");
  EXPECT_CONTAINS(strange.out, "the family \"mamba\" is not among those that vitrine runs: gpt2");
  expect_refused({"predict", "--tokens", "1", "--model", scratch / "mamba.gguf"}, {"mamba"});

  std::filesystem::copy_file(std::string(VITRINE_GOLDEN) + "/io/types.safetensors", scratch / "model.safetensors");
  scratch.write("config.json", R"({"model_type": "llama"})");
  const Json packed = vitrine({"info", "--model", scratch.path(), "--json"}).json();
  EXPECT_EQ(packed["runs"], false);
  EXPECT_EQ(packed["family"], "llama");
  EXPECT_EQ(packed["types"]["F8_E4M3"]["tensors"], 1);
  EXPECT_CONTAINS(packed["why"].get<std::string>(), "no kernels for the element type");
}

}  // namespace
}  // namespace vitrine
