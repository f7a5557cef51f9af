// A trained vocabulary as the files that other programs read.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/json_writer.h"
#include "tokenizer/sentencepiece_writer.h"
#include "tokenizer/train.h"

namespace vitrine {
namespace {

void add_vocabulary(std::string& out, const TrainedTokenizer& trained) {
  out += "    \"vocab\": {";
  JsonList list(out, 6);
  for (size_t id = 0; id < trained.pieces.size(); ++id) list.add(fmt::format("{}: {}", json_text(trained.pieces[id].text), id));
  list.close("},\n");
}

void add_merge(JsonList& list, std::string_view left, std::string_view right) {
  list.add(fmt::format("[{}, {}]", json_text(left), json_text(right)));
}

/// Merges in the words of tokenizer.json. SentencePiece joins neighbors whenever the two spell a piece, the highest score
/// first, so every way to cut a piece in two pieces is a merge there, in the order of the pieces.
void add_merges(std::string& out, const TrainedTokenizer& trained) {
  out += "    \"merges\": [";
  JsonList list(out, 6);
  if (trained.options.kind == TokenizerKind::byte_bpe) {
    for (const TrainedMerge& merge : trained.merges)
      add_merge(list, trained.pieces[size_t(merge.left)].text, trained.pieces[size_t(merge.right)].text);
  } else {
    std::unordered_map<std::string_view, int32_t> ids;
    for (size_t id = 0; id < trained.pieces.size(); ++id)
      if (trained.pieces[id].type == PieceType::normal) ids.emplace(trained.pieces[id].text, int32_t(id));
    std::vector<std::pair<int32_t, int32_t>> ways;
    for (const SentencePieceSpec::Piece& piece : trained.pieces) {
      if (piece.type != PieceType::normal) continue;
      const std::string_view text = piece.text;
      ways.clear();
      for (size_t cut = utf8_at(text, 0).size; cut < text.size(); cut += utf8_at(text, cut).size) {
        const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
        if (left != ids.end() && right != ids.end()) ways.emplace_back(left->second, right->second);
      }
      std::sort(ways.begin(), ways.end());
      for (const auto& [left, right] : ways)
        add_merge(list, trained.pieces[size_t(left)].text, trained.pieces[size_t(right)].text);
    }
  }
  list.close("]\n");
}

void add_added_tokens(std::string& out, const TrainedTokenizer& trained) {
  out += "  \"added_tokens\": [";
  JsonList list(out, 4);
  for (size_t id = 0; id < trained.pieces.size(); ++id) {
    const SentencePieceSpec::Piece& piece = trained.pieces[id];
    const bool user_defined = piece.type == PieceType::user_defined;
    if (piece.type != PieceType::control && piece.type != PieceType::unknown && !user_defined) continue;
    // Looked for where spaces have become U+2581, all of them in one search: the longest of those that fit counts.
    list.add(
        fmt::format("{{\"id\": {}, \"content\": {}, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                    "\"normalized\": {}, \"special\": {}}}",
                    id, json_text(piece.text), user_defined, !user_defined));
  }
  list.close("],\n");
}

constexpr int kPadding = 0, kEnd = 1, kBegin = 2, kUnknown = 3;  // ids, as meta_pieces() gives them

}  // namespace

std::string tokenizer_json(const TrainedTokenizer& trained) {
  const bool bytes = trained.options.kind == TokenizerKind::byte_bpe;
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  add_added_tokens(out, trained);
  if (bytes) {
    const char* byte_level = R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
    out += fmt::format("  \"normalizer\": null,\n  \"pre_tokenizer\": {},\n", byte_level);
    out += fmt::format("  \"post_processor\": {},\n",
                       R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true})");
    out += fmt::format("  \"decoder\": {},\n", byte_level);
  } else {
    const std::string_view prepend = trained.options.dummy_prefix ? R"({"type": "Prepend", "prepend": "▁"}, )" : "";
    const std::string_view strip =
        trained.options.dummy_prefix ? R"(, {"type": "Strip", "content": " ", "start": 1, "stop": 0})" : "";
    const std::string bos = json_text(trained.pieces[kBegin].text);
    const std::string single =
        fmt::format(R"({{"SpecialToken": {{"id": {0}, "type_id": 0}}}}, {{"Sequence": {{"id": "A", "type_id": 0}}}})", bos);
    const std::string second =
        fmt::format(R"({{"SpecialToken": {{"id": {0}, "type_id": 1}}}}, {{"Sequence": {{"id": "B", "type_id": 1}}}})", bos);
    out += fmt::format("  \"normalizer\": {{\"type\": \"Sequence\", \"normalizers\": [{}{}]}},\n  \"pre_tokenizer\": null,\n",
                       prepend, R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})");
    out += fmt::format(
        "  \"post_processor\": {{\"type\": \"TemplateProcessing\", \"single\": [{0}], \"pair\": [{0}, {1}], "
        "\"special_tokens\": {{{2}: {{\"id\": {2}, \"ids\": [{3}], \"tokens\": [{2}]}}}}}},\n",
        single, second, bos, kBegin);
    out += fmt::format(
        "  \"decoder\": {{\"type\": \"Sequence\", \"decoders\": [{}{}]}},\n",
        R"({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"})", strip);
  }
  out += fmt::format(
      "  \"model\": {{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": {},\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": {},\n"
      "    \"byte_fallback\": {},\n    \"ignore_merges\": false,\n",
      bytes ? "null" : json_text(trained.pieces[kUnknown].text), !bytes, !bytes && trained.options.byte_fallback);
  add_vocabulary(out, trained);
  add_merges(out, trained);
  out += "  }\n}\n";
  return out;
}

std::string tokenizer_model(const TrainedTokenizer& trained) {
  VITRINE_CHECK(trained.options.kind == TokenizerKind::sentencepiece_bpe, "a byte-level vocabulary has no SentencePiece form");
  const TrainTokenizerOptions& o = trained.options;
  SentencePieceSpec spec;
  spec.pieces = trained.pieces;
  spec.byte_fallback = o.byte_fallback;
  spec.add_dummy_prefix = o.dummy_prefix;
  spec.remove_extra_whitespaces = false;
  spec.bos = kBegin, spec.eos = kEnd, spec.padding = kPadding;
  ProtobufWriter how;
  how.real(10, float(o.character_coverage));
  how.integer(20, 16);  // max_sentencepiece_length
  how.integer(25, o.split_digits);
  how.integer(26, o.whitespace_pieces);
  return sentencepiece_model(spec, how);
}

std::string tokenizer_config_json(const TrainedTokenizer& trained) {
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (trained.options.kind == TokenizerKind::sentencepiece_bpe) {
    config["add_bos_token"] = true;
    config["add_eos_token"] = false;
    config["bos_token"] = trained.pieces[kBegin].text;
    config["eos_token"] = trained.pieces[kEnd].text;
    config["pad_token"] = trained.pieces[kPadding].text;
    config["unk_token"] = trained.pieces[kUnknown].text;
  } else if (!trained.options.special.empty()) {
    config["bos_token"] = config["eos_token"] = trained.options.special.front();
  }
  config["clean_up_tokenization_spaces"] = false;
  return config.dump(2) + "\n";
}

}  // namespace vitrine
