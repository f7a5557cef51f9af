#include "merge/input_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/merge_sort.h"
#include "tokenizer/sentencepiece_spec.h"

namespace vitrine {
namespace {

void add_piece(InputVocabulary& v, std::string_view piece, int32_t id) {
  if (v.pieces.find(piece) == id) return;
  switch (v.pieces.add(piece, id)) {
    case Vocabulary::Added::yes: return;
    case Vocabulary::Added::piece_exists:
      throw FileError(v.path, fmt::format("\"{}\" has the ids {} and {}; expected one", piece, v.pieces.find(piece), id));
    case Vocabulary::Added::id_exists:
      throw FileError(v.path, fmt::format("\"{}\" and \"{}\" both have id {}; expected an id of its own for each", piece,
                                          v.pieces.piece(id), id));
  }
}

void read_json_form(InputVocabulary& v, const std::string& text, const TokenizerConfig& config) {
  v.document = split_tokenizer_json(text, v.path);
  if (!v.document.json.contains("model")) throw FileError(v.path, "has no \"model\"; is this a tokenizer.json?");
  v.pieces = parse_pieces(Component(v.document.json["model"], v.path, "model", false), v.document.model, v.path);
  v.added = added_tokens_of(v.document, v.path, v.pieces, config);
}

void declare(InputVocabulary& v, const TokenizerConfig& config) {
  v.declared = resolve_declared(
      config.added, v.pieces.size(), [&](std::string_view content) { return v.pieces.find(content); },
      [&](int32_t id) { return std::string(v.pieces.piece(id)); });
  v.added = v.declared;
}

void read_sentencepiece_form(InputVocabulary& v, const std::string& bytes, const TokenizerConfig& config) {
  const SentencePieceSpec spec = parse_sentencepiece(bytes, v.path);
  for (size_t id = 0; id < spec.pieces.size(); ++id) add_piece(v, spec.pieces[id].text, int32_t(id));
  declare(v, config);
  std::set<int32_t> ids;
  for (const AddedToken& token : v.declared) ids.insert(token.id);
  // transformers makes added tokens of these.
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const SentencePieceSpec::Piece& piece = spec.pieces[id];
    const bool special = piece.type == PieceType::control || piece.type == PieceType::unknown;
    if ((special || piece.type == PieceType::user_defined) && !ids.contains(int32_t(id)))
      v.added.push_back({.id = int32_t(id), .content = piece.text, .special = special});
  }
}

void read_two_files_form(InputVocabulary& v, const std::string& text, const TokenizerConfig& config) {
  JsonCursor cursor(text, v.path);
  v.pieces = parse_vocabulary(cursor, text.size(), v.path);
  declare(v, config);
  const std::string end_of_text = "<|endoftext|>";
  const int32_t id = v.pieces.find(end_of_text);
  if (id >= 0 && std::none_of(v.added.begin(), v.added.end(), [&](const AddedToken& t) { return t.id == id; }))
    v.added.push_back({.id = id, .content = end_of_text, .special = true});
}

}  // namespace

std::optional<InputVocabulary> read_input_vocabulary(const TokenizerInput& input) {
  InputVocabulary v;
  v.folder = input.model.path;
  const TokenizerConfig config = parse_tokenizer_config(input.files, v.folder, true);
  const auto open = [&](const char* name) -> const std::string* {
    const auto file = input.files.find(name);
    if (file == input.files.end()) return nullptr;
    v.path = v.folder + "/" + name;
    return &file->second;
  };
  if (const std::string* text = open("tokenizer.json")) {
    read_json_form(v, *text, config);
  } else if (const std::string* bytes = open("tokenizer.model")) {
    v.form = InputVocabulary::Form::sentencepiece;
    read_sentencepiece_form(v, *bytes, config);
  } else if (const std::string* vocabulary = open("vocab.json"); vocabulary && input.files.contains("merges.txt")) {
    v.form = InputVocabulary::Form::two_files;
    read_two_files_form(v, *vocabulary, config);
  } else {
    return std::nullopt;
  }
  for (const AddedToken& token : v.added) add_piece(v, token.content, token.id);
  std::set<std::string> contents;
  for (const AddedToken& token : v.added) contents.insert(token.content);
  for (const std::string& name : config.named) {
    const int32_t known = v.pieces.find(name), id = known >= 0 ? known : v.pieces.size();
    if (name.empty() || id >= input.vocab_size || !contents.insert(name).second) continue;
    add_piece(v, name, id);
    v.added.push_back({.id = id, .content = name, .special = true});
    if (known < 0) v.declared.push_back(v.added.back());
  }
  merge_sort(v.added, [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  const auto same = [](const AddedToken& a, const AddedToken& b) { return a.id == b.id; };
  v.added.erase(std::unique(v.added.begin(), v.added.end(), same), v.added.end());
  return v;
}

}  // namespace vitrine
