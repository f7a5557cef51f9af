#include "tokenizer/spaced_bpe.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/json_writer.h"
#include "tokenizer/load.h"
#include "tokenizer/vocabulary_spec.h"

namespace vitrine {
namespace {

constexpr const char* kSpace = "▁";

void check_pieces(const VocabularySpec& spec) {
  for (size_t id = 0; id < spec.pieces.size(); ++id)
    if (!is_valid_utf8(spec.pieces[id]))
      throw FileError(spec.source, fmt::format("tokenizer.ggml.tokens[{}] is \"{}\", which is not UTF-8; a vocabulary of kind "
                                               "\"gemma4\" spells bytes as <0x00> to <0xFF>",
                                               id, utf8_lossy(spec.pieces[id])));
}

// The two pieces of a merge, which are joined with a space.
std::pair<std::string_view, std::string_view> halves(const VocabularySpec& spec, size_t i) {
  const std::string_view merge = spec.merges[i];
  const size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == merge.size() || !is_valid_utf8(merge))
    throw FileError(spec.source, fmt::format("tokenizer.ggml.merges[{}] is \"{}\", expected two pieces with a space between them",
                                             i, utf8_lossy(spec.merges[i])));
  return {merge.substr(0, space), merge.substr(space + 1)};
}

// BOS, unless the file says that there is none, and EOS, if it says so, around a text.
Json frame(const VocabularySpec& spec) {
  Json tokens = Json::object();
  const auto part = [&](int type) {
    Json list = Json::array();
    const auto add = [&](std::optional<int32_t> id, bool wanted) {
      if (!id || !wanted) return;
      const std::string& piece = spec.pieces[size_t(*id)];
      list.push_back({{"SpecialToken", {{"id", piece}, {"type_id", type}}}});
      tokens[piece] = {{"id", piece}, {"ids", Json::array({*id})}, {"tokens", Json::array({piece})}};
    };
    add(spec.bos, spec.add_bos.value_or(true));
    list.push_back({{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}});
    add(spec.eos, spec.add_eos.value_or(false));
    return list;
  };
  const Json single = part(0), second = part(1);
  Json pair = single;
  pair.insert(pair.end(), second.begin(), second.end());
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

std::optional<std::string> piece_of(const VocabularySpec& spec, std::optional<int32_t> id) {
  return id ? std::optional(spec.pieces[size_t(*id)]) : std::nullopt;
}

}  // namespace

std::string spaced_bpe_json(const VocabularySpec& spec) {
  check_pieces(spec);
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
  JsonList added(out, 4);
  std::optional<int32_t> unknown = spec.unknown;
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const PieceType type = piece_type(spec, id);
    if (type == PieceType::unknown && !unknown) unknown = int32_t(id);
    if (type != PieceType::control && type != PieceType::user_defined) continue;
    added.add(
        fmt::format("{{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                    "\"normalized\": false, \"special\": {}}}",
                    id, json_text(spec.pieces[id]), type == PieceType::control));
  }
  added.close("],\n");
  const Json to_space = {{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
             from_space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  const Json decoders = Json::array({to_space, Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}});
  out += fmt::format("  \"normalizer\": {},\n  \"pre_tokenizer\": null,\n  \"post_processor\": {},\n  \"decoder\": {},\n",
                     from_space.dump(), frame(spec).dump(), Json{{"type", "Sequence"}, {"decoders", decoders}}.dump());
  out += fmt::format(
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": {},\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": true,\n"
      "    \"byte_fallback\": true,\n    \"ignore_merges\": false,\n    \"vocab\": {{",
      unknown ? json_text(spec.pieces[size_t(*unknown)]) : "null");
  JsonList vocabulary(out, 6);
  for (size_t id = 0; id < spec.pieces.size(); ++id) vocabulary.add(fmt::format("{}: {}", json_text(spec.pieces[id]), id));
  vocabulary.close("},\n");
  out += "    \"merges\": [";
  JsonList merges(out, 6);
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto [left, right] = halves(spec, i);
    merges.add(fmt::format("[{}, {}]", json_text(left), json_text(right)));
  }
  merges.close("]\n  }\n}\n");
  return out;
}

std::shared_ptr<const Tokenizer> spaced_bpe(const VocabularySpec& spec) {
  TokenizerConfig config;
  config.splits_special = true;  // what spells a control token is text, as in llama.cpp
  config.bos = piece_of(spec, spec.bos), config.eos = piece_of(spec, spec.eos);
  config.unknown = piece_of(spec, spec.unknown), config.padding = piece_of(spec, spec.padding);
  return tokenizer_from_json(spaced_bpe_json(spec), spec.source, config);
}

}  // namespace vitrine
