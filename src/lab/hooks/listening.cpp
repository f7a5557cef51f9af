#include "hooks/listening.h"

#include "base/error.h"
#include "hooks/hooks.h"

namespace vitrine {
namespace {

std::string size_text(size_t bytes) {
  if (bytes < size_t{10} << 20) return std::to_string((bytes + 1023) >> 10) + " KiB";
  return std::to_string((bytes + (size_t{1} << 20) - 1) >> 20) + " MiB";
}

}  // namespace

void require_memory(size_t needed, size_t limit, const std::string& what, const std::string& advice) {
  if (limit == 0) limit = available_memory();
  if (limit != 0 && needed > limit)
    throw InputError(what + " would take " + size_text(needed) + " of memory; " + size_text(limit) + " are left. " + advice);
}

}  // namespace vitrine
