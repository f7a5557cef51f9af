// Any bytes as a safetensors file: read whole or refused by name. Seeds: tests/golden/io/*.safetensors.
#include "io/safetensors.h"

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kName = "fuzz.safetensors";
  try {
    vitrine::Checkpoint checkpoint(kName);
    vitrine::read_safetensors({reinterpret_cast<const std::byte*>(data), size}, kName, checkpoint);
    if (checkpoint.copied_bytes() > size) __builtin_trap();  // tensors do not overlap, so copies cannot exceed the file
    volatile unsigned sum = 0;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      size_t elements = 1;
      for (const int64_t n : tensor.shape) elements *= static_cast<size_t>(n);
      if (vitrine::row_bytes(tensor.dtype, elements) != tensor.bytes) __builtin_trap();
      for (size_t i = 0; i < tensor.bytes; ++i) sum = sum + std::to_integer<unsigned>(tensor.data[i]);
    }
    for (const auto& [name, tensor] : checkpoint.unreadable()) {
      try {
        checkpoint.find(name);
        __builtin_trap();
      } catch (const vitrine::FileError&) {
      }
    }
  } catch (const vitrine::FileError&) {
  }
  return 0;
}
