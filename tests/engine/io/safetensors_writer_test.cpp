#include <sys/resource.h>

#include <csignal>

#include "base/mapped_file.h"
#include "io/safetensors.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::vector<std::string> names_of(const Scratch& scratch) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) names.push_back(entry.path().filename().string());
  return names;
}

// The reference package wrote these files: the same tensors must give the same bytes.
TEST(SafetensorsWriter, WritesTheReferencePackagesBytes) {
  const Scratch scratch;
  for (const std::string name : {"gemma2", "gpt2_a"}) {
    const std::string original = Golden::open(name).model() + "/model.safetensors";
    const Checkpoint checkpoint = open_safetensors(original);
    std::vector<TensorToWrite> tensors;
    for (const auto& [key, t] : checkpoint.tensors()) tensors.push_back({key, t.dtype, t.shape, t.data});
    write_safetensors(scratch / name, tensors, checkpoint.metadata());
    EXPECT_TRUE(read_file(scratch / name) == read_file(original)) << name;
  }
}

TEST(SafetensorsWriter, KeepsEveryTypeAlignedAndExact) {
  const Scratch scratch;
  const Checkpoint original = open_safetensors(std::string(VITRINE_GOLDEN) + "/io/types.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const auto& [key, t] : original.tensors()) tensors.push_back({key, t.dtype, t.shape, t.data});
  write_safetensors(scratch / "a.safetensors", tensors, {{"note", "ünïcode"}});
  const Checkpoint copy = open_safetensors(scratch / "a.safetensors");
  EXPECT_EQ(copy.copied_bytes(), 0u);
  EXPECT_EQ(copy.metadata().at("note"), "ünïcode");
  ASSERT_EQ(copy.tensors().size(), original.tensors().size());
  for (const auto& [key, t] : original.tensors()) {
    const StoredTensor* c = copy.find(key);
    ASSERT_NE(c, nullptr) << key;
    EXPECT_EQ(c->dtype, t.dtype);
    EXPECT_EQ(c->shape, t.shape);
    EXPECT_EQ(std::vector<std::byte>(c->data, c->data + c->bytes), std::vector<std::byte>(t.data, t.data + t.bytes)) << key;
  }
}

TEST(SafetensorsWriter, TakesPiecesInAnyOrder) {
  const Scratch scratch;
  const std::vector<float> values = {1, 2, 3, 4};
  const std::string path = scratch / "p.safetensors";
  SafetensorsWriter writer(path, {{"b", DType::f32, {4}}, {"a", DType::u8, {3}}});
  const auto bytes = std::as_bytes(std::span(values));
  writer.write(0, bytes.subspan(8), 8);
  writer.write(1, as_bytes("xyz"));
  writer.write(0, bytes.first(8));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.finish();
  EXPECT_EQ(as_floats(*open_safetensors(path).find("b")).values, values);
  EXPECT_EQ(names_of(scratch), std::vector<std::string>{"p.safetensors"});
}

TEST(SafetensorsWriter, LeavesTheOldFileUntilItIsDone) {
  const Scratch scratch;
  const std::string path = scratch.write("m.safetensors", "old");
  {
    SafetensorsWriter writer(path, {{"a", DType::f32, {2}}});
    writer.write(0, as_bytes("abcd"));
    EXPECT_EQ(message_of<UsageError>([&] { writer.finish(); }), path + ": 4 bytes of tensors were written; expected 8");
    EXPECT_EQ(message_of<UsageError>([&] { writer.write(0, as_bytes("abcd"), 5); }),
              path + ": tensor \"a\" has 8 bytes; 4 at byte 5 do not fit");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(names_of(scratch), std::vector<std::string>{"m.safetensors"});
}

TEST(SafetensorsWriter, RefusesWhatTheFormatLacks) {
  const Scratch scratch;
  const std::string path = scratch / "m.safetensors";
  const auto message = [&](std::vector<TensorPlan> plans) {
    return message_of<UsageError>([&] { SafetensorsWriter(path, std::move(plans)); });
  };
  EXPECT_EQ(message({{"a", DType::f32, {2}}, {"a", DType::f32, {2}}}), path + ": the tensor name \"a\" is taken");
  EXPECT_EQ(message({{"__metadata__", DType::f32, {2}}}), path + ": no tensor may be called \"__metadata__\"");
  EXPECT_EQ(message({{"a", DType::q4_0, {32}}}),
            path + ": tensor \"a\" is q4_0; safetensors holds float and integer types, GGUF holds block formats");
  EXPECT_EQ(message({{"a", DType::f32, {-1}}}), path + ": tensor \"a\" has the impossible shape [-1]");
  EXPECT_EQ(message({{"a", DType::f32, {INT64_MAX, 2}}}),
            path + ": tensor \"a\" has the impossible shape [9223372036854775807, 2]");
  EXPECT_CONTAINS(message({{"\xff", DType::f32, {1}}}), "is not valid UTF-8");
  EXPECT_TRUE(names_of(scratch).empty());
}

TEST(SafetensorsWriter, SaysWhyItCannotWrite) {
  const Scratch scratch;
  const std::string path = scratch / "missing/m.safetensors";
  EXPECT_EQ(message_of<RunError>([&] { SafetensorsWriter(path, {}); }), path + ": cannot be written: No such file or directory");
  SafetensorsWriter writer(scratch / "taken", {});
  std::filesystem::create_directory(scratch / "taken");  // while it writes
  scratch.write("taken/file", "x");
  EXPECT_CONTAINS(message_of<RunError>([&] { writer.finish(); }), "taken: cannot be put in place: ");
}

/// No file of this process may grow beyond so many bytes, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

TEST(SafetensorsWriter, LeavesNothingWhenTheDiskIsFull) {
  const Scratch scratch;
  const std::string path = scratch / "m.safetensors";
  const std::vector<float> values(1024);
  std::string message;
  {
    const FileSizeLimit limit(2000);
    message = message_of<RunError>([&] { write_safetensors(path, {{"a", DType::f32, {1024}, values.data()}}); });
  }
  EXPECT_EQ(message, path + ": cannot be written at byte 2000: File too large");
  EXPECT_TRUE(names_of(scratch).empty());
}

}  // namespace
}  // namespace vitrine
