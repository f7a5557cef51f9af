// Products of two packed matrices against sums in double: every edge, plain and turned, set and added.
#include "packed_check.h"

namespace vitrine {
namespace {

using PackedTest = EveryTarget;

TEST_P(PackedTest, F32EqualsReference) { check_packed(table->packed_f32, false); }

TEST_P(PackedTest, Bf16EqualsReference) {
  if (table->packed_bf16.rows == 0) GTEST_SKIP() << "this target multiplies in f32";
  check_packed(table->packed_bf16, true);
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
