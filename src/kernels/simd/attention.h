#pragma once
// One block of attention; the definition is kernels/reference/attention.h. Scores: lanes are keys, summed over head_dim
// in order. Weighted values: lanes are components of v, summed over the row's keys in order. So a row's bits depend on
// its own query, range and the block's keys and values only.
#include "kernels/simd/math.h"

namespace vitrine {
namespace {

constexpr int kQueryRows = 4;                       // rows that share the loads of keys and values
constexpr int kTileVectors = kLanes >= 16 ? 4 : 2;  // vectors of keys or components in registers per row

/// scores[r][j] = scale * q_r . k_j for R rows, all j in [begin, end).
template <int R, int V>
HWY_INLINE void score_tile(const AttentionBlock& b, const float* q, size_t begin, size_t end, float* scores) {
  Vec sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(Tag());
  const size_t last = end - begin - (V - 1) * kLanes;  // keys in the last vector
  for (size_t c = 0; c < b.head_dim; ++c) {
    const float* k = b.k_t + c * b.k_stride + begin;
    Vec key[V];
    for (int v = 0; v < V; ++v) key[v] = v < V - 1 ? load(k + size_t(v) * kLanes) : load_up_to(k + size_t(v) * kLanes, last);
    for (int r = 0; r < R; ++r) {
      const Vec query = broadcast(q[size_t(r) * b.q_stride + c]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(query, key[v], sum[r][v]);
    }
  }
  const Vec factor = broadcast(b.scale);
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store_up_to(hn::Mul(sum[r][v], factor), scores + size_t(r) * kKeyBlock + begin + size_t(v) * kLanes,
                  v < V - 1 ? kLanes : last);
}
template <int R>
HWY_INLINE void score_rows(const AttentionBlock& b, const float* q, size_t begin, size_t end, float* scores) {
  for (; begin + kTileVectors * kLanes <= end; begin += kTileVectors * kLanes)
    score_tile<R, kTileVectors>(b, q, begin, begin + kTileVectors * kLanes, scores);
  for (; begin < end; begin += kLanes) score_tile<R, 1>(b, q, begin, min_of(begin + kLanes, end), scores);
}

/// z[r] += sum over j in [begin, end) of p[r][j] v[j], for R rows and up to V vectors of components.
template <int R, int V>
HWY_INLINE void value_tile(const AttentionBlock& b, const float* p, size_t begin, size_t end, size_t component, float* z) {
  const size_t last = min_of(kLanes, b.v_dim - component - (V - 1) * kLanes);
  Vec sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sum[r][v] = load_up_to(z + size_t(r) * b.z_stride + component + size_t(v) * kLanes, v < V - 1 ? kLanes : last);
  for (size_t j = begin; j < end; ++j) {
    const float* values = b.v + j * b.v_stride + component;
    Vec value[V];
    for (int v = 0; v < V; ++v)
      value[v] = v < V - 1 ? load(values + size_t(v) * kLanes) : load_up_to(values + size_t(v) * kLanes, last);
    for (int r = 0; r < R; ++r) {
      const Vec weight = broadcast(p[size_t(r) * kKeyBlock + j]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(weight, value[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store_up_to(sum[r][v], z + size_t(r) * b.z_stride + component + size_t(v) * kLanes, v < V - 1 ? kLanes : last);
}
template <int R>
HWY_INLINE void value_rows(const AttentionBlock& b, const float* p, size_t begin, size_t end, float* z) {
  if (begin >= end) return;
  size_t c = 0;
  for (; c + kTileVectors * kLanes <= b.v_dim; c += kTileVectors * kLanes) value_tile<R, kTileVectors>(b, p, begin, end, c, z);
  for (; c < b.v_dim; c += kLanes) value_tile<R, 1>(b, p, begin, end, c, z);
}

constexpr float kLaneNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

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
  Vec top = none;
  auto nan = hn::Lt(none, none);
  for (size_t j = begin; j < last; j += kLanes) {
    Vec v = load_up_to(s + j, min_of(kLanes, b.keys - j));
    if (b.softcap != 0) v = hn::Mul(cap, tanh(hn::Div(v, cap)));
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
  // Whole vectors where the block has them: lanes beyond a row's range are masked in soften().
  begin = begin / kLanes * kLanes;
  end = min_of((end + kLanes - 1) / kLanes * kLanes, b.keys);
  float* scores = b.scratch + row * kKeyBlock;
  score_rows<R>(b, b.q + row * b.q_stride, begin, end, scores);

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
  for (; row + kQueryRows <= b.rows; row += kQueryRows) attention_rows<kQueryRows>(b, row);
  for (; row < b.rows; ++row) attention_rows<1>(b, row);
}

}  // namespace
}  // namespace vitrine
