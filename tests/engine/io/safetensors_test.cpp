#include "io/safetensors.h"

#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kGolden = VITRINE_GOLDEN;
const std::string kGoldenFiles = kGolden + "/io";

/// A file with this header text and so many bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  return raw(static_cast<uint64_t>(header.size())) + header + std::string(data_bytes, '\x01');
}

Checkpoint read_text(std::string_view content) {
  static const std::string kName = "m.safetensors";
  Checkpoint checkpoint(kName);
  read_safetensors(as_bytes(content), kName, checkpoint);
  return checkpoint;
}

TEST(Safetensors, OpensEveryGoldenModel) {
  for (const std::string& name : Golden::all()) {
    const std::string model = Golden::open(name).model();
    const Checkpoint checkpoint = open_safetensors(model);
    EXPECT_GT(checkpoint.tensors().size(), 10u) << name;
    EXPECT_EQ(checkpoint.copied_bytes(), 0u);
    const size_t file_size = std::filesystem::file_size(model + "/model.safetensors");
    EXPECT_LT(checkpoint.bytes(), file_size);
    EXPECT_GT(checkpoint.bytes(), file_size - 16384);
  }
}

// tests/golden/io/make.py: written by the Python packages.
TEST(Safetensors, ReadsEveryTypeAsWritten) {
  const Json expected = read_json(kGoldenFiles + "/expected.json").at("types");
  const Checkpoint checkpoint = open_safetensors(kGoldenFiles + "/types.safetensors");
  EXPECT_EQ(checkpoint.tensors().size(), expected.size());
  for (const auto& [name, written] : expected.items()) {
    const StoredTensor* tensor = checkpoint.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shape, written.at("shape").get<std::vector<int64_t>>()) << name;
    EXPECT_EQ(as_floats(*tensor).values, written.at("values").get<std::vector<float>>()) << name;
  }
  EXPECT_EQ(checkpoint.metadata(), (Checkpoint::Metadata{{"format", "pt"}, {"note", "ünïcode"}}));
  EXPECT_EQ(checkpoint.find("absent"), nullptr);
  checkpoint.will_need();
}

TEST(Safetensors, AnIndexThatNamesItselfIsCalledJson) {
  const std::string index = R"({"weight_map": {"a": "model.safetensors.index.json"}})";
  EXPECT_CONTAINS(message_of([&] { read_text(index); }), "is JSON, not a safetensors file. Does an index name itself");
}

TEST(Safetensors, KnowsWhereATensorIsDescribed) {
  const std::string path = kGoldenFiles + "/types.safetensors", content = read_file(path);
  const Checkpoint checkpoint = open_safetensors(path);
  EXPECT_EQ(content.substr(checkpoint.find("bf16")->described_at, 6), "\"bf16\"");
  EXPECT_EQ(content.substr(checkpoint.find("u8")->described_at, 4), "\"u8\"");
  EXPECT_EQ(*checkpoint.find("u8")->file, path);
}

TEST(Safetensors, RefusesAnUnreadableTypeOnlyWhenAskedForIt) {
  const std::string path = kGoldenFiles + "/types.safetensors";
  const Checkpoint checkpoint = open_safetensors(path);
  EXPECT_EQ(checkpoint.unreadable().size(), 3u);
  const std::string message = message_of([&] { checkpoint.find("f8"); });
  EXPECT_TRUE(message.starts_with(path + ": tensor \"f8\" (described at byte "));
  EXPECT_CONTAINS(message, "has the element type F8_E4M3; expected one of f32, f16, bf16, ");
  EXPECT_CONTAINS(message, ". Use a copy of the model in one of these types");
}

TEST(Safetensors, CopiesUnalignedData) {
  const Checkpoint checkpoint = open_safetensors(kGoldenFiles + "/unaligned.safetensors");
  const StoredTensor& x = *checkpoint.find("x");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data) % 4, 0u);
  EXPECT_EQ(as_floats(x).values, (std::vector<float>{1, -2, 0.5}));
  EXPECT_EQ(checkpoint.copied_bytes(), 12u);
}

TEST(Safetensors, PointersSurviveMoves) {
  Checkpoint first = open_safetensors(kGoldenFiles + "/unaligned.safetensors");
  const StoredTensor* x = first.find("x");
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.find("x"), x);
  EXPECT_EQ(*x->file, kGoldenFiles + "/unaligned.safetensors");
  EXPECT_EQ(as_floats(*x).values.at(1), -2);
}

TEST(Safetensors, EveryTruncationIsANamedError) {
  const std::string whole = read_file(kGoldenFiles + "/types.safetensors");
  EXPECT_NO_THROW(read_text(whole));
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string part = whole.substr(0, n);  // a buffer of its own, so that a sanitizer sees a read behind it
    const std::string message = message_of([&] { read_text(part); });
    EXPECT_TRUE(message.starts_with("m.safetensors: ")) << n;
  }
  EXPECT_EQ(message_of([&] { read_text(whole.substr(0, 5)); }),
            "m.safetensors: has 5 bytes; a safetensors file begins with 8 bytes that tell its header's length. Is the download "
            "complete?");
  EXPECT_CONTAINS(message_of([&] { read_text(whole.substr(0, 100)); }), "bytes, but only 92 follow. Is the download complete?");
  EXPECT_CONTAINS(message_of([&] { read_text(whole.substr(0, whole.size() - 1)); }), "data bytes. Is the download complete?");
}

TEST(Safetensors, EveryChangedByteIsReadOrANamedError) {
  const std::string whole = read_file(kGoldenFiles + "/types.safetensors");
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char change : {'\x01', '\x10', '\x80', '\x7f'}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ change);
      try {
        const Checkpoint checkpoint = read_text(changed);
        for (const auto& [name, tensor] : checkpoint.tensors()) as_floats(tensor);  // all of it lies in the buffer
      } catch (const FileError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("m.safetensors: "));
      }
    }
  }
}

struct Hostile {
  std::string header;
  size_t data_bytes;
  std::string message;
};

TEST(Safetensors, HostileHeaders) {
  const std::string x = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_NO_THROW(read_text(file_of(x, 8)));
  EXPECT_NO_THROW(read_text(file_of(x + "   ", 8)));
  EXPECT_NO_THROW(read_text(file_of("{}", 0)));
  const std::vector<Hostile> cases = {
      {x, 9, "has 9 data bytes, but its tensors end at 8. Was something appended to the file?"},
      {x, 7, "tensor \"x\" (header byte 9) ends at data byte 8, but the file has only 7 data bytes. Is the download complete?"},
      {R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
       "tensor \"x\" (header byte 9) of type F32 and shape [3] has 8 bytes; expected 12"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "begins at 8 behind its end 0"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12,
       "begins at data byte 4, but the tensor before it ends at 0; tensors must lie one after the other, without overlap or gap"},
      {R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})", 12,
       "tensor \"y\" (header byte 61) begins at data byte 4, but the tensor before it ends at 8"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
       "the name \"x\" appears twice"},
      {R"({"x":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "the name \"dtype\" appears twice"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "the name \"a\" appears twice"},
      {R"({"__metadata__":{"a":1}})", 0, "\"__metadata__\", \"a\": found a number, which does not belong there"},
      {R"({"x":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", 8,
       "has the shape [9223372036854775808], too large for any file"},
      {R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8, "too large for any file"},
      {R"({"x":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0, "too large for any file"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[9223372036854775808,9223372036854775816]}})", 8,
       "but the file has only 8"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616]}})", 8,
       "found a number that is not a 64-bit integer"},
      {R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "field \"shape\": found a negative number"},
      {R"({"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "found a number that is not a 64-bit integer"},
      {R"({"x":{"dtype":"F32","shape":[1e999],"data_offsets":[0,8]}})", 8, "the header is not valid JSON"},
      {R"({"x":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8, "found a list"},
      {R"({"x":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8, "found a number"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, "has 1 data_offsets; expected 2 (begin, end)"},
      {R"({"x":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})", 8, "lists more than 8 numbers"},
      {R"({"x":{"shape":[2],"data_offsets":[0,8]}})", 8, "tensor \"x\" (header byte 9) lacks the field dtype"},
      {R"({"x":{"dtype":"F32","shape":[2]}})", 8, "lacks the field data_offsets"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"scale":2}})", 8, "has the unknown field \"scale\""},
      {R"({"x":{"dtype":{},"shape":[2],"data_offsets":[0,8]}})", 8, "field \"dtype\": found an object"},
      {R"({"x":{"dtype":null,"shape":[2],"data_offsets":[0,8]}})", 8, "found null"},
      {R"({"x":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})", 8, "found a list"},
      {R"({"x":[]})", 0, "\"x\": found a list"},
      {R"({"x":7})", 0, "\"x\": found a number"},
      {R"([1])", 0, "the header: found a list"},
      {R"({} {})", 0, "the header is not valid JSON (byte 12)"},
      {R"({"x":)", 0, "the header is not valid JSON"},
      {"{\"\xff\":1}", 0, "the header is not valid JSON"},
      {"", 0, "the header is not valid JSON"},
  };
  for (const Hostile& hostile : cases)
    EXPECT_CONTAINS(message_of([&] { read_text(file_of(hostile.header, hostile.data_bytes)); }), hostile.message);
}

TEST(Safetensors, HostileLengths) {
  EXPECT_CONTAINS(message_of([] { read_text(raw(UINT64_MAX) + "{}"); }),
                  "claims a header of 18446744073709551615 bytes; at most 100000000 are allowed. Is this a safetensors file?");
  EXPECT_CONTAINS(message_of([] { read_text(raw(uint64_t{99'999'999}) + "{}"); }),
                  "but only 2 follow. Is the download complete?");
  const std::string deep(1 << 20, '[');
  EXPECT_CONTAINS(message_of([&] { read_text(file_of(deep, 0)); }), "found a list");
}

TEST(Safetensors, NamesWhatIsNotAWeightFile) {
  EXPECT_CONTAINS(message_of([] { read_text("version https://git-lfs.github.com/spec/v1\noid sha256:00"); }),
                  "is a Git LFS pointer, not the file itself; run `git lfs pull`");
  EXPECT_CONTAINS(message_of([] { read_text("<!DOCTYPE html><html>"); }), "is a web page, not weights");
}

TEST(SafetensorsShards, AreOneCheckpoint) {
  const Checkpoint checkpoint = open_safetensors(kGoldenFiles + "/sharded");
  EXPECT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(as_floats(*checkpoint.find("c")).values, (std::vector<float>{-1.25, -1, -0.75, -0.5, -0.25}));
  EXPECT_TRUE(checkpoint.find("a")->file->ends_with("model-00001-of-00002.safetensors"));
  EXPECT_EQ(checkpoint.path(), kGoldenFiles + "/sharded");
  EXPECT_EQ(open_safetensors(kGoldenFiles + "/sharded/model.safetensors.index.json").tensors().size(), 3u);
}

class ShardErrors : public testing::Test {
 protected:
  ShardErrors() {
    for (const auto& file : std::filesystem::directory_iterator(kGoldenFiles + "/sharded"))
      std::filesystem::copy(file.path(), scratch.path());
  }
  std::string message() const {
    return message_of([&] { open_safetensors(scratch.path()); });
  }
  std::string index(const std::string& map) const { return scratch.write("model.safetensors.index.json", map); }
  Scratch scratch;
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
};

TEST_F(ShardErrors, MissingShard) {
  std::filesystem::remove(scratch / second);
  EXPECT_EQ(message(), scratch / "model.safetensors.index.json" + ": names the shard \"" + second +
                           "\", which is not there (of 2 shards). Is the download complete?");
}

TEST_F(ShardErrors, BrokenLink) {
  std::filesystem::remove(scratch / second);
  scratch.link(second, "../blobs/abc");
  EXPECT_EQ(message(), scratch / second + ": is a link to a file that does not exist. Is the download complete?");
}

TEST_F(ShardErrors, TensorInNoShardOrAnother) {
  index(R"({"weight_map":{"a":")" + first + R"(","d":")" + first + "\"}}");
  EXPECT_CONTAINS(message(), "places tensor \"d\" in " + scratch / first + ", but no shard holds it");
  index(R"({"weight_map":{"a":")" + first + R"(","c":")" + first + R"(","b":")" + second + "\"}}");
  EXPECT_CONTAINS(message(), "places tensor \"b\" in " + scratch / second + ", but " + scratch / first + " holds it");
}

TEST_F(ShardErrors, TensorInTwoShards) {
  std::filesystem::copy(scratch / first, scratch / "copy.safetensors");
  index(R"({"weight_map":{"a":")" + first + R"(","c":"copy.safetensors"}})");
  EXPECT_EQ(message(), scratch / first + ": holds a tensor \"a\" that " + scratch / "copy.safetensors" +
                           " holds too; a name may appear once in a model");
}

TEST_F(ShardErrors, HostileIndex) {
  index("[]");
  EXPECT_CONTAINS(message(), "lacks the object \"weight_map\"");
  index(R"({"weight_map":{"a":7}})");
  EXPECT_CONTAINS(message(), "names no file for tensor \"a\"");
  index(R"({"weight_map":{"a":"../../x.safetensors"}})");
  EXPECT_CONTAINS(message(), "places tensor \"a\" in \"../../x.safetensors\"; expected a file beside the index");
}

TEST(SafetensorsFolder, SaysWhatItHoldsInstead) {
  const Scratch scratch;
  const auto message = [&] { return message_of([&] { open_safetensors(scratch.path()); }); };
  EXPECT_EQ(message(), scratch.path() +
                           ": holds neither model.safetensors nor model.safetensors.index.json; download the model's "
                           "*.safetensors files into it");
  scratch.write("pytorch_model.bin", "x");
  EXPECT_CONTAINS(message(), "; it does hold pytorch_model.bin, a Python pickle, which can run code and is not read");
  scratch.write("tiny.gguf", "x");
  EXPECT_CONTAINS(message(), "; it does hold tiny.gguf: give that file's path");
  scratch.write("model-00001-of-00002.safetensors", "x");
  EXPECT_CONTAINS(message(), "; it does hold model-00001-of-00002.safetensors, a part of the weights: download the index");
  scratch.write("adapter_model.safetensors", "x");
  EXPECT_CONTAINS(message(), "; it holds an adapter: give its base as the model and this folder as --adapter");
}

}  // namespace
}  // namespace vitrine
