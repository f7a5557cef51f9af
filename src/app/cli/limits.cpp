#include "cli/limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>

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

/// Sums a chunk as eight streams, so that no addition waits for another.
void read_chunk(const std::byte* data, size_t bytes) {
  uint64_t sum[8] = {0};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    __builtin_prefetch(data + i + 4096);  // the hardware's own prefetch stops at page borders
    for (size_t j = 0; j < 8; ++j) {
      uint64_t word;
      std::memcpy(&word, data + i + 8 * j, 8);
      sum[j] += word;
    }
  }
  volatile uint64_t sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
  static_cast<void>(sink);
}

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

struct Work {
  void (*run)(int64_t rounds);
  int lanes;
};

Work widest() {
#ifdef __x86_64__
  const std::string_view target = kernels().name;  // of the CPU, or what VITRINE_TARGET forces
  if (target == "avx512" || target == "avx512_bf16" || target == "amx") return {multiply_add_512, 16};
  if (target == "avx2") return {multiply_add_256, 8};
#endif
#ifdef __ARM_NEON
  return {multiply_add_neon, 4};
#endif
  return {multiply_add_scalar, 1};
}

}  // namespace

double read_bytes_per_s(ThreadPool& pool, const Checkpoint& checkpoint, int rounds) {
  constexpr size_t kChunk = size_t{1} << 20;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const double begin = now_s();
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      const std::byte* data = tensor.data;
      const size_t bytes = tensor.bytes;
      pool.run(static_cast<int64_t>((bytes + kChunk - 1) / kChunk), [&](int64_t chunk, int) {
        const size_t at = static_cast<size_t>(chunk) * kChunk;
        read_chunk(data + at, std::min(kChunk, bytes - at));
      });
    }
    best = std::max(best, static_cast<double>(checkpoint.bytes()) / (now_s() - begin));
  }
  return best;
}

double f32_operations_per_s(ThreadPool& pool) {
  const Work work = widest();
  constexpr int64_t kRounds = 3'000'000;
  const double operations = 2.0 * kChains * work.lanes * kRounds * pool.threads();
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double begin = now_s();
    pool.run(pool.threads(), [&](int64_t, int) { work.run(kRounds); });
    best = std::max(best, operations / (now_s() - begin));
  }
  return best;
}

}  // namespace vitrine::cli
