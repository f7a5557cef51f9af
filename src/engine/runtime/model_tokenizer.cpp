#include "runtime/model_tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/config_reader.h"
#include "io/huggingface.h"
#include "model/config_file.h"
#include "model/fingerprint.h"
#include "model/gguf_keys.h"
#include "runtime/engine.h"
#include "tokenizer/config.h"
#include "tokenizer/to_vocabulary.h"
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

// The other way round.
GgufKeys keys_of(const VocabularySpec& spec) {
  GgufKeys keys = {{"tokenizer.ggml.model", spec.kind}};
  const auto add = [&](const char* name, auto value) {
    keys.emplace_back(std::string("tokenizer.ggml.") + name, std::move(value));
  };
  if (!spec.pieces.empty()) {
    add("pre", spec.pre);
    add("tokens", spec.pieces);
    if (!spec.scores.empty()) add("scores", spec.scores);
    add("token_type", spec.types);
    if (!spec.merges.empty()) add("merges", spec.merges);
  }
  const auto add_id = [&](const char* name, std::optional<int32_t> id) {
    if (id) add(name, static_cast<uint32_t>(*id));
  };
  add_id("bos_token_id", spec.bos);
  add_id("eos_token_id", spec.eos);
  add_id("unknown_token_id", spec.unknown);
  add_id("padding_token_id", spec.padding);
  const auto add_flag = [&](const char* name, std::optional<bool> flag) {
    if (flag) add(name, *flag);
  };
  add_flag("add_bos_token", spec.add_bos);
  add_flag("add_eos_token", spec.add_eos);
  add_flag("add_space_prefix", spec.add_space_prefix);
  add_flag("remove_extra_whitespaces", spec.remove_extra_whitespaces);
  return keys;
}

// The tokens that end a text, as generation_config.json or config.json lists them.
std::vector<int64_t> ends_of_text(const ModelFiles& files) {
  std::vector<int64_t> ends = config_token_ids(files, "eos_token_id");
  if (!files.generation_config.is_object()) return ends;
  for (const int64_t id : ConfigReader(files.generation_config, files.generation_config_path).counts("eos_token_id"))
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  return ends;
}

}  // namespace

bool has_vocabulary(const GgufMetadata& metadata) {
  constexpr const char* kKind = "tokenizer.ggml.model";
  return metadata.has(kKind) && metadata.string(kKind) != "none" && metadata.string(kKind) != "no_vocab";
}

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufMetadata& metadata) {
  return tokenizer_from_vocabulary(vocabulary_of(metadata));
}

Companions companions_of(const OpenedModel& opened) {
  if (opened.gguf == nullptr) {
    Companions files = companions_in(opened.files);
    if (opened.adapter != nullptr)
      if (const std::optional<std::string> chat = chat_template_of(opened)) files["chat_template.jinja"] = *chat;
    return files;
  }
  const GgufMetadata& metadata = *opened.gguf;
  Companions files;
  if (has_vocabulary(metadata)) {
    files = vocabulary_files(vocabulary_of(metadata), chat_template_of(opened));
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

GgufKeys vocabulary_keys(const OpenedModel& opened) {
  gguf_model_keys(opened, 0);  // a family that GGUF has no form of is refused before its vocabulary
  VocabularySpec spec;
  spec.kind = "none";
  if (has_tokenizer_files(opened.files.directory)) {
    spec = vocabulary_of_folder(opened.files.directory);
    fit_vocabulary(spec, opened.model->shape().vocab_size);
  }
  // What config.json says goes where the tokenizer's files say nothing.
  const int64_t rows = opened.model->shape().vocab_size;
  const std::vector<int64_t> ends = ends_of_text(opened.files);
  const auto fill = [&](std::optional<int32_t>& id, const std::vector<int64_t>& ids) {
    if (!id && !ids.empty() && ids.front() < rows) id = static_cast<int32_t>(ids.front());
  };
  fill(spec.bos, config_token_ids(opened.files, "bos_token_id"));
  fill(spec.eos, ends);
  fill(spec.padding, config_token_ids(opened.files, "pad_token_id"));
  GgufKeys keys = keys_of(spec);
  // A second end, of a turn: where a chat's turns end in another token than the text.
  for (const int64_t end : ends)
    if (end != spec.eos && end < rows) {
      keys.emplace_back("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(end));
      break;
    }
  if (const std::optional<std::string> chat = chat_template_of(opened)) keys.emplace_back("tokenizer.chat_template", *chat);
  return keys;
}

std::shared_ptr<const Tokenizer> open_tokenizer(std::string_view name) {
  const std::string path = locate_model(name);
  if (path.ends_with(".gguf")) return tokenizer_from_gguf(open_gguf(path).metadata);
  return load_tokenizer(path);
}

uint64_t fingerprint_of_tokenizer(std::string_view name) {
  std::string path = locate_model(name);
  uint64_t sum = 0;
  if (path.ends_with(".safetensors")) path = std::filesystem::path(path).parent_path().string();
  if (path.ends_with(".gguf")) {
    const std::string keys = gguf_layout(path, keys_of(vocabulary_of(open_gguf(path).metadata)), {}).header;
    return add_to_fingerprint(sum, std::as_bytes(std::span(keys)));
  }
  for (const std::string& file : tokenizer_files(path)) {
    const std::string called = file == path ? "" : std::filesystem::path(file).filename().string();
    sum = add_to_fingerprint(sum, std::as_bytes(std::span(called)));
    sum = add_to_fingerprint(sum, MappedFile::open(file).bytes());
  }
  return sum;
}

std::optional<int32_t> mask_token(const OpenedModel& opened, const Tokenizer& tokenizer) {
  if (opened.gguf == nullptr)
    if (const std::optional<std::string> mask = read_tokenizer_config(opened.files.directory, false).mask)
      return tokenizer.find(*mask);
  for (const char* name : {"[MASK]", "<mask>"})
    if (const std::optional<int32_t> id = tokenizer.find(name); id && tokenizer.is_control(*id)) return id;
  return {};
}

std::vector<int64_t> masked_places(const OpenedModel& opened, const Tokenizer* tokenizer, std::span<const int32_t> ids) {
  const std::string otherwise = ", or ask for every position (--all-positions)";
  if (tokenizer == nullptr)
    throw InputError(opened.files.name +
                     " fills masked tokens, and has no tokenizer that names its mask: put one beside its weights" + otherwise);
  const std::optional<int32_t> mask = mask_token(opened, *tokenizer);
  if (!mask)
    throw InputError(opened.files.name +
                     " fills masked tokens, and its tokenizer names no mask: add mask_token to its "
                     "tokenizer_config.json" +
                     otherwise);
  std::vector<int64_t> places;
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == *mask) places.push_back(static_cast<int64_t>(i));
  if (places.empty())
    throw InputError(opened.files.name + " fills masked tokens, and the text has none: write " + tokenizer->piece(*mask) +
                     " where a token is to be predicted, as in 'The " + tokenizer->piece(*mask) + " of France'" + otherwise);
  return places;
}

std::optional<int32_t> first_other_piece(const Tokenizer& a, const Tokenizer& b) {
  for (int32_t id = 0; id < std::min(a.vocab_size(), b.vocab_size()); ++id)
    if (a.piece(id) != b.piece(id)) return id;
  return {};
}

}  // namespace vitrine
