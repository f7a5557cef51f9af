// A GGUF file whose writing is stopped at any place, and goes on.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/mapped_file.h"
#include "io/resumable_file.h"
#include "model/to_gguf.h"
#include "quantize/encoding.h"
#include "run.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

struct Stopped {};

class Conversion {
 public:
  explicit Conversion(const std::string& model, const std::string& type = "q8_0")
      : opened_(open_model(model)),
        encoding_(mixture_encoding(opened_, *find_mixture(type))),
        plan_(plan_gguf(opened_, {{"tokenizer.ggml.model", std::string("none")}}, encoding_)) {}

  /// The bytes that were there before. stop_after: so many calls of the watcher; 0: never.
  uint64_t write(const std::string& path, int stop_after = 0, const std::string& made_from = "this") {
    uint64_t kept = 0;
    int calls = 0;
    write_gguf(opened_, plan_, encoding_, path, pool_, {.made_from = made_from, .watch = [&](const GgufProgress& now) {
                                                          kept = now.kept;
                                                          EXPECT_GE(now.share, last_);
                                                          last_ = now.share;
                                                          if (++calls == stop_after) throw Stopped();
                                                        }});
    return kept;
  }
  double last() const { return last_; }
  void again() { last_ = 0; }

 private:
  OpenedModel opened_;
  GgufEncoding encoding_;
  GgufPlan plan_;
  ThreadPool pool_{2};
  double last_ = 0;
};

std::string partial(const std::string& path) { return ResumableFile::work_folder(path) + "/bytes"; }

TEST(ResumedGguf, IsTheSameWhereverTheRunWasStopped) {
  const Scratch scratch;
  const std::string whole = scratch / "whole.gguf", path = scratch / "file.gguf";
  Conversion conversion(Golden::open("gpt2_a").model());
  conversion.write(whole);
  EXPECT_DOUBLE_EQ(conversion.last(), 1);
  for (int stop = 1; stop < 30; stop += 3) {
    conversion.again();
    EXPECT_THROW(conversion.write(path, stop), Stopped);
    EXPECT_FALSE(std::filesystem::exists(path));
    const uint64_t left = std::filesystem::file_size(partial(path));
    conversion.again();
    EXPECT_EQ(conversion.write(path), left);
    EXPECT_EQ(read_file(path), read_file(whole)) << stop;
    EXPECT_FALSE(std::filesystem::exists(ResumableFile::work_folder(path)));
    std::filesystem::remove(path);
  }
}

// A process that is killed leaves any number of bytes.
TEST(ResumedGguf, IsTheSameWhateverBytesWereLeft) {
  const Scratch scratch;
  const std::string whole = scratch / "whole.gguf", path = scratch / "file.gguf";
  Conversion conversion(Golden::open("llama").model(), "q4_0");
  conversion.write(whole);
  const uint64_t size = std::filesystem::file_size(whole);
  std::mt19937_64 random(1);
  for (int i = 0; i < 60; ++i) {
    conversion.again();
    EXPECT_THROW(conversion.write(path, 1), Stopped);
    const uint64_t bytes = i == 0 ? size : i == 1 ? 0 : random() % size;
    std::filesystem::copy_file(whole, partial(path), std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(partial(path), bytes);
    conversion.again();
    conversion.write(path);
    EXPECT_EQ(read_file(path), read_file(whole)) << bytes;
    std::filesystem::remove(path);
  }
}

TEST(ResumedGguf, BeginsAnewForAnotherTextOrAnotherHeader) {
  const Scratch scratch;
  const std::string path = scratch / "file.gguf", whole = scratch / "whole.gguf";
  Conversion other(Golden::open("llama").model(), "q4_0"), conversion(Golden::open("llama").model());
  conversion.write(whole);
  for (const auto& [writer, text] : {std::pair<Conversion&, const char*>{conversion, "that"}, {other, "this"}}) {
    writer.again();
    EXPECT_THROW(writer.write(path, 12, text), Stopped);
    conversion.again();
    EXPECT_EQ(conversion.write(path, 0, "this"), 0u);
    EXPECT_EQ(read_file(path), read_file(whole));
    std::filesystem::remove(path);
  }
}

TEST(ResumedGguf, LeavesNothingWithoutAText) {
  const Scratch scratch;
  Conversion conversion(Golden::open("llama").model());
  EXPECT_THROW(conversion.write(scratch / "file.gguf", 5, ""), Stopped);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

}  // namespace
}  // namespace vitrine
