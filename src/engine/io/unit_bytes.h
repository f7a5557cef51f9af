#pragma once
// Values as bytes and back by the same lines, so that what is read is what was written.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace vitrine {

/// Little-endian, without names. One function describes both directions: f(bytes) calls bytes.value(x) and bytes.values(v), which
/// append x and v, or read them.
/// Errors of reading: FileError that names `where` for bytes that end early, are left over, or give another count than expected.
class UnitBytes {
 public:
  UnitBytes() = default;  // writes
  UnitBytes(std::span<const std::byte> from, std::string where) : reads_(true), from_(from), where_(std::move(where)) {}

  template <class T>
  void value(T& x) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (reads_) return take(&x, sizeof x);
    append(&x, sizeof x);
  }
  /// expected: how many there must be.
  template <class T>
  void values(std::vector<T>& v, std::optional<size_t> expected = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t n = count(v.size(), expected, sizeof(T));
    if (!reads_) return append(v.data(), n * sizeof(T));
    v.resize(n);
    take(v.data(), n * sizeof(T));
  }
  /// The number of elements, then f(element) for each.
  template <class T, class F>
  void each(std::vector<T>& v, F&& f, std::optional<size_t> expected = {}) {
    const size_t n = count(v.size(), expected, 1);
    if (reads_) v.resize(n);
    for (T& one : v) f(one);
  }
  void text(std::string& s) {
    const size_t n = count(s.size(), {}, 1);
    if (!reads_) return append(s.data(), n);
    s.resize(n);
    take(s.data(), n);
  }

  std::span<const std::byte> written() const { return written_; }
  void require_end() const;

 private:
  // Of elements that take at least so many bytes each.
  size_t count(size_t has, std::optional<size_t> expected, size_t element_bytes);
  void append(const void* from, size_t n) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    written_.insert(written_.end(), bytes, bytes + n);
  }
  void take(void* to, size_t n);

  bool reads_ = false;
  std::span<const std::byte> from_;
  size_t at_ = 0;
  std::string where_;
  std::vector<std::byte> written_;
};

}  // namespace vitrine
