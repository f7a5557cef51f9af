#pragma once
// A vector of floats whose elements are not initialized, for numbers that are written right after allocation.
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace vitrine {

/// An allocator whose vectors leave elements without a given value uninitialized: those of resize(n) and of a vector constructed
/// with only a size.
template <class T>
struct Unset : std::allocator<T> {
  Unset() = default;
  template <class U>
  Unset(const Unset<U>&) noexcept {}
  template <class U>
  struct rebind {
    using other = Unset<U>;
  };
  T* allocate(size_t n) {
    if (n > static_cast<size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* p, size_t) noexcept { ::operator delete(p, std::align_val_t{64}); }
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
};

/// Like std::vector<float>, but a separate type: std::vector<float>(n.begin(), n.end()) copies it into one.
using FloatVector = std::vector<float, Unset<float>>;

}  // namespace vitrine
