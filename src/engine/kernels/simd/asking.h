#pragma once
// Memory asked for while a product computes.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// Asks for the lines of what the caller reads next, a few at a time.
class Asking {
 public:
  /// line() is called `calls` times, in which all is asked for; without a number, it asks for one line.
  explicit Asking(const ReadNext& next, size_t calls = SIZE_MAX / 2)
      : at_(line_of(static_cast<const char*>(next.data))),
        end_(static_cast<const char*>(next.data) + next.bytes),
        bytes_(next.bytes),
        stride_(next.stride),
        rows_(next.rows),
        each_(next.rows * (next.bytes / 64 + 1) / (calls + 1) + 1) {}
  HWY_INLINE void line() {
    if (rows_ == 0) return;
    ask();
    for (size_t i = 1; i < each_ && rows_ > 0; ++i) ask();
  }

 private:
  HWY_INLINE void ask() {
    __builtin_prefetch(at_, 0, 2);
    at_ += 64;
    if (at_ < end_) return;
    end_ += stride_;
    at_ = line_of(end_ - bytes_);
    --rows_;
  }
  static HWY_INLINE const char* line_of(const char* p) { return p - reinterpret_cast<size_t>(p) % 64; }

  const char *at_, *end_;
  size_t bytes_, stride_, rows_, each_;
};

}  // namespace
}  // namespace vitrine
