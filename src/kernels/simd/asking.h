#pragma once
// Memory asked for while a product computes.
#include "kernels/simd/vec.h"

namespace vitrine {
namespace {

/// Asks for the lines of what the caller reads next, one at a time.
class Asking {
 public:
  explicit Asking(const ReadNext& next)
      : at_(line_of(static_cast<const char*>(next.data))),
        end_(static_cast<const char*>(next.data) + next.bytes),
        bytes_(next.bytes),
        stride_(next.stride),
        rows_(next.rows) {}
  HWY_INLINE void line() {
    if (rows_ == 0) return;
    __builtin_prefetch(at_, 0, 2);
    at_ += 64;
    if (at_ < end_) return;
    end_ += stride_;
    at_ = line_of(end_ - bytes_);
    --rows_;
  }

 private:
  static HWY_INLINE const char* line_of(const char* p) { return p - reinterpret_cast<size_t>(p) % 64; }

  const char *at_, *end_;
  size_t bytes_, stride_, rows_;
};

}  // namespace
}  // namespace vitrine
