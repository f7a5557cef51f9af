#pragma once
// Products against the double reference, and the checks that every panel of every target goes through.
#include "support.h"

namespace vitrine {

/// Per (row, output): the product in double, and the sum of absolute values that its rounding is measured by.
struct Product {
  std::vector<double> y, magnitude;
};
inline Product product(DType type, const std::vector<char>& w, bool by_columns, size_t n, size_t k, const std::vector<float>& x,
                       size_t rows, bool operands_bf16 = false) {
  Product p{std::vector<double>(rows * n), std::vector<double>(rows * n)};
  const size_t stride = row_bytes(type, by_columns ? n : k);
  for (size_t j = 0; j < n; ++j) {
    const std::vector<float> row = by_columns ? std::vector<float>() : row_values(type, w.data() + j * stride, k);
    for (size_t i = 0; i < k; ++i) {
      float weight = by_columns ? element_at(type, w.data() + i * stride, j) : row[i];
      if (operands_bf16) weight = bf16_to_f32(f32_to_bf16(weight));
      for (size_t r = 0; r < rows; ++r) {
        const float value = operands_bf16 ? bf16_to_f32(f32_to_bf16(x[r * k + i])) : x[r * k + i];
        p.y[r * n + j] += double(weight) * double(value);
        p.magnitude[r * n + j] += std::fabs(double(weight) * double(value));
      }
    }
  }
  return p;
}
inline void expect_product(const Product& want, const float* y, size_t y_stride, size_t rows, size_t n, size_t k,
                           const char* what) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t j = 0; j < n; ++j)
      ASSERT_TRUE(close(y[r * y_stride + j], want.y[r * n + j], sum_tolerance(k, want.magnitude[r * n + j])))
          << what << " rows " << rows << " n " << n << " k " << k << " at " << r << "," << j << ": " << y[r * y_stride + j]
          << ", not " << want.y[r * n + j];
}

/// The product of `rows` rows through panels, as an op runs it.
inline void panel_product(const PanelKernels& panel, DType type, const char* w, bool by_columns, size_t n, size_t k,
                          const float* x, size_t rows, float* y, size_t y_stride) {
  const size_t stride = row_bytes(type, by_columns ? n : k);
  std::vector<char> storage(panel.panel_bytes + 64), x_storage(panel.x_bytes(rows, k) + 64);
  const auto aligned = [](std::vector<char>& bytes) {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
  };
  void* packed = panel.x_bytes(rows, k) ? aligned(x_storage) : nullptr;
  if (packed && panel.pack_x)
    for (size_t row = 0; row < rows; row += 32) panel.pack_x(x, k, row, std::min(size_t(32), rows - row), rows, k, packed);
  for (size_t j = 0; j < n; j += panel.outputs) {
    const size_t outputs = std::min(panel.outputs, n - j);
    const char* block = w + (by_columns ? row_bytes(type, j) : j * stride);
    for (size_t k0 = 0; k0 < k; k0 += panel.depth) {
      const size_t depth = std::min(panel.depth, k - k0);
      const ReadNext next{x, 3, 100, 200};
      if (rows <= kRowsInPlace && panel.multiply_in_place != nullptr && type == panel.in_place_type && !by_columns &&
          k % panel.in_place_step == 0) {
        panel.multiply_in_place(block, stride, packed, rows, k, k0, depth, outputs, y + j, y_stride, k0 > 0, next);
        continue;
      }
      panel.expand(type, block, stride, by_columns, outputs, k0, depth, aligned(storage));
      for (size_t row = 0; row < rows; row += 64)
        panel.multiply(aligned(storage), x, k, packed, rows, row, std::min(size_t(64), rows - row), k, k0, depth, by_columns,
                       outputs, y + j, y_stride, k0 > 0, next);
    }
  }
}

inline void check_panel(const PanelKernels& panel, bool bf16) {
  const size_t outputs = panel.outputs, depth = panel.depth;
  struct Case {
    size_t rows, n, k;
  };
  std::vector<Case> cases = {{9, 1, 32},
                             {33, outputs - 1, depth - 1},
                             {32, outputs, depth},
                             {70, outputs + 1, depth + 1},
                             {16, 2 * outputs + 5, 2 * depth + 32},
                             {100, 40, 64}};
  for (size_t n = 1; n <= 33; ++n) cases.push_back({n + 8, n, 33});
  for (const DType type : kAllWeightTypes)
    for (const bool by_columns : {false, true}) {
      if (by_columns && is_block(type)) continue;
      for (Case c : cases) {
        c.k = (c.k + block_elements(type) - 1) / block_elements(type) * block_elements(type);
        const std::vector<char> w = by_columns ? random_weights(type, c.k, c.n, 28) : random_weights(type, c.n, c.k, 28);
        const std::vector<float> x = random_values(c.rows * c.k, 29);
        const Guarded<char> weights(w);
        const Guarded<float> activations(x);
        Guarded<float> y(c.rows * c.n);
        panel_product(panel, type, weights.data(), by_columns, c.n, c.k, activations.data(), c.rows, y.data(), c.n);
        expect_product(product(type, w, by_columns, c.n, c.k, x, c.rows, bf16), y.data(), c.n, c.rows, c.n, c.k,
                       name_of(type).data());
        EXPECT_TRUE(y.intact());
        if (testing::Test::HasFatalFailure()) return;
      }
    }
}

/// A row's bits depend on its own values only.
inline void check_panel_rows(const PanelKernels& panel, DType type = DType::f32) {
  const size_t rows = 75, n = 37, k = panel.depth + std::max<size_t>(64, block_elements(type));
  const std::vector<char> w = random_weights(type, n, k, 30);
  const std::vector<float> x = random_values(rows * k, 31);
  std::vector<float> all(rows * n);
  panel_product(panel, type, w.data(), false, n, k, x.data(), rows, all.data(), n);
  for (const size_t first : {1, 5, 16, 31, 60}) {  // other rows before and after, another place in the tile
    std::vector<float> some((rows - first) * n);
    panel_product(panel, type, w.data(), false, n, k, x.data() + first * k, rows - first, some.data(), n);
    EXPECT_TRUE(same_bits(some.data(), all.data() + first * n, some.size())) << first;
  }
  for (const size_t at : {1, 13, 20}) {  // other outputs beside it
    std::vector<float> cut(rows * n);
    panel_product(panel, type, w.data(), false, at, k, x.data(), rows, cut.data(), n);
    panel_product(panel, type, w.data() + at * row_bytes(type, k), false, n - at, k, x.data(), rows, cut.data() + at, n);
    EXPECT_TRUE(same_bits(cut.data(), all.data(), cut.size())) << at;
  }
  std::vector<float> poisoned = x;  // a NaN stays in its row
  poisoned[3 * k + 7] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y(rows * n);
  panel_product(panel, type, w.data(), false, n, k, poisoned.data(), rows, y.data(), n);
  EXPECT_TRUE(std::isnan(y[3 * n]));
  EXPECT_TRUE(same_bits(y.data() + 4 * n, all.data() + 4 * n, (rows - 4) * n));
}

}  // namespace vitrine
