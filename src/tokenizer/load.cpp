#include "tokenizer/load.h"

#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/sentencepiece.h"

namespace vitrine {
namespace fs = std::filesystem;

std::shared_ptr<const Tokenizer> tokenizer_from_sentencepiece(std::string_view bytes, const std::string& path,
                                                              const TokenizerConfig& config) {
  SentencePieceSpec spec = parse_sentencepiece(bytes, path);
  spec.add_bos = config.add_bos;
  spec.add_eos = config.add_eos;
  if (config.add_bos || config.add_eos) spec.rule_source = config.path;
  return std::make_shared<SentencePieceTokenizer>(std::move(spec));
}

namespace {
bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::shared_ptr<const Tokenizer> load_file(const fs::path& path) {
  const TokenizerConfig config = read_tokenizer_config(path.parent_path().string());
  const std::string name = path.filename().string();
  if (name == "vocab.json" || name == "merges.txt")
    return tokenizer_from_vocab_and_merges((path.parent_path() / "vocab.json").string(),
                                           (path.parent_path() / "merges.txt").string(), config);
  const MappedFile file = MappedFile::open(path.string());
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (bytes.empty()) throw FileError(path.string(), "is empty; expected a tokenizer.json or a tokenizer.model");
  if (bytes.starts_with("GGUF")) throw FileError(path.string(), "is a GGUF file, not a tokenizer; give it as the model");
  // A SentencePiece model begins with its first piece (field 1, bytes: 0x0A), JSON with an object. A newline in front of
  // an object is told apart by the file's name.
  if (path.extension() == ".json" || (path.extension() != ".model" && bytes[0] == '{'))
    return tokenizer_from_json(bytes, path.string(), config);
  return tokenizer_from_sentencepiece(bytes, path.string(), config);
}
}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return load_file(path);
  const fs::path folder = path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (is_file(folder / name)) return load_file(folder / name);
  if (is_file(folder / "vocab.json") && is_file(folder / "merges.txt")) return load_file(folder / "vocab.json");
  throw FileError(path, "holds no tokenizer: expected tokenizer.json, tokenizer.model, or vocab.json and merges.txt");
}

}  // namespace vitrine
