#include "io/gguf_writer.h"

#include "base/mapped_file.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kWritten = std::string(VITRINE_GOLDEN) + "/io";

/// All of a file's keys but the alignment, passed on.
GgufKeys keys_of(const Gguf& gguf) {
  GgufKeys keys;
  for (const auto& [key, value] : gguf.metadata.values())
    if (key != "general.alignment") keys.emplace_back(key, value);
  return keys;
}

TEST(GgufWriter, PassesAFileOn) {
  const Scratch scratch;
  const Gguf original = open_gguf(kWritten + "/types.gguf");
  std::vector<TensorPlan> plans;
  for (const auto& [name, t] : original.checkpoint.tensors()) plans.push_back({name, t.dtype, t.shape});
  GgufWriter writer(scratch / "copy.gguf", keys_of(original), plans);
  for (size_t i = plans.size(); i-- > 0;) {  // any order, any pieces
    const StoredTensor& t = *original.checkpoint.find(plans[i].name);
    writer.write(i, {t.data + 7, t.bytes - 7}, 7);
    writer.write(i, {t.data, 7});
  }
  writer.finish();

  const Gguf copy = open_gguf(scratch / "copy.gguf");
  EXPECT_EQ(copy.version, 3u);
  Json expected = original.metadata.config();
  expected.erase("general.alignment");
  EXPECT_EQ(copy.metadata.config(), expected);
  EXPECT_EQ(copy.metadata.values().at("t.nested").bytes.size(), original.metadata.values().at("t.nested").bytes.size());
  ASSERT_EQ(copy.checkpoint.tensors().size(), plans.size());
  for (const auto& [name, t] : original.checkpoint.tensors()) {
    const StoredTensor& c = *copy.checkpoint.find(name);
    EXPECT_EQ(c.dtype, t.dtype);
    EXPECT_EQ(c.shape, t.shape);
    EXPECT_EQ(std::vector<std::byte>(c.data, c.data + c.bytes), std::vector<std::byte>(t.data, t.data + t.bytes)) << name;
  }
}

// The reference package wrote this file with default alignment: the same content must give the same bytes.
TEST(GgufWriter, WritesTheReferencePackagesBytes) {
  const Scratch scratch;
  const std::string path = kWritten + "/split-00002-of-00002.gguf";
  const std::string content = read_file(path);
  const std::vector<float> values(8, 2);
  GgufWriter writer(scratch / "b.gguf",
                    {{"general.architecture", std::string("llama")},
                     {"split.no", uint16_t{1}},
                     {"split.count", uint16_t{2}},
                     {"split.tensors.count", int32_t{2}}},
                    {{"b", DType::f32, {2, 4}}});
  writer.write(0, std::as_bytes(std::span(values)));
  writer.finish();
  EXPECT_EQ(read_file(scratch / "b.gguf"), content);
}

TEST(GgufWriter, WritesEveryKindOfValue) {
  const Scratch scratch;
  GgufWriter(scratch / "k.gguf",
             {{"u8", uint8_t{200}},
              {"i8", int8_t{-3}},
              {"u64", uint64_t{1} << 40},
              {"i64", int64_t{-7}},
              {"f32", 0.5f},
              {"f64", 0.1},
              {"yes", true},
              {"text", std::string("ü")},
              {"texts", std::vector<std::string>{"a", "", "b"}},
              {"ints", std::vector<int32_t>{1, -2}},
              {"floats", std::vector<float>{0.25f}}},
             {})
      .finish();
  const Json expected = Json::parse(R"({"u8": 200, "i8": -3, "u64": 1099511627776, "i64": -7, "f32": 0.5, "f64": 0.1, "yes": true,
                                        "text": "ü", "texts": ["a", "", "b"], "ints": [1, -2], "floats": [0.25]})");
  EXPECT_EQ(open_gguf(scratch / "k.gguf").metadata.config(), expected);
}

TEST(GgufWriter, RefusesWhatTheFormatLacks) {
  const Scratch scratch;
  const std::string path = scratch / "m.gguf";
  const auto message = [&](const GgufKeys& keys, const std::vector<TensorPlan>& plans) {
    return message_of<UsageError>([&] { GgufWriter(path, keys, plans); });
  };
  EXPECT_EQ(message({{"a", 1.f}, {"a", 2.f}}, {}), path + ": the key \"a\" is set twice");
  EXPECT_CONTAINS(message({{"general.alignment", 64}}, {}), "\"general.alignment\" is not to be set; it is always 32");
  EXPECT_EQ(message({}, {{"x", DType::u8, {3}}}), path + ": tensor \"x\" is u8, a type that GGUF lacks");
  EXPECT_EQ(message({}, {{"x", DType::q8_0, {2, 48}}}),
            path + ": tensor \"x\" of type q8_0 has the shape [2, 48]; expected rows of a multiple of 32");
  EXPECT_CONTAINS(message({}, {{"x", DType::f32, {1, 1, 1, 1, 1}}}), "GGUF holds at most 4 dimensions");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

}  // namespace
}  // namespace vitrine
