#pragma once
// One block of attention; the definition is kernels/reference/attention.h. Scores: lanes are keys, summed over head_dim
// in order. Weighted values: lanes are components of v, summed over the row's keys in order. So a row's bits depend on
// its own query, range and the block's keys and values only.
#include "kernels/simd/attention_narrow.h"
#include "kernels/simd/math.h"

namespace vitrine {
namespace {

constexpr int kQueryRows = 4;                           // rows that share the loads of keys and values
constexpr int kMostQueryRows = kManyRegisters ? 8 : 4;  // where there are many: keys and values come from the second cache
/// Vectors of columns in registers for each of R rows.
template <int R>
constexpr int tile_vectors() {
  return kManyRegisters && R <= 4 ? 4 : 2;
}

/// c[r][j] = factor * sum over i of a[r][i] b[i][j], or with kAdd c[r][j] + that sum (factor 1), for R rows and V vectors of
/// columns, the last of which has `last` columns.
template <int R, int V, bool kAdd>
HWY_INLINE void product_tile(const float* a, size_t a_stride, const float* b, size_t b_stride, size_t depth, size_t last,
                             float factor, float* c, size_t c_stride) {
  Vec sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) {
      sum[r][v] = hn::Zero(Tag());
      if constexpr (kAdd) sum[r][v] = load_up_to(c + size_t(r) * c_stride + size_t(v) * kLanes, v < V - 1 ? kLanes : last);
    }
  for (size_t i = 0; i < depth; ++i) {
    const float* row = b + i * b_stride;
    Vec column[V];
    for (int v = 0; v < V; ++v)
      column[v] = v < V - 1 ? load(row + size_t(v) * kLanes) : load_up_to(row + size_t(v) * kLanes, last);
    for (int r = 0; r < R; ++r) {
      const Vec weight = broadcast(a[size_t(r) * a_stride + i]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(weight, column[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store_up_to(kAdd ? sum[r][v] : hn::Mul(sum[r][v], broadcast(factor)), c + size_t(r) * c_stride + size_t(v) * kLanes,
                  v < V - 1 ? kLanes : last);
}
template <int R, bool kAdd>
HWY_INLINE void product_rows(const float* a, size_t a_stride, const float* b, size_t b_stride, size_t depth, size_t n,
                             float factor, float* c, size_t c_stride) {
  constexpr int kTileVectors = tile_vectors<R>();
  size_t j = 0;
  for (; j + kTileVectors * kLanes <= n; j += kTileVectors * kLanes)
    product_tile<R, kTileVectors, kAdd>(a, a_stride, b + j, b_stride, depth, kLanes, factor, c + j, c_stride);
  // What is left in one go: single vectors would wait for their own sums.
  const auto rest = [&](auto vectors) HWY_ATTR {
    constexpr int kV = decltype(vectors)::value;
    product_tile<R, kV, kAdd>(a, a_stride, b + j, b_stride, depth, n - j - (kV - 1) * kLanes, factor, c + j, c_stride);
  };
  switch ((n - j + kLanes - 1) / kLanes) {
    case 0: return;
    case 1: return rest(std::integral_constant<int, 1>());
    case 2: return rest(std::integral_constant<int, 2>());
    case 3: return rest(std::integral_constant<int, (kTileVectors > 2 ? 3 : 2)>());
    default: return rest(std::integral_constant<int, kTileVectors>());
  }
}
template <bool kAdd>
HWY_INLINE void products(const float* a, size_t a_stride, size_t rows, const float* b, size_t b_stride, size_t depth, size_t n,
                         float factor, float* c, size_t c_stride) {
  size_t r = 0;
  for (; r + kQueryRows <= rows; r += kQueryRows)
    product_rows<kQueryRows, kAdd>(a + r * a_stride, a_stride, b, b_stride, depth, n, factor, c + r * c_stride, c_stride);
  for (; r < rows; ++r)
    product_rows<1, kAdd>(a + r * a_stride, a_stride, b, b_stride, depth, n, factor, c + r * c_stride, c_stride);
}
void set_products(const float* a, size_t a_stride, size_t rows, const float* b, size_t b_stride, size_t depth, size_t n,
                  float factor, float* c, size_t c_stride) {
  products<false>(a, a_stride, rows, b, b_stride, depth, n, factor, c, c_stride);
}
void add_products(const float* a, size_t a_stride, size_t rows, const float* b, size_t b_stride, size_t depth, size_t n, float* c,
                  size_t c_stride) {
  products<true>(a, a_stride, rows, b, b_stride, depth, n, 1, c, c_stride);
}

/// The scores of R rows with the keys [begin, end) of the block: scale * q . k.
template <int R>
HWY_INLINE void score_rows(const AttentionBlock& b, size_t row, size_t begin, size_t end, float* scores) {
  const float* q = b.q + row * b.q_stride;
  switch (b.k_narrow.type) {
    case DType::f16: return narrow_scores<LineF16, R>(b, q, begin, end, scores);
    case DType::q8_0: return narrow_scores<LineQ8, R>(b, q, begin, end, scores);
    case DType::q4_0: return narrow_scores<LineQ4, R>(b, q, begin, end, scores);
    default: break;
  }
  // Whole vectors where the block has them: lanes beyond a row's range are masked in soften().
  begin = begin / kLanes * kLanes;
  end = min_of((end + kLanes - 1) / kLanes * kLanes, b.keys);
  product_rows<R, false>(q, b.q_stride, b.k_t + begin, b.k_stride, b.head_dim, end - begin, b.scale, scores + begin, kKeyBlock);
}

/// z[r] += sum over j in [begin, end) of p[r][j] v[j], for R rows.
template <int R>
HWY_INLINE void value_rows(const AttentionBlock& b, const float* p, size_t begin, size_t end, float* z) {
  if (begin >= end) return;
  switch (b.v_narrow.type) {
    case DType::f16: return narrow_values<LineF16, R>(b, p, begin, end, z);
    case DType::q8_0: return narrow_values<LineQ8, R>(b, p, begin, end, z);
    case DType::q4_0: return narrow_values<LineQ4, R>(b, p, begin, end, z);
    default: break;
  }
  product_rows<R, true>(p + begin, kKeyBlock, b.v + begin * b.v_stride, b.v_stride, end - begin, b.v_dim, 1, z, b.z_stride);
}

/// Scores to weights exp(s - m) for the row's own keys; updates largest, total and the scale of z.
/// Returns false if the row has nothing to add.
HWY_INLINE bool soften(const AttentionBlock& b, size_t row, size_t first, size_t last, float* s) {
  if (first >= last) return false;
  const Vec none = broadcast(-__builtin_inff()), cap = broadcast(b.softcap);
  const size_t begin = first / kLanes * kLanes;
  const Vec lane = load(kLaneNumbers);
  const auto own = [=](size_t j) HWY_ATTR {  // lanes of the vector at j that the row sees
    return hn::And(hn::Ge(lane, broadcast(float(int(first) - int(j)))), hn::Lt(lane, broadcast(float(int(last) - int(j)))));
  };
  const float slope = b.slope != nullptr ? b.slope[row] : 0, place = b.slope != nullptr ? b.place[row] : 0;
  Vec top = none;
  auto nan = hn::Lt(none, none);
  for (size_t j = begin; j < last; j += kLanes) {
    Vec v = load_up_to(s + j, b.k_narrow.type == DType::f32 ? min_of(kLanes, b.keys - j) : kLanes);
    if (b.softcap != 0) v = hn::Mul(cap, tanh(hn::Div(v, cap)));
    if (slope != 0) v = hn::MulAdd(broadcast(slope), hn::Add(lane, broadcast(float(int(j)) - place)), v);
    v = hn::IfThenElse(own(j), v, none);
    nan = hn::Or(nan, hn::IsNaN(v));
    top = hn::Max(v, top);
    store(v, s + j);  // scratch rows are whole vectors
  }
  const float before = b.largest[row];
  float m = max_of(top);
  if (!(m > before)) m = before;
  if (m == -__builtin_inff() && hn::AllFalse(Tag(), nan)) return false;
  const Vec shift = broadcast(m);
  Vec sum = hn::Zero(Tag());
  for (size_t j = begin; j < last; j += kLanes) {
    const Vec p = hn::IfThenElse(own(j), exp(hn::Sub(load(s + j), shift)), hn::Zero(Tag()));
    sum = hn::Add(sum, p);
    store(p, s + j);
  }
  const float correction = before == -__builtin_inff() ? 0.0f : hn::GetLane(exp(broadcast(before - m)));
  b.total[row] = b.total[row] * correction + sum_of(sum);
  b.largest[row] = m;
  if (correction != 1.0f) {
    float* z = b.z + row * b.z_stride;
    const Vec factor = broadcast(correction);
    map(z, b.v_dim, z, [=](Vec v) HWY_ATTR { return hn::Mul(v, factor); });
  }
  return true;
}

template <int R>
void attention_rows(const AttentionBlock& b, size_t row) {
  size_t first[R], last[R], begin = b.keys, end = 0;
  for (int r = 0; r < R; ++r) {
    const int32_t f = b.first[row + size_t(r)], l = b.last[row + size_t(r)];
    first[r] = f > 0 ? size_t(f) : 0;
    last[r] = l > 0 ? min_of(size_t(l), b.keys) : 0;
    if (first[r] >= last[r]) continue;
    begin = min_of(begin, first[r]);
    end = last[r] > end ? last[r] : end;
  }
  if (begin >= end) return;
  float* scores = b.scratch + row * kKeyBlock;
  score_rows<R>(b, row, begin, end, scores);

  // Keys that all rows see are read once for all; what only one row sees before and after them, for it alone.
  size_t common_first = 0, common_last = b.keys;
  bool active[R], all = true;
  for (int r = 0; r < R; ++r) {
    active[r] = soften(b, row + size_t(r), first[r], last[r], scores + size_t(r) * kKeyBlock);
    all &= active[r];
    common_first = first[r] > common_first ? first[r] : common_first;
    common_last = min_of(common_last, last[r]);
  }
  const bool shared = R > 1 && all && common_first < common_last;
  float* z = b.z + row * b.z_stride;
  for (int r = 0; r < R; ++r)
    if (active[r])
      value_rows<1>(b, scores + size_t(r) * kKeyBlock, first[r], shared ? common_first : last[r], z + size_t(r) * b.z_stride);
  if (!shared) return;
  value_rows<R>(b, scores, common_first, common_last, z);
  for (int r = 0; r < R; ++r) value_rows<1>(b, scores + size_t(r) * kKeyBlock, common_last, last[r], z + size_t(r) * b.z_stride);
}

void attention(const AttentionBlock& b) {
  size_t row = 0;
  for (; row + kMostQueryRows <= b.rows; row += kMostQueryRows) attention_rows<kMostQueryRows>(b, row);
  for (; row + kQueryRows <= b.rows; row += kQueryRows) attention_rows<kQueryRows>(b, row);
  for (; row + 2 <= b.rows; row += 2) attention_rows<2>(b, row);
  for (; row < b.rows; ++row) attention_rows<1>(b, row);
}

}  // namespace
}  // namespace vitrine
