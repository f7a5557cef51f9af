// Any bytes as blocks of every type, decoded; and, as finite floats, encoded in every type.
#include <cmath>
#include <cstring>
#include <vector>

#include "quantize/encode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using vitrine::DType;
  std::vector<float> values(vitrine::kLargestBlock), importance(vitrine::kLargestBlock, 1.0f);
  for (int t = 0; t < vitrine::kWeightTypes; ++t) {
    const auto type = static_cast<DType>(t);
    if (!vitrine::is_decoded(type)) continue;
    std::vector<uint8_t> block(vitrine::block_bytes(type));
    std::memcpy(block.data(), data, std::min(size, block.size()));
    vitrine::decode_block(type, block.data(), values.data());
  }
  std::fill(values.begin(), values.end(), 0.0f);
  std::memcpy(values.data(), data, std::min(size, values.size() * sizeof(float)));
  for (float& v : values)
    if (!std::isfinite(v)) v = 0;
  const size_t rest = values.size() * sizeof(float);
  for (size_t i = 0; rest + i < size && i < importance.size(); ++i) importance[i] = static_cast<float>(data[rest + i]);
  std::vector<std::byte> out(4 * values.size());
  for (int t = 0; t < vitrine::kWeightTypes; ++t)
    if (const auto type = static_cast<DType>(t); vitrine::can_encode(type))
      vitrine::encode_row(type, values.data(), values.size(), importance.data(), out.data());
  return 0;
}
