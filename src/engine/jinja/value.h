#pragma once
// The values a template computes with: Python's, as far as chat templates use them. Lists and dicts never change once made
// (the reference renders in an immutable sandbox), so they are shared freely; only a namespace() can be assigned to.
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "jinja/meter.h"
#include "jinja/text.h"

namespace vitrine::jinja {

class Interpreter;
class Value;
struct Arguments;

inline constexpr int kDeepestValue = 200;  // lists in lists in lists: bounds every recursion over a value

struct None {
  bool operator==(const None&) const = default;
};

/// What a missing variable or attribute gives: it prints as nothing, is false and empty, and anything else fails with `problem`.
struct Undefined {
  std::shared_ptr<const std::string> problem;
};

struct Items;     // list, tuple
struct Dict;      // in the order of insertion
struct DictView;  // keys(), values(), items()
struct Range;
struct Stream;    // a generator: gives its elements once
struct Space;     // namespace()
struct Loop;      // the variable `loop`
struct Callable;  // macro, function, bound method

using Next = std::function<bool(Value&)>;  // puts the next element there; false at the end

template <class T, class Variant>
inline constexpr bool is_alternative = false;
template <class T, class... Alternatives>
inline constexpr bool is_alternative<T, std::variant<Alternatives...>> = (std::is_same_v<T, Alternatives> || ...);

class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const Items>,
                   std::shared_ptr<const Dict>, std::shared_ptr<const DictView>, std::shared_ptr<const Range>,
                   std::shared_ptr<Stream>, std::shared_ptr<Space>, std::shared_ptr<Loop>, std::shared_ptr<const Callable>>;

  Value() : data_(Undefined{}) {}
  template <class T>
    requires is_alternative<T, Data>
  Value(T data) : data_(std::in_place_type<T>, std::move(data)) {}  // implicit: values are written as what they are

  static Value text(std::string bytes) { return std::make_shared<const Text>(std::move(bytes)); }
  static Value text(Text text) { return std::make_shared<const Text>(std::move(text)); }
  static Value undefined(std::string problem) { return Undefined{std::make_shared<const std::string>(std::move(problem))}; }
  static Value list(Meter& meter, std::vector<Value> items);
  static Value tuple(Meter& meter, std::vector<Value> items);
  /// `depth`: of the deepest value that `next` holds.
  static Value stream(Meter& meter, Next next, int depth);
  static Value boolean(bool value) { return Value(value); }
  static Value integer(int64_t value) { return Value(value); }

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  /// The object behind the pointer alternatives; null if the value is something else.
  const Text* as_text() const { return pointer<const Text>(); }
  const Items* as_items() const { return pointer<const Items>(); }
  const Items* as_list() const;
  const Items* as_tuple() const;
  const Dict* as_dict() const { return pointer<const Dict>(); }
  const DictView* as_view() const { return pointer<const DictView>(); }
  const Range* as_range() const { return pointer<const Range>(); }
  Stream* as_stream() const { return pointer<Stream>(); }
  Space* as_space() const { return pointer<Space>(); }
  Loop* as_loop() const { return pointer<Loop>(); }
  const Callable* as_callable() const { return pointer<const Callable>(); }
  /// bool and int, Python's integers.
  std::optional<int64_t> as_integer() const;
  /// bool, int and float.
  std::optional<double> as_number() const;

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  const Data& data() const { return data_; }
  int depth() const;

 private:
  template <class T>
  T* pointer() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held ? held->get() : nullptr;
  }
  Data data_;
};

struct Items {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int depth = 1;

  /// Errors: Problem for a key that cannot be hashed (a list, a dict).
  const Value* find(Meter& meter, const Value& key) const;
  const Value* find(const std::string& key) const;

 private:
  friend class DictBuilder;
  std::map<std::string, size_t> index;  // by hash_key()
};

/// Builds a dict; a key that comes again replaces the value at the place of the first.
class DictBuilder {
 public:
  explicit DictBuilder(Meter& meter) : meter_(meter), dict_(std::make_shared<Dict>()) {}
  void set(const Value& key, Value value);
  Value finish() { return std::shared_ptr<const Dict>(std::move(dict_)); }

 private:
  Meter& meter_;
  std::shared_ptr<Dict> dict_;
};

struct DictView {
  enum class Kind : uint8_t { keys, values, items };
  std::shared_ptr<const Dict> dict;
  Kind kind;
};

struct Range {
  int64_t start, stop, step;
  int64_t length() const;
  int64_t at(int64_t i) const { return start + i * step; }
};

struct Stream {
  Next next;
  int depth = 1;
};

struct Space {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// The state of a running for-loop. Elements are fetched when they are needed, as the reference does: a filter on the loop
/// may depend on what its body did before.
struct Loop {
  Next source;
  std::optional<int64_t> known_length;
  int64_t index0 = -1;
  std::deque<Value> ahead;  // fetched, not yet visited
  Value current, before;
  std::optional<std::vector<Value>> last_changed;

  bool advance();
  bool peek();  // whether there is a next element
  int64_t length();
};

struct Callable {
  std::string description;  // "method upper of str", "macro 'f'"
  std::function<Value(Interpreter&, Arguments&)> call;
  std::vector<std::pair<std::string, Value>> attributes;  // of a macro
  int depth = 1;
};

/// What a call passes.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Gives arguments their names, as a Python function with these parameters does. Missing ones are null.
/// Errors: Problem for too many, unknown or doubled arguments and for a missing one of the first `required`.
class Bound {
 public:
  Bound(std::string_view callee, Arguments& arguments, std::initializer_list<const char*> parameters, size_t required = 0);
  bool has(size_t i) const { return values_[i].has_value(); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value value_or(size_t i, Value fallback) const { return values_[i] ? *values_[i] : std::move(fallback); }
  int64_t integer(size_t i, int64_t fallback) const;
  /// None counts as absent.
  std::optional<int64_t> optional_integer(size_t i) const;
  const Text& text(size_t i) const;
  bool truth(size_t i, bool fallback) const;

 private:
  std::string callee_;
  std::vector<std::optional<Value>> values_;
};

bool truth(const Value& value);
/// "str", "int", "list": Python's name of the type.
std::string type_name(const Value& value);
/// What len() gives; nothing for values without a length.
std::optional<int64_t> length(Meter& meter, const Value& value);
/// Bytes that are equal for equal keys (1, 1.0 and True are one key). Errors: Problem for unhashable values.
std::string hash_key(Meter& meter, const Value& value);
/// All strings of `json`, keys included, count as input if `from_input`.
Value from_json(Meter& meter, const nlohmann::ordered_json& json, bool from_input);

/// Fails with the message of an undefined value; does nothing for others.
void require_defined(const Value& value);

}  // namespace vitrine::jinja
