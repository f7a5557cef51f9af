#pragma once
// Walks over JSON text without building a tree: for the vocabulary and merges of a tokenizer.json, which are megabytes.
// The rest of such a file is small and goes through base/json.h.
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

class JsonCursor {
 public:
  JsonCursor(std::string_view text, const std::string& where) : text_(text), where_(&where) {}

  size_t position() const { return pos_; }
  void move_to(size_t position) { pos_ = position; }
  std::string_view between(size_t begin, size_t end) const { return text_.substr(begin, end - begin); }

  char peek();          // the next character that is not white space; '\0' at the end
  void expect(char c);  // consumes it. Errors: FileError with the byte
  bool take(char c);    // consumes it if it is next
  /// A string's content; valid until the next call of string() on this cursor. Errors: FileError, also for bad UTF-8.
  std::string_view string();
  int64_t integer();
  double number();
  void skip_value();  // any value; nests at most 64 deep

  /// Calls each(key) for every key of the object that comes next; `each` must consume the value.
  template <class Each>
  void object(Each&& each) {
    expect('{');
    if (take('}')) return;
    do {
      const std::string_view key = string();
      key_.assign(key);
      expect(':');
      each(std::string_view(key_));
    } while (take(','));
    expect('}');
  }
  /// Calls each() for every element of the array that comes next.
  template <class Each>
  void array(Each&& each) {
    expect('[');
    if (take(']')) return;
    do each();
    while (take(','));
    expect(']');
  }
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void decode_string(size_t end_of_plain);
  void skip_string();

  std::string_view text_;
  const std::string* where_;
  size_t pos_ = 0;
  std::string scratch_, key_;
};

}  // namespace vitrine
