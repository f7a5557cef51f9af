#include "base/json.h"

#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace vitrine {

namespace {

constexpr size_t kDeepest = 64;

/// Makes the value of what the library's parser reads. The library can do so itself and call a function for each value, but then
/// it looks through all earlier siblings at each end of an object. Each step here costs at most the logarithm of its object's
/// keys.
template <class J>  // Json or ordered_json
class Builder {
 public:
  explicit Builder(const std::string& where) : where_(where) {}

  J take() && { return std::move(root_); }

  // The events, by the names that nlohmann::json::sax_parse calls.
  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(typename J::number_integer_t value) { return scalar(value); }
  bool number_unsigned(typename J::number_unsigned_t value) { return scalar(value); }
  bool number_float(typename J::number_float_t value, const std::string&) { return scalar(value); }
  bool string(std::string& value) { return scalar(std::move(value)); }
  bool binary(typename J::binary_t&) { return false; }  // not in text
  bool start_array(size_t) { return start(J::value_t::array); }
  bool end_array() { return end(); }
  bool start_object(size_t) { return start(J::value_t::object); }
  bool end_object() { return end(); }

  bool key(std::string& name) {
    check_depth();
    auto& members = open_.back().value->template get_ref<typename J::object_t&>();
    if constexpr (kOrdered) {  // its members are a vector, which would be searched from the start for each key
      if (!open_.back().keys.insert(name).second) fail_twice(name);
      if (members.size() == kMostOrderedKeys)
        throw FileError(where_, "has an object of more than " + std::to_string(kMostOrderedKeys) + " keys");
      count(kHeavy);
      members.emplace_back(std::move(name), nullptr);
      member_ = &members.back().second;
    } else {
      const auto [member, is_new] = members.emplace(std::move(name), nullptr);
      if (!is_new) fail_twice(member->first);
      member_ = &member->second;
    }
    return true;
  }

  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& error) {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) throw FileError(where_, "holds a number beyond the range of a double");
    stopped_at = byte;
    half_pair = std::string_view(error.what()).find("surrogate") != std::string_view::npos;
    return false;
  }

  size_t stopped_at = 0;   // of text that is no JSON
  bool half_pair = false;  // because of half a surrogate pair

 private:
  static constexpr bool kOrdered = !std::is_same_v<J, Json>;
  static constexpr size_t kLight = 16, kHeavy = 64;  // bytes: a value itself, and one with memory of its own

  struct NoKeys {};
  struct Open {
    J* value;
    std::conditional_t<kOrdered, std::set<std::string>, NoKeys> keys;
  };

  template <class Value>
  bool scalar(Value&& value) {
    constexpr bool heavy = std::is_same_v<std::decay_t<Value>, std::string>;
    place(std::forward<Value>(value), heavy ? kHeavy : kLight);
    return true;
  }

  bool start(typename J::value_t type) {
    open_.push_back({place(type, kHeavy), {}});
    return true;
  }

  bool end() {
    open_.pop_back();
    return true;
  }

  template <class Value>
  J* place(Value&& value, size_t bytes) {
    check_depth();
    count(bytes);
    if (open_.empty()) return &(root_ = J(std::forward<Value>(value)));
    if (open_.back().value->is_array())
      return &open_.back().value->template get_ref<typename J::array_t&>().emplace_back(std::forward<Value>(value));
    return &(*member_ = J(std::forward<Value>(value)));
  }

  void check_depth() const {
    if (open_.size() > kDeepest) throw FileError(where_, "nests deeper than " + std::to_string(kDeepest) + " levels");
  }

  void count(size_t bytes) {
    bytes_ += bytes;
    if (kOrdered && bytes_ > kMostOrderedBytes)
      throw FileError(where_, "has too many values: they take more than " + std::to_string(kMostOrderedBytes >> 20) +
                                  " MiB, 16 bytes for a number and 64 for a string, a list, an object or a key");
  }

  [[noreturn]] void fail_twice(const std::string& name) const {
    throw FileError(where_, "has the key \"" + name + "\" twice in one object; remove one of them");
  }

  const std::string& where_;
  J root_;
  std::vector<Open> open_;  // lists and objects, from the root on
  J* member_ = nullptr;     // where the value of the key that was read last goes
  size_t bytes_ = 0;
};

template <class J>
J parse(std::string_view text, const std::string& where) {
  Builder<J> builder(where);
  if (J::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder).take();
  const std::string size = std::to_string(text.size());
  if (builder.stopped_at > text.size()) throw FileError(where, "is not valid JSON: it is truncated after " + size + " bytes");
  if (builder.half_pair)
    throw FileError(where, "holds half of a surrogate pair (\\ud800 to \\udfff) at byte " + std::to_string(builder.stopped_at) +
                               " of " + size + ", which is no character by itself; write the character whole");
  throw FileError(where, "is not valid JSON at byte " + std::to_string(builder.stopped_at) + " of " + size);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) { return parse<Json>(text, where); }

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where) {
  return parse<nlohmann::ordered_json>(text, where);
}

Json read_json(const std::string& path, size_t max_bytes) { return parse_json(read_file(path, max_bytes), path); }

}  // namespace vitrine
