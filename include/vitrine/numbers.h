#pragma once
// Many numbers that are written right after memory was taken for them.
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace vitrine {

/// An allocator whose vectors do not write new elements when they grow: resize() leaves them unset.
template <class T>
struct Unset : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = Unset<U>;
  };
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
};

/// A std::vector<float> in all else.
using Numbers = std::vector<float, Unset<float>>;

}  // namespace vitrine
