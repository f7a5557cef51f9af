#include "base/json.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace vitrine {

Json parse_json(std::string_view text, const std::string& where) {
  constexpr int kDeepest = 64;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDeepest) throw FileError(where, "nests deeper than " + std::to_string(kDeepest) + " levels");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw FileError(where, "has the key \"" + value.get<std::string>() + "\" twice in one object; remove one of them");
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& e) {
    throw FileError(where, "is not valid JSON at byte " + std::to_string(e.byte) + " of " + std::to_string(text.size()) +
                               (e.byte >= text.size() ? "; is the file complete?" : ""));
  } catch (const Json::out_of_range&) {
    throw FileError(where, "holds a number beyond the range of a double");
  }
}

Json read_json(const std::string& path, size_t max_bytes) { return parse_json(read_file(path, max_bytes), path); }

}  // namespace vitrine
