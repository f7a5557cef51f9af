#pragma once
// Memory for activations. Address space is reserved once, pages stay faulted between steps (touching memory for the
// first time is the slowest thing a step can do), and allocation is an addition.
#include <cstddef>
#include <cstdint>

namespace vitrine {

class Arena {
  // WebAssembly has no address space apart from its memory.
#ifdef __wasm__
  static constexpr size_t kReserve = size_t{64} << 20;
#else
  static constexpr size_t kReserve = size_t{1} << 38;
#endif

 public:
  /// Reserves address space; memory is taken as it is touched. Errors: RunError if even the address space is refused.
  explicit Arena(size_t reserve_bytes = kReserve);
  /// An arena without memory, for dry runs: it counts, and what it allocates lies where nothing may be read or written.
  struct Nowhere {};
  explicit Arena(Nowhere);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// 64-byte aligned, content undefined. Valid until rewound below it. Errors: RunError with the two sizes.
  void* allocate(size_t bytes) {
    const size_t begin = used_, size = (bytes + 63) & ~size_t{63};
    if (size < bytes || size > committed_ - begin) grow(bytes);
    used_ = begin + size;
    if (used_ > peak_) peak_ = used_;
    unpoison(begin, size);
    return base_ + begin;
  }
  size_t mark() const { return used_; }
  void rewind(size_t mark) {
    poison(mark, used_ - mark);
    used_ = mark;
  }
  /// Rewinds to `mark` and keeps the `bytes` at `p`, which move there if they lie above it (elsewhere they are copied).
  void* rewind_keeping(size_t mark, const void* p, size_t bytes);
  /// The mark before an allocation of `bytes` at `p`, if it is the latest one; else mark().
  size_t begin_if_last(const void* p, size_t bytes) const {
    const size_t size = (bytes + 63) & ~size_t{63};
    return size <= used_ && base_ + (used_ - size) == p ? used_ - size : used_;
  }
  /// Whether `p` lies below the mark.
  bool holds(const void* p) const { return p >= base_ && p < base_ + used_; }
  /// The most bytes ever in use, or since forget_peak().
  size_t peak() const { return peak_; }
  void forget_peak() { peak_ = used_; }

 private:
  void grow(size_t bytes);
  // Under the address sanitizer, memory above the mark may not be touched.
  void poison(size_t begin, size_t size);
  void unpoison(size_t begin, size_t size);

  char* base_ = nullptr;
  size_t reserved_ = 0, committed_ = 0, used_ = 0, peak_ = 0;
  bool has_memory_ = true;
};

}  // namespace vitrine
