// Any bytes as tokenizer.model: refused by name, or a tokenizer whose ids are in range and whose streamed text is its
// text. Seeds: tests/golden/tokenizers/variants/*.model.
#include "base/error.h"
#include "tokenizer/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = vitrine::tokenizer_from_sentencepiece(bytes, "fuzz.model", {});
    const std::string sample = std::string(bytes.substr(0, 256)) + " a\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80 \xFF 12<s>\n";
    for (const auto special : {vitrine::Special::as_file, vitrine::Special::text, vitrine::Special::parse}) {
      const auto pieces = tokenizer->encode_with_offsets(sample, true, special);
      vitrine::StreamDecoder stream(*tokenizer);
      std::vector<int32_t> ids;
      std::string streamed;
      for (const auto& p : pieces) {
        if (p.id < 0 || p.id >= tokenizer->vocab_size() || p.begin > p.end || p.end > sample.size()) __builtin_trap();
        ids.push_back(p.id);
        streamed += stream.push(p.id);
      }
      if (streamed + stream.flush() != tokenizer->decode(ids)) __builtin_trap();
    }
  } catch (const vitrine::InputError&) {
  }
  return 0;
}
