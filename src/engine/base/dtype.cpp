#include "base/dtype.h"

#include "base/blocks/all.h"

namespace vitrine {

std::string weight_types() {
  std::string text;
  for (int type = 0; type < kWeightTypes; ++type)
    if (const auto stored = static_cast<DType>(type); stored != DType::f8_e4m3)  // which no file has in that form
      text += (text.empty() ? "" : ", ") + std::string(name_of(stored));
  return text;
}

void decode_block(DType type, const void* block, float* y) {
  switch (type) {
#define VITRINE_DECODE(name, elements, bytes, number) \
  case DType::name: return decode_values<DecodedBlock<DType::name>>(static_cast<const uint8_t*>(block), y);
    VITRINE_DECODED_TYPES(VITRINE_DECODE)
    VITRINE_DECODE(f8_e4m3, 0, 0, 0)
#undef VITRINE_DECODE
    default: return;
  }
}

namespace {

template <class Block>
void integers_by_16(const uint8_t* block, int8_t* q, float* scale, float* minimum) {
  float scales[Block::kElements / Block::kGroup] = {}, minima[Block::kElements / Block::kGroup] = {};
  Block::integers(block, q, scales, minima);
  for (size_t i = 0; i < Block::kElements / 16; ++i) {
    scale[i] = scales[i * 16 / Block::kGroup];
    minimum[i] = minima[i * 16 / Block::kGroup];
  }
}

}  // namespace

void block_integers(DType type, const void* block, int8_t* q, float* scale, float* minimum) {
  const auto* bytes = static_cast<const uint8_t*>(block);
  switch (type) {
    case DType::q8_0:
    case DType::q4_0:
      scale[0] = scale[1] = half_at(bytes);
      minimum[0] = minimum[1] = 0;
      if (type == DType::q4_0) return each_nibble(bytes + 2, q, [](int value, int) { return value - 8; });
      std::memcpy(q, bytes + 2, kBlock);
      return;
#define VITRINE_INTEGERS(name, elements, bytes_of, number) \
  case DType::name: return integers_by_16<DecodedBlock<DType::name>>(bytes, q, scale, minimum);
      VITRINE_DECODED_TYPES(VITRINE_INTEGERS)
#undef VITRINE_INTEGERS
    default: return;
  }
}

float decoded_element(DType type, const void* row, size_t i) {
  float values[kLargestBlock] = {};
  const size_t size = block_elements(type);
  decode_block(type, static_cast<const char*>(row) + i / size * block_bytes(type), values);
  return values[i % size];
}

}  // namespace vitrine
