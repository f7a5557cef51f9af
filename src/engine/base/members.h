#pragma once
// The members of a result by name, listed once, inside of the struct. Its JSON (base/json_of.h), its object in Python
// (python/src/objects.h) and its types in TypeScript and Python (tests/app/requests/types_test.cpp) follow from the list:
//
//   struct TokenLogprob {
//     int32_t token;
//     float logprob;
//     double prob() const;
//     VITRINE_MEMBERS(token, logprob, prob());
//   };
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace vitrine {

#define VITRINE_MEMBERS(...)                                          \
  auto members() const { return ::vitrine::members_of(__VA_ARGS__); } \
  static constexpr std::string_view kMembers = #__VA_ARGS__

/// References to members, and what functions return by value.
template <class... T>
std::tuple<T...> members_of(T&&... member) {
  return std::tuple<T...>(std::forward<T>(member)...);
}

template <class T>
concept Described = requires { T::kMembers; };

template <Described T>
using MembersOf = decltype(std::declval<const T&>().members());

template <Described T>
constexpr auto member_names() {
  std::array<std::string_view, std::tuple_size_v<MembersOf<T>>> names;
  std::string_view left = T::kMembers;  // "token, logprob, prob()"
  for (std::string_view& name : names) {
    const size_t end = std::min(left.find(','), left.size());
    name = left.substr(0, std::min(end, left.find('(')));
    left.remove_prefix(std::min(end + 2, left.size()));
  }
  return names;
}

/// Calls f(name, member) for each.
template <Described T, class F>
void each_member(const T& value, F&& f) {
  static constexpr auto kNames = member_names<T>();
  std::apply(
      [&](const auto&... member) {
        auto name = kNames.begin();
        (f(*name++, member), ...);
      },
      value.members());
}

/// The piece of a token. With one, a member `token` is followed by its `piece`, and a list `tokens` by their `pieces`.
using Speller = std::function<std::optional<std::string>(int32_t)>;

/// A value in a form such as JSON, which says what an object, a list, nothing, and a number or text are there. A described struct
/// is an object with its members in their order; what is optional and not there is nothing, an enum its name_of, a map an object,
/// any other range a list (a form may have `numbers` for ranges of them).
template <class Form, class T>
typename Form::Value value_as(const T& value, const Speller& piece = {}) {
  if constexpr (Described<T>) {
    auto object = Form::object();
    each_member(value, [&](std::string_view name, const auto& member) {
      Form::set(object, name, value_as<Form>(member, piece));
      using Type = std::remove_cvref_t<decltype(member)>;
      if constexpr (std::is_same_v<Type, int32_t>) {
        if (piece && name == "token") Form::set(object, "piece", value_as<Form>(piece(member)));
      } else if constexpr (std::is_same_v<Type, std::vector<int32_t>>) {
        if (piece && name == "tokens") Form::set(object, "pieces", value_as<Form>(member | std::views::transform(piece)));
      }
    });
    return object;
  } else if constexpr (requires { value.has_value(), *value; }) {
    return value.has_value() ? value_as<Form>(*value, piece) : Form::nothing();
  } else if constexpr (requires { value.valueless_by_exception(); }) {
    return std::visit([&](const auto& one) { return value_as<Form>(one, piece); }, value);
  } else if constexpr (requires { typename T::mapped_type; } && !requires { value.is_array(); }) {
    auto object = Form::object();
    for (const auto& [key, one] : value) Form::set(object, key, value_as<Form>(one, piece));
    return object;
  } else if constexpr (std::ranges::range<const T> && !std::is_convertible_v<const T&, std::string_view> &&
                       !requires { value.is_array(); }) {
    if constexpr (requires { Form::numbers(value); }) return Form::numbers(value);
    auto list = Form::list();
    for (const auto& one : value) Form::add(list, value_as<Form>(one, piece));
    return list;
  } else if constexpr (std::is_enum_v<T>) {
    return Form::of(std::string_view(name_of(value)));
  } else {
    return Form::of(value);
  }
}

}  // namespace vitrine
