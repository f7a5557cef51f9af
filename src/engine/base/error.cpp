#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace vitrine {

void check_failed(const char* file, int line, const char* condition, const char* sentence) {
  std::fprintf(stderr, "vitrine: internal error at %s:%d: %s (%s). Please report this.\n", file, line, sentence, condition);
  std::abort();
}

}  // namespace vitrine
