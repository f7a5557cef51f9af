// The kernels against this machine's limits: read bandwidth for products of few rows, the best FMA rate for products of
// many. Usage: bench_kernels [--target avx512] [--threads 2] [--mib 512] [--only dot_rows] [--type q4_k]
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bits.h"
#include "kernels/table.h"

namespace {

using namespace vitrine;

bool cpu_time = false;  // with one thread: its own time, so that other programs on the core do not count

double now() {
  timespec t;
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

/// Seconds of one call: the best of a few, since neighbors on the machine only ever make it slower.
double best_time(const std::function<void()>& work, double budget = 0.6) {
  work();
  double best = 1e9;
  const double end = now() + budget;
  int calls = 0;
  do {
    const double start = now();
    work();
    best = std::min(best, now() - start);
  } while (++calls < 3 || now() < end);
  return best;
}

/// Anonymous memory in huge pages where the system gives them.
struct Memory {
  explicit Memory(size_t n) : bytes(n) {
    data = static_cast<char*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data == MAP_FAILED) std::abort();
    madvise(data, n, MADV_HUGEPAGE);
    uint64_t state = kFirstBits;
    fill_with_bits(data, n, state);
  }
  ~Memory() { munmap(data, bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  size_t bytes;
  char* data;
};

#ifdef __x86_64__
using Wide256 = float __attribute__((vector_size(32)));
using Wide512 = float __attribute__((vector_size(64)));
// Twelve chains of fused multiply-adds in registers: 2 * lanes operations each, `rounds` times. A macro, since a template
// would not take on the instruction set of the function it is inlined into.
#define VITRINE_FMA_ROUNDS(Wide)                                                   \
  Wide sum[12] = {}, a = {}, b = {};                                               \
  a += 1.0f, b += 1e-9f;                                                           \
  for (int c = 0; c < 12; ++c) sum[c] += float(c); /* equal ones would merge */    \
  for (int64_t i = 0; i < rounds; ++i) {                                           \
    _Pragma("GCC unroll 12") for (int c = 0; c < 12; ++c) sum[c] = sum[c] * a + b; \
    asm volatile("" : "+v"(a), "+v"(b));                                           \
  }                                                                                \
  Wide total = {};                                                                 \
  for (const Wide& s : sum) total += s;                                            \
  return total[0];
[[gnu::target("avx2,fma")]] float fma_avx2(int64_t rounds) { VITRINE_FMA_ROUNDS(Wide256) }
[[gnu::target("avx512f,fma")]] float fma_avx512(int64_t rounds) { VITRINE_FMA_ROUNDS(Wide512) }
#undef VITRINE_FMA_ROUNDS

[[gnu::target("avx2")]] uint64_t read_range(const char* p, size_t n) {
  using Words = uint64_t __attribute__((vector_size(32), aligned(1), may_alias));
  Words sum[4] = {};
  for (size_t i = 0; i + 128 <= n; i += 128)
    for (size_t a = 0; a < 4; ++a) sum[a] ^= *reinterpret_cast<const Words*>(p + i + 32 * a);
  const Words all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all[0] ^ all[1] ^ all[2] ^ all[3];
}
#else
uint64_t read_range(const char* p, size_t n) {
  uint64_t sum = 0, word;
  for (size_t i = 0; i + 8 <= n; i += 8) {
    std::memcpy(&word, p + i, 8);
    sum ^= word;
  }
  return sum;
}
#endif

struct Limits {
  double gigabytes, gigaflops;
};

Limits measure_limits(ThreadPool& pool, const KernelTable& table, const Memory& weights) {
  volatile uint64_t sink = 0;
  const int64_t pieces = 64;
  const size_t piece = weights.bytes / size_t(pieces);
  const double read = best_time(
      [&] { pool.run(pieces, [&](int64_t i, int) { sink = sink ^ read_range(weights.data + size_t(i) * piece, piece); }); }, 2.0);
  double rate = 0;
#ifdef __x86_64__
  if (std::strcmp(table.name, "reference") != 0) {
    const bool wide = std::strcmp(table.name, "avx2") != 0;
    const int64_t rounds = 2000000;
    volatile float keep = 0;
    const double seconds =
        best_time([&] { pool.run(pool.threads(), [&](int64_t, int) { keep = wide ? fma_avx512(rounds) : fma_avx2(rounds); }); });
    rate = double(rounds) * 12 * 2 * (wide ? 16 : 8) * pool.threads() / seconds / 1e9;
  }
#endif
  return {double(weights.bytes) / read / 1e9, rate};
}

void report(const std::string& what, double amount, double limit, const char* unit) {
  std::printf("  %-44s %8.1f %-8s", what.c_str(), amount, unit);
  if (limit > 0) std::printf(" %5.1f %%", 100 * amount / limit);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::string target, only, type_name;
  int threads = 0;
  size_t mib = 512;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--target")
      target = argv[i + 1];
    else if (flag == "--only")
      only = argv[i + 1];
    else if (flag == "--type")
      type_name = argv[i + 1];
    else if (flag == "--threads")
      threads = std::atoi(argv[i + 1]);
    else if (flag == "--mib")
      mib = size_t(std::atoi(argv[i + 1]));
  }
  const KernelTable& table = target.empty() ? kernels() : kernels_for_request(target);
  ThreadPool pool(threads);
  cpu_time = pool.threads() == 1;
  const Memory weights(mib << 20);
  const Limits limits = measure_limits(pool, table, weights);
  std::printf("%s, %d threads: reads %.1f GB/s (over %zu MiB), FMA f32 %.0f GFLOP/s\n", table.name, pool.threads(),
              limits.gigabytes, mib, limits.gigaflops);
  const auto wanted = [&](const char* name) { return only.empty() || only == name; };

  const size_t k = 2048;
  const Memory activations(kFewRows * k * sizeof(float));  // aligned, as tensors are
  const float* x = reinterpret_cast<const float*>(activations.data);
  std::vector<ActivationBlock> q(kFewRows * activation_blocks(k));
  for (size_t r = 0; r < kFewRows; ++r) table.quantize_int8(x + r * k, k, q.data() + r * activation_blocks(k));
  for (int number = 0; number < kWeightTypes; ++number) {
    const auto type = static_cast<DType>(number);
    if (!type_name.empty() && name_of(type) != type_name) continue;
    const size_t stride = row_bytes(type, k), n = weights.bytes / stride / 64 * 64;
    std::vector<float> y(kFewRows * n);
    for (const size_t rows : {1, 2, 4, 8}) {
      const std::string tail = std::string(name_of(type)) + ", " + std::to_string(rows) + " rows, k = 2048";
      if (wanted("dot_rows")) {
        const double t = best_time([&] {
          pool.run(int64_t(n / 64), [&](int64_t c, int) {
            table.dot_rows[int(type)](weights.data + size_t(c) * 64 * stride, stride, 64, k, x, k, rows, y.data() + c * 64, n);
          });
        });
        report("dot_rows " + tail, double(n * stride) / t / 1e9, limits.gigabytes, "GB/s");
      }
      if (wanted("dot_rows_int8") && is_block(type)) {
        const double t = best_time([&] {
          pool.run(int64_t(n / 64), [&](int64_t c, int) {
            table.dot_rows_int8[int(type)](weights.data + size_t(c) * 64 * stride, stride, 64, k, q.data(), activation_blocks(k),
                                           rows, y.data() + c * 64, n);
          });
        });
        report("dot_rows_int8 " + tail, double(n * stride) / t / 1e9, limits.gigabytes, "GB/s");
      }
      if (wanted("dot_columns") && !is_block(type)) {
        const size_t outputs = weights.bytes / row_bytes(type, k) / 512 * 512, column_stride = row_bytes(type, outputs);
        const double t = best_time([&] {
          pool.run(int64_t(outputs / 512), [&](int64_t c, int) {
            table.dot_columns[int(type)](weights.data + row_bytes(type, size_t(c) * 512), column_stride, 512, k, x, k, rows,
                                         y.data() + c * 512, n);
          });
        });
        report("dot_columns " + tail, double(column_stride * k) / t / 1e9, limits.gigabytes, "GB/s");
      }
    }
  }

  if (wanted("panel")) {
    const size_t n = 2048;
    for (const PanelKernels* panel : {&table.panel_f32, &table.panel_bf16, &table.panel_int8}) {
      if (panel->outputs == 0) continue;
      const bool int8 = panel == &table.panel_int8;
      for (int number = 0; number < kWeightTypes; ++number)
        for (const bool by_columns : {false, true})
          for (const size_t rows : {16, 32, 64, 512}) {
            const auto type = static_cast<DType>(number);
            if (!type_name.empty() && name_of(type) != type_name) continue;
            if ((by_columns && (is_block(type) || rows < 512)) || (int8 && !is_block(type))) continue;
            const size_t stride = row_bytes(type, k);
            const std::vector<float> input(rows * k, 0.5f);
            std::vector<float> y(rows * n);
            Memory packed(panel->x_bytes(rows, k) + 4096);
            Memory buffers(size_t(pool.threads()) * (panel->panel_bytes + 4096));
            const double t = best_time([&] {
              if (panel->pack_x)
                pool.run(int64_t(rows + 31) / 32, [&](int64_t c, int) {
                  panel->pack_x(input.data(), k, size_t(c) * 32, std::min(size_t(32), rows - size_t(c) * 32), rows, k,
                                packed.data);
                });
              pool.run(int64_t((n + panel->outputs - 1) / panel->outputs), [&](int64_t c, int thread) {
                void* buffer = buffers.data + size_t(thread) * ((panel->panel_bytes + 4095) / 4096 * 4096);
                const size_t j = size_t(c) * panel->outputs, outputs = std::min(panel->outputs, n - j);
                for (size_t k0 = 0; k0 < k; k0 += panel->depth) {
                  const size_t depth = std::min(panel->depth, k - k0);
                  panel->expand(type, weights.data + (by_columns ? row_bytes(type, j) : j * stride), stride, by_columns, outputs,
                                k0, depth, buffer);
                  panel->multiply(buffer, input.data(), k, packed.data, rows, 0, rows, k, k0, depth, by_columns, outputs,
                                  y.data() + j, n, k0 > 0, {});
                }
              });
            });
            report(std::string(int8                        ? "panel_int8 "
                               : panel == &table.panel_f32 ? "panel_f32 "
                                                           : "panel_bf16 ") +
                       std::string(name_of(type)) + (by_columns ? " [in, out], " : ", ") + std::to_string(rows) +
                       " x 2048 x 2048",
                   2.0 * double(rows * n * k) / t / 1e9, limits.gigaflops, "GFLOP/s");
          }
    }
  }

  if (wanted("attention")) {
    for (const size_t rows : {1, 8, 256})
      for (const size_t head_dim : {64, 256}) {
        const std::vector<float> queries(rows * head_dim, 0.01f), k_t(head_dim * kKeyBlock, 0.1f), v(kKeyBlock * head_dim, 0.1f);
        std::vector<float> z(rows * head_dim), scratch(rows * kKeyBlock), largest(rows, -1e30f), total(rows);
        const std::vector<int32_t> first(rows, 0), last(rows, int32_t(kKeyBlock));
        const double t = best_time(
            [&] {
              table.attention({.q = queries.data(),
                               .q_stride = head_dim,
                               .rows = rows,
                               .k_t = k_t.data(),
                               .k_stride = kKeyBlock,
                               .v = v.data(),
                               .v_stride = head_dim,
                               .k_narrow = {},
                               .v_narrow = {},
                               .keys = kKeyBlock,
                               .head_dim = head_dim,
                               .v_dim = head_dim,
                               .scale = 0.1f,
                               .softcap = 50.0f,
                               .slope = nullptr,
                               .place = nullptr,
                               .first = first.data(),
                               .last = last.data(),
                               .largest = largest.data(),
                               .total = total.data(),
                               .z = z.data(),
                               .z_stride = head_dim,
                               .scratch = scratch.data()});
            },
            0.1);
        report("attention, " + std::to_string(rows) + " rows, head_dim " + std::to_string(head_dim) + ", 256 keys (1 thread)",
               4.0 * double(rows * kKeyBlock * head_dim) / t / 1e9, limits.gigaflops / pool.threads(), "GFLOP/s");
      }
  }

  if (wanted("elementwise")) {
    const size_t n = 16384;
    std::vector<float> a(n), b(n, 0.5f), y(n);
    for (size_t i = 0; i < n; ++i) a[i] = float(i % 101) * 0.1f - 5.0f;
    const auto rate = [&](const char* name, const std::function<void()>& work) {
      report(std::string(name) + " (1 thread, in cache)", double(n) / best_time(work, 0.05) / 1e9, 0, "G/s");
    };
    rate("rms_norm", [&] { table.rms_norm(a.data(), b.data(), 1, 1e-6f, n, y.data(), nullptr); });
    rate("layer_norm", [&] { table.layer_norm(a.data(), b.data(), b.data(), 1e-6f, n, y.data(), nullptr, nullptr); });
    rate("softmax", [&] { table.softmax(a.data(), n, y.data()); });
    rate("gate gelu_tanh", [&] { table.gate(Activation::gelu_tanh, a.data(), b.data(), n, y.data()); });
    rate("gate silu", [&] { table.gate(Activation::silu, a.data(), b.data(), n, y.data()); });
    rate("activate gelu_exact", [&] { table.activate(Activation::gelu_exact, a.data(), n, y.data()); });
    rate("softcap", [&] { table.softcap(a.data(), 30, n, y.data()); });
    rate("add", [&] { table.add(a.data(), b.data(), n, y.data()); });
    rate("quantize_int8", [&] { table.quantize_int8(a.data(), n / 8, q.data()); });
  }
}
