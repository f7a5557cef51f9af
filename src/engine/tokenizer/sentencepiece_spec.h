#pragma once
// What a SentencePiece model file says, and what a GGUF vocabulary of kind "llama" says in other words.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace vitrine {

enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct SentencePieceSpec {
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::normal;
  };
  std::string source;  // the file, for messages
  std::string origin;  // "SentencePiece" or "GGUF", for description()
  std::vector<Piece> pieces;
  std::vector<AddedToken> added;  // declared beside the file; ids behind the pieces extend the vocabulary
  bool prefix_once = false;       // the dummy prefix is for the text's start, not for what follows an added token
  bool unigram = false;           // otherwise BPE
  bool byte_fallback = false;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true, whitespace_as_suffix = false;
  std::string charsmap, denormalizer_charsmap;
  std::string unknown_surface = " \xE2\x81\x87 ";
  std::string bos_piece = "<s>", eos_piece = "</s>", padding_piece = "<pad>";
  std::optional<int32_t> bos, eos, padding;           // override the pieces' names
  std::optional<bool> add_bos, add_eos;               // nothing: BOS if there is one, no EOS
  std::string rule_source = "default of the family";  // where add_bos and add_eos come from
};

/// Reads the bytes of a tokenizer.model (fields of sentencepiece_model.proto). Errors: FileError.
SentencePieceSpec parse_sentencepiece(std::string_view bytes, const std::string& path);

/// The value of a byte piece "<0x0A>"; -1: it is not spelled like one.
int byte_of_piece(std::string_view piece);

}  // namespace vitrine
