#pragma once
// What the fused and the stepwise form of attention share: where keys and values lie, and which keys a row sees.
#include <algorithm>

#include "kernels/types.h"
#include "ops/attention.h"
#include "ops/narrow_store.h"

namespace vitrine {

inline constexpr int64_t kKeys = static_cast<int64_t>(kKeyBlock);

/// Positions [first, last) that the query at `position` of this sequence sees.
struct KeyRange {
  int64_t first, last;
};
inline KeyRange seen_by(const StepSequence& sequence, const AttentionSpec& spec, int64_t position) {
  const int64_t end = sequence.position + sequence.rows;
  if (!spec.causal) return {0, end};
  return {first_seen(spec, position), position + 1};
}

/// Adds slope · (key - query) to the scores of the keys [first, last) of a row, whose first number is the score of key 0.
template <class T>
void add_slope(T* row, int64_t first, int64_t last, int64_t query, T slope) {
  for (int64_t key = first; key < last; ++key) row[key] += slope * static_cast<T>(key - query);
}

/// Keys, transposed, and values of one sequence by block of kKeyBlock positions.
template <class T>
class KeySource {
 public:
  /// Takes the context's scratch for transposed keys, if the sequence has no cache.
  KeySource(Context& ctx, const StepSequence& sequence, int layer, const Tensor& k, const Tensor& v)
      : sequence_(sequence), layer_(layer), k_(k), v_(v), head_dim_(k.dim(2)) {
    if (sequence.cache != nullptr) {
      types_ = sequence.cache->shape(layer).types;
      return;
    }
    blocks_ = (sequence.rows + kKeys - 1) / kKeys;
    transposed_ = ctx.scratch<T>(static_cast<size_t>(k.dim(1) * blocks_ * head_dim_ * kKeys));
  }

  /// Writes a head's keys and values to the sequence's cache, or lays its keys out transposed. To be called for every head
  /// before they are read.
  void lay_out(int64_t head) {
    const int64_t begin = sequence_.position, end = begin + sequence_.rows;
    for (int64_t block = begin / kKeys; block * kKeys < end; ++block) {
      const int64_t from = std::max(begin, block * kKeys), to = std::min(end, (block + 1) * kKeys);
      const T* keys = k_.row<T>(sequence_.first_row + from - begin) + head * head_dim_;
      const T* values = v_.row<T>(sequence_.first_row + from - begin) + head * v_.dim(2);
      const int64_t n = to - from, place = from - block * kKeys;
      if constexpr (std::is_same_v<T, float>) {
        if (is_narrow(types_.keys))
          store_keys(types_.keys, keys, k_.row_size(), n, place, head_dim_, sequence_.cache->keys(layer_, block, head));
        if (is_narrow(types_.values)) {
          store_values(types_.values, values, v_.row_size(), n, place, v_.dim(2), sequence_.cache->values(layer_, block, head));
        } else if (sequence_.cache != nullptr) {
          float* target = cached_values(block, head) + place * v_.dim(2);
          for (int64_t j = 0; j < n; ++j) std::copy_n(values + j * v_.row_size(), v_.dim(2), target + j * v_.dim(2));
        }
      }
      if (is_narrow(types_.keys)) continue;
      T* target = key_block(block, head) + place;
      for (int64_t c = 0; c < head_dim_; ++c)
        for (int64_t j = 0; j < n; ++j) target[c * kKeys + j] = keys[j * k_.row_size() + c];
    }
  }

  /// f32 keys and values instead of narrow ones, for those who read them as such; from the scratch. The positions [first, …) are
  /// there afterwards.
  void widen(Context& ctx, int64_t first) {
    if constexpr (std::is_same_v<T, float>) {
      const int64_t end = sequence_.position + sequence_.rows;
      first_block_ = first / kKeys;
      blocks_ = (end + kKeys - 1) / kKeys - first_block_;
      const auto per_component = static_cast<size_t>(k_.dim(1) * blocks_ * kKeys);
      if (is_narrow(types_.keys)) wide_keys_ = ctx.scratch<float>(per_component * static_cast<size_t>(head_dim_));
      if (is_narrow(types_.values)) wide_values_ = ctx.scratch<float>(per_component * static_cast<size_t>(v_.dim(2)));
      ctx.run(k_.dim(1) * blocks_, [&](int64_t task, int) {
        const int64_t head = task / blocks_, block = first_block_ + task % blocks_, n = std::min(kKeys, end - block * kKeys);
        if (wide_keys_ != nullptr)
          widen_keys(types_.keys, sequence_.cache->keys(layer_, block, head), n, head_dim_,
                     wide(wide_keys_, block, head, head_dim_));
        if (wide_values_ != nullptr)
          widen_values(types_.values, sequence_.cache->values(layer_, block, head), n, v_.dim(2),
                       wide(wide_values_, block, head, v_.dim(2)));
      });
    }
  }

  /// [head_dim, kKeyBlock]; null where the keys are narrow and were not widened.
  const T* keys(int64_t block, int64_t head) const { return const_cast<KeySource*>(this)->key_block(block, head); }
  /// [keys of the block, v_stride()]; null likewise.
  const T* values(int64_t block, int64_t head) const {
    if constexpr (std::is_same_v<T, float>) {
      if (wide_values_ != nullptr) return wide(wide_values_, block, head, v_.dim(2));
      if (is_narrow(types_.values)) return nullptr;
      if (sequence_.cache != nullptr) return cached_values(block, head);
    }
    return v_.row<T>(sequence_.first_row + block * kKeys) + head * v_.dim(2);
  }
  /// Of one position in one head, keys and values.
  int64_t bytes_per_key() const {
    const auto bytes = [](DType type, int64_t n) { return static_cast<int64_t>(row_bytes(type, static_cast<size_t>(n))); };
    return bytes(types_.keys, head_dim_) + bytes(types_.values, v_.dim(2));
  }
  int64_t rows() const { return sequence_.rows; }
  size_t v_stride() const { return static_cast<size_t>(sequence_.cache != nullptr ? v_.dim(2) : v_.row_size()); }
  /// The narrow ones; of type f32 where there are none.
  NarrowBlock narrow_keys(int64_t block, int64_t head) const {
    if (!is_narrow(types_.keys)) return {};
    return narrow_block(types_.keys, sequence_.cache->keys(layer_, block, head), head_dim_, kKeys);
  }
  NarrowBlock narrow_values(int64_t block, int64_t head) const {
    if (!is_narrow(types_.values)) return {};
    return narrow_block(types_.values, sequence_.cache->values(layer_, block, head), kKeys, v_.dim(2));
  }

 private:
  static bool is_narrow(DType type) { return type != DType::f32; }
  float* wide(float* all, int64_t block, int64_t head, int64_t components) const {
    return all + (head * blocks_ + block - first_block_) * components * kKeys;
  }
  float* cached_values(int64_t block, int64_t head) const {
    return reinterpret_cast<float*>(sequence_.cache->values(layer_, block, head));
  }
  T* key_block(int64_t block, int64_t head) {
    if constexpr (std::is_same_v<T, float>) {
      if (wide_keys_ != nullptr) return wide(wide_keys_, block, head, head_dim_);
      if (is_narrow(types_.keys)) return nullptr;
      if (sequence_.cache != nullptr) return reinterpret_cast<float*>(sequence_.cache->keys(layer_, block, head));
    }
    return transposed_ + (head * blocks_ + block) * head_dim_ * kKeys;
  }

  StepSequence sequence_;
  int layer_;
  Tensor k_, v_;
  int64_t head_dim_, blocks_ = 0, first_block_ = 0;
  CacheTypes types_;
  T* transposed_ = nullptr;
  float *wide_keys_ = nullptr, *wide_values_ = nullptr;
};

/// A sequence of the step whose scores and pattern are made, with its keys.
template <class T>
struct ShownSequence {
  size_t sequence;
  const KeySource<T>* source;
};

/// The stepwise form: scores, pattern, mixture, a hook between each, which shows those of all these sequences together; writes
/// the sequences' rows of z. Errors: UsageError for several together while a tape records.
template <class T>
void attention_stepwise(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Step& step,
                        std::span<const ShownSequence<T>> shown, const AttentionSpec& spec, const Tensor& z);

/// The fused form of whole sequences of more than one row, without a cache, through packed products as training's others
/// are: operands are rounded to bf16 where those are. Writes the sequences' rows of z.
void attention_packed(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, std::span<const StepSequence> sequences,
                      const AttentionSpec& spec, const Tensor& z);

/// Records the fused form's backward for these sequences; all: they are all of the step's.
void record_attention(Tape& tape, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& z,
                      std::span<const StepSequence> sequences, bool all, const AttentionSpec& spec);

}  // namespace vitrine
