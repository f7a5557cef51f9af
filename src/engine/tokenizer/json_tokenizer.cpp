// tokenizer.json as a pipeline.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "tokenizer/json_document.h"
#include "tokenizer/load.h"
#include "tokenizer/pipeline.h"

namespace vitrine {
namespace {

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
  TokenizerDocument document = split_tokenizer_json(text, path);
  const Component file(document.json, path, "tokenizer", false);
  PipelineParts parts;
  parts.path = path;
  parts.kind = "tokenizer.json";
  if (!file.has("model")) throw FileError(path, "has no \"model\"; is this a tokenizer.json?");
  const auto part = [&](const char* key) { return Component(document.json.at(key), path, key); };
  parts.model = parse_model(Component(document.json.at("model"), path, "model", false), document.model, path);
  refuse_jieba(std::filesystem::path(path).parent_path().string(), config);
  parts.added = added_tokens_of(document, path, parts.model->vocabulary(), config);
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
