// Any bytes as a safetensors file with packed weights: unpacked to whole tensors or refused by name. Seeds:
// tests/golden/packed/*.safetensors.
#include "model/packed_weights.h"

#include "base/error.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kName = "fuzz.safetensors";
  static const vitrine::Json kPackings[] = {
      {{"quant_method", "mxfp4"}}, {{"quant_method", "fp8"}}, {{"quant_method", "fp8"}, {"weight_block_size", {5, 7}}}};
  for (const vitrine::Json& packing : kPackings) try {
      vitrine::Checkpoint checkpoint(kName);
      vitrine::read_safetensors({reinterpret_cast<const std::byte*>(data), size}, kName, checkpoint);
      vitrine::unpack_weights(checkpoint, {{{"quantization_config", packing}}, "config.json"});
      volatile unsigned sum = 0;
      for (const auto& [name, tensor] : checkpoint.tensors()) {
        size_t elements = 1;
        for (const int64_t n : tensor.shape) elements *= static_cast<size_t>(n);
        if (vitrine::row_bytes(tensor.dtype, elements) != tensor.bytes) __builtin_trap();
        for (size_t i = 0; i < tensor.bytes; ++i) sum = sum + std::to_integer<unsigned>(tensor.data[i]);
      }
    } catch (const vitrine::FileError&) {
    }
  return 0;
}
