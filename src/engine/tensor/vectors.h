#pragma once
// Memory for tensors that a listener may want to keep: each is a vector of its own, handed over without a copy.
#include <cstddef>
#include <vector>

#include "vitrine/float_vector.h"

namespace vitrine {

/// Like an arena, last in, first out. What is given back serves tensors of the same size (those of the next layer) until
/// all is given back.
class Vectors {
 public:
  /// `count` elements, content undefined. Valid until rewound below, or as long as what was taken lives.
  float* allocate(size_t count);
  size_t mark() const { return made_.size(); }
  void rewind(size_t mark);
  /// Rewinds to `mark`, but keeps what lies at `p`. False, and nothing is done, if that was not made here above the mark.
  bool rewind_keeping(size_t mark, const void* p);
  /// The mark before what lies at `p` if it is the latest; else mark().
  size_t begin_if_last(const void* p) const { return !made_.empty() && made_.back().begin == p ? mark() - 1 : mark(); }
  /// Moves the `count` elements at `p` to `elements`, where they stay at p. False if they are not the whole of what was made
  /// here, or have been taken.
  bool take(const void* p, size_t count, FloatVector& numbers);

 private:
  struct Made {
    const float* begin;
    FloatVector values;  // empty: taken
  };
  std::vector<Made> made_;
  std::vector<FloatVector> spare_;
};

}  // namespace vitrine
