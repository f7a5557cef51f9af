#include "cli/limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "base/huge_pages.h"
#include "base/memory.h"
#include "kernels/table.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif
#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

namespace vitrine::cli {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The widest loads, four abreast, each sum by itself, so that no addition waits for another. `ahead` asks for what comes 4 KiB
// later: on some machines the hardware's own asking ends at page borders, on others asking twice is slower.
#define VITRINE_READ(Wide, load, add)                                                            \
  Wide s0 = {}, s1 = {}, s2 = {}, s3 = {};                                                       \
  constexpr size_t kEach = sizeof(Wide), kAll = 4 * kEach;                                       \
  for (size_t i = 0; i + kAll <= bytes; i += kAll) {                                             \
    const std::byte* const p = data + i;                                                         \
    for (size_t line = 0; ahead && line < kAll; line += 64) __builtin_prefetch(p + line + 4096); \
    s0 = add(s0, load(p)), s1 = add(s1, load(p + kEach));                                        \
    s2 = add(s2, load(p + 2 * kEach)), s3 = add(s3, load(p + 3 * kEach));                        \
  }                                                                                              \
  volatile Wide sink[] = {s0, s1, s2, s3};                                                       \
  static_cast<void>(sink)

using Read = void (*)(const std::byte* data, size_t bytes, bool ahead);

void read_scalar(const std::byte* data, size_t bytes, bool ahead) {
  const auto load = [](const std::byte* p) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
  };
  const auto add = [](uint64_t a, uint64_t b) { return a + b; };
  VITRINE_READ(uint64_t, load, add);
}
#ifdef __x86_64__
#define VITRINE_LOAD_512(p) _mm512_loadu_si512(p)
[[gnu::target("avx512f")]] void read_512(const std::byte* data, size_t bytes, bool ahead) {
  VITRINE_READ(__m512i, VITRINE_LOAD_512, _mm512_add_epi64);
}
#undef VITRINE_LOAD_512
#define VITRINE_LOAD_256(p) _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
[[gnu::target("avx2")]] void read_256(const std::byte* data, size_t bytes, bool ahead) {
  VITRINE_READ(__m256i, VITRINE_LOAD_256, _mm256_add_epi64);
}
#undef VITRINE_LOAD_256
#endif
#ifdef __ARM_NEON
void read_neon(const std::byte* data, size_t bytes, bool ahead) {
  const auto load = [](const std::byte* p) { return vld1q_u64(reinterpret_cast<const uint64_t*>(p)); };
  VITRINE_READ(uint64x2_t, load, vaddq_u64);
}
#endif
#undef VITRINE_READ

// Eight independent chains hide the latency of a multiply-add (4 cycles at 2 a cycle). They have names of their own:
// an array would live in memory.
constexpr int kChains = 8;

// One loop for each width. `fma` is an intrinsic, as ISO mode forbids the compiler to join a product and a sum by itself.
#define VITRINE_MULTIPLY_ADD(Wide, set1, fma)                                                                        \
  const Wide a = set1(0.999f), b = set1(1e-9f);                                                                      \
  Wide s0 = set1(0.0f), s1 = set1(1.0f), s2 = set1(2.0f), s3 = set1(3.0f); /* equal chains would be computed once */ \
  Wide s4 = set1(4.0f), s5 = set1(5.0f), s6 = set1(6.0f), s7 = set1(7.0f);                                           \
  for (int64_t i = 0; i < rounds; ++i) {                                                                             \
    s0 = fma(s0, a, b), s1 = fma(s1, a, b), s2 = fma(s2, a, b), s3 = fma(s3, a, b);                                  \
    s4 = fma(s4, a, b), s5 = fma(s5, a, b), s6 = fma(s6, a, b), s7 = fma(s7, a, b);                                  \
  }                                                                                                                  \
  volatile Wide sink[] = {s0, s1, s2, s3, s4, s5, s6, s7};                                                           \
  static_cast<void>(sink)

void multiply_add_scalar(int64_t rounds) {
  const auto set1 = [](float x) { return x; };
  const auto fma = [](float x, float y, float z) { return x * y + z; };
  VITRINE_MULTIPLY_ADD(float, set1, fma);
}

#ifdef __x86_64__
[[gnu::target("avx512f")]] void multiply_add_512(int64_t rounds) {
  VITRINE_MULTIPLY_ADD(__m512, _mm512_set1_ps, _mm512_fmadd_ps);
}
[[gnu::target("avx2,fma")]] void multiply_add_256(int64_t rounds) {
  VITRINE_MULTIPLY_ADD(__m256, _mm256_set1_ps, _mm256_fmadd_ps);
}
#endif
#ifdef __ARM_NEON
void multiply_add_neon(int64_t rounds) {
  const auto fma = [](float32x4_t x, float32x4_t y, float32x4_t z) { return vfmaq_f32(z, x, y); };
  VITRINE_MULTIPLY_ADD(float32x4_t, vdupq_n_f32, fma);
}
#endif
#undef VITRINE_MULTIPLY_ADD

struct Widest {
  void (*multiply_add)(int64_t rounds);
  int lanes;
  Read read;
};

Widest widest() {
#ifdef __x86_64__
  const std::string_view target = kernels().name;  // of the CPU, or what VITRINE_TARGET forces
  if (target == "avx512" || target == "avx512_bf16" || target == "amx") return {multiply_add_512, 16, read_512};
  if (target == "avx2") return {multiply_add_256, 8, read_256};
#endif
#ifdef __ARM_NEON
  return {multiply_add_neon, 4, read_neon};
#endif
  return {multiply_add_scalar, 1, read_scalar};
}

// Bytes per second at which all threads read these, each a stretch of its own.
double read_all(ThreadPool& pool, std::span<const std::span<const std::byte>> maps, int rounds) {
  constexpr size_t kChunk = size_t{1} << 20;
  const Read read = widest().read;
  double best = 0;
  for (int round = 0; round < 2 * rounds; ++round) {
    double bytes = 0;
    const double begin = now_s();
    for (const std::span<const std::byte> map : maps) {
      bytes += static_cast<double>(map.size());
      pool.run(static_cast<int64_t>((map.size() + kChunk - 1) / kChunk), [&](int64_t chunk, int) {
        const size_t at = static_cast<size_t>(chunk) * kChunk;
        read(map.data() + at, std::min(kChunk, map.size() - at), round % 2 == 0);
      });
    }
    best = std::max(best, bytes / (now_s() - begin));
  }
  return best;
}

}  // namespace

ReadLimit read_limit(ThreadPool& pool, const Checkpoint& checkpoint, int rounds) {
  std::vector<std::span<const std::byte>> maps;
  size_t bytes = 0;
  for (const MappedFile& file : checkpoint.files()) maps.push_back(file.bytes()), bytes += file.bytes().size();
  ReadLimit limit = {.mapped = read_all(pool, maps, rounds)};
  // As much as no cache holds.
  const size_t available = available_memory(), copied = std::min(bytes, size_t{512} << 20);
  if (available != 0 && available / 2 < copied) return limit;
  const std::span<std::byte> pages = map_huge_pages(copied);
  if (pages.empty()) return limit;
  size_t at = 0;
  for (const std::span<const std::byte> map : maps) {
    const size_t here = std::min(map.size(), pages.size() - at);
    std::memcpy(pages.data() + at, map.data(), here);
    at += here;
  }
  const std::span<const std::byte> copy = pages.first(at);
  limit.huge = read_all(pool, {&copy, 1}, rounds);
  unmap_huge_pages(pages);
  return limit;
}

double f32_operations_per_s(ThreadPool& pool) {
  const Widest work = widest();
  constexpr int64_t kRounds = 3'000'000;
  const double operations = 2.0 * kChains * work.lanes * kRounds * pool.threads();
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double begin = now_s();
    pool.run(pool.threads(), [&](int64_t, int) { work.multiply_add(kRounds); });
    best = std::max(best, operations / (now_s() - begin));
  }
  return best;
}

}  // namespace vitrine::cli
