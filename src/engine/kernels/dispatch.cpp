// Which table runs: what the build holds, what the CPU and the operating system allow, what VITRINE_TARGET asks for.
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/targets.h"
#ifdef VITRINE_X86
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif
#ifdef VITRINE_ARM
#ifdef __linux__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif
#endif

namespace vitrine {
namespace {

/// Whether a target is worth more than the one before it where both run. AMD's cores multiply pairs of bf16 elements at twice
/// the rate of f32 (Zen 4: 232 against 115 GFLOP/s a core), Intel's at half (Sapphire Rapids: 113 against 224).
bool pays(std::string_view target) {
#ifdef VITRINE_X86
  return target != "avx512_bf16" || __builtin_cpu_is("amd");
#else
  static_cast<void>(target);
  return true;
#endif
}

const KernelTable& choose() {
  const char* wanted = std::getenv("VITRINE_TARGET");
  if (wanted != nullptr && *wanted != '\0') return kernels_for_request(wanted);
  for (size_t i = std::size(kTargets); i-- > 0;) {
    const KernelTable* table = kernels_for(kTargets[i]);
    if (table != nullptr && pays(kTargets[i])) return *table;
  }
  return kReferenceTable;
}

#ifdef VITRINE_X86

// __builtin_cpu_supports also asks whether the operating system saves the wide registers.
bool has_avx2() {  // with what has come with every AVX2 CPU so far, but has flags of its own
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("aes");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

/// Asks the system for the tile registers: their state is large, and a process that wants it has to say so. Both steps
/// may be refused (an older kernel, a container's filter).
bool may_use_tiles() {
#ifdef __linux__
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kTile = 1u << 24, kBf16 = 1u << 22;
  if ((d & kTile) == 0 || (d & kBf16) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

/// A small product with edges on every side must equal the sums in double of the same rounded operands.
bool panel_is_right(const PanelKernels& panel) {
  const size_t rows = 45, n = 37, k = 77;
  std::vector<float> x(rows * k), w(n * k), y(rows * n);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 7919 % 255) - 127) / 64;  // exact in bf16
  for (size_t i = 0; i < w.size(); ++i) w[i] = float(int(i * 104729 % 255) - 127) / 128;
  std::vector<char> storage(panel.panel_bytes + 64), packed(panel.x_bytes(rows, k) + 64);
  const auto aligned = [](std::vector<char>& bytes) {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
  };
  panel.pack_x(x.data(), k, 0, rows, rows, k, aligned(packed));
  panel.expand(DType::f32, w.data(), k * sizeof(float), false, n, 0, k, aligned(storage));
  panel.multiply(aligned(storage), x.data(), k, aligned(packed), rows, 0, rows, k, 0, k, false, n, y.data(), n, false, {});
  for (size_t r = 0; r < rows; ++r)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (size_t i = 0; i < k; ++i) {
        sum += double(x[r * k + i]) * double(w[j * k + i]);
        magnitude += std::fabs(double(x[r * k + i]) * double(w[j * k + i]));
      }
      if (!(std::fabs(double(y[r * n + j]) - sum) <= 1e-5 * magnitude)) return false;
    }
  return true;
}

const KernelTable* avx512_bf16_table() {
  static const KernelTable table = [] {
    KernelTable t = kAvx512Table;
    t.name = "avx512_bf16";
    t.panel_bf16 = kAvx512Bf16PanelTable;
    t.packed_bf16 = kAvx512Bf16PackedTable;
    return t;
  }();
  return has_avx512_bf16() ? &table : nullptr;
}

const KernelTable* amx_table() {
  static const KernelTable table = [] {
    KernelTable t = kAvx512Table;
    t.name = "amx";
    t.panel_bf16 = kAmxPanelTable;
    // Up to one tile of rows, which one row takes as long as sixteen; from 17 rows on tiles are faster for every block type.
    t.panel_int8_rows = 16;
    t.packed_bf16 = kAmxPackedTable;
    return t;
  }();
  static const bool usable = has_avx512_bf16() && may_use_tiles() && panel_is_right(kAmxPanelTable);
  return usable ? &table : nullptr;
}

#endif

#ifdef VITRINE_ARM

// Where the system does not say what the CPU has, it counts as not there.
#if defined(__linux__)
bool has_dot() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool has_i8mm() { return has_dot() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
bool has_bf16() { return has_i8mm() && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0; }
#elif defined(__APPLE__)
bool has_feature(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool has_dot() { return has_feature("hw.optional.arm.FEAT_DotProd"); }
bool has_i8mm() { return has_dot() && has_feature("hw.optional.arm.FEAT_I8MM"); }
bool has_bf16() { return has_i8mm() && has_feature("hw.optional.arm.FEAT_BF16"); }
#else
bool has_dot() { return false; }
bool has_i8mm() { return false; }
bool has_bf16() { return false; }
#endif

const KernelTable* neon_i8mm_table() {
  static const KernelTable table = [] {
    KernelTable t = kNeonDotTable;
    t.name = "neon_i8mm";
    t.panel_int8 = kNeonI8mmPanelTable;
    return t;
  }();
  return has_i8mm() ? &table : nullptr;
}

const KernelTable* neon_bf16_table() {
  static const KernelTable table = [] {
    KernelTable t = kNeonDotTable;
    t.name = "neon_bf16";
    t.panel_int8 = kNeonI8mmPanelTable;
    t.panel_bf16 = kNeonBf16PanelTable;
    t.packed_bf16 = kNeonBf16PackedTable;
    return t;
  }();
  return has_bf16() ? &table : nullptr;
}

#endif

}  // namespace

const KernelTable* kernels_for(std::string_view target) {
  if (target == "reference") return &kReferenceTable;
#ifdef VITRINE_X86
  __builtin_cpu_init();
  if (target == "avx2") return has_avx2() ? &kAvx2Table : nullptr;
  if (target == "avx512") return has_avx512() ? &kAvx512Table : nullptr;
  if (target == "avx512_bf16") return avx512_bf16_table();
  if (target == "amx") return amx_table();
#endif
#ifdef VITRINE_ARM
  if (target == "neon") return &kNeonTable;
  if (target == "neon_dot") return has_dot() ? &kNeonDotTable : nullptr;
  if (target == "neon_i8mm") return neon_i8mm_table();
  if (target == "neon_bf16") return neon_bf16_table();
#endif
#ifdef VITRINE_WASM
  if (target == "wasm") return &kWasmTable;
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
  throw InputError("VITRINE_TARGET=" + std::string(target) + ": unknown target; expected one of " + known + ".");
}

const KernelTable& kernels() {
  static const KernelTable& table = choose();
  return table;
}

}  // namespace vitrine
