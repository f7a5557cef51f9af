#pragma once
// Results as Python's dicts, lists and arrays, by their lists of members (base/members.h).
#include <nanobind/stl/complex.h>

#include <complex>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "base/members.h"

namespace vitrine::python {

struct PythonForm {
  using Value = nb::object;
  static nb::dict object() { return {}; }
  static void set(nb::dict& object, std::string_view name, const Value& member) { object[text(name)] = member; }
  static nb::list list() { return {}; }
  static void add(nb::list& list, const Value& one) { list.append(one); }
  template <class T>
    requires std::is_same_v<T, double> || std::is_same_v<T, std::complex<double>>
  static Value numbers(const std::vector<T>& values) {
    auto kept = std::make_unique<std::vector<T>>(values);
    const size_t shape[] = {kept->size()};
    T* const data = kept->data();
    const nb::capsule owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(data, 1, shape, owner));
  }
  static Value nothing() { return nb::none(); }
  template <class T>
  static Value of(const T& value) {
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      return text(value);
    } else {
      return nb::cast(value);
    }
  }
};

template <class T>
nb::object python_of(const T& value, const Speller& piece = {}) {
  return value_as<PythonForm>(value, piece);
}

}  // namespace vitrine::python
