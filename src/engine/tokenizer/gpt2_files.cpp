// vocab.json + merges.txt: GPT-2's own two files, byte-level BPE. Qwen 2 writes the same two and cuts words by its own pattern.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/load.h"
#include "tokenizer/pipeline.h"

namespace vitrine {
namespace {

// The files do not say how words are cut; the tokenizer's class does.
bool cuts_as_qwen2(const std::string& vocab_path, const TokenizerConfig& config) {
  const std::string name = class_that_cuts(std::filesystem::path(vocab_path).parent_path().string(), config);
  if (name == "Qwen2Tokenizer") return true;
  if (name == "GPT2Tokenizer" || name.empty()) return false;
  throw FileError(config.path,
                  fmt::format("tokenizer_class is \"{}\", expected GPT2Tokenizer or Qwen2Tokenizer beside vocab.json and "
                              "merges.txt: other classes need a tokenizer.json, which defines their pre-tokenizer",
                              *config.tokenizer_class));
}

}  // namespace

void each_merge_line(std::string_view text, const std::string& path,
                     const std::function<void(std::string_view, std::string_view)>& visit) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      throw FileError(
          path, fmt::format("line {} is \"{}\", expected two pieces with one space between them", number, line.substr(0, 100)));
    visit(line.substr(0, space), line.substr(space + 1));
  }
}

std::shared_ptr<const Tokenizer> tokenizer_from_vocab_and_merges(const std::string& vocab_path, const std::string& merges_path,
                                                                 const TokenizerConfig& config) {
  const MappedFile vocab_file = MappedFile::open(vocab_path), merges_file = MappedFile::open(merges_path);
  const auto text_of = [](const MappedFile& f) {
    return std::string_view(reinterpret_cast<const char*>(f.bytes().data()), f.bytes().size());
  };
  PipelineParts parts;
  parts.path = vocab_path;
  parts.kind = "vocab.json + merges.txt, byte-level";
  JsonCursor cursor(text_of(vocab_file), vocab_path);
  Vocabulary vocabulary = parse_vocabulary(cursor, text_of(vocab_file).size(), vocab_path);
  for (const std::string& byte : byte_level_alphabet())
    if (vocabulary.find(byte) < 0)
      throw FileError(vocab_path,
                      fmt::format("has no piece \"{}\"; a byte-level vocabulary needs all 256 of GPT-2's alphabet", byte));

  const bool qwen2 = cuts_as_qwen2(vocab_path, config);
  const auto add_special = [&](const std::optional<std::string>& content) -> std::optional<int32_t> {
    if (!content) return std::nullopt;
    for (const AddedToken& t : parts.added)
      if (t.content == *content) return t.id;
    const int32_t id = vocabulary.find(*content);
    if (id < 0) return std::nullopt;
    parts.added.push_back({.id = id, .content = *content, .special = true});
    return id;
  };
  parts.added = resolve_declared(
      config.added, vocabulary.size(), [&](std::string_view content) { return vocabulary.find(content); },
      [&](int32_t id) { return std::string(vocabulary.piece(id)); });
  const std::string end_of_text = "<|endoftext|>";
  add_special(end_of_text);
  if (!config.no_bos) parts.bos = add_special(config.bos ? config.bos : end_of_text);
  if (!config.no_eos) parts.eos = add_special(config.eos ? config.eos : end_of_text);
  parts.unknown = add_special(config.unknown);
  parts.padding = add_special(config.padding);

  auto model = std::make_unique<BpeModel>(std::move(vocabulary), BpeModel::Options{}, vocab_path);
  model->reserve_merges(text_of(merges_file).size() / 8);
  each_merge_line(text_of(merges_file), merges_path,
                  [&](std::string_view left, std::string_view right) { model->add_merge(left, right); });
  model->finish();
  parts.model = std::move(model);
  if (qwen2) {
    parts.normalizers.push_back(make_nfc());
    parts.pre_tokenizers.push_back(make_split(std::string(kQwen2Pattern), vocab_path, "the pattern of Qwen2Tokenizer"));
  }
  const bool prefix = config.add_prefix_space.value_or(false);
  parts.pre_tokenizers.push_back(make_byte_level(prefix, !qwen2));
  parts.has_decoder = true;
  parts.decoder.push_back(make_byte_level_decoder(false));
  parts.finds_control = false;
  parts.keeps_bytes = !prefix;  // which text has the space in front is known for characters only
  if (config.add_bos.value_or(false) && parts.bos) parts.frame.before = {*parts.bos};
  if (config.add_eos.value_or(false) && parts.eos) parts.frame.after = {*parts.eos};
  parts.rule_source = config.add_bos || config.add_eos ? config.path : "default of the family";
  return std::make_shared<PipelineTokenizer>(std::move(parts));
}

}  // namespace vitrine
