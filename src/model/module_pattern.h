#pragma once
// The keys of PEFT's rank_pattern and alpha_pattern: regular expressions for the end of a module's name, or all of it.
#include <memory>
#include <string>

namespace vitrine {

class ModulePattern {
 public:
  /// Errors: InputError with PCRE2's own words and the position.
  explicit ModulePattern(const std::string& key);
  /// Whether Python's re.match(rf"(.*\.)?({key})$", module) finds something, as peft's get_pattern_key asks.
  /// Errors: InputError when the match takes more steps or memory than the limits allow.
  bool fits(const std::string& module) const;

 private:
  std::shared_ptr<void> code_;  // pcre2_code; PCRE2's types stay out of this header
};

}  // namespace vitrine
