#pragma once
// What loops of ops share: their work is shared among the threads, where it is small done by the caller (a region costs about
// 1 us); their kernels go by the type of their elements.
#include <algorithm>
#include <type_traits>

#include "ops/context.h"
#include "ops/weight.h"

namespace vitrine {

/// Calls f(first, n), or f(first, n, thread), so that [0, count) is covered once; `each` elements are touched per item. Nothing
/// in a dry run.
template <class F>
void parallel_for(Context& ctx, int64_t count, int64_t each, F&& f) {
  constexpr int64_t kChunk = 16384;  // elements per chunk
  if (count <= 0) return;
  const bool share = count * each > 2 * kChunk;
  const int64_t per_chunk = share ? std::max<int64_t>(1, kChunk / std::max<int64_t>(1, each)) : count;
  ctx.run((count + per_chunk - 1) / per_chunk, share,
          [&](int64_t chunk, int thread) {
            const int64_t first = chunk * per_chunk, n = std::min(per_chunk, count - first);
            if constexpr (std::is_invocable_v<F&, int64_t, int64_t, int>)
              f(first, n, thread);
            else
              f(first, n);
          },
          [&](int64_t chunk) { return TaskCost{.elements = each * std::min(per_chunk, count - chunk * per_chunk)}; });
}

/// The kernel for floats, the definition for gradient checks in double.
template <class T, class Fast, class Plain>
auto of_type(Fast fast, Plain plain) {
  if constexpr (std::is_same_v<T, float>) {
    return fast;
  } else {
    return plain;
  }
}

/// sum[i] += parts[i] + parts[part_stride + i] + …, one after the other, for i < d.
template <class T>
void add_parts(Context& ctx, const T* parts, int64_t n_parts, int64_t part_stride, int64_t d, T* sum) {
  parallel_for(ctx, d, n_parts, [&](int64_t first, int64_t n) {
    for (int64_t p = 0; p < n_parts; ++p)
      for (int64_t i = first; i < first + n; ++i) sum[i] += parts[p * part_stride + i];
  });
}

/// The elements of `v` as T: where they lie, or converted into the context's scratch. Null for an empty vector.
template <class T>
const T* values_of(Context& ctx, const Vector& v) {
  if (!v) return nullptr;
  if (v.dtype == (std::is_same_v<T, double> ? DType::f64 : DType::f32)) return static_cast<const T*>(v.data);
  T* wide = ctx.scratch<T>(static_cast<size_t>(v.size));
  for (int64_t i = 0; i < v.size && ctx.dry() == nullptr; ++i) wide[i] = v.at<T>(i);
  return wide;
}

}  // namespace vitrine
