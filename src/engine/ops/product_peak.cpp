#include "ops/product_peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/table.h"

namespace vitrine {

double product_flops_per_s(Context& ctx) {
  const PackedKernels& p = packed_kernels(ctx);
  ThreadPool& pool = ctx.pool();
  const size_t rows = 4 * p.rows, columns = p.columns, depth = p.depth;
  constexpr int kProducts = 400, kRounds = 5;
  const auto align = [](std::vector<std::byte>& bytes) {
    return bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
  };
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run(pool.threads(), [&](int64_t, int) {
      std::vector<float> ones(depth * std::max(rows, columns), 1.0f), c(rows * columns);
      std::vector<std::byte> a(p.a_bytes(rows, depth) + 64), b(p.b_bytes(depth, columns) + 64);
      p.pack_a(ones.data(), depth, false, rows, depth, align(a));
      p.pack_b(ones.data(), columns, false, depth, columns, align(b));
      for (int i = 0; i < kProducts; ++i)
        p.multiply(align(a), false, align(b), rows, columns, depth, c.data(), columns, false, {});
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, 2.0 * static_cast<double>(rows * columns * depth) * kProducts * pool.threads() / seconds);
  }
  return best;
}

}  // namespace vitrine
