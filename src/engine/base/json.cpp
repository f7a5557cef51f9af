#include "base/json.h"

#include <cstdint>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace vitrine {

namespace {

template <class J>  // Json or ordered_json
J parse(std::string_view text, const std::string& where, size_t most_keys) {
  constexpr int kDeepest = 64;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, typename J::parse_event_t event, J& value) {
    if (depth > kDeepest) throw FileError(where, "nests deeper than " + std::to_string(kDeepest) + " levels");
    if (event == J::parse_event_t::object_start) keys.emplace_back();
    if (event == J::parse_event_t::object_end) keys.pop_back();
    if (event == J::parse_event_t::key && !keys.back().insert(value.template get<std::string>()).second)
      throw FileError(where, "has the key \"" + value.template get<std::string>() + "\" twice in one object; remove one of them");
    if (event == J::parse_event_t::key && keys.back().size() > most_keys)
      throw FileError(where, "has an object of more than " + std::to_string(most_keys) + " keys");
    return true;
  };
  try {
    return J::parse(text.begin(), text.end(), watch);
  } catch (const typename J::parse_error& e) {
    const std::string size = std::to_string(text.size());
    if (e.byte > text.size()) throw FileError(where, "is not valid JSON: it is truncated after " + size + " bytes");
    throw FileError(where, "is not valid JSON at byte " + std::to_string(e.byte) + " of " + size);
  } catch (const typename J::out_of_range&) {
    throw FileError(where, "holds a number beyond the range of a double");
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) { return parse<Json>(text, where, SIZE_MAX); }

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where) {
  return parse<nlohmann::ordered_json>(text, where, kMostOrderedKeys);
}

Json read_json(const std::string& path, size_t max_bytes) { return parse_json(read_file(path, max_bytes), path); }

}  // namespace vitrine
