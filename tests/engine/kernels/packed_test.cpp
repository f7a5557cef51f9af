// Products of two packed matrices against sums in double: every edge, plain and transposed, set and added.
#include "packed_check.h"
#include "panel_check.h"

namespace vitrine {
namespace {

using PackedTest = EveryTarget;

TEST_P(PackedTest, F32EqualsReference) { check_packed(table->packed_f32, false); }

TEST_P(PackedTest, Bf16EqualsReference) {
  if (table->packed_bf16.rows == 0) GTEST_SKIP() << "this target multiplies in f32";
  check_packed(table->packed_bf16, true);
}

// An op may choose either for f32 weights.
TEST_P(PackedTest, F32HasTheBitsOfThePanels) {
  const size_t rows = 75, n = 45, k = table->packed_f32.depth + 77;
  const std::vector<float> x = random_values(rows * k, 75), w = random_values(n * k, 76);
  std::vector<float> by_panel(rows * n), packed(rows * n);
  panel_product(table->panel_f32, DType::f32, reinterpret_cast<const char*>(w.data()), false, n, k, x.data(), rows,
                by_panel.data(), n);
  packed_product(table->packed_f32, x.data(), false, w.data(), true, rows, n, k, packed.data(), n, false);
  EXPECT_TRUE(same_bits(by_panel.data(), packed.data(), packed.size()));
}

TEST_P(PackedTest, NaNStaysInItsRowAndColumn) {
  for (const PackedKernels* p : {&table->packed_f32, &table->packed_bf16}) {
    if (p->rows == 0) continue;
    const size_t n = 40, depth = 50;
    std::vector<float> a = random_values(n * depth, 73), b = random_values(depth * n, 74), c(n * n);
    a[7 * depth + 3] = std::numeric_limits<float>::quiet_NaN();
    b[9 * n + 11] = std::numeric_limits<float>::infinity();
    packed_product(*p, a.data(), false, b.data(), false, n, n, depth, c.data(), n, false);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) ASSERT_EQ(std::isfinite(c[i * n + j]), i != 7 && j != 11) << i << " " << j;
  }
}

VITRINE_FOR_EVERY_TARGET(PackedTest);

}  // namespace
}  // namespace vitrine
