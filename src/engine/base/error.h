#pragma once
// The errors of vitrine/error.h, and the check of promises inside our own code.
#include "vitrine/error.h"

namespace vitrine {

/// Reports a broken promise inside our own code and aborts: such a state has no safe continuation.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* sentence);

#define VITRINE_CHECK(condition, sentence) \
  ((condition) ? static_cast<void>(0) : ::vitrine::check_failed(__FILE__, __LINE__, #condition, sentence))

}  // namespace vitrine
