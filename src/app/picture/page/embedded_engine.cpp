#include <string_view>

#include "picture/page/embedded.h"

// Megabytes go in as they are: as an array in C++ they would take a compiler minutes.
#ifdef VITRINE_ENGINE
__asm__(
    ".section .rodata\n"
    "vitrine_engine_begin:\n"
    ".incbin \"" VITRINE_ENGINE
    "\"\n"
    "vitrine_engine_end:\n"
    ".previous\n");
extern "C" {
extern const char vitrine_engine_begin[], vitrine_engine_end[];
}
#endif

namespace vitrine {

std::string_view embedded_engine() {
#ifdef VITRINE_ENGINE
  return {vitrine_engine_begin, static_cast<size_t>(vitrine_engine_end - vitrine_engine_begin)};
#else
  return {};
#endif
}

}  // namespace vitrine
