// Products of few rows and of many, of every weight type, against the double reference; and their bits under every cut.
#include "kernels/reference/linear.h"
#include "support.h"

namespace vitrine {
namespace {

using ProductsTest = EveryTarget;

/// Per (row, output): the product in double, and the sum of absolute values that its rounding is measured by.
struct Product {
  std::vector<double> y, magnitude;
};
Product product(DType type, const std::vector<char>& w, bool by_columns, size_t n, size_t k, const std::vector<float>& x,
                size_t rows, bool operands_bf16 = false) {
  Product p{std::vector<double>(rows * n), std::vector<double>(rows * n)};
  const size_t stride = row_bytes(type, by_columns ? n : k);
  for (size_t j = 0; j < n; ++j)
    for (size_t i = 0; i < k; ++i) {
      float weight = by_columns ? element_at(type, w.data() + i * stride, j) : element_at(type, w.data() + j * stride, i);
      if (operands_bf16) weight = bf16_to_f32(f32_to_bf16(weight));
      for (size_t r = 0; r < rows; ++r) {
        const float value = operands_bf16 ? bf16_to_f32(f32_to_bf16(x[r * k + i])) : x[r * k + i];
        p.y[r * n + j] += double(weight) * double(value);
        p.magnitude[r * n + j] += std::fabs(double(weight) * double(value));
      }
    }
  return p;
}
void expect_product(const Product& want, const float* y, size_t y_stride, size_t rows, size_t n, size_t k, const char* what) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t j = 0; j < n; ++j)
      ASSERT_TRUE(close(y[r * y_stride + j], want.y[r * n + j], sum_tolerance(k, want.magnitude[r * n + j])))
          << what << " rows " << rows << " n " << n << " k " << k << " at " << r << "," << j << ": " << y[r * y_stride + j]
          << ", not " << want.y[r * n + j];
}

std::vector<size_t> depths(DType type) {
  std::vector<size_t> all = lengths();
  if (is_block(type)) std::erase_if(all, [](size_t k) { return k % kBlock != 0; });
  return all;
}

TEST_P(ProductsTest, DotRowsEqualsReference) {
  for (const DType type : kAllWeightTypes)
    for (const size_t k : depths(type))
      for (const size_t n : {1, 3, 8, 13, 25}) {
        if (k > 300 && n == 3) continue;
        const std::vector<char> w = random_weights(type, n, k, 20);
        const std::vector<float> x = random_values(kFewRows * k, 21);
        const Guarded<char> weights(w);
        const Guarded<float> activations(x);
        const Product want = product(type, w, false, n, k, x, kFewRows);
        Guarded<float> all(kFewRows * n);
        table->dot_rows[int(type)](weights.data(), row_bytes(type, k), n, k, activations.data(), k, kFewRows, all.data(), n);
        expect_product(want, all.data(), n, kFewRows, n, k, name_of(type).data());
        EXPECT_TRUE(all.intact());
        for (size_t rows = 1; rows < kFewRows; ++rows) {  // fewer rows, the last ones: the same bits
          Guarded<float> some(rows * n);
          const size_t skip = kFewRows - rows;
          table->dot_rows[int(type)](weights.data(), row_bytes(type, k), n, k, activations.data() + skip * k, k, rows,
                                     some.data(), n);
          ASSERT_TRUE(same_bits(some.data(), all.data() + skip * n, rows * n)) << name_of(type) << " rows " << rows << " k " << k;
          EXPECT_TRUE(some.intact());
        }
      }
}

TEST_P(ProductsTest, DotRowsBitsDoNotDependOnCuts) {
  for (const DType type : kAllWeightTypes) {
    const size_t n = 21, k = 96, stride = row_bytes(type, k);
    const std::vector<char> w = random_weights(type, n, k, 22);
    const std::vector<float> x = random_values(kFewRows * k, 23);
    for (const size_t rows : {1, 2, 5, 8}) {
      std::vector<float> whole(rows * n), cut(rows * n);
      table->dot_rows[int(type)](w.data(), stride, n, k, x.data(), k, rows, whole.data(), n);
      for (size_t at = 1; at < n; ++at) {
        table->dot_rows[int(type)](w.data(), stride, at, k, x.data(), k, rows, cut.data(), n);
        table->dot_rows[int(type)](w.data() + at * stride, stride, n - at, k, x.data(), k, rows, cut.data() + at, n);
        ASSERT_TRUE(same_bits(whole.data(), cut.data(), rows * n)) << name_of(type) << " cut at " << at;
      }
    }
  }
}

TEST_P(ProductsTest, DotRowsInt8EqualsReference) {
  for (const DType type : {DType::q8_0, DType::q4_0})
    for (const size_t k : {0, 32, 64, 96, 256, 2304})
      for (const size_t n : {1, 4, 7, 18}) {
        const std::vector<char> w = random_weights(type, n, k, 24);
        const std::vector<float> x = random_values(kFewRows * k, 25);
        const size_t blocks = k / kBlock;
        Guarded<ActivationBlock> q(kFewRows * blocks);
        quantise_int8_reference(x.data(), x.size(), q.data());
        std::vector<double> want(kFewRows * n);
        dot_rows_int8_reference(type, w.data(), row_bytes(type, k), n, k, q.data(), blocks, kFewRows, want.data(), n);
        const Guarded<char> weights(w);
        Guarded<float> all(kFewRows * n);
        table->dot_rows_int8[int(type)](weights.data(), row_bytes(type, k), n, k, q.data(), blocks, kFewRows, all.data(), n);
        const Product exact = product(type, w, false, n, k, x, kFewRows);
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_TRUE(close(all[i], want[i], sum_tolerance(k, exact.magnitude[i]))) << name_of(type) << " k " << k << " at " << i;
          // Against the unrounded activations: each is within half a step of 1/127 of its block's largest.
          ASSERT_NEAR(all[i], exact.y[i], 0.02 * exact.magnitude[i] + 1e-6);
        }
        EXPECT_TRUE(all.intact());
        for (size_t rows = 1; rows < kFewRows; ++rows) {
          Guarded<float> some(rows * n);
          const size_t skip = kFewRows - rows;
          table->dot_rows_int8[int(type)](weights.data(), row_bytes(type, k), n, k, q.data() + skip * blocks, blocks, rows,
                                          some.data(), n);
          ASSERT_TRUE(same_bits(some.data(), all.data() + skip * n, rows * n)) << name_of(type) << " rows " << rows;
        }
        for (size_t at = 1; at < n; ++at) {
          Guarded<float> cut(n - at);
          table->dot_rows_int8[int(type)](weights.data() + at * row_bytes(type, k), row_bytes(type, k), n - at, k, q.data(),
                                          blocks, 1, cut.data(), n);
          ASSERT_TRUE(same_bits(cut.data(), all.data() + at, n - at)) << name_of(type) << " cut at " << at;
        }
      }
}

TEST_P(ProductsTest, DotRowsInt8KeepsTheExtremes) {  // -128 in the file, 127 in the activations: no saturation
  for (const DType type : {DType::q8_0, DType::q4_0})
    for (const int fill : {0x80, 0x7f, 0xff, 0x00}) {
      std::vector<char> w(2 * row_bytes(type, kBlock), char(fill));
      const uint16_t one = f32_to_f16(1.0f);
      std::memcpy(&w[0], &one, 2);
      std::memcpy(&w[row_bytes(type, kBlock)], &one, 2);
      for (const float value : {127.0f, -127.0f}) {
        ActivationBlock q[2];
        const std::vector<float> x(64, value);
        quantise_int8_reference(x.data(), 64, q);
        double want;
        dot_rows_int8_reference(type, w.data(), w.size(), 1, 64, q, 2, 1, &want, 1);
        float got;
        table->dot_rows_int8[int(type)](w.data(), w.size(), 1, 64, q, 2, 1, &got, 1);
        EXPECT_EQ(got, want) << name_of(type) << " " << fill;
      }
    }
}

TEST_P(ProductsTest, DotColumnsEqualsReference) {
  for (const DType type : kFloatTypes)
    for (const size_t n : lengths()) {
      if (n == 0) continue;
      for (const size_t k : {0, 1, 7, 8, 9, 40}) {
        const std::vector<char> w = random_weights(type, k, n, 26);
        const std::vector<float> x = random_values(kFewRows * k, 27);
        const Guarded<char> weights(w);
        const Guarded<float> activations(x);
        const Product want = product(type, w, true, n, k, x, kFewRows);
        Guarded<float> all(kFewRows * n);
        std::fill_n(all.data(), all.size(), 99.0f);  // y is set, not added to
        table->dot_columns[int(type)](weights.data(), row_bytes(type, n), n, k, activations.data(), k, kFewRows, all.data(), n);
        expect_product(want, all.data(), n, kFewRows, n, k, name_of(type).data());
        EXPECT_TRUE(all.intact());
        for (size_t rows = 1; rows < kFewRows; ++rows) {
          Guarded<float> some(rows * n);
          table->dot_columns[int(type)](weights.data(), row_bytes(type, n), n, k, activations.data(), k, rows, some.data(), n);
          ASSERT_TRUE(same_bits(some.data(), all.data(), rows * n)) << name_of(type) << " rows " << rows;
        }
        const size_t at = n / 3;
        std::vector<float> cut(n);
        const size_t bytes = row_bytes(type, 1);
        table->dot_columns[int(type)](weights.data(), row_bytes(type, n), at, k, activations.data(), k, 1, cut.data(), n);
        table->dot_columns[int(type)](weights.data() + at * bytes, row_bytes(type, n), n - at, k, activations.data(), k, 1,
                                      cut.data() + at, n);
        ASSERT_TRUE(same_bits(cut.data(), all.data(), n)) << name_of(type) << " cut at " << at;
      }
    }
}

/// The product of `rows` rows through panels, as an op runs it.
void panel_product(const PanelKernels& panel, DType type, const char* w, bool by_columns, size_t n, size_t k, const float* x,
                   size_t rows, float* y, size_t y_stride) {
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
      panel.expand(type, block, stride, by_columns, outputs, k0, depth, aligned(storage));
      for (size_t row = 0; row < rows; row += 64)
        panel.multiply(aligned(storage), x, k, packed, rows, row, std::min(size_t(64), rows - row), k, k0, depth, outputs, y + j,
                       y_stride, k0 > 0);
    }
  }
}

void check_panel(const PanelKernels& panel, bool bf16) {
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
        if (is_block(type)) c.k = (c.k + 31) / 32 * 32;
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

TEST_P(ProductsTest, PanelF32EqualsReference) { check_panel(table->panel_f32, false); }

TEST_P(ProductsTest, PanelBf16EqualsReference) {
  if (table->panel_bf16.outputs == 0) GTEST_SKIP() << "f32 is faster on this target: it has no bf16 panel";
  check_panel(table->panel_bf16, true);
}

TEST_P(ProductsTest, PanelRowsDoNotDependOnTheirNeighbours) {
  for (const PanelKernels* panel : {&table->panel_f32, &table->panel_bf16}) {
    if (panel->outputs == 0) continue;
    const size_t rows = 75, n = 37, k = panel->depth + 40;
    const std::vector<char> w = random_weights(DType::f32, n, k, 30);
    const std::vector<float> x = random_values(rows * k, 31);
    std::vector<float> all(rows * n);
    panel_product(*panel, DType::f32, w.data(), false, n, k, x.data(), rows, all.data(), n);
    for (const size_t first : {1, 5, 16, 31, 60}) {  // other rows before and after, another place in the tile
      std::vector<float> some((rows - first) * n);
      panel_product(*panel, DType::f32, w.data(), false, n, k, x.data() + first * k, rows - first, some.data(), n);
      EXPECT_TRUE(same_bits(some.data(), all.data() + first * n, some.size())) << first;
    }
    for (const size_t at : {1, 13, 20}) {  // other outputs beside it
      std::vector<float> cut(rows * n);
      panel_product(*panel, DType::f32, w.data(), false, at, k, x.data(), rows, cut.data(), n);
      panel_product(*panel, DType::f32, w.data() + at * k * 4, false, n - at, k, x.data(), rows, cut.data() + at, n);
      EXPECT_TRUE(same_bits(cut.data(), all.data(), cut.size())) << at;
    }
    std::vector<float> poisoned = x;  // a NaN stays in its row
    poisoned[3 * k + 7] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> y(rows * n);
    panel_product(*panel, DType::f32, w.data(), false, n, k, poisoned.data(), rows, y.data(), n);
    EXPECT_TRUE(std::isnan(y[3 * n]));
    EXPECT_TRUE(same_bits(y.data() + 4 * n, all.data() + 4 * n, (rows - 4) * n));
  }
}

VITRINE_FOR_EVERY_TARGET(ProductsTest);

}  // namespace
}  // namespace vitrine
