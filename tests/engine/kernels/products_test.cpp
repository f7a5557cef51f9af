// Products of few rows and of many, of every weight type, against the double reference; and their bits under every cut.
#include "kernels/reference/linear.h"
#include "panel_check.h"

namespace vitrine {
namespace {

using ProductsTest = EveryTarget;

/// Rows of x [rows, k] as int8.
std::vector<ActivationBlock> quantized(const std::vector<float>& x, size_t k) {
  const size_t rows = k == 0 ? 0 : x.size() / k, blocks = activation_blocks(k);
  std::vector<ActivationBlock> q(rows * blocks);
  for (size_t r = 0; r < rows; ++r) quantize_int8_reference(x.data() + r * k, k, q.data() + r * blocks);
  return q;
}

std::vector<DType> block_types() {
  std::vector<DType> types(std::begin(kAllWeightTypes), std::end(kAllWeightTypes));
  std::erase_if(types, [](DType type) { return !has_integers(type); });
  return types;
}

std::vector<size_t> depths(DType type) {
  std::vector<size_t> all = lengths();
  for (const size_t k : {512, 1280}) all.push_back(k);
  std::erase_if(all, [&](size_t k) { return k % block_elements(type) != 0; });
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
    const size_t n = 21, k = is_decoded(type) ? 512 : 96, stride = row_bytes(type, k);
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

TEST_P(ProductsTest, SmallProductsEqualReference) {
  for (const size_t rows : {1, 3, 4, 9})
    for (const size_t depth : {0, 1, 7, 64})
      for (const size_t n : {1, 5, 16, 63, 64, 130}) {
        const size_t a_stride = depth + 2, b_stride = n + 3, c_stride = n + 1;
        const std::vector<float> left = random_values(rows * a_stride, 60), right = random_values(depth * b_stride, 61),
                                 before = random_values(rows * c_stride, 62);
        // Not one number more than they hold: the last row ends where its numbers do.
        const Guarded<float> a(std::vector<float>(left.begin(), left.end() - 2)),
            b(std::vector<float>(right.begin(), right.end() - (depth > 0 ? 3 : 0)));
        Guarded<float> set(rows * c_stride), added(before);
        const float factor = 0.25f;
        table->set_products(a.data(), a_stride, rows, b.data(), b_stride, depth, n, factor, set.data(), c_stride);
        table->add_products(a.data(), a_stride, rows, b.data(), b_stride, depth, n, added.data(), c_stride);
        EXPECT_TRUE(set.intact() && added.intact());
        for (size_t r = 0; r < rows; ++r) {
          for (size_t j = 0; j < n; ++j) {
            double sum = 0, magnitude = 0;
            for (size_t i = 0; i < depth; ++i) {
              const double term = double(left[r * a_stride + i]) * double(right[i * b_stride + j]);
              sum += term;
              magnitude += std::abs(term);
            }
            const double start = before[r * c_stride + j];
            ASSERT_TRUE(close(set[r * c_stride + j], 0.25 * sum, sum_tolerance(depth, magnitude)))
                << rows << " " << depth << " " << n;
            ASSERT_TRUE(close(added[r * c_stride + j], start + sum, sum_tolerance(depth + 1, magnitude + std::abs(start))));
          }
          EXPECT_EQ(added[r * c_stride + n], before[r * c_stride + n]);  // what lies between the rows stays
          std::vector<float> alone(n);
          table->set_products(a.data() + r * a_stride, a_stride, 1, b.data(), b_stride, depth, n, factor, alone.data(), n);
          ASSERT_TRUE(same_bits(alone.data(), set.data() + r * c_stride, n)) << "a row's bits depend on its neighbors";
        }
      }
}

TEST_P(ProductsTest, DotRowsInt8EqualsReference) {
  for (const DType type : block_types())
    for (const size_t k : {0, 32, 64, 96, 256, 288, 768, 2304})
      for (const size_t n : {1, 4, 7, 18}) {
        if (k % block_elements(type) != 0 || (k > 768 && n == 18 && is_decoded(type))) continue;
        const std::vector<char> w = random_weights(type, n, k, 24);
        const std::vector<float> x = random_values(kFewRows * k, 25);
        const size_t blocks = activation_blocks(k);
        const Guarded<ActivationBlock> q(quantized(x, k));
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
        const std::vector<ActivationBlock> q = quantized(std::vector<float>(64, value), 64);
        double want;
        dot_rows_int8_reference(type, w.data(), w.size(), 1, 64, q.data(), 1, 1, &want, 1);
        float got;
        table->dot_rows_int8[int(type)](w.data(), w.size(), 1, 64, q.data(), 1, 1, &got, 1);
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

TEST_P(ProductsTest, PanelF32EqualsReference) { check_panel(table->panel_f32, false); }

TEST_P(ProductsTest, PanelBf16EqualsReference) {
  if (table->panel_bf16.outputs == 0) GTEST_SKIP() << "f32 is faster on this target: it has no bf16 panel";
  check_panel(table->panel_bf16, true);
}

TEST_P(ProductsTest, PanelRowsDoNotDependOnTheirNeighbors) {
  check_panel_rows(table->panel_f32);
  if (table->panel_bf16.outputs != 0) check_panel_rows(table->panel_bf16);
  if (table->panel_int8.outputs == 0) return;
  for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k, DType::q2_k})
    check_panel_rows(table->panel_int8, type);
}

TEST_P(ProductsTest, PanelInt8EqualsReference) {
  const PanelKernels& panel = table->panel_int8;
  if (panel.outputs == 0) GTEST_SKIP() << "another panel is faster on this target: it has no int8 panel";
  struct Case {
    size_t rows, n, k;
  };
  std::vector<Case> cases = {
      {9, panel.outputs - 1, panel.depth}, {70, panel.outputs + 1, panel.depth + 32}, {33, 40, 2 * panel.depth + 96}};
  for (size_t n = 1; n <= 33; ++n) cases.push_back({n + 8, n, 64});
  for (const DType type : block_types())
    for (Case c : cases) {
      if (is_decoded(type) && c.n <= 33 && c.n % 8 > 1) continue;
      c.k = (c.k + block_elements(type) - 1) / block_elements(type) * block_elements(type);
      const std::vector<char> w = random_weights(type, c.n, c.k, 32);
      const std::vector<float> x = random_values(c.rows * c.k, 33);
      const std::vector<ActivationBlock> q = quantized(x, c.k);
      std::vector<double> want(c.rows * c.n);
      dot_rows_int8_reference(type, w.data(), row_bytes(type, c.k), c.n, c.k, q.data(), activation_blocks(c.k), c.rows,
                              want.data(), c.n);
      const Product exact = product(type, w, false, c.n, c.k, x, c.rows);
      const Guarded<char> weights(w);
      const Guarded<float> activations(x);
      Guarded<float> y(c.rows * c.n);
      panel_product(panel, type, weights.data(), false, c.n, c.k, activations.data(), c.rows, y.data(), c.n);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(close(y[i], want[i], sum_tolerance(c.k, exact.magnitude[i])))
            << name_of(type) << " rows " << c.rows << " n " << c.n << " k " << c.k << " at " << i << ": " << y[i] << ", not "
            << want[i];
      }
      EXPECT_TRUE(y.intact());
    }
}

TEST_P(ProductsTest, PanelInt8KeepsTheExtremes) {  // -128 in the file, 127 in the activations: no saturation
  const PanelKernels& panel = table->panel_int8;
  if (panel.outputs == 0) GTEST_SKIP() << "another panel is faster on this target: it has no int8 panel";
  for (const DType type : {DType::q8_0, DType::q4_0})
    for (const int fill : {0x80, 0x7f, 0xff, 0x00}) {
      std::vector<char> w(row_bytes(type, kBlock), char(fill));
      const uint16_t one = f32_to_f16(1.0f);
      std::memcpy(&w[0], &one, 2);
      std::vector<float> x(9 * kBlock, 127.0f);
      std::fill_n(x.begin(), 4 * kBlock, -127.0f);
      const std::vector<ActivationBlock> q = quantized(x, kBlock);
      std::vector<double> want(9);
      dot_rows_int8_reference(type, w.data(), w.size(), 1, kBlock, q.data(), 1, 9, want.data(), 1);
      std::vector<float> got(9);
      panel_product(panel, type, w.data(), false, 1, kBlock, x.data(), 9, got.data(), 1);
      for (size_t r = 0; r < 9; ++r) EXPECT_EQ(got[r], want[r]) << name_of(type) << " " << fill;
    }
}

VITRINE_FOR_EVERY_TARGET(ProductsTest);

}  // namespace
}  // namespace vitrine
