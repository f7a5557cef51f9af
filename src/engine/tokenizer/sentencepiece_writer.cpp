#include "tokenizer/sentencepiece_writer.h"

namespace vitrine {

// Numbers and meanings of the fields: sentencepiece_model.proto.
std::string sentencepiece_model(const SentencePieceSpec& spec, const ProtobufWriter& how) {
  ProtobufWriter model;
  int32_t unknown = -1;
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const SentencePieceSpec::Piece& piece = spec.pieces[id];
    ProtobufWriter p;
    p.bytes(1, piece.text);
    p.real(2, piece.score);
    if (piece.type != PieceType::normal) p.integer(3, int64_t(piece.type));
    model.bytes(1, p.message());
    if (piece.type == PieceType::unknown) unknown = int32_t(id);
  }
  ProtobufWriter trainer;
  trainer.integer(3, 2);  // model_type: BPE
  trainer.integer(4, int64_t(spec.pieces.size()));
  trainer.append(how);
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const SentencePieceSpec::Piece& piece = spec.pieces[id];
    const bool named = spec.bos == int32_t(id) || spec.eos == int32_t(id) || spec.padding == int32_t(id);
    if (piece.type == PieceType::control && !named) trainer.bytes(30, piece.text);
    if (piece.type == PieceType::user_defined) trainer.bytes(31, piece.text);
  }
  trainer.integer(35, spec.byte_fallback);
  trainer.integer(40, unknown);
  trainer.integer(41, spec.bos.value_or(-1));
  trainer.integer(42, spec.eos.value_or(-1));
  trainer.integer(43, spec.padding.value_or(-1));
  const auto name = [&](uint32_t field, int32_t id) { trainer.bytes(field, spec.pieces[size_t(id)].text); };
  if (unknown >= 0) name(45, unknown);
  if (spec.bos) name(46, *spec.bos);
  if (spec.eos) name(47, *spec.eos);
  if (spec.padding) name(48, *spec.padding);
  model.bytes(2, trainer.message());
  ProtobufWriter normalizer;
  normalizer.bytes(1, "identity");
  normalizer.integer(3, spec.add_dummy_prefix);
  normalizer.integer(4, spec.remove_extra_whitespaces);
  normalizer.integer(5, 1);  // escape_whitespaces
  model.bytes(3, normalizer.message());
  return model.message();
}

}  // namespace vitrine
