#pragma once
// A typed view of a model's configuration. It names file and key in every error, and it remembers what was read, so that
// a family can refuse a configuration that says something the family does not honor.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace vitrine {

/// transformers' form of infinity, which is no number in JSON: {"__float__": "Infinity"}.
const Json& named_infinity();

/// Reads keys of one JSON object. `older` lists other names of the same key (n_embd of hidden_size); if two of them are
/// present they must agree. A null is as good as absent. A key that is absent and has no fallback is an error, as is a
/// value of the wrong type or range: all FileError. Copies share one memory of what was read.
class ConfigReader {
 public:
  using Names = std::initializer_list<std::string_view>;
  static constexpr int64_t kLargest = INT32_MAX;  // of a size: products of two fit into int64

  /// `path` is named in errors. Errors: FileError if `config` is not an object.
  ConfigReader(Json config, std::string path);

  /// A whole number from 1 to kLargest, or from 0.
  int64_t positive(std::string_view key, Names older = {}, std::optional<int64_t> fallback = {}) const;
  int64_t count(std::string_view key, Names older = {}, std::optional<int64_t> fallback = {}) const;
  /// A finite number; a whole one will do.
  double number(std::string_view key, Names older = {}, std::optional<double> fallback = {}) const;
  bool flag(std::string_view key, Names older = {}, std::optional<bool> fallback = {}) const;
  std::string string(std::string_view key, Names older = {}, std::optional<std::string> fallback = {}) const;

  // The same where absence means something of its own (sliding_window: null is "no window").
  std::optional<int64_t> find_positive(std::string_view key, Names older = {}) const;
  std::optional<int64_t> find_count(std::string_view key, Names older = {}) const;
  std::optional<double> find_number(std::string_view key, Names older = {}) const;
  std::optional<bool> find_flag(std::string_view key, Names older = {}) const;
  /// True or false, or a whole number >= 0, of which 0 alone is false.
  std::optional<bool> find_flag_or_count(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key, Names older = {}) const;
  /// One whole number >= 0 or a list of them (eos_token_id is either); empty if absent.
  std::vector<int64_t> counts(std::string_view key, Names older = {}) const;
  /// A list of numbers, of true and false, of strings; empty if absent. named_infinity() is read as infinity.
  std::vector<double> numbers(std::string_view key, Names older = {}) const;
  std::vector<bool> flags(std::string_view key, Names older = {}) const;
  std::vector<std::string> strings(std::string_view key, Names older = {}) const;
  /// An object inside (rope_scaling); its keys are remembered as "rope_scaling.factor".
  std::optional<ConfigReader> find_object(std::string_view key, Names older = {}) const;

  /// Present and not null. Does not count as reading.
  bool has(std::string_view key) const;
  /// Present, be it as null (sliding_window: null says more than silence). Does not count as reading.
  bool mentions(std::string_view key) const;
  /// A string, where another kind of value may stand, too ("auto"). Does not count as reading.
  bool is_text(std::string_view key) const;
  /// Marks keys that change no number (transformers_version, use_cache) as read.
  void ignore(Names keys) const;
  /// Keys of this object, and of the objects found in it, that nobody read or ignored and that are not null; sorted.
  std::vector<std::string> unread() const;
  /// Errors: FileError listing the unread keys, if there are any; `family` names who does not know them.
  void refuse_unread(std::string_view family) const;
  /// Throws FileError: "config.json: "key" is VALUE; PROBLEM", with the older name if the value was found under one.
  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;

  const std::string& path() const;

 private:
  struct State;
  struct Found {
    std::string_view key;
    const Json* value;
  };
  ConfigReader(std::shared_ptr<State> state, const Json* object, std::string prefix);
  std::optional<Found> find(std::string_view key, Names older) const;
  [[noreturn]] void missing(std::string_view key, Names older, const char* expected) const;
  int64_t whole(const Found& found, int64_t least) const;
  double finite(std::string_view key, const Json& value) const;

  std::shared_ptr<State> state_;
  const Json* object_;
  std::string prefix_;  // "rope_scaling." or empty
};

}  // namespace vitrine
