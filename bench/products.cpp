// Matrix products of many rows, as a model's layers call them: y = x Wᵀ with W [outputs, inputs] in TYPE, x and y in f32.
//
//   bench_products SECONDS TYPE ROWSxINPUTSxOUTPUTS...
//
// Prints for each shape the GFLOP/s of the median call within SECONDS. bench/compare_onednn.py runs this beside oneDNN.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "kernels/table.h"
#include "ops/linear.h"

using namespace vitrine;

namespace {

// Values between -0.5 and 0.5.
template <class F>
void fill(size_t count, F&& put) {
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    put(i, static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
  }
}

double gflops(ThreadPool& pool, double seconds, DType type, int64_t rows, int64_t inputs, int64_t outputs) {
  const auto k = static_cast<size_t>(inputs), n = static_cast<size_t>(outputs);
  const size_t size = row_bytes(type, 1);
  std::vector<std::byte> elements(n * k * size);
  fill(n * k, [&](size_t i, float value) {
    const uint16_t half = f32_to_bf16(value);
    if (type == DType::f32)
      std::memcpy(elements.data() + i * size, &value, size);
    else
      std::memcpy(elements.data() + i * size, &half, size);
  });
  const Weight weight{.name = "W",
                      .data = elements.data(),
                      .dtype = type,
                      .out = outputs,
                      .in = inputs,
                      .stride = k * size,
                      .bias = {},
                      .grad = {}};
  Context ctx(pool);
  const Tensor x = ctx.empty({rows, inputs});
  fill(static_cast<size_t>(x.count()), [&](size_t i, float value) { x.data<float>()[i] = value; });
  std::vector<double> taken;
  const Stopwatch all;
  for (int call = 0; call < 5 || all.ms() < 1000 * seconds; ++call) {
    const auto frame = ctx.frame();
    const Stopwatch one;
    linear(ctx, x, weight);
    if (call > 1) taken.push_back(one.ms());
  }
  std::nth_element(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2), taken.end());
  return 2e-6 * static_cast<double>(rows) * static_cast<double>(inputs) * static_cast<double>(outputs) / taken[taken.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: bench_products SECONDS f32|bf16 ROWSxINPUTSxOUTPUTS...\n");
    return 2;
  }
  ThreadPool pool(0);
  const DType type = std::strcmp(argv[2], "f32") == 0 ? DType::f32 : DType::bf16;
  for (int i = 3; i < argc; ++i) {
    long long rows = 0, inputs = 0, outputs = 0;
    if (std::sscanf(argv[i], "%lldx%lldx%lld", &rows, &inputs, &outputs) != 3 || rows < 1 || inputs < 1 || outputs < 1) {
      std::fprintf(stderr, "bench_products: %s is not ROWSxINPUTSxOUTPUTS\n", argv[i]);
      return 2;
    }
    std::printf("%.1f\n", gflops(pool, std::atof(argv[1]), type, rows, inputs, outputs));
    std::fflush(stdout);
  }
}
