#include <algorithm>

#include "kernels/table.h"
#include "ops/attention_squares.h"

namespace vitrine {
namespace {

// One query head of one sequence: strips of queries and all keys they see.  S = Q Kᵀ,  P = softmax of its rows,  Z = P V
class Strips : public AttentionSquares {
 public:
  // For sequences of up to `longest` rows in strips of `side` queries.
  Strips(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionSpec& spec, const Tensor& z, const PackedKernels& p,
         size_t longest, size_t side)
      : AttentionSquares(side),
        q_(q),
        k_(k),
        v_(v),
        z_(z),
        spec_(spec),
        p_(p),
        head_dim_(size_of(q.dim(2))),
        v_dim_(size_of(v.dim(2))) {
    const size_t blocks = (longest + side - 1) / side;
    width_ = blocks * side;
    q_at_ = layout_.reserve(packed_a_bytes(p, side_, head_dim_));
    k_at_ = layout_.reserve(blocks * packed_b_bytes(p, head_dim_, side_));
    v_at_ = layout_.reserve(blocks * packed_b_bytes(p, side_, v_dim_));
    pattern_at_ = layout_.reserve(packed_a_bytes(p, side_, side_));
    s_at_ = layout_.reserve((side_ * width_ + 1) * sizeof(float));  // and a sink's score
  }

  void run(const StepSequence& s, int64_t h, std::byte* scratch) const {
    const int64_t g = h / (q_.dim(1) / k_.dim(1));
    const size_t rows = size_of(s.rows);
    for (size_t b = 0; b * side_ < rows; ++b) {
      const size_t here = std::min(side_, rows - b * side_);
      pack_b(p_, lines(k_, s, b, g, head_dim_).transpose(), head_dim_, here, keys_block(scratch, b));
      pack_b(p_, lines(v_, s, b, g, v_dim_), here, v_dim_, values_block(scratch, b));
    }
    for (size_t i = 0; i * side_ < rows; ++i) strip(s, h, i, scratch);
  }

 private:
  std::byte* keys_block(std::byte* scratch, size_t b) const { return scratch + k_at_ + b * packed_b_bytes(p_, head_dim_, side_); }
  std::byte* values_block(std::byte* scratch, size_t b) const { return scratch + v_at_ + b * packed_b_bytes(p_, side_, v_dim_); }

  // Queries of block i.
  void strip(const StepSequence& s, int64_t h, size_t i, std::byte* scratch) const {
    const size_t all = size_of(s.rows), rows = std::min(side_, all - i * side_);
    const int64_t top = s.position + static_cast<int64_t>(i * side_);
    const size_t first = size_of(seen_by(s, spec_, top).first) / side_,
                 last = (size_of(seen_by(s, spec_, top + static_cast<int64_t>(rows) - 1).last) + side_ - 1) / side_;
    const size_t begin_key = first * side_, end_key = std::min(last * side_, all);
    const auto keys_of = [&](size_t j) { return std::min(side_, all - j * side_); };
    auto* score = reinterpret_cast<float*>(scratch + s_at_);
    pack_a(p_, lines(q_, s, i, h, head_dim_), rows, head_dim_, scratch + q_at_);
    for (size_t j = first; j < last; ++j)
      multiply_packed(p_, scratch + q_at_, false, keys_block(scratch, j), rows, keys_of(j), head_dim_,
                      score + (j - first) * side_, width_, false);
    const float slope = spec_.alibi ? raw_slope(spec_, h, q_.dim(1)) : 0;
    for (size_t r = 0; r < rows; ++r) {
      const KeyRange range = seen_by(s, spec_, top + static_cast<int64_t>(r));
      const auto at = [&](int64_t key) { return std::clamp(size_of(key), begin_key, end_key) - begin_key; };
      float* const row = score + r * width_;
      const size_t n = end_key - begin_key, end = at(range.last);
      if (spec_.alibi)
        add_slope(row, static_cast<int64_t>(at(range.first)), static_cast<int64_t>(end),
                  top + static_cast<int64_t>(r) - static_cast<int64_t>(begin_key), slope);
      const auto pattern = [&](size_t sinks) {
        kernels().pattern(row, at(range.first), end + sinks, std::max(n, end + sinks), static_cast<float>(spec_.scale),
                          static_cast<float>(spec_.softcap));
      };
      if (spec_.sinks == nullptr) {
        pattern(0);
      } else {
        const SinkPlace sink(row, end, n, raw_sink(spec_, h));
        pattern(1);
      }
    }
    auto* z = const_cast<float*>(lines(z_, s, i, h, v_dim_).data);
    for (size_t j = first; j < last; ++j) {
      pack_a(p_, {score + (j - first) * side_, width_}, rows, keys_of(j), scratch + pattern_at_);
      multiply_packed(p_, scratch + pattern_at_, false, values_block(scratch, j), rows, v_dim_, keys_of(j), z,
                      size_of(z_.row_size()), j > first);
    }
  }

  const Tensor &q_, &k_, &v_, &z_;
  const AttentionSpec& spec_;
  const PackedKernels& p_;
  size_t head_dim_, v_dim_, width_ = 0;
  size_t q_at_, k_at_, v_at_, pattern_at_, s_at_;  // offsets into a thread's scratch
};

}  // namespace

void attention_packed(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, std::span<const StepSequence> sequences,
                      const AttentionSpec& spec, const Tensor& z) {
  const PackedKernels& p = packed_kernels(ctx);
  each_head(ctx, sequences, q.dim(1), [&](size_t longest, size_t side) { return Strips(q, k, v, spec, z, p, longest, side); });
}

}  // namespace vitrine
