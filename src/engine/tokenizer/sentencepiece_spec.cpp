#include "tokenizer/sentencepiece_spec.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/protobuf.h"

namespace vitrine {

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

namespace {

SentencePieceSpec::Piece parse_piece(ProtobufReader in, const std::string& path, size_t id) {
  SentencePieceSpec::Piece piece;
  const size_t offset = in.offset();
  while (in.next()) {
    switch (in.field()) {
      case 1: piece.text = in.bytes("piece"); break;
      case 2: piece.score = in.real("score"); break;
      case 3: {
        const int64_t type = in.integer("type");
        if (type < 1 || type > 6)
          throw FileError(path, fmt::format("piece {} (byte {}) has type {}, expected 1 to 6 (normal, unknown, control, "
                                            "user-defined, unused, byte)",
                                            id, offset, type));
        piece.type = PieceType(type);
        break;
      }
      default: break;
    }
  }
  if (piece.text.empty()) throw FileError(path, fmt::format("piece {} (byte {}) is empty; is the file complete?", id, offset));
  return piece;
}

void parse_trainer(ProtobufReader in, SentencePieceSpec& spec) {
  int64_t model_type = 1;
  while (in.next()) {
    switch (in.field()) {
      case 3: model_type = in.integer("model_type"); break;
      case 24: spec.whitespace_as_suffix = in.boolean("treat_whitespace_as_suffix"); break;
      case 35: spec.byte_fallback = in.boolean("byte_fallback"); break;
      case 44: spec.unknown_surface = in.bytes("unk_surface"); break;
      case 46: spec.bos_piece = in.bytes("bos_piece"); break;
      case 47: spec.eos_piece = in.bytes("eos_piece"); break;
      case 48: spec.padding_piece = in.bytes("pad_piece"); break;
      default: break;
    }
  }
  if (model_type != 1 && model_type != 2)
    throw FileError(spec.source, fmt::format("trainer_spec.model_type is {}{}; vitrine knows 1 (unigram) and 2 (BPE)", model_type,
                                             model_type == 3   ? " (word)"
                                             : model_type == 4 ? " (char)"
                                                               : ""));
  spec.unigram = model_type == 1;
}

void parse_normalizer(ProtobufReader in, SentencePieceSpec& spec) {
  while (in.next()) {
    switch (in.field()) {
      case 2: spec.charsmap = in.bytes("precompiled_charsmap"); break;
      case 3: spec.add_dummy_prefix = in.boolean("add_dummy_prefix"); break;
      case 4: spec.remove_extra_whitespaces = in.boolean("remove_extra_whitespaces"); break;
      case 5: spec.escape_whitespaces = in.boolean("escape_whitespaces"); break;
      default: break;
    }
  }
}

}  // namespace

SentencePieceSpec parse_sentencepiece(std::string_view bytes, const std::string& path) {
  SentencePieceSpec spec;
  spec.source = path;
  spec.origin = "SentencePiece";
  spec.unigram = true;  // the format's default
  for (ProtobufReader in(bytes, path); in.next();) {
    switch (in.field()) {
      case 1: spec.pieces.push_back(parse_piece(in.message("pieces"), path, spec.pieces.size())); break;
      case 2: parse_trainer(in.message("trainer_spec"), spec); break;
      case 3: parse_normalizer(in.message("normalizer_spec"), spec); break;
      case 5:
        for (ProtobufReader d = in.message("denormalizer_spec"); d.next();)
          if (d.field() == 2) spec.denormalizer_charsmap = d.bytes("precompiled_charsmap");
        break;
      default: break;
    }
  }
  if (spec.pieces.empty()) throw FileError(path, "holds no pieces (field 1); is this a SentencePiece model?");
  return spec;
}

}  // namespace vitrine
