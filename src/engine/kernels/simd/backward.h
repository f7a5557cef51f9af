#pragma once
// Gradients, one row at a time, set or added. Formulas: kernels/reference/{activation,norm,rope,backward}.h.
#include "kernels/simd/elementwise.h"

namespace vitrine {
namespace {

/// dx[i] = or += value
HWY_INLINE void put(Vec value, float* dx, size_t here, bool add) {
  store_up_to(add ? hn::Add(load_up_to(dx, here), value) : value, dx, here);
}
/// sum of op(i, here) over vectors; four sums, since one alone waits for its own latency. Lanes beyond n must hold 0.
template <class Op>
HWY_INLINE float sum_of_vectors(size_t n, Op op) {
  Vec sum[4];
  for (Vec& s : sum) s = hn::Zero(Tag());
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (size_t a = 0; a < 4; ++a) sum[a] = hn::Add(op(i + a * kLanes, kLanes), sum[a]);
  for (; i < n; i += kLanes) sum[0] = hn::Add(op(i, min_of(kLanes, n - i)), sum[0]);
  return sum_of(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
}

float dot(const float* a, const float* b, size_t n) {
  return sum_of_vectors(
      n, [=](size_t i, size_t here) HWY_ATTR { return hn::Mul(load_up_to(a + i, here), load_up_to(b + i, here)); });
}
void add_scaled(const float* x, float factor, size_t n, float* y) {
  const Vec f = broadcast(factor);
  map(x, y, n, y, [=](Vec u, Vec v) HWY_ATTR { return hn::MulAdd(u, f, v); });
}

void rms_norm_gradient(const float* x, const float* w, float offset, float inv_rms, const float* dy, size_t d, float* dx,
                       float* dw, bool add) {
  const Vec shift = broadcast(offset), inv = broadcast(inv_rms);
  const auto slope = [=](size_t i, size_t here) HWY_ATTR {  // dy (offset + w)
    const Vec g = load_up_to(dy + i, here);
    return w != nullptr ? hn::Mul(g, hn::Add(shift, load_up_to(w + i, here))) : g;
  };
  const float along =
      sum_of_vectors(d, [=](size_t i, size_t here) HWY_ATTR { return hn::Mul(slope(i, here), load_up_to(x + i, here)); });
  const Vec pull = broadcast(along / float(d) * inv_rms * inv_rms);
  for (size_t i = 0; i < d; i += kLanes) {
    const size_t here = d - i;
    const Vec value = load_up_to(x + i, here);
    if (dx != nullptr) put(hn::Mul(inv, hn::NegMulAdd(value, pull, slope(i, here))), dx + i, here, add);
    if (dw != nullptr)
      store_up_to(hn::MulAdd(load_up_to(dy + i, here), hn::Mul(value, inv), load_up_to(dw + i, here)), dw + i, here);
  }
}

void layer_norm_gradient(const float* x, const float* w, float mean, float inv_std, const float* dy, size_t d, float* dx,
                         float* dw, float* db, bool add) {
  const Vec center = broadcast(mean), inv = broadcast(inv_std);
  const auto slope = [=](size_t i, size_t here) HWY_ATTR {
    const Vec g = load_up_to(dy + i, here);
    return w != nullptr ? hn::Mul(g, load_up_to(w + i, here)) : g;
  };
  const auto normalized = [=](size_t i, size_t here) HWY_ATTR { return hn::Mul(hn::Sub(load_up_to(x + i, here), center), inv); };
  const float of_slope = sum_of_vectors(d, slope);
  const float along =
      sum_of_vectors(d, [=](size_t i, size_t here) HWY_ATTR { return hn::Mul(slope(i, here), normalized(i, here)); });
  const Vec mean_slope = broadcast(of_slope / float(d)), mean_along = broadcast(along / float(d));
  for (size_t i = 0; i < d; i += kLanes) {
    const size_t here = d - i;
    const Vec h = normalized(i, here), g = load_up_to(dy + i, here);
    if (dx != nullptr) put(hn::Mul(inv, hn::NegMulAdd(h, mean_along, hn::Sub(slope(i, here), mean_slope))), dx + i, here, add);
    if (dw != nullptr) store_up_to(hn::MulAdd(g, h, load_up_to(dw + i, here)), dw + i, here);
    if (db != nullptr) store_up_to(hn::Add(g, load_up_to(db + i, here)), db + i, here);
  }
}

void rope_gradient(const float* dy, const float* cos, const float* sin, RopeLayout layout, size_t n_heads, size_t head_dim,
                   size_t rotary_dim, float* dx, bool add) {
  const size_t half = rotary_dim / 2;
  for (size_t h = 0; h < n_heads; ++h, dy += head_dim, dx += head_dim) {
    for (size_t i = 0; i < half; i += kLanes) {
      const size_t n = min_of(kLanes, half - i);
      const Vec c = load_up_to(cos + i, n), s = hn::Neg(load_up_to(sin + i, n));
      if (layout == RopeLayout::halves) {
        Vec a = load_up_to(dy + i, n), b = load_up_to(dy + i + half, n);
        turn(a, b, c, s);
        put(a, dx + i, n, add);
        put(b, dx + i + half, n, add);
        continue;
      }
      float pairs[2 * kLanes] = {};
      memcpy(pairs, dy + 2 * i, 2 * n * sizeof(float));
      Vec a, b;
      hn::LoadInterleaved2(Tag(), pairs, a, b);
      turn(a, b, c, s);
      hn::StoreInterleaved2(a, b, Tag(), pairs);
      for (size_t j = 0; j < 2 * n; j += kLanes) put(load(pairs + j), dx + 2 * i + j, 2 * n - j, add);
    }
    for (size_t i = 2 * half; i < head_dim; i += kLanes) put(load_up_to(dy + i, head_dim - i), dx + i, head_dim - i, add);
  }
}

/// f'(x) and f(x) at once: they share the exponential.
struct Slope {
  Vec value, derivative;
};
template <Activation kF>
HWY_INLINE Slope activation_slope(Vec x) {
  const Vec one = broadcast(1.0f), zero = hn::Zero(Tag());
  if constexpr (kF == Activation::relu) {
    return {activation<kF>(x), hn::IfThenElse(hn::Gt(x, zero), one, zero)};
  } else if constexpr (kF == Activation::gelu_tanh) {
    // f = x s, s = 1 / (1 + exp(-2u)): f' = s + x s (1 - s) 2u'; s (1 - s) = e / (1 + e)², e = exp(-2 |u|).
    constexpr float kSlope = 0.79788456080286535588f, kCubic = 0.044715f;
    const Vec square = hn::Mul(x, x);
    const Vec u = hn::Mul(x, hn::MulAdd(square, broadcast(kCubic * kSlope), broadcast(kSlope)));
    const Vec e = exp(hn::Mul(hn::Abs(u), broadcast(-2.0f))), inverse = hn::Div(one, hn::Add(one, e));
    const Vec s = hn::IfThenElse(hn::Lt(u, zero), hn::Mul(e, inverse), inverse);
    const Vec twice = hn::MulAdd(square, broadcast(6 * kCubic * kSlope), broadcast(2 * kSlope));  // 2u'
    const Vec bend = hn::Mul(hn::Mul(e, inverse), inverse);
    // Far out e is 0 and x · 2u' may be infinite.
    const Vec rest = hn::IfThenElse(hn::Eq(e, zero), zero, hn::Mul(hn::Mul(x, twice), bend));
    return {hn::Mul(x, s), hn::Add(s, rest)};
  } else if constexpr (kF == Activation::gelu_exact) {
    // f = x Phi: f' = Phi + x phi
    const Vec phi = hn::Mul(exp(hn::Mul(hn::Mul(x, x), broadcast(-0.5f))), broadcast(0.39894228040143267794f));
    const Vec below = hn::Mul(broadcast(0.5f), erfc_of_minus(hn::Mul(x, broadcast(0.70710678118654752f))));
    return {hn::Mul(x, below), hn::MulAdd(x, phi, below)};
  } else if constexpr (kF == Activation::silu) {
    const Vec e = exp(hn::Neg(hn::Abs(x))), inverse = hn::Div(one, hn::Add(one, e));
    const Vec s = hn::IfThenElse(hn::Lt(x, zero), hn::Mul(e, inverse), inverse);
    const Vec bend = hn::Mul(hn::Mul(e, inverse), inverse);
    return {hn::Mul(x, s), hn::MulAdd(x, bend, s)};
  } else if constexpr (kF == Activation::quick_gelu) {  // SiLU of u = 1.702 x, divided by 1.702
    const Slope of = activation_slope<Activation::silu>(hn::Mul(x, broadcast(1.702f)));
    return {hn::Mul(of.value, broadcast(1 / 1.702f)), of.derivative};
  } else if constexpr (kF == Activation::relu_squared) {
    const Vec r = activation<Activation::relu>(x);
    return {hn::Mul(r, r), hn::Add(r, r)};
  } else if constexpr (kF == Activation::tanh) {
    const Vec t = tanh(x);
    return {t, hn::Mul(hn::Sub(one, t), hn::Add(one, t))};
  } else if constexpr (kF == Activation::sigmoid) {
    const Vec e = exp(hn::Neg(hn::Abs(x))), inverse = hn::Div(one, hn::Add(one, e));
    const Vec below = hn::Mul(e, inverse);
    return {hn::IfThenElse(hn::Lt(x, zero), below, inverse), hn::Mul(below, inverse)};
  } else {
    return {x, one};
  }
}
template <class G>
HWY_INLINE void with_slope(Activation f, G g) {
  switch (f) {
    case Activation::none: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::none>(x); });
    case Activation::relu: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::relu>(x); });
    case Activation::gelu_tanh: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::gelu_tanh>(x); });
    case Activation::gelu_exact: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::gelu_exact>(x); });
    case Activation::silu: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::silu>(x); });
    case Activation::sigmoid: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::sigmoid>(x); });
    case Activation::relu_squared: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::relu_squared>(x); });
    case Activation::quick_gelu: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::quick_gelu>(x); });
    case Activation::tanh: return g([](Vec x) HWY_ATTR { return activation_slope<Activation::tanh>(x); });
  }
}

void activate_gradient(Activation f, const float* x, const float* dy, size_t n, float* dx, bool add) {
  with_slope(f, [=](auto slope) HWY_ATTR {
    for (size_t i = 0; i < n; i += kLanes)
      put(hn::Mul(slope(load_up_to(x + i, n - i)).derivative, load_up_to(dy + i, n - i)), dx + i, n - i, add);
  });
}
void gate_gradient(Activation f, const float* gate, const float* up, const float* dy, size_t n, float* dgate, float* dup,
                   bool add) {
  with_slope(f, [=](auto slope) HWY_ATTR {
    for (size_t i = 0; i < n; i += kLanes) {
      const size_t here = n - i;
      const Slope s = slope(load_up_to(gate + i, here));
      const Vec g = load_up_to(dy + i, here);
      if (dgate != nullptr) put(hn::Mul(hn::Mul(s.derivative, load_up_to(up + i, here)), g), dgate + i, here, add);
      if (dup != nullptr) put(hn::Mul(s.value, g), dup + i, here, add);
    }
  });
}
void softcap_gradient(const float* x, float cap, const float* dy, size_t n, float* dx, bool add) {
  const Vec c = broadcast(cap), one = broadcast(1.0f);
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec t = tanh(hn::Div(load_up_to(x + i, n - i), c));
    const Vec slope = hn::Mul(hn::Sub(one, t), hn::Add(one, t));
    put(hn::Mul(slope, load_up_to(dy + i, n - i)), dx + i, n - i, add);
  }
}

void loss_gradient(float* z, size_t n, float lse, float unit, float cap) {
  const Vec shift = broadcast(lse), factor = broadcast(unit), one = broadcast(1.0f), c = broadcast(cap);
  map(z, n, z, [=](Vec v) HWY_ATTR {
    const Vec p = hn::Mul(factor, exp(hn::Sub(v, shift)));
    if (cap == 0) return p;
    const Vec t = hn::Div(v, c);
    return hn::Mul(p, hn::Mul(hn::Sub(one, t), hn::Add(one, t)));
  });
}

void pattern_gradient(float* s, float* dp, size_t first, size_t last, size_t n, float scale, float cap, float* work) {
  const SeenKeys keys = seen_keys(first, last, n);
  keys.clear_others(dp, n);
  keys.clear_others(s, n);
  if (keys.count() == 0) return;
  s += first, dp += first;
  const Scores scores = capped_scores(s, keys, scale, cap, work);
  const Vec m = broadcast(scores.largest);
  // The first place of the largest score; by elements alone, as no branch could be foretold.
  const intptr_t in_rest = hn::FindFirstTrue(Tag(), hn::And(keys.in_rest(), hn::Eq(scores.rest, m)));
  size_t top = in_rest < 0 ? 0 : keys.size + size_t(in_rest);
  for (size_t j = keys.size; j > 0; j -= kLanes) {
    const intptr_t lane = hn::FindFirstTrue(Tag(), hn::Eq(load(work + j - kLanes), m));
    top = lane < 0 ? top : j - kLanes + size_t(lane);
  }
  const Vec at_top = broadcast(dp[top]);
  Vec sum = hn::Zero(Tag()), pull = hn::Zero(Tag());
  for (size_t j = 0; j < keys.size; j += kLanes) {
    const Vec e = exp(hn::Sub(load(work + j), m));
    store(e, s + j);
    sum = hn::Add(sum, e);
    pull = hn::MulAdd(e, hn::Sub(load(dp + j), at_top), pull);
  }
  Vec rest = hn::Zero(Tag()), rest_dp = at_top;
  if (keys.rest > 0) {
    rest = hn::IfThenElseZero(keys.in_rest(), exp(hn::Sub(scores.rest, m)));
    rest_dp = hn::IfThenElse(keys.in_rest(), keys.load_rest(dp), at_top);
    sum = hn::Add(sum, rest);
    pull = hn::MulAdd(rest, hn::Sub(rest_dp, at_top), pull);
  }
  const float total = sum_of(sum);
  const Vec factor = broadcast(scale), one = broadcast(1.0f), inverse = broadcast(cap != 0 ? 1.0f / cap : 0.0f);
  const Vec inverse_total = broadcast(1.0f / total), along = broadcast(sum_of(pull) / total);
  const auto gradient = [=](Vec score, Vec p, Vec of_p) HWY_ATTR {
    const Vec t = hn::Mul(score, inverse);
    const Vec slope = cap != 0 ? hn::Mul(factor, hn::Mul(hn::Sub(one, t), hn::Add(one, t))) : factor;
    return hn::Mul(hn::Mul(p, hn::Sub(hn::Sub(of_p, at_top), along)), slope);
  };
  for (size_t j = 0; j < keys.size; j += kLanes) {
    const Vec p = hn::Mul(load(s + j), inverse_total);
    store(p, s + j);
    store(gradient(load(work + j), p, load(dp + j)), dp + j);
  }
  if (keys.rest == 0) return;
  const Vec p = hn::Mul(rest, inverse_total);
  keys.store_rest(p, s);
  keys.store_rest(hn::IfThenElseZero(keys.in_rest(), gradient(scores.rest, p, rest_dp)), dp);
}

}  // namespace
}  // namespace vitrine
