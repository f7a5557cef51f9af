#pragma once
// How far apart two residual streams are, row by row.
#include <cstdint>
#include <span>

namespace vitrine {

/// 1 - cosine of two rows, with its digits where 1 - cosine would cancel. 0 for two rows of zeros, 1 for one.
double cosine_distance(std::span<const float> a, std::span<const float> b);

/// Over the rows so far.
class StreamDistance {
 public:
  /// `at`: the row's position, for the largest distance.
  void add(std::span<const float> a, std::span<const float> b, int64_t at);
  /// Other rows, which come after these.
  void add(const StreamDistance& rows);

  double cosine() const;                       // mean over the rows
  double relative() const;                     // |b - a| / |a| over all rows
  double largest() const { return largest_; }  // 1 - cosine
  int64_t largest_at() const { return largest_at_; }

 private:
  double apart_ = 0, size_ = 0, distances_ = 0, largest_ = 0;
  int64_t rows_ = 0, largest_at_ = 0;
};

}  // namespace vitrine
