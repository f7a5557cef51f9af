// BERT's vocab.txt as the tokenizer.json that transformers' BertTokenizer makes of it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/load.h"

namespace vitrine {
namespace {

// The lines; a last one without an end counts, too.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

}  // namespace

void refuse_jieba(const std::string& folder, const TokenizerConfig& config) {
  const std::string name = class_that_cuts(folder, config);
  if (name != "RoFormerTokenizer") return;
  throw FileError(
      config.path.empty() ? folder : config.path,
      "the tokenizer_class of these files, RoFormerTokenizer, cuts words by the dictionary of jieba, which vitrine does "
      "not have. For BERT's English vocabulary set tokenizer_class to BertTokenizer in tokenizer_config.json; to run on "
      "token ids (--tokens) take the tokenizer's files away");
}

std::shared_ptr<const Tokenizer> tokenizer_from_vocab_text(std::string_view text, const std::string& path,
                                                           const TokenizerConfig& config) {
  refuse_jieba(std::filesystem::path(path).parent_path().string(), config);
  const std::vector<std::string_view> pieces = lines_of(text);
  std::string list;  // written as text: a JSON object would keep one of two equal pieces
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!is_valid_utf8(pieces[id]))
      throw FileError(path, fmt::format("line {} is no UTF-8; expected a piece on each line", id + 1));
    list += fmt::format("{}{}:{}", id > 0 ? "," : "", Json(std::string(pieces[id])).dump(), id);
  }
  const auto id_of = [&](const std::string& piece) -> std::optional<size_t> {
    const auto found = std::find(pieces.begin(), pieces.end(), piece);
    return found == pieces.end() ? std::nullopt : std::optional<size_t>(static_cast<size_t>(found - pieces.begin()));
  };
  const std::string unknown = config.unknown.value_or("[UNK]"), classifier = config.classifier.value_or("[CLS]"),
                    separator = config.separator.value_or("[SEP]");
  TokenizerConfig own = config;  // with the names that BertTokenizer has where the files say none
  own.unknown = unknown;
  own.padding = config.padding.value_or("[PAD]");
  Json added = Json::array();
  for (const std::string& piece : {*own.padding, unknown, classifier, separator, config.mask.value_or("[MASK]")})
    if (const auto id = id_of(piece))
      added.push_back({{"id", *id},
                       {"content", piece},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  Json specials = Json::object();
  for (const std::string& piece : {classifier, separator}) {
    const auto id = id_of(piece);
    if (!id) throw FileError(path, "has no line \"" + piece + "\", which stands around every text; is this BERT's vocabulary?");
    specials[piece] = {{"id", piece}, {"ids", {*id}}, {"tokens", {piece}}};
  }
  const bool lower = config.lower_case.value_or(true);
  const auto special = [](const std::string& piece) { return Json{{"SpecialToken", {{"id", piece}, {"type_id", 0}}}}; };
  const Json rest = {{"added_tokens", added},
                     {"normalizer",
                      {{"type", "BertNormalizer"},
                       {"clean_text", true},
                       {"handle_chinese_chars", config.space_ideographs.value_or(true)},
                       {"strip_accents", config.strip_accents ? Json(*config.strip_accents) : Json(nullptr)},
                       {"lowercase", lower}}},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"post_processor",
                      {{"type", "TemplateProcessing"},
                       {"single", {special(classifier), {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, special(separator)}},
                       {"special_tokens", specials}}},
                     {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}}};
  const std::string json = rest.dump();
  return tokenizer_from_json(
      json.substr(0, json.size() - 1) + ",\"model\":{\"type\":\"WordPiece\",\"unk_token\":" + Json(unknown).dump() +
          ",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,\"vocab\":{" + list + "}}}",
      path, own);
}

}  // namespace vitrine
