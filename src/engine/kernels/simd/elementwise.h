#pragma once
// Norms, RoPE, activations, softmax and their small kin, one row at a time. Formulas: kernels/reference/.
#include <math.h>  // logf and sqrtf: std:: versions are inline functions, see vec.h

#include "kernels/simd/math.h"

namespace vitrine {
namespace {

/// sum of op(x[i]); four sums, since one alone waits for its own latency. Lanes above n hold op(0) unless masked by op.
template <class Op>
HWY_INLINE float sum_over(const float* x, size_t n, Op op) {
  Vec sum[4];
  for (Vec& s : sum) s = hn::Zero(Tag());
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (size_t a = 0; a < 4; ++a) sum[a] = op(load(x + i + a * kLanes), sum[a]);
  for (; i + kLanes <= n; i += kLanes) sum[0] = op(load(x + i), sum[0]);
  if (i < n) sum[1] = hn::IfThenElse(hn::FirstN(Tag(), n - i), op(load_n(x + i, n - i), sum[1]), sum[1]);
  return sum_of(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
}

void rms_norm(const float* x, const float* w, float offset, float eps, size_t d, float* y, float* inv_rms) {
  const float sum_sq = sum_over(x, d, [](Vec v, Vec s) HWY_ATTR { return hn::MulAdd(v, v, s); });
  const float r = 1.0f / sqrtf(sum_sq / float(d) + eps);
  const Vec factor = broadcast(r), shift = broadcast(offset);
  if (w == nullptr) {
    map(x, d, y, [=](Vec v) HWY_ATTR { return hn::Mul(v, factor); });
  } else {
    map(x, w, d, y, [=](Vec v, Vec u) HWY_ATTR { return hn::Mul(hn::Mul(v, factor), hn::Add(shift, u)); });
  }
  if (inv_rms != nullptr) *inv_rms = r;
}

void layer_norm(const float* x, const float* w, const float* b, float eps, size_t d, float* y, float* mean, float* inv_std) {
  const float m = sum_over(x, d, [](Vec v, Vec s) HWY_ATTR { return hn::Add(v, s); }) / float(d);
  const Vec center = broadcast(m);
  const float sum_sq = sum_over(x, d, [=](Vec v, Vec s) HWY_ATTR {
    const Vec difference = hn::Sub(v, center);
    return hn::MulAdd(difference, difference, s);
  });
  const float r = 1.0f / sqrtf(sum_sq / float(d) + eps);
  const Vec factor = broadcast(r);
  const auto normalized = [=](Vec v) HWY_ATTR { return hn::Mul(hn::Sub(v, center), factor); };
  if (w == nullptr) {
    map(x, d, y, normalized);
  } else {
    map(x, w, d, y, [=](Vec v, Vec u) HWY_ATTR { return hn::Mul(normalized(v), u); });
  }
  if (b != nullptr) map(y, b, d, y, [](Vec v, Vec u) HWY_ATTR { return hn::Add(v, u); });
  if (mean != nullptr) *mean = m;
  if (inv_std != nullptr) *inv_std = r;
}

HWY_INLINE void turn(Vec& a, Vec& b, Vec cos, Vec sin) {
  const Vec transposed = hn::NegMulAdd(b, sin, hn::Mul(a, cos));
  b = hn::MulAdd(a, sin, hn::Mul(b, cos));
  a = transposed;
}

void rope(const float* x, const float* cos, const float* sin, RopeLayout layout, size_t n_heads, size_t head_dim,
          size_t rotary_dim, float* y) {
  const size_t half = rotary_dim / 2;
  for (size_t h = 0; h < n_heads; ++h, x += head_dim, y += head_dim) {
    for (size_t i = 0; i < half; i += kLanes) {
      const size_t n = min_of(kLanes, half - i);
      const Vec c = load_up_to(cos + i, n), s = load_up_to(sin + i, n);
      Vec a, b;
      if (layout == RopeLayout::halves) {
        a = load_up_to(x + i, n);
        b = load_up_to(x + i + half, n);
        turn(a, b, c, s);
        store_up_to(a, y + i, n);
        store_up_to(b, y + i + half, n);
      } else if (n == kLanes) {
        hn::LoadInterleaved2(Tag(), x + 2 * i, a, b);
        turn(a, b, c, s);
        hn::StoreInterleaved2(a, b, Tag(), y + 2 * i);
      } else {
        float pairs[2 * kLanes] = {};
        memcpy(pairs, x + 2 * i, 2 * n * sizeof(float));
        hn::LoadInterleaved2(Tag(), pairs, a, b);
        turn(a, b, c, s);
        hn::StoreInterleaved2(a, b, Tag(), pairs);
        memcpy(y + 2 * i, pairs, 2 * n * sizeof(float));
      }
    }
    if (x != y) memcpy(y + 2 * half, x + 2 * half, (head_dim - 2 * half) * sizeof(float));
  }
}

void activate(Activation f, const float* x, size_t n, float* y) {
  with_activation(f, [=](auto value) HWY_ATTR { map(x, n, y, value); });
}
void gate(Activation f, const float* gate, const float* up, size_t n, float* y) {
  with_activation(f,
                  [=](auto value) HWY_ATTR { map(gate, up, n, y, [=](Vec g, Vec u) HWY_ATTR { return hn::Mul(value(g), u); }); });
}

void softcap(const float* x, float cap, size_t n, float* y) {
  const Vec c = broadcast(cap);
  map(x, n, y, [=](Vec v) HWY_ATTR { return hn::Mul(c, tanh(hn::Div(v, c))); });
}
void add(const float* a, const float* b, size_t n, float* y) {
  map(a, b, n, y, [](Vec u, Vec v) HWY_ATTR { return hn::Add(u, v); });
}
void scale(const float* x, float factor, size_t n, float* y) {
  const Vec f = broadcast(factor);
  map(x, n, y, [=](Vec v) HWY_ATTR { return hn::Mul(v, f); });
}

constexpr float kMinusInfinity = -__builtin_inff();

/// The largest of n values, -inf for none. A NaN may be passed over here: the sum of exponentials keeps it.
HWY_INLINE float largest_value(const float* x, size_t n) {
  const Vec none = broadcast(kMinusInfinity);
  Vec m[4] = {none, none, none, none};
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (size_t a = 0; a < 4; ++a) m[a] = hn::Max(load(x + i + a * kLanes), m[a]);
  for (; i + kLanes <= n; i += kLanes) m[0] = hn::Max(load(x + i), m[0]);
  if (i < n) m[1] = hn::Max(hn::IfThenElse(hn::FirstN(Tag(), n - i), load_n(x + i, n - i), none), m[1]);
  return max_of(hn::Max(hn::Max(m[0], m[1]), hn::Max(m[2], m[3])));
}
/// Whether one of n values is NaN: rows of which the largest value says nothing.
HWY_INLINE bool holds_nan(const float* x, size_t n) {
  bool found = false;
  for (size_t i = 0; i < n; ++i) found |= x[i] != x[i];
  return found;
}

void softmax(const float* x, size_t n, float* y) {
  if (n == 0) return;
  const float m = largest_value(x, n);
  if (m == kMinusInfinity && !holds_nan(x, n)) {
    memset(y, 0, n * sizeof(float));
    return;
  }
  const Vec top = broadcast(m);
  map(x, n, y, [=](Vec v) HWY_ATTR { return exp(hn::Sub(v, top)); });
  const float sum = sum_over(y, n, [](Vec v, Vec s) HWY_ATTR { return hn::Add(v, s); });
  const Vec total = broadcast(sum);
  map(y, n, y, [=](Vec v) HWY_ATTR { return hn::Div(v, total); });
}

/// A row's keys: whole vectors of those that are seen, and a rest. Where the row has room for it the rest is a whole vector in
/// memory, too, as access through a mask is far slower here; what is stored beyond it is 0.
struct SeenKeys {
  size_t first, size, rest;  // the first key, keys in whole vectors, keys that are left
  bool room;                 // for a vector behind them

  size_t count() const { return size + rest; }
  HWY_INLINE hn::Mask<Tag> in_rest() const { return hn::FirstN(Tag(), rest); }
  HWY_INLINE Vec load_rest(const float* x) const { return room ? load(x + size) : load_n(x + size, rest); }
  HWY_INLINE void store_rest(Vec v, float* x) const {
    if (room) {
      store(v, x + size);
    } else {
      store_n(v, x + size, rest);
    }
  }
  /// Sets all elements of a row to zero that are not seen, nor in the room.
  HWY_INLINE void clear_others(float* x, size_t n) const {
    if (first > 0) memset(x, 0, first * sizeof(float));
    size_t j = first + (room ? size + kLanes : count());
    for (; j + kLanes <= n; j += kLanes) store(hn::Zero(Tag()), x + j);
    if (j < n) memset(x + j, 0, (n - j) * sizeof(float));
  }
};
/// Of keys first <= j < last of n.
HWY_INLINE SeenKeys seen_keys(size_t first, size_t last, size_t n) {
  const size_t seen = last > first ? last - first : 0, size = seen / kLanes * kLanes;
  return {first, size, seen - size, seen > size && first + size + kLanes <= n};
}

/// Scores in memory, but for those that are no whole vector.
struct Scores {
  Vec rest;  // -inf beyond the last
  float largest;
};
/// scale s[j], capped unless cap is 0; whole vectors of them go to z, which may be s.
HWY_INLINE Scores capped_scores(const float* s, const SeenKeys& keys, float scale, float cap, float* z) {
  const Vec none = broadcast(kMinusInfinity);
  Vec rest = none, largest = none;
  const auto each = [&](auto value) HWY_ATTR {
    for (size_t j = 0; j < keys.size; j += kLanes) {
      const Vec v = value(load(s + j));
      store(v, z + j);
      largest = hn::Max(v, largest);
    }
    if (keys.rest == 0) return;
    rest = hn::IfThenElse(keys.in_rest(), value(keys.load_rest(s)), none);
    largest = hn::Max(rest, largest);
  };
  if (cap != 0) {
    const Vec down = broadcast(scale / cap), c = broadcast(cap);
    each([=](Vec v) HWY_ATTR { return hn::Mul(c, tanh(hn::Mul(v, down))); });
  } else {
    const Vec factor = broadcast(scale);
    each([=](Vec v) HWY_ATTR { return hn::Mul(factor, v); });
  }
  return {rest, max_of(largest)};
}

void pattern(float* s, size_t first, size_t last, size_t n, float scale, float cap) {
  const SeenKeys keys = seen_keys(first, last, n);
  keys.clear_others(s, n);
  if (keys.count() == 0) return;
  s += first;
  const Scores scores = capped_scores(s, keys, scale, cap, s);
  if (scores.largest == kMinusInfinity && !holds_nan(s, keys.size) && hn::AllFalse(Tag(), hn::IsNaN(scores.rest))) {
    for (size_t j = 0; j < keys.size; j += kLanes) store(hn::Zero(Tag()), s + j);
    if (keys.rest > 0) keys.store_rest(hn::Zero(Tag()), s);
    return;
  }
  const Vec top = broadcast(scores.largest);
  Vec sum = hn::Zero(Tag());
  for (size_t j = 0; j < keys.size; j += kLanes) {
    const Vec e = exp(hn::Sub(load(s + j), top));
    store(e, s + j);
    sum = hn::Add(sum, e);
  }
  Vec rest = hn::Zero(Tag());
  if (keys.rest > 0) {
    rest = hn::IfThenElseZero(keys.in_rest(), exp(hn::Sub(scores.rest, top)));
    sum = hn::Add(sum, rest);
  }
  const Vec inverse = broadcast(1.0f / sum_of(sum));
  for (size_t j = 0; j < keys.size; j += kLanes) store(hn::Mul(load(s + j), inverse), s + j);
  if (keys.rest > 0) keys.store_rest(hn::Mul(rest, inverse), s);
}

float log_sum_exp(const float* x, size_t n) {
  const float m = largest_value(x, n);
  if (m == kMinusInfinity && !holds_nan(x, n)) return m;
  const Vec top = broadcast(m);
  return m + logf(sum_over(x, n, [=](Vec v, Vec s) HWY_ATTR { return hn::Add(exp(hn::Sub(v, top)), s); }));
}

}  // namespace
}  // namespace vitrine
