#pragma once
// Reading the components of a tokenizer.json: every one is an object with a "type" and its fields.
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/regex.h"

namespace vitrine {

/// Access to the fields of one component, with the file and the component's place for messages.
class Component {
 public:
  /// `field` is the place in the file: "normalizer", "pre_tokenizer.pretokenizers[0]". Errors: FileError if `json` is no
  /// object with a string "type" (unless `typed` is false).
  Component(const Json& json, const std::string& path, std::string field, bool typed = true);

  const std::string& type() const { return type_; }
  const std::string& path() const { return *path_; }
  const std::string& field() const { return field_; }
  bool has(const char* key) const;  // present and not null

  // Values; errors: FileError naming the field when it is missing (where there is no default) or of another type.
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  int64_t integer(const char* key) const;
  std::vector<Component> children(const char* key, bool typed = true) const;  // of an array of objects
  Component child(const char* key, bool typed = true) const;
  const Json& json() const { return *json_; }

  [[noreturn]] void fail(const std::string& problem) const;
  /// The error for a type that is not known. `what` is the kind of component, `known` a list for the user.
  [[noreturn]] void unknown(const char* what, std::string_view known) const;

 private:
  const Json& value(const char* key) const;
  const Json* json_;
  const std::string* path_;
  std::string field_, type_;
};

/// A "pattern": {"String": …} or {"Regex": …}. Matches are found from left to right; empty ones
/// (of a Regex) are visited where `empty` asks for them.
class Pattern {
 public:
  Pattern(const Component& owner, const char* key);
  bool is(std::string_view literal) const { return regexes_.empty() && literal_ == literal; }
  template <class Visit>
  void each_match(std::string_view subject, Visit&& visit, bool empty = false) const {
    if (!regexes_.empty()) return regexes_[0].each_match(subject, visit, empty);
    if (literal_.empty()) return;
    for (size_t at = subject.find(literal_); at != std::string_view::npos; at = subject.find(literal_, at + literal_.size()))
      visit(at, at + literal_.size());
  }

 private:
  std::string literal_;
  std::vector<Regex> regexes_;  // one or none
};

}  // namespace vitrine
