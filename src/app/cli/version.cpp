#include "cli/version.h"

#include <fmt/format.h>

#include "commit.h"
#include "kernels/table.h"
#include "vitrine/version.h"

namespace vitrine::cli {

std::string commit() { return VITRINE_COMMIT; }

std::string version_text() {
  std::string others;
  for (const std::string_view target : kTargets)
    if (kernels_for(target) != nullptr) others += fmt::format("{}{}", others.empty() ? "" : ", ", target);
  return fmt::format("vitrine {}\ncommit {}\nkernels {} (this machine has {})", version(), commit(), kernels().name, others);
}

}  // namespace vitrine::cli
