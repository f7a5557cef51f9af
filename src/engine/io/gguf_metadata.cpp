// The getters of GgufMetadata.
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "io/file_checks.h"
#include "io/gguf.h"

namespace vitrine {
namespace {

/// Calls f with the element at `from`, in its own type; false for strings and arrays.
template <class F>
bool visit_scalar(GgufType type, const std::byte* from, F&& f) {
  switch (type) {
    case GgufType::u8: f(load<uint8_t>(from)); return true;
    case GgufType::i8: f(load<int8_t>(from)); return true;
    case GgufType::u16: f(load<uint16_t>(from)); return true;
    case GgufType::i16: f(load<int16_t>(from)); return true;
    case GgufType::u32: f(load<uint32_t>(from)); return true;
    case GgufType::i32: f(load<int32_t>(from)); return true;
    case GgufType::f32: f(load<float>(from)); return true;
    case GgufType::flag: f(load<uint8_t>(from) != 0); return true;
    case GgufType::u64: f(load<uint64_t>(from)); return true;
    case GgufType::i64: f(load<int64_t>(from)); return true;
    case GgufType::f64: f(load<double>(from)); return true;
    case GgufType::string:
    case GgufType::array: return false;
  }
  return false;
}

std::optional<int64_t> as_integer(GgufType type, const std::byte* from) {
  std::optional<int64_t> result;
  visit_scalar(type, from, [&](auto value) {
    using T = decltype(value);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (!std::is_same_v<T, uint64_t> || static_cast<uint64_t>(value) <= INT64_MAX) result = static_cast<int64_t>(value);
    }
  });
  return result;
}

std::optional<double> as_number(GgufType type, const std::byte* from) {
  std::optional<double> result;
  visit_scalar(type, from, [&](auto value) {
    if constexpr (!std::is_same_v<decltype(value), bool>) result = static_cast<double>(value);
  });
  return result;
}

Json as_json(GgufType type, const std::byte* from) {
  Json result;
  visit_scalar(type, from, [&](auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>) {
      result = std::isfinite(value) ? Json(value) : Json(std::isnan(value) ? "NaN" : value > 0 ? "infinity" : "-infinity");
    } else {
      result = value;
    }
  });
  return result;
}

/// The text with U+FFFD in the place of bytes that are not UTF-8.
Json valid_utf8(std::string_view text) {
  const std::string escaped = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(escaped);
}

std::string_view next_string(const std::byte*& from) {
  const uint64_t length = load<uint64_t>(from);
  const std::string_view text(reinterpret_cast<const char*>(from + 8), length);
  from += 8 + length;
  return text;
}

}  // namespace

void GgufMetadata::wrong(std::string_view key, const Value& value, const char* expected) const {
  std::string found;
  if (value.type == GgufType::string) {
    const std::string_view text(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
    found = valid_utf8(text.size() > 40 ? std::string(text.substr(0, 37)) + "..." : std::string(text)).dump();
  } else if (value.type == GgufType::array) {
    found = "an array of " + std::to_string(value.count) + " elements";
  } else {
    found = as_json(value.type, value.bytes.data()).dump();
  }
  throw FileError(
      path_, "key \"" + std::string(key) + "\" (byte " + std::to_string(value.at) + ") is " + found + "; expected " + expected);
}

const GgufMetadata::Value* GgufMetadata::find(std::string_view key, bool required, const char* expected) const {
  const auto found = values_.find(key);
  if (found != values_.end()) return &found->second;
  if (required)
    throw FileError(path_, "lacks the key \"" + std::string(key) + "\"; expected " + expected + ". Convert the model again");
  return nullptr;
}

int64_t GgufMetadata::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const Value* value = find(key, !fallback, "an integer");
  if (value == nullptr) return *fallback;
  const std::optional<int64_t> number = as_integer(value->type, value->bytes.data());
  if (!number) wrong(key, *value, "an integer");
  return *number;
}

double GgufMetadata::number(std::string_view key, std::optional<double> fallback) const {
  const Value* value = find(key, !fallback, "a number");
  if (value == nullptr) return *fallback;
  const std::optional<double> number = as_number(value->type, value->bytes.data());
  if (!number || !std::isfinite(*number)) wrong(key, *value, "a finite number");
  return *number;
}

bool GgufMetadata::flag(std::string_view key, std::optional<bool> fallback) const {
  const Value* value = find(key, !fallback, "true or false");
  if (value == nullptr) return *fallback;
  if (value->type != GgufType::flag) wrong(key, *value, "true or false");
  return load<uint8_t>(value->bytes.data()) != 0;
}

std::string_view GgufMetadata::string(std::string_view key, std::optional<std::string_view> fallback) const {
  const Value* value = find(key, !fallback, "a string");
  if (value == nullptr) return *fallback;
  if (value->type != GgufType::string) wrong(key, *value, "a string");
  return {reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size()};
}

const GgufMetadata::Value& GgufMetadata::array(std::string_view key, const char* expected) const {
  const Value* value = find(key, true, expected);
  if (value->type != GgufType::array) wrong(key, *value, expected);
  return *value;
}

std::vector<std::string_view> GgufMetadata::strings(std::string_view key) const {
  const Value& value = array(key, "an array of strings");
  if (value.element != GgufType::string && value.count != 0) wrong(key, value, "an array of strings");
  std::vector<std::string_view> result;
  result.reserve(value.count);
  const std::byte* from = value.bytes.data();
  for (uint64_t i = 0; i < value.count; ++i) result.push_back(next_string(from));
  return result;
}

std::vector<int64_t> GgufMetadata::integers(std::string_view key) const {
  const Value& value = array(key, "an array of integers");
  std::vector<int64_t> result;
  result.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const std::byte* from = value.bytes.data() + i * size_of(value.element);
    const std::optional<int64_t> number = as_integer(value.element, from);
    if (!number) wrong(key, value, "an array of integers");
    result.push_back(*number);
  }
  return result;
}

std::vector<float> GgufMetadata::numbers(std::string_view key) const {
  const Value& value = array(key, "an array of numbers");
  std::vector<float> result;
  result.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const std::byte* from = value.bytes.data() + i * size_of(value.element);
    const std::optional<double> number = as_number(value.element, from);
    if (!number) wrong(key, value, "an array of numbers");
    result.push_back(static_cast<float>(*number));
  }
  return result;
}

Json GgufMetadata::config() const {
  constexpr uint64_t kLongestArray = 4096;
  Json config = Json::object();
  for (const auto& [key, value] : values_) {
    Json json;
    if (value.type == GgufType::string) {
      json = valid_utf8({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
    } else if (value.type == GgufType::array) {
      if (value.count > kLongestArray || value.element == GgufType::array) continue;
      json = Json::array();
      const std::byte* from = value.bytes.data();
      for (uint64_t i = 0; i < value.count; ++i) {
        if (value.element == GgufType::string) {
          json.push_back(valid_utf8(next_string(from)));
        } else {
          json.push_back(as_json(value.element, from + i * size_of(value.element)));
        }
      }
    } else {
      json = as_json(value.type, value.bytes.data());
    }
    config[valid_utf8(key).get<std::string>()] = std::move(json);
  }
  return config;
}

}  // namespace vitrine
