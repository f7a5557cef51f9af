// The tile kernel over plain C++ tiles: packing, edges and bounds on machines without the tile unit.
#include "kernels/amx/packed.h"
#include "packed_check.h"
#include "panel_check.h"

namespace vitrine {
namespace {

TEST(AmxPlainTiles, PanelEqualsReference) { check_panel(amx_panel<PlainTiles>(), true); }
TEST(AmxPlainTiles, RowsDoNotDependOnTheirNeighbors) { check_panel_rows(amx_panel<PlainTiles>()); }

TEST(AmxPlainTiles, PackedProductsEqualReference) { check_packed(amx_packed<PlainTiles>(), true); }

TEST(AmxPlainTiles, Bf16RoundsAsTheReferenceDoes) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = random_values(4096, 50);
  values.insert(values.end(), {0.0f, -0.0f, nan, -nan, infinity, -infinity, 1e-40f, 3.4e38f, 1.00390625f, 1.01171875f});
  for (size_t i = 0; i + kLanes <= values.size(); ++i) {
    uint16_t got[kLanes];
    store_bf16(load(&values[i]), got, kLanes);
    for (size_t j = 0; j < kLanes; ++j) ASSERT_EQ(got[j], f32_to_bf16(values[i + j])) << values[i + j];
  }
}

}  // namespace
}  // namespace vitrine
