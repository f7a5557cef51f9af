#pragma once
// JSON from files that may be hostile: errors name the file, the key and what was expected.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace vitrine {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keys in the order in which they came

/// Parses `text`, which came from `where` (a path, named in errors). Depth is limited to 64, and a key that appears
/// twice in one object is an error. Errors: FileError with the byte at which it stopped.
Json parse_json(std::string_view text, const std::string& where);

/// The same, with the keys of objects in the order in which they came; for requests. Finding one of n keys takes n steps, so an
/// object may have kMostOrderedKeys. Short values take up to 32 times the bytes of their text, so all may take kMostOrderedBytes:
/// 16 for a number, true, false or null, 64 for a string (without its characters), a list, an object or a key.
/// Errors: as parse_json; FileError for more keys or bytes.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where);
inline constexpr size_t kMostOrderedKeys = 1024;
inline constexpr size_t kMostOrderedBytes = size_t{64} << 20;

/// parse_json of a whole file of at most `max_bytes`.
Json read_json(const std::string& path, size_t max_bytes = size_t{256} << 20);

}  // namespace vitrine
