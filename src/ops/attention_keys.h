#pragma once
// What the fused and the stepwise form of attention share: where keys and values lie, and which keys a row sees.
#include <algorithm>

#include "kernels/types.h"
#include "ops/attention.h"

namespace vitrine {

inline constexpr int64_t kKeys = static_cast<int64_t>(kKeyBlock);

/// Positions [first, last) that the query at `position` of this sequence sees.
struct KeyRange {
  int64_t first, last;
};
inline KeyRange seen_by(const StepSequence& sequence, const AttentionSpec& spec, int64_t position) {
  const int64_t end = sequence.position + sequence.rows;
  if (!spec.causal) return {0, end};
  return {spec.window == kNoWindow ? 0 : std::max<int64_t>(0, position - spec.window + 1), position + 1};
}

/// Keys, transposed, and values of one sequence by block of kKeyBlock positions.
template <class T>
class KeySource {
 public:
  /// Takes the context's scratch for transposed keys, if the sequence has no cache.
  KeySource(Context& ctx, const StepSequence& sequence, int layer, const Tensor& k, const Tensor& v)
      : sequence_(sequence), layer_(layer), k_(k), v_(v), head_dim_(k.dim(2)) {
    if (sequence.cache != nullptr) return;
    blocks_ = (sequence.rows + kKeys - 1) / kKeys;
    transposed_ = ctx.scratch<T>(static_cast<size_t>(k.dim(1) * blocks_ * head_dim_ * kKeys));
  }

  /// Writes a head's keys and values to the sequence's cache, or lays its keys out transposed. To be called for every head
  /// before they are read.
  void lay_out(int64_t head) {
    const int64_t begin = sequence_.position, end = begin + sequence_.rows;
    for (int64_t block = begin / kKeys; block * kKeys < end; ++block) {
      const int64_t from = std::max(begin, block * kKeys), to = std::min(end, (block + 1) * kKeys);
      const T* source = k_.row<T>(sequence_.first_row + from - begin) + head * head_dim_;
      T* target = key_block(block, head) + (from - block * kKeys);
      for (int64_t c = 0; c < head_dim_; ++c)
        for (int64_t j = 0; j < to - from; ++j) target[c * kKeys + j] = source[j * k_.row_size() + c];
      if constexpr (std::is_same_v<T, float>)
        if (sequence_.cache != nullptr)
          for (int64_t j = from; j < to; ++j) {
            const T* value = v_.row<T>(sequence_.first_row + j - begin) + head * v_.dim(2);
            std::copy(value, value + v_.dim(2), sequence_.cache->values(layer_, block, head) + (j - block * kKeys) * v_.dim(2));
          }
    }
  }

  /// [head_dim, kKeyBlock]
  const T* keys(int64_t block, int64_t head) const { return const_cast<KeySource*>(this)->key_block(block, head); }
  /// [keys of the block, v_stride()]
  const T* values(int64_t block, int64_t head) const {
    if constexpr (std::is_same_v<T, float>)
      if (sequence_.cache != nullptr) return sequence_.cache->values(layer_, block, head);
    return v_.row<T>(sequence_.first_row + block * kKeys) + head * v_.dim(2);
  }
  size_t v_stride() const { return static_cast<size_t>(sequence_.cache != nullptr ? v_.dim(2) : v_.row_size()); }

 private:
  T* key_block(int64_t block, int64_t head) {
    if constexpr (std::is_same_v<T, float>)
      if (sequence_.cache != nullptr) return sequence_.cache->keys(layer_, block, head);
    return transposed_ + (head * blocks_ + block) * head_dim_ * kKeys;
  }

  StepSequence sequence_;
  int layer_;
  Tensor k_, v_;
  int64_t head_dim_, blocks_ = 0;
  T* transposed_ = nullptr;
};

/// The stepwise form for one sequence: scores, pattern, mixture, a hook between each; writes the sequence's rows of z.
template <class T>
void attention_stepwise(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Step& step, size_t sequence,
                        const KeySource<T>& source, const AttentionSpec& spec, const Tensor& z);

/// The fused form of whole sequences of more than one row, without a cache, through packed products as training's others
/// are: operands are rounded to bf16 where those are. Writes the sequences' rows of z.
void attention_packed(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, std::span<const StepSequence> sequences,
                      const AttentionSpec& spec, const Tensor& z);

/// Records the fused form's backward for these sequences; all: they are all of the step's.
void record_attention(Tape& tape, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& z,
                      std::span<const StepSequence> sequences, bool all, const AttentionSpec& spec);

}  // namespace vitrine
