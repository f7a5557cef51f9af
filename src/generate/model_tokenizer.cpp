#include "generate/model_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "io/huggingface.h"

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

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufMetadata& metadata) {
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
  return tokenizer_from_vocabulary(std::move(spec));
}

std::shared_ptr<const Tokenizer> open_tokenizer(std::string_view name) {
  const std::string path = locate_model(name);
  if (path.ends_with(".gguf")) return tokenizer_from_gguf(open_gguf(path).metadata);
  return load_tokenizer(path);
}

}  // namespace vitrine
