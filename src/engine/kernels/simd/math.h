#pragma once
// exp, tanh and the activations on vectors. Relative error of exp and tanh below 2e-7, of the activations below 4e-7 as
// far as they are above f32's smallest values (tests/engine/kernels/elementwise_test.cpp sweeps them).
// Polynomials: minimax fits of the relative error, coefficients rounded to f32.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// Horner's rule: c[0] + c[1] x + ...
template <size_t N>
HWY_INLINE Vec polynomial(Vec x, const float (&c)[N]) {
  Vec sum = broadcast(c[N - 1]);
  for (size_t i = N - 1; i-- > 0;) sum = hn::MulAdd(sum, x, broadcast(c[i]));
  return sum;
}

/// exp(x) = 2^n exp(r) with n = round(x / ln 2), |r| <= ln 2 / 2. -inf gives 0, overflow +inf, NaN stays NaN.
/// 2^n is applied in two halves where there is no instruction for it, so that the result may be subnormal.
HWY_INLINE Vec exp(Vec x) {
  constexpr float kExp[] = {
      1.0f, 1.0f, 0.49999991059303284f, 0.16666410863399506f, 0.04166828840970993f, 0.00837564468383789f, 0.0013835792196914554f};
  const Vec inside = hn::Min(hn::Max(x, broadcast(-110.0f)), broadcast(90.0f));
  const Vec n = hn::Round(hn::Mul(inside, broadcast(1.44269504088896341f)));
  // ln 2 in two parts, the first short enough that n * part is exact.
  const Vec r = hn::NegMulAdd(n, broadcast(-2.12194440e-4f), hn::NegMulAdd(n, broadcast(0.693359375f), inside));
#if HWY_TARGET <= HWY_AVX3
  const Vec y{_mm512_scalef_ps(polynomial(r, kExp).raw, n.raw)};
#else
  const auto power = hn::ConvertTo(IntTag(), n);
  const auto half = hn::ShiftRight<1>(power);
  const auto bias = hn::Set(IntTag(), 127);
  const Vec low = hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Vec high = hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::Add(hn::Sub(power, half), bias)));
  const Vec y = hn::Mul(hn::Mul(polynomial(r, kExp), low), high);
#endif
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// tanh(x): an odd polynomial near 0, 1 - 2 / (exp(2|x|) + 1) beyond.
HWY_INLINE Vec tanh(Vec x) {
  constexpr float kTanh[] = {
      1.0f, -0.33333250880241394f, 0.13330931961536407f, -0.05370531603693962f, 0.02053992822766304f, -0.0056027309037745f};
  const Vec size = hn::Abs(x), one = broadcast(1.0f), two = broadcast(2.0f);
  const Vec square = hn::Mul(x, x);
  const Vec near = hn::Mul(x, polynomial(square, kTanh));
  const auto is_near = hn::Lt(size, broadcast(0.625f));
  if (hn::AllTrue(Tag(), is_near)) return near;  // as scores and logits below a cap mostly are
  const Vec far = hn::Sub(one, hn::Div(two, hn::Add(exp(hn::Add(size, size)), one)));
  return hn::IfThenElse(is_near, near, hn::CopySign(far, x));
}

/// erfc(-t), the doubled normal distribution: 1 + erf(t) for |t| < 1, else erfc(|t|) = exp(-t^2) P(1 / (|t| + 2)).
HWY_INLINE Vec erfc_of_minus(Vec t) {
  constexpr float kErf[] = {1.1283791065216064f,  -0.3761262595653534f,   0.1128358542919159f,  -0.026853810995817184f,
                            0.00518832728266716f, -0.000801019137725234f, 7.85385345807299e-05f};
  constexpr float kErfc[] = {-3.3510145840409677e-06f, 0.5643632411956787f,  1.1246747970581055f,
                             2.0158681869506836f,      2.5813581943511963f,  3.1519107818603516f,
                             2.1569292545318604f,      -24.462066650390625f, 21.173791885375977f};
  const Vec size = hn::Abs(t), one = broadcast(1.0f);
  const Vec square = hn::Mul(t, t);
  const Vec near = hn::MulAdd(t, polynomial(square, kErf), one);
  // t^2 rounded would cost 6e-8 t^2 of relative error; the rounding's remainder goes in as a factor 1 - remainder.
  const Vec rest = hn::MulSub(t, t, square);
  const Vec factor = hn::IfThenElse(hn::Lt(size, broadcast(1e4f)), hn::Sub(one, rest), one);
  const Vec tail =
      hn::Mul(hn::Mul(exp(hn::Neg(square)), factor), polynomial(hn::Div(one, hn::Add(size, broadcast(2.0f))), kErfc));
  const Vec far = hn::IfThenElse(hn::Lt(t, hn::Zero(Tag())), tail, hn::Sub(broadcast(2.0f), tail));
  return hn::IfThenElse(hn::Lt(size, one), near, far);
}

/// f(x); the formulas are those of kernels/reference/activation.h.
template <Activation kF>
HWY_INLINE Vec activation(Vec x) {
  const Vec one = broadcast(1.0f);
  if constexpr (kF == Activation::relu) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(Tag())), hn::Zero(Tag()), x);  // NaN stays NaN
  } else if constexpr (kF == Activation::gelu_tanh) {
    const Vec inner =
        hn::MulAdd(hn::Mul(x, x), broadcast(0.044715f * 0.79788456080286535588f), broadcast(0.79788456080286535588f));
    return hn::Div(x, hn::Add(one, exp(hn::Mul(hn::Mul(x, broadcast(-2.0f)), inner))));
  } else if constexpr (kF == Activation::gelu_exact) {
    return hn::Mul(hn::Mul(broadcast(0.5f), x), erfc_of_minus(hn::Mul(x, broadcast(0.70710678118654752f))));
  } else if constexpr (kF == Activation::silu) {
    return hn::Div(x, hn::Add(one, exp(hn::Neg(x))));
  } else if constexpr (kF == Activation::sigmoid) {
    return hn::Div(one, hn::Add(one, exp(hn::Neg(x))));
  } else if constexpr (kF == Activation::relu_squared) {
    const Vec r = activation<Activation::relu>(x);
    return hn::Mul(r, r);
  } else if constexpr (kF == Activation::quick_gelu) {
    return hn::Div(x, hn::Add(one, exp(hn::Mul(x, broadcast(-1.702f)))));
  } else if constexpr (kF == Activation::tanh) {
    return tanh(x);
  } else {
    return x;
  }
}

/// Calls g with the activation as a template argument.
template <class G>
HWY_INLINE void with_activation(Activation f, G g) {
  switch (f) {
    case Activation::none: return g([](Vec x) HWY_ATTR { return activation<Activation::none>(x); });
    case Activation::relu: return g([](Vec x) HWY_ATTR { return activation<Activation::relu>(x); });
    case Activation::gelu_tanh: return g([](Vec x) HWY_ATTR { return activation<Activation::gelu_tanh>(x); });
    case Activation::gelu_exact: return g([](Vec x) HWY_ATTR { return activation<Activation::gelu_exact>(x); });
    case Activation::silu: return g([](Vec x) HWY_ATTR { return activation<Activation::silu>(x); });
    case Activation::sigmoid: return g([](Vec x) HWY_ATTR { return activation<Activation::sigmoid>(x); });
    case Activation::relu_squared: return g([](Vec x) HWY_ATTR { return activation<Activation::relu_squared>(x); });
    case Activation::quick_gelu: return g([](Vec x) HWY_ATTR { return activation<Activation::quick_gelu>(x); });
    case Activation::tanh: return g([](Vec x) HWY_ATTR { return activation<Activation::tanh>(x); });
  }
}

}  // namespace
}  // namespace vitrine
