#pragma once
// What attention's packed forms share, forwards and backwards: one head of one sequence at a time, in squares of queries and
// keys, which a thread goes through in its own scratch.
#include <algorithm>
#include <span>

#include "ops/attention_keys.h"
#include "ops/layout.h"
#include "ops/packed_product.h"

namespace vitrine {

class AttentionSquares {
 public:
  /// Bytes that each thread needs.
  size_t scratch_bytes() const { return layout_.bytes(); }

 protected:
  explicit AttentionSquares(size_t side) : side_(side) {}
  static size_t size_of(int64_t n) { return static_cast<size_t>(n); }
  /// A head's rows of a block of x [rows, heads, width].
  Operand lines(const Tensor& x, const StepSequence& s, size_t block, int64_t head, size_t width) const {
    return {x.row<float>(s.first_row + static_cast<int64_t>(block * side_)) + size_of(head) * width, size_of(x.row_size())};
  }

  size_t side_;    // queries and keys of a square
  Layout layout_;  // of a thread's scratch
};

/// A number at `last`, the end of the keys that a query sees in a row of n, while it lives: the score of a sink. Then a masked
/// key's place is 0, as the kernels leave it, and what lies behind the row is as it was.
class SinkPlace {
 public:
  SinkPlace(float* row, size_t last, size_t n, float value) : at_(row + last), after_(last < n ? 0.0f : *at_) { *at_ = value; }
  ~SinkPlace() { *at_ = after_; }
  SinkPlace(const SinkPlace&) = delete;
  SinkPlace& operator=(const SinkPlace&) = delete;
  float value() const { return *at_; }

 private:
  float* at_;
  float after_;
};

/// The raw score, which the scale is yet to act on, of a head's sink.
inline float raw_sink(const AttentionSpec& spec, int64_t head) {
  return static_cast<float>(spec.sinks->at<double>(head) / spec.scale);
}

/// The slope of a head's raw scores with ALiBi.
inline float raw_slope(const AttentionSpec& spec, int64_t head, int64_t n_heads) {
  return static_cast<float>(alibi_slope(head, n_heads) / spec.scale);
}

/// Calls run(sequence, head, scratch) of make(longest, side), the squares for sequences of up to that many rows, for each
/// sequence and head. The side goes by a sequence's own length, so that its bits depend on no other.
template <class Make>
void each_head(Context& ctx, std::span<const StepSequence> sequences, int64_t heads, Make&& make) {
  constexpr int64_t kBriefRows = 128;
  constexpr size_t kBriefSide = 32, kSide = 64;
  int64_t longest = 0;
  for (const StepSequence& s : sequences) longest = std::max(longest, s.rows);
  const auto brief = make(static_cast<size_t>(std::min(longest, kBriefRows)), kBriefSide),
             others = make(static_cast<size_t>(longest), kSide);
  const size_t bytes = std::max(brief.scratch_bytes(), others.scratch_bytes());
  auto* scratch = ctx.scratch<std::byte>(bytes * static_cast<size_t>(ctx.pool().threads()));
  ctx.run(static_cast<int64_t>(sequences.size()) * heads, [&](int64_t task, int thread) {
    const StepSequence& s = sequences[static_cast<size_t>(task / heads)];
    (s.rows <= kBriefRows ? brief : others).run(s, task % heads, scratch + bytes * static_cast<size_t>(thread));
  });
}

}  // namespace vitrine
