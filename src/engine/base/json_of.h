#pragma once
// Results as JSON, by their lists of members. A number that is not finite is null, a complex one [real, imaginary].
#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/json.h"
#include "base/members.h"

namespace vitrine {

struct JsonForm {
  using Value = OrderedJson;
  static Value object() { return Value::object(); }
  static void set(Value& object, std::string_view name, Value member) { object[std::string(name)] = std::move(member); }
  static Value list() { return Value::array(); }
  static void add(Value& list, Value one) { list.push_back(std::move(one)); }
  static Value nothing() { return nullptr; }
  template <class T>
  static Value of(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::isfinite(value) ? Value(value) : Value(nullptr);
    } else if constexpr (requires { value.real(), value.imag(); }) {
      return Value::array({of(value.real()), of(value.imag())});
    } else {
      return value;
    }
  }
};

template <class T>
OrderedJson json_of(const T& value, const Speller& piece = {}) {
  return value_as<JsonForm>(value, piece);
}

}  // namespace vitrine
