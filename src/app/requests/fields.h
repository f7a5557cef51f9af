#pragma once
// What a request in JSON may hold. Each has a table of its fields; reading, errors, the OpenAPI document and the tables of
// docs/http-api.md come from it. A field is honored, or ignored and named in the answer, or refused by name.
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace vitrine {

/// A request is wrong: what() says how.
struct RequestError : InputError {
  RequestError(const std::string& message, std::string error_code, std::string field_name = {})
      : InputError(message), code(std::move(error_code)), field(std::move(field_name)) {}
  std::string code;   // a word for programs: "invalid_value"
  std::string field;  // the one that is wrong; empty: none
};
/// An error about one field.
RequestError invalid(const std::string& field, const std::string& message, std::string code = "invalid_value");

/// Types that a value may have; several are joined by |.
namespace type {
inline constexpr unsigned boolean = 1, integer = 2, number = 4, text = 8, object = 16, texts = 32 /*a list of strings*/,
                          integers = 64 /*a list of them*/, list = 128 /*of anything*/;
}

enum class Use : uint8_t { honored, ignored, refused };

struct Field {
  std::string name;
  unsigned types;
  std::string about;  // what it does and its default; refused: why, and what to do instead
  Use use = Use::honored;
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  std::string harmless = {};  // refused: a JSON list of values that ask for nothing, as "[0, false]"
  bool required = false;
  std::string same_as = {};  // another name of that field

  static Field ignored(std::string name, std::string about);
  static Field refused(std::string name, std::string about, std::string harmless = "[]");
};

/// Tables one behind the other.
std::vector<Field> joined(const std::vector<std::vector<Field>>& tables);
/// "a number from 0 to 2", "a string or a list of strings".
std::string expected(const Field& field);

/// Errors: RequestError invalid_json.
OrderedJson parse_body(const std::string& body);

/// A request's fields, checked against a table. A field that is null counts as absent.
class Fields {
 public:
  /// Errors: RequestError naming the field, what it is and what was expected: for a wrong type or range, for a field that is
  /// refused, for a missing one that is required, with `strict` also for one that is unknown.
  Fields(const std::string& body, const std::vector<Field>& table, bool strict = false);

  const OrderedJson& body() const { return body_; }
  const OrderedJson* find(const std::string& name) const;
  bool has(const std::string& name) const { return find(name) != nullptr; }
  std::optional<double> number(const std::string& name) const;
  std::optional<int64_t> integer(const std::string& name) const;
  std::optional<std::string> text(const std::string& name) const;
  bool boolean(const std::string& name, bool fallback) const;
  /// A string, or a list of strings.
  std::vector<std::string> texts(const std::string& name) const;
  std::vector<int64_t> integers(const std::string& name) const;

  /// Names a field inside another one ("messages[2].audio") that is ignored.
  void ignore(std::string name) { ignored_.insert(std::move(name)); }
  /// The same of the members of an object at `where` that are not among `known`; null counts as absent.
  void ignore_others(const OrderedJson& object, const std::string& where, std::initializer_list<std::string_view> known);
  /// The fields of the request that change nothing, for the answer. Errors: std::logic_error if an honored field was not asked
  /// for: a mistake in the endpoint.
  const std::set<std::string>& ignored() const;
  /// Their names as the last member of an answer, if there are any.
  void add_ignored(OrderedJson& json) const;

 private:
  const Field* known(const std::string& name) const;
  void check(const std::string& name, const OrderedJson& value, const Field& field);

  const std::vector<Field>& table_;
  OrderedJson body_;
  std::set<std::string> ignored_;
  mutable std::set<std::string> asked_;
};

/// Errors: RequestError naming a member of the object at `where` that is not among `known`; null counts as absent.
void refuse_others(const OrderedJson& object, const std::string& where, std::initializer_list<std::string_view> known);

/// "a string", "a list": what a value is, for messages.
std::string kind_of(const OrderedJson& value);

/// Compact JSON; bytes that are not UTF-8 become U+FFFD.
std::string json_text(const OrderedJson& json);

}  // namespace vitrine
