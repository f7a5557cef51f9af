#include "tokenizer/to_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/control_names.h"
#include "tokenizer/json_document.h"
#include "tokenizer/load.h"
#include "tokenizer/sentencepiece_spec.h"
#include "tokenizer/vocabulary_spec.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr float kUnusedScore = -10000, kAddedScore = -1000;  // as llama.cpp's converter sets them

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw FileError(path, what + ", which a GGUF vocabulary has no words for; name a directory as OUT instead of a .gguf file");
}

void put(VocabularySpec& spec, size_t id, std::string piece, PieceType type, float score) {
  while (spec.pieces.size() <= id) {
    spec.pieces.push_back(fmt::format("[PAD{}]", spec.pieces.size()));
    spec.types.push_back(int32_t(PieceType::unused));
    spec.scores.push_back(kUnusedScore);
  }
  spec.pieces[id] = std::move(piece);
  spec.types[id] = int32_t(type);
  spec.scores[id] = score;
}

PieceType type_of(const AddedToken& token) { return is_control_token(token) ? PieceType::control : PieceType::user_defined; }

// How a tokenizer.json cuts words, as the patterns that its steps amount to.
struct Cuts {
  std::vector<std::string> patterns;
  bool prefix_space = false, bytes = false;
};

void add_cuts(const Component& c, Cuts& cuts) {
  const std::string& type = c.type();
  if (type == "Sequence") {
    for (const Component& member : c.children("pretokenizers")) add_cuts(member, cuts);
  } else if (cuts.bytes) {
    refuse(c.path(), c.field() + ": cuts words (" + type + ") after they became bytes");
  } else if (type == "ByteLevel") {
    if (c.flag("use_regex", true)) cuts.patterns.emplace_back(kGpt2Pattern);
    cuts.prefix_space = c.flag("add_prefix_space", true);
    cuts.bytes = true;
  } else if (type == "Digits") {
    cuts.patterns.emplace_back(c.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "Split" && c.child("pattern", false).has("Regex")) {
    // Patterns that cover the text: to keep the matches and drop the rest is to keep the matches apart.
    const std::string behavior = c.text("behavior");
    const bool invert = c.flag("invert", false);
    if (!(behavior == "Isolated" && !invert) && !(behavior == "Removed" && invert))
      refuse(c.path(), c.field() + ": treats its matches as \"" + behavior + "\"" + (invert ? " inverted" : ""));
    cuts.patterns.push_back(c.child("pattern", false).text("Regex"));
  } else {
    refuse(c.path(), c.field() + ": cuts words by " + type);
  }
}

void check_normalizer(const Component& c) {
  if (c.type() == "Sequence") {
    for (const Component& member : c.children("normalizers")) check_normalizer(member);
  } else if (c.type() != "NFC") {
    refuse(c.path(), c.field() + ": changes text before it is cut (" + c.type() + ")");
  }
}

VocabularySpec byte_level_of(const TokenizerDocument& document, const std::string& path, const TokenizerConfig& config) {
  VocabularySpec spec;
  spec.source = path;
  spec.kind = "gpt2";
  const auto part = [&](const char* key) { return Component(document.json.at(key), path, key); };
  const Component file(document.json, path, "tokenizer", false), model(document.json.at("model"), path, "model", false);
  if (file.has("normalizer")) check_normalizer(part("normalizer"));
  Cuts cuts;
  add_cuts(part("pre_tokenizer"), cuts);
  if (config.add_prefix_space) {
    const std::string name = class_that_cuts(fs::path(path).parent_path().string(), config);
    if (name == "GPT2Tokenizer" || name == "Qwen2Tokenizer") cuts.prefix_space = *config.add_prefix_space;
  }
  spec.pre = name_of_cuts(cuts.patterns, model.flag("ignore_merges", false), path);
  if (cuts.prefix_space) spec.add_space_prefix = true;
  const Vocabulary vocabulary = parse_pieces(model, document.model, path);
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.has(id)) put(spec, size_t(id), std::string(vocabulary.piece(id)), PieceType::normal, 0);
  for (const AddedToken& token : added_tokens_of(document, path, vocabulary, config))
    put(spec, size_t(token.id), token.content, type_of(token), 0);
  each_merge(model, document.model, path, [&](std::string_view left, std::string_view right) {
    spec.merges.push_back(std::string(left) + " " + std::string(right));
  });
  spec.scores.clear();
  return spec;
}

// Whether a tokenizer.json made of a SentencePiece model puts a space in front of a text.
bool adds_prefix(const Component& c) {
  const std::string& type = c.type();
  if (type == "Sequence") {
    bool adds = false;
    for (const Component& member : c.children(c.has("normalizers") ? "normalizers" : "pretokenizers"))
      adds = adds_prefix(member) || adds;
    return adds;
  }
  if (type == "Prepend") return true;
  if (type == "Metaspace") return c.text("prepend_scheme", c.flag("add_prefix_space", true) ? "always" : "never") != "never";
  if (type == "Replace" || (type == "Split" && c.child("pattern", false).has("String"))) return false;
  refuse(c.path(), c.field() + ": changes or cuts text by " + type);
}

// The order of merges as scores: SentencePiece merges to the piece with the highest one first.
VocabularySpec merged_pieces_of(const TokenizerDocument& document, const std::string& path, const TokenizerConfig& config) {
  VocabularySpec spec;
  spec.source = path;
  spec.kind = "llama";
  spec.pre = "default";
  const Component file(document.json, path, "tokenizer", false), model(document.json.at("model"), path, "model", false);
  bool prefix = false;
  for (const char* key : {"normalizer", "pre_tokenizer"})
    if (file.has(key)) prefix = adds_prefix(Component(document.json.at(key), path, key)) || prefix;
  spec.add_space_prefix = prefix;
  const Vocabulary vocabulary = parse_pieces(model, document.model, path);
  const int32_t unknown = vocabulary.find(model.text("unk_token", ""));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string piece(vocabulary.piece(id));
    if (vocabulary.has(id))
      put(spec, size_t(id), piece, byte_of_piece(piece) >= 0 ? PieceType::byte : PieceType::normal, kUnusedScore * 1000);
  }
  float order = 0;
  each_merge(model, document.model, path, [&](std::string_view left, std::string_view right) {
    const int32_t id = vocabulary.find(std::string(left) + std::string(right));
    if (id >= 0 && spec.scores[size_t(id)] < -1e6f) spec.scores[size_t(id)] = -order;
    ++order;
  });
  for (const AddedToken& token : added_tokens_of(document, path, vocabulary, config))
    put(spec, size_t(token.id), token.content, type_of(token), kAddedScore);
  if (unknown >= 0) spec.types[size_t(unknown)] = int32_t(PieceType::unknown);
  return spec;
}

/// found_first: decides for a user-defined piece whether texts are searched for it; null: they are.
VocabularySpec sentencepiece_of_file(const std::string& path, const TokenizerConfig& config,
                                     const std::function<bool(const std::string&)>& found_first = {}) {
  const MappedFile file = MappedFile::open(path);
  const SentencePieceSpec model = parse_sentencepiece(text_of(file), path, config);
  if (model.unigram) refuse(path, "is a unigram model");
  if (!model.charsmap.empty()) refuse(path, "changes characters before they are cut (normalizer_spec.precompiled_charsmap)");
  if (model.whitespace_as_suffix || !model.escape_whitespaces)
    refuse(path, "marks spaces in another way than by \xE2\x96\x81 in front");
  VocabularySpec spec;
  spec.source = path;
  spec.kind = "llama";
  spec.pre = "default";
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceSpec::Piece& piece = model.pieces[id];
    // <start_of_turn>: llama.cpp finds user-defined pieces in what a user types, too; control pieces it does not.
    PieceType type = piece.type;
    if (type == PieceType::user_defined && found_first && !found_first(piece.text)) type = PieceType::normal;
    if (type == PieceType::user_defined && names_a_control(piece.text)) type = PieceType::control;
    put(spec, id, piece.text, type, piece.score);
  }
  for (const AddedToken& token : model.added) {
    const bool unknown = size_t(token.id) < model.pieces.size() && model.pieces[size_t(token.id)].type == PieceType::unknown;
    put(spec, size_t(token.id), token.content, unknown ? PieceType::unknown : type_of(token), kAddedScore);
  }
  spec.add_space_prefix = model.add_dummy_prefix;
  if (model.remove_extra_whitespaces) spec.remove_extra_whitespaces = true;
  return spec;
}

VocabularySpec vocab_and_merges_of(const std::string& folder, const TokenizerConfig& config, const Tokenizer& tokenizer) {
  const std::string path = folder + "/vocab.json", merges_path = folder + "/merges.txt";
  VocabularySpec spec;
  spec.source = path;
  spec.kind = "gpt2";
  spec.pre = class_that_cuts(folder, config) == "Qwen2Tokenizer" ? "qwen2" : "gpt-2";
  if (config.add_prefix_space.value_or(false)) spec.add_space_prefix = true;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (const std::string piece = tokenizer.piece(id); !piece.empty())
      put(spec, size_t(id), piece, tokenizer.is_control(id) ? PieceType::control : PieceType::normal, 0);
  for (const DeclaredToken& declared : config.added)
    if (const auto id = tokenizer.find(declared.token.content))
      put(spec, size_t(*id), declared.token.content, type_of(declared.token), 0);
  const MappedFile file = MappedFile::open(merges_path);
  each_merge_line(text_of(file), merges_path, [&](std::string_view left, std::string_view right) {
    spec.merges.push_back(std::string(left) + " " + std::string(right));
  });
  spec.scores.clear();
  return spec;
}

// The file that decides: tokenizer.json if it is byte-level, else SentencePiece's own file, whose scores it does not hold.
VocabularySpec read_folder(const std::string& folder, const Tokenizer& tokenizer) {
  const TokenizerConfig config = read_tokenizer_config(folder, true);
  const std::string json_path = folder + "/tokenizer.json", model_path = folder + "/tokenizer.model";
  if (!fs::is_regular_file(json_path))
    return fs::is_regular_file(model_path) ? sentencepiece_of_file(model_path, config)
                                           : vocab_and_merges_of(folder, config, tokenizer);
  const MappedFile file = MappedFile::open(json_path);
  const TokenizerDocument document = split_tokenizer_json(text_of(file), json_path);
  const Component model(document.json.at("model"), json_path, "model", false);
  const std::string type = model_type(model, document.model);
  if (type != "BPE") refuse(json_path, "has a model of type " + type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.text(key, "").empty()) refuse(json_path, "marks pieces inside a word (model." + std::string(key) + ")");
  if (!model.flag("byte_fallback", false)) {
    if (!Component(document.json, json_path, "tokenizer", false).has("pre_tokenizer")) refuse(json_path, "does not cut words");
    return byte_level_of(document, json_path, config);
  }
  if (!fs::is_regular_file(model_path)) return merged_pieces_of(document, json_path, config);
  std::set<std::string> added;
  for (AddedToken& token : added_tokens_of(document, json_path, parse_pieces(model, document.model, json_path), config))
    added.insert(std::move(token.content));
  return sentencepiece_of_file(model_path, config, [&](const std::string& piece) { return added.contains(piece); });
}

// A text of everything that tokenizers differ in: contractions, digits, white space, capitals, scripts, symbols.
constexpr const char* kProbe =
    "Hello world!  It's 1234567 o'clock, I'LL say; we've (re)read  3.14\u00b2 e-mails\n\n  \tdef f(x):\n    return x**2 // 7 "
    "== 0  # ok...\r\n \u00dcber caf\u00e9 na\u00efve \u0416\u0443\u043a \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f "
    "\ud55c\uad6d\uc5b4 \u0639\u0631\u0628\u064a \u0939\u093f\u0928\u094d\u0926\u0940 \U0001F600\U0001F469\u200D\U0001F4BB "
    "HTTPServer camelCase snake_case $5.00 100% <b>a&b</b> \"quoted\" \u201cquotes\u201d --flag /usr/bin @user #tag   ";

// What stands around a text: at most one token in front, BOS, and one behind it, EOS.
void set_frame(VocabularySpec& spec, const Tokenizer& tokenizer) {
  const std::vector<int32_t> plain = tokenizer.encode("a", false), framed = tokenizer.encode("a", true);
  const auto found = std::search(framed.begin(), framed.end(), plain.begin(), plain.end());
  const auto before = found - framed.begin(), after = framed.end() - found - std::ssize(plain);
  if (before > 1 || after > 1) refuse(spec.source, fmt::format("adds {} tokens before and {} after a text", before, after));
  spec.add_bos = before == 1;
  spec.add_eos = after == 1;
  if (before == 1) spec.bos = framed.front();
  if (after == 1) spec.eos = framed.back();
}

void check_probe(const Tokenizer& tokenizer, const VocabularySpec& spec) {
  const std::shared_ptr<const Tokenizer> written = tokenizer_from_vocabulary(spec);
  if (const auto difference = first_difference(tokenizer, *written, kProbe, Special::text))
    throw FileError(spec.source, "cuts a text in another way than the GGUF vocabulary that says most of it (kind " + spec.kind +
                                     ", pre-tokenizer " + spec.pre + "): " + difference->message +
                                     ". Name a directory as OUT instead of a .gguf file");
}

}  // namespace

VocabularySpec vocabulary_of_folder(const std::string& folder) {
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(folder);
  VocabularySpec spec = read_folder(folder, *tokenizer);
  spec.bos = tokenizer->bos();
  spec.eos = tokenizer->eos();
  spec.unknown = tokenizer->unknown();
  spec.padding = tokenizer->padding();
  set_frame(spec, *tokenizer);
  check_probe(*tokenizer, spec);
  return spec;
}

void fit_vocabulary(VocabularySpec& spec, int64_t rows) {
  const auto n = size_t(rows);
  while (spec.pieces.size() < n) {
    spec.pieces.push_back(fmt::format("[PAD{}]", spec.pieces.size()));
    if (!spec.types.empty()) spec.types.push_back(int32_t(PieceType::unused));
    if (!spec.scores.empty()) spec.scores.push_back(kUnusedScore);
  }
  spec.pieces.resize(n);
  if (!spec.types.empty()) spec.types.resize(n);
  if (!spec.scores.empty()) spec.scores.resize(n);
  for (std::optional<int32_t>* id : {&spec.bos, &spec.eos, &spec.unknown, &spec.padding})
    if (*id && **id >= rows) id->reset();
}

}  // namespace vitrine
