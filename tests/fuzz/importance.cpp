// Any bytes as an importance matrix, in llama.cpp's newer and older form: read, or refused by name.
#include "quantize/importance.h"

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kName = "fuzz.imatrix";
  try {
    const vitrine::ImportanceMatrix matrix = vitrine::read_importance({reinterpret_cast<const std::byte*>(data), size}, kName);
    for (const auto& [name, entry] : matrix.entries) matrix.means(name, static_cast<int64_t>(entry.sums.size()), 0, 1, kName);
  } catch (const vitrine::FileError&) {
  } catch (const vitrine::InputError&) {
  }
  return 0;
}
