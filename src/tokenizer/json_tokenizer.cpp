// tokenizer.json as a pipeline.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "tokenizer/load.h"
#include "tokenizer/pipeline.h"

namespace vitrine {
namespace {

struct Document {
  Json json;  // everything but model.vocab and model.merges
  ModelText model;
};

// The vocabulary and the merges are most of the file and are read straight from its text; the rest becomes a tree.
Document split_document(std::string_view text, const std::string& path) {
  Document document;
  document.model.whole = text;
  JsonCursor cursor(text, path);
  std::string small;
  size_t copied = 0;
  const auto leave_out = [&](size_t& place, size_t& bytes, const char* key) {
    if (place != 0) cursor.fail(fmt::format("model.{} appears twice", key));
    cursor.peek();
    place = cursor.position();
    small.append(text, copied, place - copied);
    small += "null";
    cursor.skip_value();
    copied = cursor.position();
    bytes = copied - place;
  };
  cursor.object([&](std::string_view key) {
    if (key != "model" || cursor.peek() != '{') return cursor.skip_value();
    JsonCursor inner = cursor;
    inner.object([&](std::string_view model_key) {
      const std::string name(model_key);
      cursor.move_to(inner.position());
      if (name == "vocab") {
        leave_out(document.model.vocabulary, document.model.vocabulary_bytes, "vocab");
      } else if (name == "merges") {
        leave_out(document.model.merges, document.model.merges_bytes, "merges");
      } else {
        cursor.skip_value();
      }
      inner.move_to(cursor.position());
    });
    cursor.move_to(inner.position());
  });
  if (cursor.peek() != '\0' || cursor.position() < text.size()) cursor.fail("something follows the object");
  small.append(text, copied);
  document.json = parse_json(small, path);
  return document;
}

// Takes a piece from the first of `candidates` that the tokenizer has.
std::optional<int32_t> first_known(const PipelineParts& parts, std::initializer_list<const char*> candidates) {
  for (const char* name : candidates) {
    for (const AddedToken& token : parts.added)
      if (token.content == name) return token.id;
  }
  return std::nullopt;
}

std::optional<int32_t> id_of(const PipelineParts& parts, const std::optional<std::string>& piece) {
  if (!piece) return std::nullopt;
  for (const AddedToken& token : parts.added)
    if (token.content == *piece) return token.id;
  const int32_t id = parts.model->vocabulary().find(*piece);
  if (id < 0) return std::nullopt;
  return id;
}

std::vector<AddedToken> parse_added(const Component& file, const Vocabulary& vocabulary, size_t file_bytes) {
  std::vector<AddedToken> out;
  if (!file.has("added_tokens")) return out;
  // A file of n bytes cannot name more than n tokens; larger ids would only make tables with holes.
  const int64_t limit = std::min<int64_t>(int64_t(vocabulary.size()) + int64_t(file_bytes) + 1000, INT32_MAX);
  for (const Component& c : file.children("added_tokens", false)) {
    AddedToken token;
    token.content = c.text("content");
    token.single_word = c.flag("single_word", false);
    token.lstrip = c.flag("lstrip", false);
    token.rstrip = c.flag("rstrip", false);
    token.special = c.flag("special", false);
    token.normalized = c.flag("normalized", !token.special);
    const int64_t id = c.integer("id");
    if (id < 0 || id >= limit) c.fail(fmt::format("\"id\" is {}, expected 0 to {}", id, limit - 1));
    if (token.content.size() > 4096) c.fail(fmt::format("\"content\" has {} bytes, more than 4096", token.content.size()));
    if (token.content.empty()) continue;
    // A piece that the model has keeps the model's id; the file repeats it.
    const int32_t known = vocabulary.find(token.content);
    token.id = known >= 0 ? known : int32_t(id);
    if (known < 0 && vocabulary.has(token.id))
      c.fail(fmt::format("\"{}\" has id {}, which is the piece \"{}\" of the vocabulary", token.content, id,
                         vocabulary.piece(token.id)));
    out.push_back(std::move(token));
  }
  return out;
}

// What tokenizer_config.json or added_tokens.json declares and the file lacks.
void add_declared(PipelineParts& parts, const TokenizerConfig& config) {
  const Vocabulary& vocabulary = parts.model->vocabulary();
  std::map<std::string, int32_t, std::less<>> ids;
  std::map<int32_t, std::string> contents;
  int32_t size = vocabulary.size();
  for (const AddedToken& token : parts.added) {
    ids.emplace(token.content, token.id);
    contents.emplace(token.id, token.content);
    size = std::max(size, token.id + 1);
  }
  const auto find = [&](std::string_view content) {
    const auto it = ids.find(content);
    return it != ids.end() ? it->second : vocabulary.find(content);
  };
  const auto piece = [&](int32_t id) {
    const auto it = contents.find(id);
    return it != contents.end() ? it->second : std::string(vocabulary.piece(id));
  };
  for (AddedToken& token : resolve_declared(config.added, size, find, piece))
    if (!ids.contains(token.content)) parts.added.push_back(std::move(token));
}

// Where the class is one that makes its own ByteLevel, transformers takes the flag of tokenizer_config.json, not the file's.
void set_prefix_space(Json& pre_tokenizer, bool add_prefix_space) {
  if (!pre_tokenizer.is_object()) return;
  const auto type = pre_tokenizer.find("type"), members = pre_tokenizer.find("pretokenizers");
  if (type != pre_tokenizer.end() && *type == "ByteLevel") pre_tokenizer["add_prefix_space"] = add_prefix_space;
  if (members != pre_tokenizer.end() && members->is_array())
    for (Json& member : *members) set_prefix_space(member, add_prefix_space);
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view text, const std::string& path,
                                                     const TokenizerConfig& config) {
  Document document = split_document(text, path);
  const Component file(document.json, path, "tokenizer", false);
  PipelineParts parts;
  parts.path = path;
  parts.kind = "tokenizer.json";
  if (!file.has("model")) throw FileError(path, "has no \"model\"; is this a tokenizer.json?");
  const auto part = [&](const char* key) { return Component(document.json.at(key), path, key); };
  parts.model = parse_model(Component(document.json.at("model"), path, "model", false), document.model, path);
  parts.added = parse_added(file, parts.model->vocabulary(), text.size());
  add_declared(parts, config);
  parts.finds_control = !config.splits_special;
  if (file.has("normalizer")) parts.normalizers = parse_normalizers(part("normalizer"));
  if (file.has("pre_tokenizer") && config.add_prefix_space) {
    const std::string name = class_that_cuts(std::filesystem::path(path).parent_path().string(), config);
    if (name == "GPT2Tokenizer" || name == "Qwen2Tokenizer")
      set_prefix_space(document.json["pre_tokenizer"], *config.add_prefix_space);
  }
  if (file.has("pre_tokenizer")) parts.pre_tokenizers = parse_pre_tokenizers(part("pre_tokenizer"));
  if (file.has("decoder")) {
    parts.has_decoder = true;
    parts.decoder = parse_decoders(part("decoder"));
  }
  int32_t vocab_size = parts.model->vocabulary().size();
  for (const AddedToken& token : parts.added) vocab_size = std::max(vocab_size, token.id + 1);
  parts.rule_source = "post_processor of the file";
  if (file.has("post_processor")) parts.frame = parse_post_processor(part("post_processor"), vocab_size);

  parts.bos = id_of(parts, config.bos);
  parts.eos = id_of(parts, config.eos);
  parts.unknown = id_of(parts, config.unknown);
  parts.padding = id_of(parts, config.padding);
  if (!config.bos && !config.no_bos)
    parts.bos = first_known(parts, {"<bos>", "<s>", "<|begin_of_text|>", "<|startoftext|>", "[CLS]"});
  if (!config.eos && !config.no_eos)
    parts.eos = first_known(parts, {"<eos>", "</s>", "<|end_of_text|>", "<|endoftext|>", "<|eot_id|>", "[SEP]"});
  return std::make_shared<PipelineTokenizer>(std::move(parts));
}

}  // namespace vitrine
