// Matrix products by oneDNN, as bench/products.cpp times ours; bench/compare_onednn.py builds and runs this.
//
//   onednn_products SECONDS TYPE ROWSxINPUTSxOUTPUTS...
//
// y = x Wᵀ with W [outputs, inputs] and x in TYPE (f32, bf16), y in f32. Prints for each shape one line: GFLOP/s of the median
// call with W where it lies, and with W in the order that oneDNN chooses, re-ordered before the clock starts.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

namespace {

using namespace dnnl;
using Clock = std::chrono::steady_clock;

// Values between -0.5 and 0.5: their sums stay far from the ends of bf16.
void fill(const memory& m, memory::data_type type, size_t count) {
  auto* bytes = static_cast<char*>(m.get_data_handle());
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = float(state >> 8) * 0x1p-24f - 0.5f;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const auto high = uint16_t(bits >> 16);
    if (type == memory::data_type::f32)
      std::memcpy(bytes + 4 * i, &value, 4);
    else
      std::memcpy(bytes + 2 * i, &high, 2);
  }
}

double gflops(const engine& cpu, double seconds, memory::data_type type, int64_t rows, int64_t inputs, int64_t outputs,
              bool reorder_w) {
  using Tag = memory::format_tag;
  stream queue(cpu);
  const memory::desc x_desc({rows, inputs}, type, Tag::ab), y_desc({rows, outputs}, memory::data_type::f32, Tag::ab);
  const memory::desc w_lies({inputs, outputs}, type, Tag::ba);
  const memory::desc w_wanted({inputs, outputs}, type, reorder_w ? Tag::any : Tag::ba);
  const matmul::primitive_desc product_desc(cpu, x_desc, w_wanted, y_desc);
  const matmul product(product_desc);
  memory x(x_desc, cpu), y(y_desc, cpu), w(w_lies, cpu);
  fill(x, type, size_t(rows * inputs));
  fill(w, type, size_t(inputs * outputs));
  memory weights = w;
  if (product_desc.weights_desc() != w_lies) {
    weights = memory(product_desc.weights_desc(), cpu);
    reorder(w, weights).execute(queue, w, weights);
    queue.wait();
  }
  const auto call = [&] {
    product.execute(queue, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, y}});
    queue.wait();
  };
  call(), call();
  std::vector<double> taken;
  for (const auto end = Clock::now() + std::chrono::duration<double>(seconds); taken.size() < 3 || Clock::now() < end;) {
    const auto begin = Clock::now();
    call();
    taken.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(taken.begin(), taken.begin() + std::ptrdiff_t(taken.size() / 2), taken.end());
  return 2e-9 * double(rows) * double(inputs) * double(outputs) / taken[taken.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto type = std::strcmp(argv[2], "f32") == 0 ? memory::data_type::f32 : memory::data_type::bf16;
  const engine cpu(engine::kind::cpu, 0);
  for (int i = 3; i < argc; ++i) {
    long long rows, inputs, outputs;
    if (std::sscanf(argv[i], "%lldx%lldx%lld", &rows, &inputs, &outputs) != 3) return 2;
    std::printf("%.1f %.1f\n", gflops(cpu, std::atof(argv[1]), type, rows, inputs, outputs, false),
                gflops(cpu, std::atof(argv[1]), type, rows, inputs, outputs, true));
  }
}
