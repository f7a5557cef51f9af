#pragma once
// Regular expressions for names of modules: the keys of PEFT's rank_pattern and alpha_pattern, which are to fit the end of a name
// or all of it, and those that are looked for anywhere in it.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace vitrine {

/// Whether `ending` is the name of the module or its last parts.
bool ends_in_parts(const std::string& module, const std::string& ending);
/// A key for Place::end that fits `module` and no other of `modules`.
std::string key_of_module(const std::string& module, std::span<const std::string> modules);

class ModulePattern {
 public:
  enum class Place : uint8_t { end, anywhere };
  /// Errors: InputError with PCRE2's own words and the position.
  explicit ModulePattern(const std::string& key, Place place = Place::end);
  /// Whether Python's re.match(rf"(.*\.)?({key})$", module) finds something, as peft's get_pattern_key asks; of Place::anywhere
  /// re.search(key, module).
  /// Errors: InputError when the match takes more steps or memory than the limits allow.
  bool fits(const std::string& module) const;

 private:
  std::shared_ptr<void> code_;  // pcre2_code; PCRE2's types stay out of this header
};

}  // namespace vitrine
