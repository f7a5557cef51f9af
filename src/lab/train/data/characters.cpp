#include "train/data/characters.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"

namespace vitrine {

std::set<uint32_t> characters_of(const std::vector<std::string>& files, const TextOptions& options) {
  std::set<uint32_t> characters;
  for (const std::string& file : files) {
    TextReader reader(file, options);
    std::vector<bool> seen(0x110000);
    for (TextPiece piece; reader.next(piece);) {
      for (size_t at = 0; at < piece.text.size();) {
        const Utf8Char character = utf8_at(piece.text, at);
        seen[character.code] = true;
        at += character.size;
      }
    }
    for (uint32_t code = 0; code < seen.size(); ++code)
      if (seen[code]) characters.insert(code);
  }
  return characters;
}

std::map<std::string, std::string> character_tokenizer_files(const std::set<uint32_t>& characters) {
  if (characters.empty()) throw InputError("a vocabulary of characters needs a text with at least one");
  if (characters.size() > 65536)
    throw InputError(
        "the text has " + std::to_string(characters.size()) +
        " different characters; a vocabulary of characters has at most 65536. Train one with `vitrine tokenizer train`");
  using nlohmann::ordered_json;
  ordered_json vocabulary = ordered_json::object();
  int id = 0;
  for (const uint32_t code : characters) vocabulary[to_utf8(code)] = id++;
  const ordered_json model = {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"vocab", vocabulary},
                              {"merges", ordered_json::array()}};
  const ordered_json file = {
      {"version", "1.0"},      {"truncation", nullptr},    {"padding", nullptr},        {"added_tokens", ordered_json::array()},
      {"normalizer", nullptr}, {"pre_tokenizer", nullptr}, {"post_processor", nullptr}, {"decoder", {{"type", "Fuse"}}},
      {"model", model}};
  const ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  return {{"tokenizer.json", file.dump(2) + "\n"}, {"tokenizer_config.json", config.dump(2) + "\n"}};
}

}  // namespace vitrine
