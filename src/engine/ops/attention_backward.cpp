#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/attention_squares.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct AttentionNode {
  Tensor q, k, v, z;
  const StepSequence* sequences;  // those that ran fused
  int64_t n_sequences;
  bool all;  // they are all of the step's
  AttentionSpec spec;
};
struct Gradients {
  Tape::Sum q, k, v;  // to is empty for a constant
};

// Gradient checks: one query of one head, by the definition.
void query_backward(const AttentionNode& n, const StepSequence& s, const Tensor& dz, const Gradients& d, int64_t g, int64_t h,
                    int64_t i) {
  const int64_t head_dim = n.q.dim(2), v_dim = n.v.dim(2), row = s.first_row + i;
  const double *q = n.q.row<double>(row) + h * head_dim, *grad = dz.row<double>(row) + h * v_dim;
  const KeyRange range = seen_by(s, n.spec, s.position + i);
  const auto line = [&](const Tensor& x, int64_t j) { return x.row<double>(s.first_row + j) + g * x.dim(2); };
  const auto keys = static_cast<size_t>(range.last - range.first);
  std::vector<double> pattern(keys + 1), slope(keys + 1), work(keys + 1);
  for (int64_t j = range.first; j < range.last; ++j) {
    pattern[static_cast<size_t>(j - range.first)] = dot_reference(q, line(n.k, j), static_cast<size_t>(head_dim));
    slope[static_cast<size_t>(j - range.first)] = dot_reference(grad, line(n.v, j), static_cast<size_t>(v_dim));
  }
  if (n.spec.alibi)
    add_slope(pattern.data(), 0, static_cast<int64_t>(keys), s.position + i - range.first,
              alibi_slope(h, n.q.dim(1)) / n.spec.scale);
  const size_t scores = keys + (n.spec.sinks != nullptr ? 1 : 0);
  if (n.spec.sinks != nullptr) pattern[keys] = n.spec.sinks->at<double>(h) / n.spec.scale;  // its value is 0
  pattern_gradient_reference(pattern.data(), slope.data(), 0, scores, scores, n.spec.scale, n.spec.softcap, work.data());
  if (n.spec.sinks != nullptr && n.spec.sinks->grad.data != nullptr)
    static_cast<double*>(n.spec.sinks->grad.data)[h] += slope[keys] / n.spec.scale;
  for (int64_t j = range.first; j < range.last; ++j) {
    const double *k = line(n.k, j), p = pattern[static_cast<size_t>(j - range.first)],
                 ds = slope[static_cast<size_t>(j - range.first)];
    for (int64_t c = 0; d.v && c < v_dim; ++c) line(d.v.to, j)[c] += p * grad[c];
    for (int64_t c = 0; d.q && c < head_dim; ++c) (d.q.to.row<double>(row) + h * head_dim)[c] += ds * k[c];
    for (int64_t c = 0; d.k && c < head_dim; ++c) line(d.k.to, j)[c] += ds * q[c];
  }
}

// One key/value head of one sequence: strips of `side` queries and all keys they see, in squares through packed products.
//   S = Q Kᵀ, dP = dZ Vᵀ  ->  P, dS = P (dP - P · dP)  ->  dV += Pᵀ dZ, dK += dSᵀ Q, dQ += dS K
// P · dP is summed from the very elements it is taken from. Summed as dZ · Z, which is the same in exact arithmetic, it would
// leave rounding where P is all on one key and dS is 0, and large scores raise that beyond every true gradient.
class Squares : public AttentionSquares {
 public:
  // For sequences of up to `longest` rows.
  // sinks: parts of the sinks' gradient [sequence, head], or null.
  Squares(const AttentionNode& n, const PackedKernels& p, const Tensor& dz, const Gradients& d, float* sinks, size_t longest,
          size_t side)
      : AttentionSquares(side),
        n_(n),
        p_(p),
        dz_(dz),
        d_(d),
        sinks_(sinks),
        head_dim_(size_of(n.q.dim(2))),
        v_dim_(size_of(n.v.dim(2))),
        blocks_((longest + side - 1) / side) {
    q_a_ = layout_.reserve(blocks_ * packed_a_bytes(p, side_, head_dim_));
    q_b_ = layout_.reserve(blocks_ * packed_b_bytes(p, side_, head_dim_));
    z_a_ = layout_.reserve(blocks_ * packed_a_bytes(p, side_, v_dim_));
    z_b_ = layout_.reserve(blocks_ * packed_b_bytes(p, side_, v_dim_));
    k_transposed_ = layout_.reserve(blocks_ * packed_b_bytes(p, head_dim_, side_));
    k_b_ = layout_.reserve(blocks_ * packed_b_bytes(p, side_, head_dim_));
    v_transposed_ = layout_.reserve(blocks_ * packed_b_bytes(p, v_dim_, side_));
    square_a_ = layout_.reserve(packed_a_bytes(p, side_, side_));
    width_ = blocks_ * side_;
    s_ = layout_.reserve((side_ * width_ + 1) * sizeof(float));  // and a sink's
    dp_ = layout_.reserve((side_ * width_ + 1) * sizeof(float));
    row_ = layout_.reserve((width_ + 1) * sizeof(float));
  }

  void run(const StepSequence& s, int64_t g, std::byte* scratch) const {
    const int64_t per_kv = n_.q.dim(1) / n_.k.dim(1);
    const size_t rows = size_of(s.rows);
    begin(d_.k, s, g, head_dim_);
    begin(d_.v, s, g, v_dim_);
    for (size_t b = 0; b * side_ < rows; ++b) {
      const size_t here = std::min(side_, rows - b * side_);
      const Operand k = lines(n_.k, s, b, g, head_dim_), v = lines(n_.v, s, b, g, v_dim_);
      pack_b(p_, k.transpose(), head_dim_, here, part(scratch, k_transposed_, b, packed_b_bytes(p_, head_dim_, side_)));
      pack_b(p_, v.transpose(), v_dim_, here, part(scratch, v_transposed_, b, packed_b_bytes(p_, v_dim_, side_)));
      if (d_.q) pack_b(p_, k, here, head_dim_, part(scratch, k_b_, b, packed_b_bytes(p_, side_, head_dim_)));
    }
    for (int64_t h = g * per_kv; h < (g + 1) * per_kv; ++h) {
      begin(d_.q, s, h, head_dim_);
      pack_head(s, h, scratch);
      for (size_t i = 0; i * side_ < rows; ++i) {
        const int64_t first = s.position + static_cast<int64_t>(i * side_),
                      last = std::min(first + static_cast<int64_t>(side_), s.position + s.rows);
        const size_t keys_first = size_of(seen_by(s, n_.spec, first).first),
                     keys_last = size_of(seen_by(s, n_.spec, last - 1).last);
        strip(s, g, h, i, keys_first / side_, (keys_last + side_ - 1) / side_, scratch);
      }
    }
  }

 private:
  static std::byte* part(std::byte* scratch, size_t at, size_t block, size_t size) { return scratch + at + block * size; }
  float* numbers_at(std::byte* scratch, size_t at) const { return reinterpret_cast<float*>(scratch + at); }
  float* target(const Tape::Sum& sum, const StepSequence& s, size_t block, int64_t head, size_t width) const {
    return const_cast<float*>(lines(sum.to, s, block, head, width).data);
  }
  void begin(const Tape::Sum& sum, const StepSequence& s, int64_t head, size_t width) const {
    if (!sum.fresh) return;
    for (int64_t r = 0; r < s.rows; ++r)
      std::memset(sum.to.row<float>(s.first_row + r) + size_of(head) * width, 0, width * sizeof(float));
  }

  void pack_head(const StepSequence& s, int64_t h, std::byte* scratch) const {
    const size_t rows = size_of(s.rows);
    for (size_t b = 0; b * side_ < rows; ++b) {
      const size_t here = std::min(side_, rows - b * side_);
      const Operand q = lines(n_.q, s, b, h, head_dim_), z = lines(dz_, s, b, h, v_dim_);
      pack_a(p_, q, here, head_dim_, part(scratch, q_a_, b, packed_a_bytes(p_, side_, head_dim_)));
      pack_a(p_, z, here, v_dim_, part(scratch, z_a_, b, packed_a_bytes(p_, side_, v_dim_)));
      if (d_.k) pack_b(p_, q, here, head_dim_, part(scratch, q_b_, b, packed_b_bytes(p_, side_, head_dim_)));
      if (d_.v) pack_b(p_, z, here, v_dim_, part(scratch, z_b_, b, packed_b_bytes(p_, side_, v_dim_)));
    }
  }

  // Queries of block i, keys of blocks [first, last).
  void strip(const StepSequence& s, int64_t g, int64_t h, size_t i, size_t first, size_t last, std::byte* scratch) const {
    const size_t rows = std::min(side_, size_of(s.rows) - i * side_);
    const auto keys_of = [&](size_t j) { return std::min(side_, size_of(s.rows) - j * side_); };
    float *score = numbers_at(scratch, s_), *slope = numbers_at(scratch, dp_);
    for (size_t j = first; j < last; ++j) {
      const size_t at = (j - first) * side_;
      multiply_packed(p_, part(scratch, q_a_, i, packed_a_bytes(p_, side_, head_dim_)), false,
                      part(scratch, k_transposed_, j, packed_b_bytes(p_, head_dim_, side_)), rows, keys_of(j), head_dim_,
                      score + at, width_, false);
      multiply_packed(p_, part(scratch, z_a_, i, packed_a_bytes(p_, side_, v_dim_)), false,
                      part(scratch, v_transposed_, j, packed_b_bytes(p_, v_dim_, side_)), rows, keys_of(j), v_dim_, slope + at,
                      width_, false);
    }
    const auto begin_key = static_cast<int64_t>(first * side_), end_key = std::min(static_cast<int64_t>(last * side_), s.rows);
    const float alibi = n_.spec.alibi ? raw_slope(n_.spec, h, n_.q.dim(1)) : 0;
    for (size_t r = 0; r < rows; ++r) {
      const KeyRange range = seen_by(s, n_.spec, s.position + static_cast<int64_t>(i * side_ + r));
      const auto at = [&](int64_t key) { return size_of(std::clamp(key, begin_key, end_key) - begin_key); };
      float *const s_row = score + r * width_, *const dp_row = slope + r * width_;
      const size_t keys = size_of(end_key - begin_key), end = at(range.last);
      if (n_.spec.alibi)
        add_slope(s_row, static_cast<int64_t>(at(range.first)), static_cast<int64_t>(end),
                  s.position + static_cast<int64_t>(i * side_ + r) - begin_key, alibi);
      const auto gradient = [&](size_t sinks) {
        kernels().pattern_gradient(s_row, dp_row, at(range.first), end + sinks, std::max(keys, end + sinks),
                                   static_cast<float>(n_.spec.scale), static_cast<float>(n_.spec.softcap),
                                   numbers_at(scratch, row_));
      };
      if (n_.spec.sinks == nullptr) {
        gradient(0);
        continue;
      }
      const SinkPlace sink(s_row, end, keys, raw_sink(n_.spec, h)), its_slope(dp_row, end, keys, 0);  // its value is 0
      gradient(1);
      if (sinks_ != nullptr)
        sinks_[(&s - n_.sequences) * n_.q.dim(1) + h] += its_slope.value() / static_cast<float>(n_.spec.scale);
    }
    for (size_t j = first; j < last; ++j)
      square(s, g, h, i, j, score + (j - first) * side_, slope + (j - first) * side_, scratch);
  }

  // What queries of block i and keys of block j give each other.
  void square(const StepSequence& s, int64_t g, int64_t h, size_t i, size_t j, const float* pattern, const float* slope,
              std::byte* scratch) const {
    const size_t rows = std::min(side_, size_of(s.rows) - i * side_), keys = std::min(side_, size_of(s.rows) - j * side_);
    std::byte* packed = scratch + square_a_;
    if (d_.v) {
      pack_a(p_, {pattern, width_, true}, keys, rows, packed);
      multiply_packed(p_, packed, true, part(scratch, z_b_, i, packed_b_bytes(p_, side_, v_dim_)), keys, v_dim_, rows,
                      target(d_.v, s, j, g, v_dim_), size_of(n_.v.row_size()), true);
    }
    if (d_.k) {
      pack_a(p_, {slope, width_, true}, keys, rows, packed);
      multiply_packed(p_, packed, true, part(scratch, q_b_, i, packed_b_bytes(p_, side_, head_dim_)), keys, head_dim_, rows,
                      target(d_.k, s, j, g, head_dim_), size_of(n_.k.row_size()), true);
    }
    if (d_.q) {
      pack_a(p_, {slope, width_, false}, rows, keys, packed);
      multiply_packed(p_, packed, false, part(scratch, k_b_, j, packed_b_bytes(p_, side_, head_dim_)), rows, head_dim_, keys,
                      target(d_.q, s, i, h, head_dim_), size_of(n_.q.row_size()), true);
    }
  }

  const AttentionNode& n_;
  const PackedKernels& p_;
  const Tensor& dz_;
  const Gradients& d_;
  float* sinks_;
  size_t head_dim_, v_dim_, blocks_, width_ = 0;
  size_t q_a_, q_b_, z_a_, z_b_, k_transposed_, k_b_, v_transposed_, square_a_, s_, dp_, row_;  // offsets into a thread's scratch
};

void attention_backward(Context& ctx, Tape& tape, const AttentionNode& n) {
  const Tensor dz = tape.gradient(n.z);
  if (!dz) return;
  const bool wide = dz.dtype() == DType::f64;
  const auto sum = [&](const Tensor& t) {  // rows of other sequences keep zeros
    return n.all && !wide ? tape.contribute(t) : Tape::Sum{tape.accumulate(t), false};
  };
  const Gradients d{sum(n.q), sum(n.k), sum(n.v)};
  const int64_t kv_heads = n.k.dim(1), per_kv = n.q.dim(1) / kv_heads;
  if (wide) {
    ctx.run(kv_heads, [&](int64_t g, int) {  // a key/value head's gradients belong to one thread
      for (int64_t i = 0; i < n.n_sequences; ++i)
        for (int64_t h = g * per_kv; h < (g + 1) * per_kv; ++h)
          for (int64_t r = 0; r < n.sequences[i].rows; ++r) query_backward(n, n.sequences[i], dz, d, g, h, r);
    });
    return;
  }
  const PackedKernels& p = packed_kernels(ctx);
  const int64_t heads = n.q.dim(1);
  float* sinks = nullptr;
  if (n.spec.sinks != nullptr && n.spec.sinks->grad.data != nullptr) {
    sinks = ctx.scratch<float>(static_cast<size_t>(n.n_sequences * heads));
    std::fill_n(sinks, n.n_sequences * heads, 0.0f);
  }
  each_head(ctx, {n.sequences, static_cast<size_t>(n.n_sequences)}, kv_heads,
            [&](size_t longest, size_t side) { return Squares(n, p, dz, d, sinks, longest, side); });
  if (sinks != nullptr) add_parts(ctx, sinks, n.n_sequences, heads, heads, static_cast<float*>(n.spec.sinks->grad.data));
  if (n.all) tape.release(n.z);
}

}  // namespace

void record_attention(Tape& tape, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& z,
                      std::span<const StepSequence> sequences, bool all, const AttentionSpec& spec) {
  tape.record(&attention_backward,
              AttentionNode{q, k, v, z, tape.keep(sequences), static_cast<int64_t>(sequences.size()), all, spec});
}

}  // namespace vitrine
