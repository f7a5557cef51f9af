#include "engine/model_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "io/huggingface.h"
#include "model/config_file.h"
#include "tokenizer/vocabulary_files.h"

namespace vitrine {
namespace {

std::optional<int32_t> token_key(const GgufMetadata& metadata, std::string_view key) {
  if (!metadata.has(key)) return {};
  const int64_t id = metadata.integer(key);
  if (id < 0 || id > INT32_MAX)
    throw FileError(metadata.path(), "key \"" + std::string(key) + "\" is " + std::to_string(id) + "; expected a token id");
  return static_cast<int32_t>(id);
}

std::optional<bool> flag_key(const GgufMetadata& metadata, std::string_view key) {
  if (!metadata.has(key)) return {};
  return metadata.flag(key);
}

VocabularySpec vocabulary_of(const GgufMetadata& metadata) {
  VocabularySpec spec;
  spec.source = metadata.path();
  spec.kind = metadata.string("tokenizer.ggml.model");
  spec.pre = metadata.string("tokenizer.ggml.pre", "default");
  const auto pieces = metadata.strings("tokenizer.ggml.tokens");
  spec.pieces.assign(pieces.begin(), pieces.end());
  if (metadata.has("tokenizer.ggml.scores")) spec.scores = metadata.numbers("tokenizer.ggml.scores");
  if (metadata.has("tokenizer.ggml.token_type")) {
    for (const int64_t type : metadata.integers("tokenizer.ggml.token_type"))
      spec.types.push_back(static_cast<int32_t>(std::clamp<int64_t>(type, INT32_MIN, INT32_MAX)));
  }
  if (metadata.has("tokenizer.ggml.merges")) {
    const auto merges = metadata.strings("tokenizer.ggml.merges");
    spec.merges.assign(merges.begin(), merges.end());
  }
  spec.bos = token_key(metadata, "tokenizer.ggml.bos_token_id");
  spec.eos = token_key(metadata, "tokenizer.ggml.eos_token_id");
  spec.unknown = token_key(metadata, "tokenizer.ggml.unknown_token_id");
  spec.padding = token_key(metadata, "tokenizer.ggml.padding_token_id");
  spec.add_bos = flag_key(metadata, "tokenizer.ggml.add_bos_token");
  spec.add_eos = flag_key(metadata, "tokenizer.ggml.add_eos_token");
  spec.add_space_prefix = flag_key(metadata, "tokenizer.ggml.add_space_prefix");
  spec.remove_extra_whitespaces = flag_key(metadata, "tokenizer.ggml.remove_extra_whitespaces");
  return spec;
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufMetadata& metadata) {
  return tokenizer_from_vocabulary(vocabulary_of(metadata));
}

Companions companions_of(const OpenedModel& opened) {
  if (opened.gguf == nullptr) return companions_in(opened.files);
  const GgufMetadata& metadata = *opened.gguf;
  Companions files;
  if (metadata.has("tokenizer.ggml.model")) {
    std::optional<std::string> chat_template;
    if (metadata.has("tokenizer.chat_template")) chat_template = metadata.string("tokenizer.chat_template");
    files = vocabulary_files(vocabulary_of(metadata), chat_template);
  }
  // Where text ends: config.json has one such token, and a chat's turns may end in another.
  Json ends = Json::array();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
    if (const auto id = token_key(metadata, key); id && std::find(ends.begin(), ends.end(), *id) == ends.end())
      ends.push_back(*id);
  Json generation = Json::object();
  if (!ends.empty()) generation["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
  for (const char* key : {"bos_token_id", "pad_token_id"})
    if (const std::vector<int64_t> ids = config_token_ids(opened.files, key); !ids.empty()) generation[key] = ids.front();
  if (!generation.empty()) files["generation_config.json"] = generation.dump(2) + "\n";
  return files;
}

std::shared_ptr<const Tokenizer> open_tokenizer(std::string_view name) {
  const std::string path = locate_model(name);
  if (path.ends_with(".gguf")) return tokenizer_from_gguf(open_gguf(path).metadata);
  return load_tokenizer(path);
}

}  // namespace vitrine
