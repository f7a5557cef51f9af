#pragma once
// The arguments of a call in the form that a model writes, read piece by piece as JSON.
#include <optional>
#include <string>
#include <string_view>

#include "jinja/jinja.h"

namespace vitrine::serve {

enum class Reading : uint8_t {
  open,    // more text is needed
  done,    // what was read is a whole object
  broken,  // the text goes on as no arguments can
};

enum class ArgumentForm : uint8_t {
  json,    // {"key": value}
  gemma,   // {key:<|"|>text<|"|>}, or with <escape> around texts
  python,  // (key="text", other=[1, True, None])
};

/// Arguments between brackets. Gives JSON without spaces; any way to cut the text gives the same JSON. What models often get
/// wrong is mended: control characters and unknown escapes in strings, True and None, a comma behind the last item.
class BracketArguments {
 public:
  explicit BracketArguments(ArgumentForm form) : form_(form) {}
  /// Reads on after a value of an object, whose rest follows.
  static BracketArguments rest_of_object();

  /// Reads from the front of `text`, which loses what was read, and appends JSON to `out`. What is left when it stays open is
  /// the beginning of something: give it again with more behind it.
  Reading read(std::string_view& text, std::string& out);

 private:
  enum class Next : uint8_t { root, value, item, key, colon, comma, done };
  void step(std::string_view& text, std::string& out);
  void step_string(std::string_view& text, std::string& out);
  bool open_string(std::string_view& text, std::string& out);
  void open(char closer, std::string& out);
  void close(std::string& out);
  void begin_item(std::string& out);
  void end_value();

  ArgumentForm form_;
  Next next_ = Next::root;
  std::string closers_;    // of what is open: } ] ) and c for the ) of the call itself
  std::string delimiter_;  // of the string that is read; empty: none
  bool key_ = false;       // that string is a key
  bool comma_ = false;     // one was read and not yet given
  bool broken_ = false;
};

/// <parameter=key>value</parameter>, as often as wanted, up to </function>, or a JSON object in front of it; or
/// <arg_key>key</arg_key> and <arg_value>value</arg_value>, up to </tool_call>. `schema` is the JSON
/// schema of the parameters: a value that is a string by it is a string whatever it looks like; others are JSON if they parse.
class TagArguments {
 public:
  explicit TagArguments(const OrderedJson& schema) : schema_(schema) {}
  /// As BracketArguments::read().
  Reading read(std::string_view& text, std::string& out);
  /// What was read and not given: the beginning of a value that must be whole first.
  const std::string& held() const { return value_; }

 private:
  Reading read_between(std::string_view& text, std::string& out);
  void begin_value(std::string_view key, std::string_view end, std::string& out);
  void read_value(std::string_view& text, std::string& out);

  OrderedJson schema_;
  std::optional<BracketArguments> object_;
  bool any_ = false, in_value_ = false, first_ = false, is_string_ = false;
  std::string_view end_;  // marker of the value's
  OrderedJson type_;
  std::string value_;
};

/// The value or the object that `text` is; nothing where it is none.
std::optional<OrderedJson> parsed_value(std::string_view text);
std::optional<OrderedJson> parsed_object(std::string_view text);

/// Bytes at the end of `text` with which `marker` may begin: more text decides.
size_t begun_at_end(std::string_view text, std::string_view marker);

}  // namespace vitrine::serve
