// Any bytes as a GGUF file: read whole, every key through every getter, or refused by name. Seeds: tests/golden/io/*.gguf.
#include "io/gguf.h"

#include "base/error.h"

namespace {

/// Runs f, which may refuse by name and in no other way.
template <class F>
void may_refuse(F&& f) {
  try {
    f();
  } catch (const vitrine::FileError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kName = "fuzz.gguf";
  may_refuse([&] {
    const vitrine::Gguf gguf = vitrine::read_gguf({reinterpret_cast<const std::byte*>(data), size}, kName);
    volatile unsigned sum = 0;
    for (const auto& [name, tensor] : gguf.checkpoint.tensors())
      for (size_t i = 0; i < tensor.bytes; ++i) sum = sum + std::to_integer<unsigned>(tensor.data[i]);
    const vitrine::GgufMetadata& metadata = gguf.metadata;
    for (const auto& [key, value] : metadata.values()) {
      may_refuse([&] { metadata.integer(key); });
      may_refuse([&] { metadata.number(key); });
      may_refuse([&] { metadata.flag(key); });
      may_refuse([&] { sum = sum + static_cast<unsigned>(metadata.string(key).size()); });
      may_refuse([&] { metadata.integers(key); });
      may_refuse([&] { metadata.numbers(key); });
      may_refuse([&] {
        for (const std::string_view text : metadata.strings(key))
          for (const char c : text) sum = sum + static_cast<unsigned char>(c);
      });
    }
    metadata.config().dump();
  });
  return 0;
}
