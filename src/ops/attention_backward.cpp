#include <cmath>

#include "ops/attention_keys.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct AttentionNode {
  Tensor q, k, v, z, row_lse;
  StepSequence s;
  AttentionSpec spec;
};

// One query of one head: the pattern comes again from the scores and their log-sum-exp (arXiv:2205.14135 section 3).
template <class T>
void query_backward(const AttentionNode& n, const Tensor& dz, const Tensor& dq, const Tensor& dk, const Tensor& dv, int64_t g,
                    int64_t h, int64_t i) {
  const int64_t d = n.q.dim(2), v_dim = n.v.dim(2), row = n.s.first_row + i;
  const T *q = n.q.row<T>(row) + h * d, *out = n.z.row<T>(row) + h * v_dim, *grad = dz.row<T>(row) + h * v_dim;
  const T lse = n.row_lse.row<T>(row)[h], scale = static_cast<T>(n.spec.scale), cap = static_cast<T>(n.spec.softcap);
  T along = 0;  // sum over keys of pattern · its gradient
  for (int64_t c = 0; c < v_dim; ++c) along += grad[c] * out[c];
  const KeyRange range = seen_by(n.s, n.spec, n.s.position + i);
  for (int64_t j = range.first; j < range.last; ++j) {
    const int64_t key_row = n.s.first_row + j;
    const T *k = n.k.row<T>(key_row) + g * d, *v = n.v.row<T>(key_row) + g * v_dim;
    T s = 0, dp = 0, slope = scale;
    for (int64_t c = 0; c < d; ++c) s += q[c] * k[c];
    s *= scale;
    if (cap != 0) {
      const T t = std::tanh(s / cap);
      s = cap * t;
      slope *= (1 - t) * (1 + t);
    }
    for (int64_t c = 0; c < v_dim; ++c) dp += grad[c] * v[c];
    const T p = std::exp(s - lse), ds = p * (dp - along) * slope;
    for (int64_t c = 0; dv && c < v_dim; ++c) (dv.row<T>(key_row) + g * v_dim)[c] += p * grad[c];
    for (int64_t c = 0; dq && c < d; ++c) (dq.row<T>(row) + h * d)[c] += ds * k[c];
    for (int64_t c = 0; dk && c < d; ++c) (dk.row<T>(key_row) + g * d)[c] += ds * q[c];
  }
}

void attention_backward(Context& ctx, Tape& tape, const AttentionNode& n) {
  const Tensor dz = tape.gradient(n.z);
  if (!dz) return;
  const Tensor dq = tape.accumulate(n.q), dk = tape.accumulate(n.k), dv = tape.accumulate(n.v);
  const int64_t per_kv = n.q.dim(1) / n.k.dim(1);
  visit_scalar(dz, [&](auto zero) {
    using T = decltype(zero);
    ctx.pool().run(n.k.dim(1), [&](int64_t g, int) {  // a key/value head's gradients belong to one thread
      for (int64_t h = g * per_kv; h < (g + 1) * per_kv; ++h)
        for (int64_t i = 0; i < n.s.rows; ++i) query_backward<T>(n, dz, dq, dk, dv, g, h, i);
    });
  });
}

}  // namespace

void record_attention(Tape& tape, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& z, const Tensor& row_lse,
                      const Step& step, size_t sequence, const AttentionSpec& spec) {
  tape.record(&attention_backward, AttentionNode{q, k, v, z, row_lse, step.sequences()[sequence], spec});
}

}  // namespace vitrine
