#include "base/dtype.h"

#include "base/blocks/all.h"

namespace vitrine {

std::string weight_types() {
  std::string text;
  for (int type = 0; type < kWeightTypes; ++type)
    text += (type == 0 ? "" : ", ") + std::string(name_of(static_cast<DType>(type)));
  return text;
}

void decode_block(DType type, const void* block, float* y) {
  switch (type) {
#define VITRINE_DECODE(name, elements, bytes, number) \
  case DType::name: return DecodedBlock<DType::name>::decode(static_cast<const uint8_t*>(block), y);
    VITRINE_DECODED_TYPES(VITRINE_DECODE)
#undef VITRINE_DECODE
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
