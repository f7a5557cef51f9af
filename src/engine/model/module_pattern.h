#pragma once
// Regular expressions for names of modules: the keys of PEFT's rank_pattern and alpha_pattern, which are to fit the end of a name
// or all of it, and those that are looked for anywhere in it.
#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace vitrine {

/// Whether `ending` is the name of the module or its last parts.
bool ends_in_parts(const std::string& module, const std::string& ending);
/// Keys for Place::end with numbers, such that each module of `numbers` has its own and those with the usual number fit none. No
/// module fits keys of two numbers, so their order is of no matter. A key is the shortest end of a name whose modules all have
/// one number: "q_proj", "mlp.c_proj", or the name from a layer's number on ("layers.3.mlp.c_proj").
std::map<std::string, double> pattern_keys(const std::map<std::string, double>& numbers, double usual);

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
