#include "io/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"

namespace vitrine {

const Json& named_infinity() {
  static const Json infinity = {{"__float__", "Infinity"}};
  return infinity;
}

namespace {

/// A value as it stands in the file, cut where it is long.
std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  if (value.is_structured() && value.size() > 16)  // do not print a megabyte to keep 60 bytes
    return (value.is_array() ? "a list of " : "an object of ") + std::to_string(value.size()) + " entries";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest - 3) + "...";
  return text;
}

/// A number without fraction in the range of int64.
std::optional<int64_t> as_whole(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::fabs(number) <= 0x1p53) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

struct ConfigReader::State {
  Json root;
  std::string path;
  std::set<std::string> read;                               // full names
  std::map<std::string, const Json*> inside;                // objects that were opened, by their prefix
  std::map<std::string, std::string, std::less<>> spelled;  // full name asked for -> the older key that held the value
};

ConfigReader::ConfigReader(Json config, std::string path) : state_(std::make_shared<State>()) {
  state_->root = std::move(config);
  state_->path = std::move(path);
  object_ = &state_->root;
  if (!object_->is_object()) throw FileError(state_->path, "is " + shown(*object_) + "; expected an object of settings");
}

ConfigReader::ConfigReader(std::shared_ptr<State> state, const Json* object, std::string prefix)
    : state_(std::move(state)), object_(object), prefix_(std::move(prefix)) {}

const std::string& ConfigReader::path() const { return state_->path; }

void ConfigReader::fail(std::string_view key, const std::string& problem) const {
  std::string name(key);
  if (const auto older = state_->spelled.find(prefix_ + name); older != state_->spelled.end()) name = older->second;
  const auto found = object_->find(name);
  throw FileError(path(), "\"" + prefix_ + name + "\" is " + (found == object_->end() ? std::string("absent") : shown(*found)) +
                              "; " + problem);
}

std::optional<ConfigReader::Found> ConfigReader::find(std::string_view key, Names older) const {
  std::optional<Found> found;
  const auto look = [&](std::string_view name) {
    const auto at = object_->find(std::string(name));
    if (at == object_->end()) return;
    state_->read.insert(prefix_ + std::string(name));
    if (at->is_null()) return;
    if (found && *found->value != *at)
      fail(name, "but \"" + prefix_ + std::string(found->key) + "\", another name of the same setting, is " +
                     shown(*found->value) + ". Remove the wrong one");
    if (!found) found = Found{name, &*at};
  };
  look(key);
  for (const std::string_view name : older) look(name);
  if (found && found->key != key) state_->spelled[prefix_ + std::string(key)] = found->key;
  return found;
}

void ConfigReader::missing(std::string_view key, Names older, const char* expected) const {
  std::string names = "\"" + prefix_ + std::string(key) + "\"";
  for (const std::string_view name : older) names += " (or \"" + prefix_ + std::string(name) + "\")";
  throw FileError(path(), "lacks " + names + "; expected " + expected);
}

int64_t ConfigReader::whole(const Found& found, int64_t least) const {
  const std::optional<int64_t> value = as_whole(*found.value);
  if (!value || *value < least || *value > kLargest)
    fail(found.key, "expected a whole number from " + std::to_string(least) + " to " + std::to_string(kLargest));
  return *value;
}

double ConfigReader::finite(std::string_view key, const Json& value) const {
  if (!value.is_number() || !std::isfinite(value.get<double>())) fail(key, "expected a number");
  return value.get<double>();
}

std::optional<int64_t> ConfigReader::find_positive(std::string_view key, Names older) const {
  const auto found = find(key, older);
  return found ? std::optional(whole(*found, 1)) : std::nullopt;
}

std::optional<int64_t> ConfigReader::find_count(std::string_view key, Names older) const {
  const auto found = find(key, older);
  return found ? std::optional(whole(*found, 0)) : std::nullopt;
}

std::optional<double> ConfigReader::find_number(std::string_view key, Names older) const {
  const auto found = find(key, older);
  return found ? std::optional(finite(found->key, *found->value)) : std::nullopt;
}

std::optional<bool> ConfigReader::find_flag(std::string_view key, Names older) const {
  const auto found = find(key, older);
  if (!found) return std::nullopt;
  if (!found->value->is_boolean()) fail(found->key, "expected true or false");
  return found->value->get<bool>();
}

std::optional<bool> ConfigReader::find_flag_or_count(std::string_view key) const {
  const auto found = find(key, {});
  if (!found) return std::nullopt;
  return found->value->is_boolean() ? found->value->get<bool>() : whole(*found, 0) != 0;
}

std::optional<std::string> ConfigReader::find_string(std::string_view key, Names older) const {
  const auto found = find(key, older);
  if (!found) return std::nullopt;
  if (!found->value->is_string()) fail(found->key, "expected a string");
  return found->value->get<std::string>();
}

int64_t ConfigReader::positive(std::string_view key, Names older, std::optional<int64_t> fallback) const {
  if (const auto value = find_positive(key, older)) return *value;
  if (!fallback) missing(key, older, "a whole number of at least 1");
  return *fallback;
}

int64_t ConfigReader::count(std::string_view key, Names older, std::optional<int64_t> fallback) const {
  if (const auto value = find_count(key, older)) return *value;
  if (!fallback) missing(key, older, "a whole number of at least 0");
  return *fallback;
}

double ConfigReader::number(std::string_view key, Names older, std::optional<double> fallback) const {
  if (const auto value = find_number(key, older)) return *value;
  if (!fallback) missing(key, older, "a number");
  return *fallback;
}

bool ConfigReader::flag(std::string_view key, Names older, std::optional<bool> fallback) const {
  if (const auto value = find_flag(key, older)) return *value;
  if (!fallback) missing(key, older, "true or false");
  return *fallback;
}

std::string ConfigReader::string(std::string_view key, Names older, std::optional<std::string> fallback) const {
  if (auto value = find_string(key, older)) return *std::move(value);
  if (!fallback) missing(key, older, "a string");
  return *std::move(fallback);
}

std::vector<int64_t> ConfigReader::counts(std::string_view key, Names older) const {
  const auto found = find(key, older);
  if (!found) return {};
  if (!found->value->is_array()) return {whole(*found, 0)};
  std::vector<int64_t> values;
  for (const Json& value : *found->value) {
    const std::optional<int64_t> number = as_whole(value);
    if (!number || *number < 0 || *number > kLargest)
      fail(found->key, "expected whole numbers from 0 to " + std::to_string(kLargest));
    values.push_back(*number);
  }
  return values;
}

std::vector<double> ConfigReader::numbers(std::string_view key, Names older) const {
  const auto found = find(key, older);
  if (!found) return {};
  if (!found->value->is_array()) fail(found->key, "expected a list of numbers");
  std::vector<double> values;
  for (const Json& value : *found->value)
    values.push_back(value == named_infinity() ? std::numeric_limits<double>::infinity() : finite(found->key, value));
  return values;
}

std::vector<bool> ConfigReader::flags(std::string_view key, Names older) const {
  const auto found = find(key, older);
  if (!found) return {};
  if (!found->value->is_array()) fail(found->key, "expected a list of true and false");
  std::vector<bool> values;
  for (const Json& value : *found->value) {
    if (!value.is_boolean()) fail(found->key, "expected a list of true and false");
    values.push_back(value.get<bool>());
  }
  return values;
}

std::vector<std::string> ConfigReader::strings(std::string_view key, Names older) const {
  const auto found = find(key, older);
  if (!found) return {};
  if (!found->value->is_array()) fail(found->key, "expected a list of strings");
  std::vector<std::string> values;
  for (const Json& value : *found->value) {
    if (!value.is_string()) fail(found->key, "expected a list of strings");
    values.push_back(value.get<std::string>());
  }
  return values;
}

std::optional<ConfigReader> ConfigReader::find_object(std::string_view key, Names older) const {
  const auto found = find(key, older);
  if (!found) return std::nullopt;
  if (!found->value->is_object()) fail(found->key, "expected an object");
  std::string prefix = prefix_ + std::string(found->key) + ".";
  state_->inside[prefix] = found->value;
  return ConfigReader(state_, found->value, std::move(prefix));
}

bool ConfigReader::mentions(std::string_view key) const { return object_->contains(key); }

bool ConfigReader::is_text(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && found->is_string();
}

bool ConfigReader::has(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && !found->is_null();
}

void ConfigReader::ignore(Names keys) const {
  for (const std::string_view key : keys) state_->read.insert(prefix_ + std::string(key));
}

std::vector<std::string> ConfigReader::unread() const {
  std::vector<std::string> names;
  const auto collect = [&](const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items())
      if (!value.is_null() && !state_->read.contains(prefix + key)) names.push_back(prefix + key);
  };
  collect(*object_, prefix_);
  for (const auto& [prefix, object] : state_->inside)
    if (prefix.size() > prefix_.size() && prefix.starts_with(prefix_)) collect(*object, prefix);
  std::sort(names.begin(), names.end());
  return names;
}

void ConfigReader::refuse_unread(std::string_view family) const {
  constexpr size_t kMostNamed = 8;
  const std::vector<std::string> names = unread();
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) list += (i == 0 ? "\"" : ", \"") + names[i] + "\"";
  if (names.size() > kMostNamed) list += " and " + std::to_string(names.size() - kMostNamed) + " more";
  throw FileError(path(), "sets " + list + ", which " + std::string(family) +
                              " models here do not know; the numbers could be wrong. Remove the setting if it changes nothing" +
                              (path().ends_with(".json") ? ", or go on without it by --ignore-unknown-keys" : ""));
}

}  // namespace vitrine
