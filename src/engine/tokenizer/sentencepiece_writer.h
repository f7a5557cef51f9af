#pragma once
// Writes tokenizer.model, as SentencePiece and parse_sentencepiece() read it.
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/sentencepiece_spec.h"

namespace vitrine {

/// Writes Protocol Buffers' wire format.
class ProtobufWriter {
 public:
  void bytes(uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    out_ += value;
  }
  void integer(uint32_t field, int64_t value) {
    key(field, 0);
    varint(uint64_t(value));
  }
  void real(uint32_t field, float value) {
    key(field, 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) out_ += char(bits >> shift & 0xFF);
  }
  void append(const ProtobufWriter& fields) { out_ += fields.out_; }
  const std::string& message() const { return out_; }

 private:
  void key(uint32_t field, uint32_t wire) { varint(field << 3 | wire); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += char((value & 0x7F) | 0x80);
    out_ += char(value);
  }
  std::string out_;
};

/// A vocabulary of BPE without rules for characters, its pieces as they are. `how` are more fields of trainer_spec, on how the
/// vocabulary was found; no reader needs them. BOS, EOS and padding must be control pieces, or readers will not know them.
std::string sentencepiece_model(const SentencePieceSpec& spec, const ProtobufWriter& how = {});

}  // namespace vitrine
