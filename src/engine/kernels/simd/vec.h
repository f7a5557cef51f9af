#pragma once
// What every loop under simd/ stands on: vectors of f32 of the instruction set this file is compiled for, loads and
// stores of a few values, and the stored weight types as f32 vectors.
//
// These headers are compiled once per instruction set, each time into one object that exports its table and nothing
// else: everything lies in the anonymous namespace, and no inline function of another header is called (an AVX-512
// copy of it could be the one that the linker keeps for every CPU).
#ifndef HWY_COMPILE_ONLY_STATIC
#define HWY_COMPILE_ONLY_STATIC
#endif
#if defined(__aarch64__) && !defined(TOOLCHAIN_MISS_SYS_AUXV_H)
// Without dispatch of its own, which we do not use, Highway marks no function as one that needs AES, as it else does on Arm.
#define TOOLCHAIN_MISS_SYS_AUXV_H
#endif
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/blocks/parts.h"
#include "base/dtype.h"
#include "kernels/table.h"

// Whether the instruction set has loads and stores of part of a vector; elsewhere Highway's touch all of it.
#define VITRINE_MASKED_ACCESS (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)

namespace vitrine {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<Tag>;
using Vec = hn::Vec<Tag>;
constexpr size_t kLanes = HWY_LANES(float);
constexpr int kVectors = int(kBlock / kLanes);  // vectors per unit of 32 elements
#if HWY_TARGET <= HWY_AVX3
constexpr bool kManyRegisters = true;  // 32 vector registers; 16 otherwise
#elif HWY_ARCH_ARM
constexpr bool kManyRegisters = true;
#else
constexpr bool kManyRegisters = false;
#endif

constexpr float kLaneNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

HWY_INLINE size_t min_of(size_t a, size_t b) { return a < b ? a : b; }
/// f(std::integral_constant<int, rows>()) for the 1 to kFewRows rows of a product of few rows.
template <class F>
HWY_INLINE void with_rows(size_t rows, const F& f) {
  static_assert(kFewRows == 8);
  switch (rows) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    case 3: return f(std::integral_constant<int, 3>());
    case 4: return f(std::integral_constant<int, 4>());
    case 5: return f(std::integral_constant<int, 5>());
    case 6: return f(std::integral_constant<int, 6>());
    case 7: return f(std::integral_constant<int, 7>());
    case 8: return f(std::integral_constant<int, 8>());
    default: return;
  }
}
/// Asks for memory that is read soon. A few weight rows are read side by side, but asked for one after the other, as they lie:
/// memory answers one stream faster than many.
template <bool kFirstCache = false>
HWY_INLINE void ask_for(const char* p, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(p + line, 0, kFirstCache ? 3 : 2);
}
/// What to ask for while the rows at w are read, which lie in so many bytes: what lies so far behind them that memory has
/// answered before it is read. On Zen 4, asking for the next rows alone is up to 40 % slower; from 6 KiB on, two threads lose 8 %
/// where other machines on the host leave them little.
constexpr size_t kRowsAhead = 4096;
HWY_INLINE const char* ahead_of_rows(const char* w, size_t bytes) { return w + bytes + kRowsAhead; }
/// A product of one row of x no longer than this reads many outputs side by side, which costs fewer instructions: the weights of
/// such models lie in a cache. Longer ones come from memory, which answers faster the fewer streams are read from it.
constexpr size_t kShortRow = 640;
/// Rows of so many bytes that are read together come into the first cache when asked for: all that is on its way fits.
constexpr size_t kNearRows = 6144;
HWY_INLINE Vec load(const float* p) { return hn::LoadU(Tag(), p); }
HWY_INLINE void store(Vec v, float* p) { hn::StoreU(v, Tag(), p); }
HWY_INLINE Vec broadcast(float value) { return hn::Set(Tag(), value); }
HWY_INLINE float sum_of(Vec v) { return hn::GetLane(hn::SumOfLanes(Tag(), v)); }
HWY_INLINE float max_of(Vec v) { return hn::GetLane(hn::MaxOfLanes(Tag(), v)); }

/// The first n < kLanes values at p, zeros above; touches only those.
HWY_INLINE Vec load_n(const float* p, size_t n) {
#if VITRINE_MASKED_ACCESS
  return hn::MaskedLoad(hn::FirstN(Tag(), n), Tag(), p);
#else
  float buffer[kLanes] = {};
  memcpy(buffer, p, n * sizeof(float));
  return load(buffer);
#endif
}
HWY_INLINE void store_n(Vec v, float* p, size_t n) {
#if VITRINE_MASKED_ACCESS
  hn::BlendedStore(v, hn::FirstN(Tag(), n), Tag(), p);
#else
  float buffer[kLanes];
  store(v, buffer);
  memcpy(p, buffer, n * sizeof(float));
#endif
}
/// Any n: a whole vector where n allows.
HWY_INLINE Vec load_up_to(const float* p, size_t n) { return n >= kLanes ? load(p) : load_n(p, n); }
HWY_INLINE void store_up_to(Vec v, float* p, size_t n) {
  if (n >= kLanes) {
    store(v, p);
  } else {
    store_n(v, p, n);
  }
}

/// A type of weight: load(p) widens kLanes consecutive values (float types); part<V>(row, i) gives the values
/// i + V * kLanes ... of a row, i a multiple of 32.
struct WeightF32 {
  static constexpr bool kIsBlock = false;
  static constexpr size_t kBytes = 4;
  static HWY_INLINE Vec load(const char* p) { return hn::LoadU(Tag(), reinterpret_cast<const float*>(p)); }
};
struct WeightF16 {
  static constexpr bool kIsBlock = false;
  static constexpr size_t kBytes = 2;
  static HWY_INLINE Vec load(const char* p) {
    const hn::Rebind<hwy::float16_t, Tag> half;
    return hn::PromoteTo(Tag(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
  }
};
struct WeightBf16 {
  static constexpr bool kIsBlock = false;
  static constexpr size_t kBytes = 2;
  static HWY_INLINE Vec load(const char* p) {
    const hn::Rebind<uint16_t, Tag> half;
    const hn::RebindToUnsigned<Tag> wide;
    const auto bits = hn::PromoteTo(wide, hn::LoadU(half, reinterpret_cast<const uint16_t*>(p)));
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(bits));
  }
};

/// An f16 scale in every lane.
HWY_INLINE Vec broadcast_f16(const char* p) { return broadcast(half_at(reinterpret_cast<const uint8_t*>(p))); }
struct WeightQ8 {
  static constexpr bool kIsBlock = true;
  static constexpr size_t kBytes = sizeof(BlockQ8_0);  // of 32 values
  template <int V>
  static HWY_INLINE Vec part(const char* row, size_t i) {
    const char* block = row + i / kBlock * sizeof(BlockQ8_0);
    const hn::Rebind<int8_t, Tag> bytes;
    const auto q = hn::LoadU(bytes, reinterpret_cast<const int8_t*>(block + 2) + V * kLanes);
    return hn::Mul(hn::ConvertTo(Tag(), hn::PromoteTo(IntTag(), q)), broadcast_f16(block));
  }
};
struct WeightQ4 {
  static constexpr bool kIsBlock = true;
  static constexpr size_t kBytes = sizeof(BlockQ4_0);
  template <int V>
  static HWY_INLINE Vec part(const char* row, size_t i) {
    const char* block = row + i / kBlock * sizeof(BlockQ4_0);
    constexpr bool kHigh = V * kLanes >= 16;  // bytes hold values 0..15 low, 16..31 high
    const hn::Rebind<uint8_t, Tag> bytes;
    const auto q = hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(block + 2) + (V * kLanes) % 16);
    const auto wide = hn::PromoteTo(IntTag(), q);
#if HWY_TARGET <= HWY_AVX3  // the 16 possible values as a table, indexed by the lowest four bits of each lane
    const Vec values = Vec{_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)};
    const auto index = kHigh ? hn::ShiftRight<4>(wide) : wide;
    return Vec{_mm512_permutexvar_ps(index.raw, hn::Mul(values, broadcast_f16(block)).raw)};
#else
    const auto nibble = kHigh ? hn::ShiftRight<4>(wide) : hn::And(wide, hn::Set(IntTag(), 15));
    return hn::Mul(hn::ConvertTo(Tag(), hn::Sub(nibble, hn::Set(IntTag(), 8))), broadcast_f16(block));
#endif
  }
};

/// kLanes values i + V * kLanes ... of a row of any type; i a multiple of 32.
template <class W, int V>
HWY_INLINE Vec weight_part(const char* row, size_t i) {
  if constexpr (W::kIsBlock) {
    return W::template part<V>(row, i);
  } else {
    return W::load(row + (i + V * kLanes) * W::kBytes);
  }
}
/// The first n < kLanes values at p of a float type, zeros above; touches only those.
template <class W>
HWY_INLINE Vec weight_load_n(const char* p, size_t n) {
  alignas(64) char buffer[kLanes * 4] = {};
  memcpy(buffer, p, n * W::kBytes);
  return W::load(buffer);
}
template <class W>
HWY_INLINE Vec weight_load_up_to(const char* p, size_t n) {
  return n >= kLanes ? W::load(p) : weight_load_n<W>(p, n);
}

/// y[i] = op(x[i]); a value's bits do not depend on its place.
template <class Op>
HWY_INLINE void map(const float* x, size_t n, float* y, Op op) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(op(load(x + i)), y + i);
  if (i < n) store_n(op(load_n(x + i, n - i)), y + i, n - i);
}
/// y[i] = op(a[i], b[i])
template <class Op>
HWY_INLINE void map(const float* a, const float* b, size_t n, float* y, Op op) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(op(load(a + i), load(b + i)), y + i);
  if (i < n) store_n(op(load_n(a + i, n - i), load_n(b + i, n - i)), y + i, n - i);
}

}  // namespace
}  // namespace vitrine
