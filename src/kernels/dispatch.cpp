// Which table runs: what the build holds, what the CPU and the operating system allow, what VITRINE_TARGET asks for.
#include <cstdlib>
#include <iterator>
#include <string>

#include "base/error.h"
#include "kernels/targets.h"

namespace vitrine {
namespace {

const KernelTable& choose() {
  const char* wanted = std::getenv("VITRINE_TARGET");
  if (wanted != nullptr && *wanted != '\0') return kernels_for_request(wanted);
  for (size_t i = std::size(kTargets); i-- > 0;)  // kTargets goes from plain to fast within one kind of CPU
    if (const KernelTable* table = kernels_for(kTargets[i])) return *table;
  return kReferenceTable;
}

}  // namespace

const KernelTable* kernels_for(std::string_view target) {
  if (target == "reference") return &kReferenceTable;
#ifdef VITRINE_X86
  __builtin_cpu_init();
  // f16c is older than every AVX2 CPU but is its own flag; the operating system must save the wide registers, which
  // __builtin_cpu_supports checks together with the CPU's flag.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  if (target == "avx2") return avx2 ? &kAvx2Table : nullptr;
  if (target == "avx512") {
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    return avx512 ? &kAvx512Table : nullptr;
  }
#endif
  return nullptr;
}

const KernelTable& kernels_for_request(std::string_view target) {
  std::string known;
  for (const std::string_view name : kTargets) {
    if (name == target) {
      if (const KernelTable* table = kernels_for(target)) return *table;
      throw InputError("VITRINE_TARGET=" + std::string(target) +
                       ": this CPU or this build lacks that instruction set. Unset VITRINE_TARGET to use the best one there is.");
    }
    known += known.empty() ? "" : ", ";
    known += name;
  }
  throw InputError("VITRINE_TARGET=" + std::string(target) + ": no such target; expected one of " + known + ".");
}

const KernelTable& kernels() {
  static const KernelTable& table = choose();
  return table;
}

}  // namespace vitrine
