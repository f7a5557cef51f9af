#include "tokenizer/load.h"

#include <filesystem>
#include <unordered_map>

#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/sentencepiece.h"

namespace vitrine {
namespace fs = std::filesystem;

SentencePieceSpec parse_sentencepiece(std::string_view bytes, const std::string& path, const TokenizerConfig& config) {
  SentencePieceSpec spec = parse_sentencepiece(bytes, path);
  if (!config.path.empty() || !config.added.empty()) {
    std::unordered_map<std::string_view, int32_t> ids;
    ids.reserve(spec.pieces.size());
    for (size_t i = 0; i < spec.pieces.size(); ++i) ids.emplace(spec.pieces[i].text, int32_t(i));
    const auto find = [&](std::string_view content) {
      const auto it = ids.find(content);
      return it == ids.end() ? -1 : it->second;
    };
    const auto piece = [&](int32_t id) { return size_t(id) < spec.pieces.size() ? spec.pieces[size_t(id)].text : std::string(); };
    spec.added = resolve_declared(config.added, int32_t(spec.pieces.size()), find, piece);
    spec.prefix_once = !spec.added.empty() && !config.legacy.value_or(false);
    for (const AddedToken& token : spec.added) ids.emplace(token.content, token.id);
    const auto id_of = [&](const std::optional<std::string>& content) -> std::optional<int32_t> {
      const int32_t id = content ? find(*content) : -1;
      return id < 0 ? std::nullopt : std::optional(id);
    };
    spec.bos = id_of(config.bos), spec.eos = id_of(config.eos), spec.padding = id_of(config.padding);
    if (config.no_bos) spec.bos_piece.clear();
    if (config.no_eos) spec.eos_piece.clear();
  }
  spec.add_bos = config.add_bos;
  spec.add_eos = config.add_eos;
  if (config.add_bos || config.add_eos) spec.rule_source = config.path;
  return spec;
}

std::shared_ptr<const Tokenizer> tokenizer_from_sentencepiece(std::string_view bytes, const std::string& path,
                                                              const TokenizerConfig& config) {
  return std::make_shared<SentencePieceTokenizer>(parse_sentencepiece(bytes, path, config));
}

namespace {
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::shared_ptr<const Tokenizer> load_file(const fs::path& path) {
  const std::string name = path.filename().string();
  // added_tokens.json belongs to the folder's own tokenizer, not to a file of another name that lies there.
  const bool own = name == "tokenizer.json" || name == "tokenizer.model" || name == "vocab.json" || name == "merges.txt" ||
                   name == "vocab.txt";
  const TokenizerConfig config = read_tokenizer_config(path.parent_path().string(), own);
  if (name == "vocab.json" || name == "merges.txt")
    return tokenizer_from_vocab_and_merges((path.parent_path() / "vocab.json").string(),
                                           (path.parent_path() / "merges.txt").string(), config);
  const MappedFile file = MappedFile::open(path.string());
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (bytes.empty()) throw FileError(path.string(), "is empty; expected a tokenizer.json or a tokenizer.model");
  if (bytes.starts_with("GGUF")) throw FileError(path.string(), "is a GGUF file, not a tokenizer; give it as the model");
  if (name == "vocab.txt") return tokenizer_from_vocab_text(bytes, path.string(), config);
  // A SentencePiece model begins with its first piece (field 1, bytes: 0x0A), JSON with an object. A newline in front of
  // an object is told apart by the file's name.
  if (path.extension() == ".json" || (path.extension() != ".model" && bytes[0] == '{'))
    return tokenizer_from_json(bytes, path.string(), config);
  return tokenizer_from_sentencepiece(bytes, path.string(), config);
}
}  // namespace

std::vector<std::string> tokenizer_files(const std::string& path) {
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  const fs::path beside = folder ? fs::path(path) : fs::path(path).parent_path();
  std::vector<std::string> files;
  const auto add = [&](const char* name) {
    if (is_file(beside / name)) files.push_back((beside / name).string());
  };
  const std::string name = fs::path(path).filename().string();
  if (folder) {
    for (const char* own : {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt"}) add(own);
  } else if (name == "vocab.json" || name == "merges.txt") {
    add("vocab.json");
    add("merges.txt");
  } else {
    files.push_back(path);
  }
  // config.json: class_that_cuts().
  for (const char* more : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "config.json"}) add(more);
  return files;
}

bool has_tokenizer_files(const std::string& folder) {
  const auto there = [&](const char* name) { return fs::exists(fs::path(folder) / name); };
  return there("tokenizer.json") || there("tokenizer.model") || there("vocab.json") || there("vocab.txt");
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return load_file(path);
  const fs::path folder = path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (is_file(folder / name)) return load_file(folder / name);
  if (is_file(folder / "vocab.json") && is_file(folder / "merges.txt")) return load_file(folder / "vocab.json");
  if (is_file(folder / "vocab.txt")) return load_file(folder / "vocab.txt");
  throw FileError(path, "holds no tokenizer: expected tokenizer.json, tokenizer.model, vocab.json and merges.txt, or vocab.txt");
}

}  // namespace vitrine
