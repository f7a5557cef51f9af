// What memory gives to decode: how fast a plain loop reads weights, how fast a plain product of one row does, and how fast our
// kernels do, from the page cache and from huge pages, with one thread and with all. The plain products are a page of code
// without tuning (one row of weights after the other, asking 4 KiB ahead): a floor for a kernel, where the plain read is the
// ceiling.
//
//   bench_read_limit [--mib 512] [--threads N] [--inputs 1024] [--type q8_0]
//
// Prints GB/s of weights, the best of a few passes: neighbors on the machine only ever make it slower.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/blocks/all.h"
#include "base/huge_pages.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "bits.h"
#include "kernels/table.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace {

using namespace vitrine;

constexpr int kPasses = 6;
constexpr size_t kAhead = 4096;

// Reads rows of `row` bytes in [data, data + bytes) and gives something that depends on all of them.
using Loop = std::function<float(const std::byte* data, size_t bytes)>;

#ifdef __x86_64__

[[gnu::target("avx2")]] float read_plain(const std::byte* data, size_t bytes) {
  __m256i s[4] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128)
    for (size_t a = 0; a < 4; ++a)
      s[a] = _mm256_add_epi64(s[a], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 32 * a)));
  const __m256i all = _mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3]));
  return static_cast<float>(_mm256_extract_epi32(all, 0));
}

[[gnu::target("avx2,fma,f16c")]] float sum_of(__m256 v) {
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, v);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// One block of 32 weights as bytes, and its scale.
struct PlainQ8 {
  static constexpr DType kType = DType::q8_0;
  [[gnu::target("avx2,fma,f16c")]] static __m256i bytes(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2));
  }
};
struct PlainQ4 {
  static constexpr DType kType = DType::q4_0;
  [[gnu::target("avx2,fma,f16c")]] static __m256i bytes(const std::byte* p) {
    const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2));
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(pairs, 4), pairs);
    return _mm256_sub_epi8(_mm256_and_si256(both, _mm256_set1_epi8(15)), _mm256_set1_epi8(8));
  }
};

template <class Block>
[[gnu::target("avx2,fma,f16c")]] float multiply_blocks(const std::byte* data, size_t bytes, const int8_t* x, size_t inputs) {
  const size_t block = row_bytes(Block::kType, 32), row = row_bytes(Block::kType, inputs);
  float total = 0;
  for (size_t at = 0; at + row <= bytes; at += row) {
    __m256 sum = _mm256_setzero_ps();
    for (size_t i = 0; i < inputs / 32; ++i) {
      const std::byte* const p = data + at + i * block;
      __builtin_prefetch(p + kAhead);
      const __m256i w = Block::bytes(p), v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 32 * i));
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(v, w));
      const __m256i dot = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
      short scale;
      std::memcpy(&scale, p, 2);
      sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_cvtph_ps(_mm_set1_epi16(scale)), sum);
    }
    total += sum_of(sum);
  }
  return total;
}

template <DType kType>
[[gnu::target("avx2,fma,f16c")]] __m256 eight_numbers(const std::byte* p) {
  if constexpr (kType == DType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    if constexpr (kType == DType::f16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

template <DType kType>
[[gnu::target("avx2,fma,f16c")]] float multiply_numbers(const std::byte* data, size_t bytes, const float* x, size_t inputs) {
  const size_t size = row_bytes(kType, 1), row = inputs * size;
  float total = 0;
  for (size_t at = 0; at + row <= bytes; at += row) {
    __m256 sum[4] = {};
    for (size_t i = 0; i < inputs; i += 32) {
      const std::byte* const p = data + at + i * size;
      for (size_t line = 0; line < 32 * size; line += 64) __builtin_prefetch(p + line + kAhead);
      for (size_t a = 0; a < 4; ++a)
        sum[a] = _mm256_fmadd_ps(eight_numbers<kType>(p + 8 * a * size), _mm256_loadu_ps(x + i + 8 * a), sum[a]);
    }
    total += sum_of(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
  }
  return total;
}

#endif

// Best GB/s of `loop` over the bytes with so many threads, each of which reads one stretch of whole rows.
double rate(ThreadPool& pool, std::span<const std::byte> bytes, size_t row, const Loop& loop) {
  const auto threads = static_cast<size_t>(pool.threads());
  const size_t rows = bytes.size() / row / threads;
  volatile float sink = 0;
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Stopwatch watch;
    pool.run(pool.threads(),
             [&](int64_t i, int) { sink = loop(bytes.data() + static_cast<size_t>(i) * rows * row, rows * row); });
    best = std::max(best, static_cast<double>(rows * threads * row) / watch.ms() / 1e6);
  }
  return best;
}

struct Rates {
  double value[4];  // mapped with one thread and all, huge pages with one thread and all
};

struct Places {
  ThreadPool one{1};
  ThreadPool all;
  std::span<const std::byte> mapped, huge;

  explicit Places(int threads) : all(threads) {}
  Rates rates(size_t row, const Loop& loop) {
    return {{rate(one, mapped, row, loop), rate(all, mapped, row, loop), rate(one, huge, row, loop), rate(all, huge, row, loop)}};
  }
};

void report(const std::string& what, const Rates& r, const Rates& limit) {
  std::printf("%-24s", what.c_str());
  for (int i = 0; i < 4; ++i) std::printf(" %7.1f %4.0f %%", r.value[i], 100 * r.value[i] / limit.value[i]);
  std::printf("\n");
  std::fflush(stdout);
}

// A file of random bits, mapped; it is gone when the program ends.
std::span<const std::byte> mapped_file(size_t bytes) {
  std::FILE* const file = std::tmpfile();
  if (file == nullptr) return {};
  std::vector<char> some(size_t{1} << 19);
  uint64_t state = kFirstBits;
  for (size_t done = 0; done < bytes; done += some.size()) {
    fill_with_bits(some.data(), some.size(), state);
    if (std::fwrite(some.data(), 1, some.size(), file) != some.size()) return {};
  }
  std::fflush(file);
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, ::fileno(file), 0);
  return data == MAP_FAILED ? std::span<const std::byte>() : std::span(static_cast<const std::byte*>(data), bytes);
}

}  // namespace

int main(int argc, char** argv) {
  size_t mib = 512, inputs = 1024;
  int threads = 0;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--mib") mib = static_cast<size_t>(std::atoi(argv[i + 1]));
    if (flag == "--inputs") inputs = static_cast<size_t>(std::atoi(argv[i + 1])) / 256 * 256;
    if (flag == "--threads") threads = std::atoi(argv[i + 1]);
    if (flag == "--type") only = argv[i + 1];
  }
  if (mib < 1 || inputs < 256) {
    std::fprintf(stderr, "bench_read_limit: --mib needs at least 1, --inputs 256\n");
    return 2;
  }
  Places places(threads);
  places.mapped = mapped_file(mib << 20);
  const std::span<std::byte> huge = map_huge_pages(mib << 20);
  if (places.mapped.empty() || huge.empty()) {
    std::fprintf(stderr, "bench_read_limit: no room for %zu MiB twice; give a smaller --mib\n", mib);
    return 1;
  }
  std::memcpy(huge.data(), places.mapped.data(), places.mapped.size());
  places.huge = huge;

  const KernelTable& table = kernels();
  std::vector<float> x(inputs);
  for (size_t i = 0; i < inputs; ++i) x[i] = static_cast<float>(i * 7919 % 255) / 127.0f - 1.0f;
  std::vector<ActivationBlock> q(activation_blocks(inputs));
  table.quantize_int8(x.data(), inputs, q.data());
  std::vector<int8_t> bytes(inputs);
  for (size_t i = 0; i < inputs; ++i) bytes[i] = q[i / ActivationBlock::kElements].q[i % ActivationBlock::kElements];

  std::printf("%s, %zu MiB, rows of %zu; GB/s and share of the plain read:\n", table.name, mib, inputs);
  std::printf("%-24s %14s %14s %14s %14s\n", "", "mapped, 1", ("mapped, " + std::to_string(places.all.threads())).c_str(),
              "huge, 1", ("huge, " + std::to_string(places.all.threads())).c_str());
  Rates limit = {{1, 1, 1, 1}};
#ifdef __x86_64__
  limit = places.rates(4096, read_plain);
  report("plain read", limit, limit);
#endif
  for (int number = 0; number < kWeightTypes; ++number) {
    const auto type = static_cast<DType>(number);
    if (!only.empty() && name_of(type) != only) continue;
    const size_t row = row_bytes(type, inputs);
    const std::string name(name_of(type));
#ifdef __x86_64__
    Loop plain;
    if (type == DType::q8_0)
      plain = [&](const std::byte* p, size_t n) { return multiply_blocks<PlainQ8>(p, n, bytes.data(), inputs); };
    if (type == DType::q4_0)
      plain = [&](const std::byte* p, size_t n) { return multiply_blocks<PlainQ4>(p, n, bytes.data(), inputs); };
    if (type == DType::f32)
      plain = [&](const std::byte* p, size_t n) { return multiply_numbers<DType::f32>(p, n, x.data(), inputs); };
    if (type == DType::f16)
      plain = [&](const std::byte* p, size_t n) { return multiply_numbers<DType::f16>(p, n, x.data(), inputs); };
    if (type == DType::bf16)
      plain = [&](const std::byte* p, size_t n) { return multiply_numbers<DType::bf16>(p, n, x.data(), inputs); };
    if (plain) report(name + ", plain product", places.rates(row, plain), limit);
#endif
    report(name + ", kernel",
           places.rates(row,
                        [&](const std::byte* p, size_t n) {
                          thread_local std::vector<float> y;
                          const size_t rows = n / row;
                          y.resize(rows);
                          if (table.dot_rows_int8[number] != nullptr)
                            table.dot_rows_int8[number](p, row, rows, inputs, q.data(), q.size(), 1, y.data(), rows);
                          else
                            table.dot_rows[number](p, row, rows, inputs, x.data(), inputs, 1, y.data(), rows);
                          return y[rows / 2];
                        }),
           limit);
  }
}
