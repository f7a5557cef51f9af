#pragma once
// The tile unit in two forms with one interface: AsmTiles issues the instructions, PlainTiles does the same in C++, so
// that packing, edges and bounds are tested on every machine and under sanitizers.
//
// Eight tiles of 16 rows of 64 bytes. dot<C, A, B> adds to C [16, 16] of f32 the product of A [16, 32] of bf16 and B,
// which holds a [32, 16] matrix in pairs: B[i][2 j], B[i][2 j + 1] are its elements (2 i, j), (2 i + 1, j).
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vitrine {
namespace {

constexpr size_t kTileSide = 16, kTileDepth = 32, kTileBytes = 64;  // rows; bf16 along a row; bytes of a row

#ifdef __AMX_TILE__
/// Own assembly with a memory clobber: GCC 12's intrinsics do not say which memory they read, and stores before them
/// are dropped.
class AsmTiles {
 public:
  AsmTiles() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(Config) == 64);
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = kTileBytes;
      config.rows[t] = kTileSide;
    }
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  ~AsmTiles() { asm volatile("tilerelease" : : : "memory"); }
  AsmTiles(const AsmTiles&) = delete;
  AsmTiles& operator=(const AsmTiles&) = delete;

  template <int T>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  template <int T>
  void load(const void* p, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void store(void* p, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(T) : "memory");
  }
  template <int C, int A, int B>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
};
#endif

class PlainTiles {
 public:
  template <int T>
  void zero() {
    std::memset(tile_[T], 0, sizeof tile_[T]);
  }
  template <int T>
  void load(const void* p, size_t stride) {
    for (size_t i = 0; i < kTileSide; ++i) std::memcpy(tile_[T][i], static_cast<const char*>(p) + i * stride, kTileBytes);
  }
  template <int T>
  void store(void* p, size_t stride) {
    for (size_t i = 0; i < kTileSide; ++i) std::memcpy(static_cast<char*>(p) + i * stride, tile_[T][i], kTileBytes);
  }
  template <int C, int A, int B>
  void dot() {
    for (size_t m = 0; m < kTileSide; ++m)
      for (size_t n = 0; n < kTileSide; ++n) {
        float sum;
        std::memcpy(&sum, &tile_[C][m][4 * n], 4);
        for (size_t i = 0; i < kTileDepth; ++i) sum += element(A, m, i) * element(B, i / 2, 2 * n + i % 2);
        std::memcpy(&tile_[C][m][4 * n], &sum, 4);
      }
  }

 private:
  float element(int t, size_t row, size_t i) const {
    uint16_t bits;
    std::memcpy(&bits, &tile_[t][row][2 * i], 2);
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  unsigned char tile_[8][kTileSide][kTileBytes] = {};
};

}  // namespace
}  // namespace vitrine
