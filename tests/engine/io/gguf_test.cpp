#include "io/gguf.h"

#include <cmath>
#include <cstdlib>

#include "base/mapped_file.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kFiles = std::string(VITRINE_GOLDEN) + "/io";
const std::string kName = "m.gguf";

Gguf read(std::string_view content) { return read_gguf(as_bytes(content), kName); }

/// A GGUF file made by hand.
struct Made {
  uint32_t version = 3;
  std::vector<std::string> keys, tensors;
  std::string data;

  static std::string text(const std::string& characters) { return raw(uint64_t{characters.size()}) + characters; }
  static std::string key(const std::string& name, GgufType type, const std::string& value) {
    return text(name) + raw(static_cast<uint32_t>(type)) + value;
  }
  static std::string array(const std::string& name, GgufType element, uint64_t count, const std::string& values) {
    return key(name, GgufType::array, raw(static_cast<uint32_t>(element)) + raw(count) + values);
  }
  static std::string tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
    std::string bytes = text(name) + raw(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t n : sizes) bytes += raw(n);
    return bytes + raw(type) + raw(offset);
  }
  std::string file() const {
    std::string bytes = "GGUF" + raw(version) + raw(uint64_t{tensors.size()}) + raw(uint64_t{keys.size()});
    for (const std::string& k : keys) bytes += k;
    for (const std::string& t : tensors) bytes += t;
    bytes.append((32 - bytes.size() % 32) % 32, '\0');
    return bytes + data;
  }
  std::string message() const {
    const std::string whole = file();
    return message_of([&] { read(whole); });
  }
};

// tests/golden/io/make.py: written by the Python package.
TEST(Gguf, ReadsEveryKindOfMetadata) {
  const Gguf gguf = open_gguf(kFiles + "/types.gguf");
  const GgufMetadata& m = gguf.metadata;
  EXPECT_EQ(gguf.version, 3u);
  EXPECT_EQ(m.string("general.architecture"), "llama");
  EXPECT_EQ(m.integer("t.u8"), 200);
  EXPECT_EQ(m.integer("t.i8"), -100);
  EXPECT_EQ(m.integer("t.u16"), 60000);
  EXPECT_EQ(m.integer("t.i16"), -30000);
  EXPECT_EQ(m.integer("t.u32"), 4000000000);
  EXPECT_EQ(m.integer("t.i32"), -2000000000);
  EXPECT_EQ(m.integer("t.i64"), -(int64_t{1} << 62));
  EXPECT_EQ(m.number("t.f32"), 0.1f);
  EXPECT_EQ(m.number("t.f64"), 0.1);
  EXPECT_EQ(m.number("t.u8"), 200);
  EXPECT_TRUE(m.flag("t.yes"));
  EXPECT_FALSE(m.flag("t.no"));
  EXPECT_EQ(m.string("t.string"), "héllo\nworld");
  EXPECT_EQ(m.strings("t.strings"), (std::vector<std::string_view>{"a", "", "ü", "<s>"}));
  EXPECT_EQ(m.integers("t.ints"), (std::vector<int64_t>{3, -1, 2}));
  EXPECT_EQ(m.numbers("t.ints"), (std::vector<float>{3, -1, 2}));
  EXPECT_EQ(m.numbers("t.floats"), (std::vector<float>{0.5, -1.5}));
  EXPECT_EQ(m.values().at("t.nested").count, 2u);
  EXPECT_TRUE(m.has("t.nested"));
  EXPECT_FALSE(m.has("t.absent"));
  EXPECT_EQ(m.integer("t.absent", 5), 5);
  EXPECT_EQ(m.number("t.absent", 0.5), 0.5);
  EXPECT_TRUE(m.flag("t.absent", true));
  EXPECT_EQ(m.string("t.absent", "x"), "x");
}

TEST(Gguf, GettersNameKeyFoundAndExpected) {
  const std::string path = kFiles + "/types.gguf";
  const Gguf gguf = open_gguf(path);
  const GgufMetadata& m = gguf.metadata;
  const auto message = [&](auto f) {
    const std::string text = message_of(f);
    EXPECT_TRUE(text.starts_with(path + ": "));
    return text.substr(std::min(text.size(), path.size() + 2));
  };
  const auto at = [&](const char* key) { return std::to_string(m.values().at(key).at); };
  EXPECT_EQ(message([&] { m.integer("t.string"); }),
            "key \"t.string\" (byte " + at("t.string") + ") is \"héllo\\nworld\"; expected an integer");
  EXPECT_EQ(message([&] { m.integer("t.u64"); }),
            "key \"t.u64\" (byte " + at("t.u64") + ") is 9223372036854775809; expected an integer");
  EXPECT_EQ(message([&] { m.integer("t.f32"); }),
            "key \"t.f32\" (byte " + at("t.f32") + ") is 0.10000000149011612; expected an integer");
  EXPECT_EQ(message([&] { m.integer("t.yes"); }), "key \"t.yes\" (byte " + at("t.yes") + ") is true; expected an integer");
  EXPECT_CONTAINS(message([&] { m.number("t.yes"); }), "is true; expected a finite number");
  EXPECT_CONTAINS(message([&] { m.flag("t.u8"); }), "is 200; expected true or false");
  EXPECT_CONTAINS(message([&] { m.string("t.u8"); }), "is 200; expected a string");
  EXPECT_CONTAINS(message([&] { m.integer("t.ints"); }), "is an array of 3 elements; expected an integer");
  EXPECT_CONTAINS(message([&] { m.integers("t.strings"); }), "is an array of 4 elements; expected an array of integers");
  EXPECT_CONTAINS(message([&] { m.integers("t.floats"); }), "expected an array of integers");
  EXPECT_CONTAINS(message([&] { m.integers("t.nested"); }), "expected an array of integers");
  EXPECT_CONTAINS(message([&] { m.numbers("t.strings"); }), "expected an array of numbers");
  EXPECT_CONTAINS(message([&] { m.strings("t.ints"); }), "expected an array of strings");
  EXPECT_CONTAINS(message([&] { m.strings("t.u8"); }), "is 200; expected an array of strings");
  EXPECT_EQ(message([&] { m.integer("llama.block_count"); }),
            "lacks the key \"llama.block_count\"; expected an integer. Convert the model again");
}

TEST(Gguf, ReadsEveryTensorType) {
  const Gguf gguf = open_gguf(kFiles + "/types.gguf");
  const Json expected = read_json(kFiles + "/expected.json").at("gguf");
  EXPECT_EQ(gguf.checkpoint.tensors().size(), expected.size());
  for (const auto& [name, written] : expected.items()) {
    const StoredTensor* tensor = gguf.checkpoint.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shape, written.at("shape").get<std::vector<int64_t>>()) << name;
    const auto values = written.at("values").get<std::vector<float>>();
    if (!is_block(tensor->dtype)) {
      EXPECT_EQ(as_floats(*tensor).values, values) << name;
      continue;
    }
    ASSERT_EQ(tensor->bytes, row_bytes(tensor->dtype, values.size()));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(element_at(tensor->dtype, tensor->data, i), values[i]) << name << " " << i;
  }
  EXPECT_EQ(gguf.checkpoint.copied_bytes(), 0u);
}

TEST(Gguf, RefusesAnUnreadableTypeOnlyWhenAskedForIt) {
  Made made;
  made.tensors = {Made::tensor("old", {32}, 4, 0), Made::tensor("new", {32}, 4000000000u, 0)};
  const std::string file = made.file();
  const Gguf strange = read(file);
  EXPECT_CONTAINS(message_of([&] { strange.checkpoint.find("old"); }), "has the element type number 4;");
  EXPECT_CONTAINS(message_of([&] { strange.checkpoint.find("new"); }), "has the element type number 4000000000;");
}

TEST(Gguf, ConfigIsAFlatObject) {
  const Json config = open_gguf(kFiles + "/types.gguf").metadata.config();
  EXPECT_EQ(config.at("t.i16"), -30000);
  EXPECT_EQ(config.at("t.u64"), (uint64_t{1} << 63) + 1);
  EXPECT_EQ(config.at("t.yes"), true);
  EXPECT_EQ(config.at("t.ints"), Json::parse("[3, -1, 2]"));
  EXPECT_EQ(config.at("t.strings").at(2), "ü");
  EXPECT_FALSE(config.contains("t.nested"));
  Made made;
  made.keys = {Made::key("nan", GgufType::f32, raw(std::nanf(""))),
               Made::key("bad", GgufType::string,
                         Made::text("a\xff"
                                    "b")),
               Made::array("long", GgufType::u8, 4097, std::string(4097, 'x'))};
  const std::string file = made.file();
  const Json other = read(file).metadata.config();
  EXPECT_EQ(other.at("nan"), "NaN");  // null would mean that the file says nothing
  EXPECT_EQ(other.at("bad"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_FALSE(other.contains("long"));
}

TEST(Gguf, ReadsVersion2AndRefusesOthers) {
  std::string file = read_file(kFiles + "/types.gguf");
  file[4] = 2;
  EXPECT_EQ(read(file).version, 2u);
  file[4] = 1;
  EXPECT_EQ(message_of([&] { read(file); }), "m.gguf: has GGUF version 1; versions 2 and 3 are read. Convert the model again");
  file[4] = 0;
  file[7] = 3;
  EXPECT_CONTAINS(message_of([&] { read(file); }), "is a big-endian GGUF file; expected little-endian");
  EXPECT_CONTAINS(message_of([] { read("GGML"); }), "does not begin with \"GGUF\"; is it a GGUF file?");
  EXPECT_CONTAINS(message_of([] { read(""); }), "does not begin with \"GGUF\"");
  EXPECT_CONTAINS(message_of([] { read("version https://git-lfs.github.com/spec/v1\n"); }), "is a Git LFS pointer");
}

TEST(Gguf, EveryTruncationIsANamedError) {
  const std::string whole = read_file(kFiles + "/types.gguf");
  const Gguf gguf = read(whole);
  size_t end = 0;  // behind the last readable tensor lie only the one of an unreadable type and padding
  for (const auto& [name, t] : gguf.checkpoint.tensors())
    end = std::max(end, static_cast<size_t>(reinterpret_cast<const char*>(t.data) - whole.data()) + t.bytes);
  for (size_t n = 0; n < end; ++n) {
    const std::string part = whole.substr(0, n);
    const std::string message = message_of([&] { read(part); });
    EXPECT_TRUE(message.starts_with("m.gguf: ")) << n;
  }
  EXPECT_CONTAINS(message_of([&] { read(whole.substr(0, end - 1)); }), "data bytes. Is the download complete?");
  EXPECT_EQ(message_of([&] { read(whole.substr(0, 10)); }),
            "m.gguf: ends inside the preamble. Is the download complete? (byte 8 of 10)");
}

TEST(Gguf, EveryChangedByteIsReadOrANamedError) {
  const std::string whole = read_file(kFiles + "/types.gguf");
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char change : {'\x01', '\x10', '\x80', '\x7f'}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ change);
      try {
        const Gguf gguf = read(changed);
        static_cast<void>(gguf.metadata.config());
        for (const auto& [name, tensor] : gguf.checkpoint.tensors())
          for (size_t b = 0; b < tensor.bytes; b += 2) static_cast<void>(std::to_integer<int>(tensor.data[b]));
      } catch (const FileError& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("m.gguf: "));
      }
    }
  }
}

TEST(Gguf, HostileKeys) {
  const auto message = [](const std::string& key) { return Made{.keys = {key}, .tensors = {}, .data = ""}.message(); };
  EXPECT_CONTAINS(message(raw(UINT64_MAX) + std::string(8, 'x')),
                  "the name of key 0 claims 18446744073709551615 characters where");
  EXPECT_CONTAINS(message(Made::text("a") + raw(uint32_t{13})), "key \"a\" has the unknown type 13");
  EXPECT_CONTAINS(message(Made::key("a", GgufType::flag, "\x02")), "key \"a\" is a bool of value 2; expected 0 or 1");
  EXPECT_CONTAINS(message(Made::array("a", GgufType::u32, uint64_t{1} << 62, "")),
                  "key \"a\" claims 4611686018427387904 elements");
  EXPECT_CONTAINS(message(Made::array("a", GgufType::string, uint64_t{1} << 60, "")),
                  "elements, more than the bytes left can hold");
  EXPECT_CONTAINS(message(Made::array("a", GgufType::string, 2, Made::text("x") + raw(uint64_t{1} << 63))),
                  "key \"a\" claims 9223372036854775808 characters");
  EXPECT_CONTAINS(message(Made::key("general.alignment", GgufType::u32, raw(uint32_t{0}))),
                  "key \"general.alignment\" is 0; expected a power of two from 8 to 65536");
  EXPECT_CONTAINS(message(Made::key("general.alignment", GgufType::u32, raw(uint32_t{24}))), "is 24; expected a power of two");
  EXPECT_CONTAINS(message(Made::key("general.alignment", GgufType::i64, raw(INT64_MIN))), "is -9223372036854775808; expected");
  EXPECT_CONTAINS(message(Made::key("general.alignment", GgufType::string, Made::text("x"))), "is \"x\"; expected an integer");
  std::string nested;
  for (int depth = 0; depth < 5; ++depth) nested += raw(static_cast<uint32_t>(GgufType::array)) + raw(uint64_t{1});
  EXPECT_CONTAINS(message(Made::key("a", GgufType::array, nested + std::string(64, '\0'))),
                  "key \"a\" nests arrays deeper than 4 levels");
  Made twice;
  twice.keys = {Made::key("a", GgufType::u8, "x"), Made::key("a", GgufType::u8, "y")};
  EXPECT_CONTAINS(twice.message(), "key \"a\" appears twice");
  EXPECT_CONTAINS(message_of([] { read("GGUF" + raw(uint32_t{3}) + raw(uint64_t{0}) + raw(UINT64_MAX)); }),
                  "claims 18446744073709551615 keys, more than its bytes can hold");
  EXPECT_CONTAINS(message_of([] { read("GGUF" + raw(uint32_t{3}) + raw(UINT64_MAX) + raw(uint64_t{0})); }),
                  "claims 18446744073709551615 tensors, more than its bytes can hold");
}

TEST(Gguf, HostileTensors) {
  const auto message = [](std::vector<std::string> tensors, size_t data_bytes = 128) {
    return Made{.keys = {}, .tensors = std::move(tensors), .data = std::string(data_bytes, '\0')}.message();
  };
  constexpr uint32_t kF32 = 0, kQ8_0 = 8;
  EXPECT_CONTAINS(
      message({Made::tensor("x", {32, 2}, kF32, 0)}),
      "tensor \"x\" (described at byte 24) takes 256 bytes from data byte 0, but the file has only 128 data bytes. Is the "
      "download complete?");
  EXPECT_CONTAINS(message({Made::tensor("x", {8}, kF32, 16)}), "begins at data byte 16, no multiple of the alignment 32");
  EXPECT_CONTAINS(message({Made::tensor("x", {8}, kF32, uint64_t{1} << 63)}),
                  "from data byte 9223372036854775808, but the file has");
  EXPECT_CONTAINS(message({Made::tensor("x", {16}, kF32, 0), Made::tensor("y", {8}, kF32, 32)}),
                  "tensor \"y\" (described at byte 57) begins at data byte 32, inside the tensor before it, which ends at 64");
  EXPECT_CONTAINS(message({Made::tensor("x", {48}, kQ8_0, 0)}),
                  "tensor \"x\" of type Q8_0 has rows of 48 elements; expected a multiple of 32");
  EXPECT_CONTAINS(message({Made::tensor("x", {1, 1, 1, 1, 1}, kF32, 0)}), "tensor \"x\" has 5 dimensions; at most 4 exist");
  EXPECT_CONTAINS(message({Made::tensor("x", {uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0)}),
                  "has a shape too large for any file");
  EXPECT_CONTAINS(message({Made::tensor("x", {0, UINT64_MAX}, kF32, 0)}), "has a shape too large for any file");
  EXPECT_CONTAINS(message({Made::tensor("x", {8}, kF32, 0), Made::tensor("x", {8}, kF32, 32)}),
                  "holds a tensor \"x\" that it already held; a name may appear once in a model");
  EXPECT_CONTAINS(message({Made::tensor("x", {8}, kF32, 0)}, 0), "but the file has only 0 data bytes");
}

TEST(Gguf, EmptyTensorsAndGapsAreAllowed) {
  Made made;
  made.tensors = {Made::tensor("full", {8}, 0, 64), Made::tensor("empty", {0, 4}, 0, 64)};
  made.data = std::string(96, '\0');
  const std::string file = made.file();
  const Gguf gguf = read(file);
  EXPECT_EQ(gguf.checkpoint.find("empty")->shape, (std::vector<int64_t>{4, 0}));
  EXPECT_EQ(gguf.checkpoint.find("full")->bytes, 32u);
}

// Files that llama.cpp wrote. They are not in the repository: some of their vocabularies may not be passed on.
TEST(Gguf, ReadsLlamaCppsVocabularies) {
  const char* data = std::getenv("VITRINE_DATA");
  if (data == nullptr)
    GTEST_SKIP() << "left out: ggml-vocab-{falcon,gpt-2,llama-bpe,llama-spm,qwen2}.gguf; VITRINE_DATA names their folder";
  const std::map<std::string, size_t> tokens = {
      {"falcon", 65024}, {"gpt-2", 50257}, {"llama-bpe", 128256}, {"llama-spm", 32000}, {"qwen2", 151936}};
  for (const auto& [name, count] : tokens) {
    const Gguf gguf = open_gguf(std::string(data) + "/tokenizers/ggml-vocab/ggml-vocab-" + name + ".gguf");
    EXPECT_EQ(gguf.metadata.strings("tokenizer.ggml.tokens").size(), count) << name;
    EXPECT_EQ(gguf.metadata.integers("tokenizer.ggml.token_type").size(), count) << name;
    EXPECT_TRUE(gguf.checkpoint.tensors().empty());
    EXPECT_TRUE(gguf.metadata.config().contains("general.architecture"));
  }
}

TEST(GgufSplit, PartsAreOneModel) {
  const Gguf gguf = open_gguf(kFiles + "/split-00001-of-00002.gguf");
  EXPECT_EQ(as_floats(*gguf.checkpoint.find("a")).values, std::vector<float>(8, 1));
  EXPECT_EQ(as_floats(*gguf.checkpoint.find("b")).values, std::vector<float>(8, 2));
  EXPECT_TRUE(gguf.checkpoint.find("b")->file->ends_with("split-00002-of-00002.gguf"));
}

TEST(GgufSplit, ErrorsNameTheParts) {
  const Scratch scratch;
  const std::string first = scratch / "split-00001-of-00002.gguf", second = scratch / "split-00002-of-00002.gguf";
  std::filesystem::copy(kFiles + "/split-00001-of-00002.gguf", first);
  EXPECT_EQ(message_of([&] { open_gguf(first); }),
            first + ": is the first of 2 parts, but " + second + " does not exist. Is the download complete?");
  std::filesystem::copy(kFiles + "/split-00002-of-00002.gguf", second);
  EXPECT_EQ(open_gguf(first).checkpoint.tensors().size(), 2u);
  EXPECT_EQ(message_of([&] { open_gguf(second); }),
            second + ": is part of a model split into 2 files; give the first, whose name ends in -00001-of-00002.gguf");
  std::filesystem::copy_file(first, second, std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(message_of([&] { open_gguf(first); }),
            second + ": holds a tensor \"a\" that " + first + " holds too; a name may appear once in a model");
}

}  // namespace
}  // namespace vitrine
