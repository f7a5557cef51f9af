#pragma once
// Sharing a loop over rows or numbers among the threads; small work stays on the caller (a region costs about 1 us).
#include <algorithm>

#include "ops/context.h"
#include "ops/weight.h"

namespace vitrine {

/// Calls f(first, n) so that [0, count) is covered once; `each` numbers are touched per item.
template <class F>
void share(Context& ctx, int64_t count, int64_t each, F&& f) {
  constexpr int64_t kChunk = 16384;  // numbers per chunk
  if (count * each <= 2 * kChunk) {
    if (count > 0) f(int64_t{0}, count);
    return;
  }
  const int64_t per_chunk = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, each));
  ctx.pool().run((count + per_chunk - 1) / per_chunk, [&](int64_t chunk, int) {
    const int64_t first = chunk * per_chunk;
    f(first, std::min(per_chunk, count - first));
  });
}

/// The numbers of `v` as T: where they lie, or converted into the context's scratch. Null for an empty vector.
template <class T>
const T* numbers(Context& ctx, const Vector& v) {
  if (!v) return nullptr;
  if (v.dtype == (std::is_same_v<T, double> ? DType::f64 : DType::f32)) return static_cast<const T*>(v.data);
  T* wide = ctx.scratch<T>(static_cast<size_t>(v.size));
  for (int64_t i = 0; i < v.size; ++i) wide[i] = v.at<T>(i);
  return wide;
}

}  // namespace vitrine
