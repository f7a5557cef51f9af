// Any bytes as a GBNF grammar: rewritten for llguidance, or refused by line.
#include "grammar/gbnf.h"

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 14) return 0;
  try {
    const std::string lark = vitrine::gbnf_to_lark({reinterpret_cast<const char*>(data), size}, "fuzz.gbnf");
    if (!lark.starts_with("start: ")) __builtin_trap();
  } catch (const vitrine::InputError&) {
  }
  return 0;
}
