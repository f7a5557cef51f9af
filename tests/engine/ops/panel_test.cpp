// Which panel multiplies, by type, numerics and number of rows.
#include "ops/panel.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

// A table with tiles: byte products up to 32 rows, bf16 beyond.
KernelTable with_tiles() {
  KernelTable k = kernels();
  k.panel_f32.outputs = k.panel_bf16.outputs = k.panel_int8.outputs = 16;
  k.panel_int8_rows = 32;
  k.dot_rows_int8[static_cast<size_t>(DType::q8_0)] = [](const void*, size_t, size_t, size_t, const ActivationBlock*, size_t,
                                                         size_t, float*, size_t) {};
  return k;
}

TEST(Panel, OfBlockTypesGoesByTheRowsWhereTilesAreFasterForMany) {
  const KernelTable k = with_tiles();
  EXPECT_EQ(&panel_for(k, {}, DType::q8_0, 9), &k.panel_int8);
  EXPECT_EQ(&panel_for(k, {}, DType::q8_0, 32), &k.panel_int8);
  EXPECT_EQ(&panel_for(k, {}, DType::q8_0, 33), &k.panel_bf16);
  EXPECT_EQ(&panel_for(k, {}, DType::bf16, 9), &k.panel_bf16);
  EXPECT_EQ(&panel_for(k, {}, DType::f32, 9), &k.panel_f32);
}

TEST(Panel, IsOneForAnyNumberOfRowsWhereBitsMustAgree) {
  const KernelTable k = with_tiles();
  for (const int64_t rows : {1, 9, 32, 33, 512}) {
    EXPECT_EQ(&panel_for(k, {.exact = true}, DType::q8_0, rows), &k.panel_bf16);
    EXPECT_EQ(&panel_for(k, {.f32 = true, .exact = true}, DType::q8_0, rows), &k.panel_f32);
  }
}

TEST(Panel, WithoutTilesIsOfBytesForAnyNumberOfRows) {
  KernelTable k = with_tiles();
  k.panel_int8_rows = SIZE_MAX;
  EXPECT_EQ(&panel_for(k, {.exact = true}, DType::q8_0, 1), &k.panel_int8);
  EXPECT_EQ(&panel_for(k, {}, DType::q8_0, 512), &k.panel_int8);
}

}  // namespace
}  // namespace vitrine
