// A directory's tokenizer as the keys of a GGUF file. converted.json has those that llama.cpp's converter writes
// (tests/golden/gguf/make_converted.py).
#include <gtest/gtest.h>

#include <filesystem>

#include "model/to_gguf.h"
#include "quantize/encoding.h"
#include "runtime/engine.h"
#include "runtime/model_tokenizer.h"
#include "support/crc32.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

std::string written(const std::string& model, const Scratch& scratch) {
  const OpenedModel opened = open_model(model);
  const GgufEncoding encoding = mixture_encoding(opened, *find_mixture("f32"));
  ThreadPool pool(2);
  write_gguf(opened, plan_gguf(opened, vocabulary_keys(opened), encoding), encoding, scratch / "out.gguf", pool);
  return scratch / "out.gguf";
}

uint32_t crc32_of_all(const std::vector<std::string_view>& list) {
  uint32_t crc = 0;
  for (const std::string_view one : list) crc = crc32_of(std::as_bytes(std::span(one)), crc);
  return crc;
}

class VocabularyKeys : public testing::TestWithParam<std::string> {};

TEST_P(VocabularyKeys, AreThoseOfTheConverter) {
  const Scratch scratch;
  const Gguf made = open_gguf(written(Golden::open(GetParam()).model(), scratch));
  const GgufMetadata& m = made.metadata;
  const Json all = read_json(std::string(VITRINE_GOLDEN) + "/gguf/converted.json");
  for (const auto& [key, value] : all.at(GetParam()).at("keys").items()) {
    if (!key.starts_with("tokenizer.")) continue;
    // It gives every Gemma the end of a turn that the published ones have, and calls pieces that are looked for first normal
    // ones.
    if (key.ends_with("add_sep_token") || key.ends_with("eot_token_id")) continue;
    ASSERT_TRUE(m.has(key)) << key;
    const std::string type = value[0];
    if (type == "STRING") {
      EXPECT_EQ(m.string(key), value[1].get<std::string>()) << key;
    } else if (type == "BOOL") {
      EXPECT_EQ(m.flag(key), value[1].get<bool>()) << key;
    } else if (type == "UINT32") {
      EXPECT_EQ(m.values().at(key).type, GgufType::u32) << key;
      EXPECT_EQ(m.integer(key), value[1].get<int64_t>()) << key;
    } else if (type.starts_with("STRING[")) {
      EXPECT_EQ(crc32_of_all(m.strings(key)), value[1].get<uint32_t>()) << key;
    } else if (key.ends_with("scores")) {
      EXPECT_EQ(crc32_of(m.values().at(key).bytes), value[1].get<uint32_t>()) << key;
    } else if (m.string("tokenizer.ggml.model") == "gpt2") {
      EXPECT_EQ(crc32_of(m.values().at(key).bytes), value[1].get<uint32_t>()) << key;
    }
  }
}

TEST_P(VocabularyKeys, GiveTheEngineTheSameTokenizer) {
  const Scratch scratch;
  const std::string model = Golden::open(GetParam()).model();
  const Engine a(model, {.threads = 1}), b(written(model, scratch), {.threads = 1});
  for (const std::string text : {"Once upon a time, 12 mice met.", "  caf\u00e9\n\n\tx = [1, 2]", "<bos><start_of_turn>user"})
    EXPECT_EQ(a.tokenizer().encode(text, true, Special::text), b.tokenizer().encode(text, true, Special::text)) << text;
}

INSTANTIATE_TEST_SUITE_P(Every, VocabularyKeys, testing::Values("gemma", "gemma2", "gemma3", "gpt2_a", "llama"),
                         [](const auto& test) { return test.param; });

TEST(VocabularyKeysOf, ADirectoryWithoutTokenizerAreNone) {
  const Scratch scratch;
  const std::string file = written(Golden::open("qwen3").model(), scratch);
  const Gguf made = open_gguf(file);
  EXPECT_EQ(made.metadata.string("tokenizer.ggml.model"), "none");
  EXPECT_FALSE(has_vocabulary(made.metadata));
  const Engine engine(file, {.threads = 1});
  EXPECT_CONTAINS(message_of<InputError>([&] { engine.tokenizer(); }), "has no tokenizer in its metadata");
}

TEST(VocabularyKeysOf, AChatHaveItsTemplateAndTheEndOfATurn) {
  namespace fs = std::filesystem;
  const Scratch scratch;
  fs::copy(Golden::open("gemma2").model(), scratch / "model", fs::copy_options::recursive);
  scratch.write("model/chat_template.jinja", "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}");
  scratch.write("model/generation_config.json", R"({"eos_token_id": [1, 5], "top_k": 64, "top_p": 0.95, "temperature": 0.7})");
  const Gguf made = open_gguf(written(scratch / "model", scratch));
  EXPECT_EQ(made.metadata.integer("tokenizer.ggml.eos_token_id"), 1);
  EXPECT_EQ(made.metadata.integer("tokenizer.ggml.eot_token_id"), 5);
  EXPECT_TRUE(made.metadata.string("tokenizer.chat_template").starts_with("{{ bos_token }}"));
  EXPECT_EQ(made.metadata.integer("general.sampling.top_k"), 64);
  EXPECT_EQ(made.metadata.values().at("general.sampling.top_k").type, GgufType::i32);
  EXPECT_FLOAT_EQ(static_cast<float>(made.metadata.number("general.sampling.temp")), 0.7f);
}

TEST(VocabularyKeysOf, IdsWithoutAPieceArePadded) {
  namespace fs = std::filesystem;
  const Scratch scratch;
  fs::copy(Golden::open("qwen3").model(), scratch / "model",
           fs::copy_options::recursive);  // 256 rows, fewer than there are pieces
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy_file(std::string(VITRINE_GOLDEN) + "/tokenizers/bpe512/" + file, scratch / ("model/" + std::string(file)));
  const Gguf made = open_gguf(written(scratch / "model", scratch));
  EXPECT_EQ(made.metadata.strings("tokenizer.ggml.tokens").size(), 256u);
}

}  // namespace
}  // namespace vitrine
