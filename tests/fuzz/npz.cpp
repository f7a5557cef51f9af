// Any bytes as NumPy's archive of arrays: read whole or refused by name. Seeds: stored and compressed arrays of several types.
#include "io/npz.h"

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kName = "fuzz.npz";
  try {
    vitrine::Checkpoint arrays(kName);
    vitrine::read_npz({reinterpret_cast<const std::byte*>(data), size}, kName, arrays);
    if (arrays.copied_bytes() > 1033 * size) __builtin_trap();  // deflate makes at most 1032 bytes of one
    volatile unsigned sum = 0;
    for (const auto& [name, array] : arrays.tensors()) {
      size_t elements = 1;
      for (const int64_t n : array.shape) {
        if (n < 0) __builtin_trap();
        elements *= static_cast<size_t>(n);
      }
      if (vitrine::row_bytes(array.dtype, elements) != array.bytes) __builtin_trap();
      for (size_t i = 0; i < array.bytes; ++i) sum = sum + std::to_integer<unsigned>(array.data[i]);
    }
  } catch (const vitrine::FileError&) {
  }
  return 0;
}
