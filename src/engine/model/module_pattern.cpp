#include "model/module_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr char kBefore[] = R"((.*\.)?()", kAfter[] = ")$";

std::string pcre2_message(int code) {
  char text[256] = "";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

}  // namespace

bool ends_in_parts(const std::string& module, const std::string& ending) {
  return module == ending ||
         (module.size() > ending.size() && module.ends_with(ending) && module[module.size() - ending.size() - 1] == '.');
}

std::string key_of_module(const std::string& module, std::span<const std::string> modules) {
  const bool ends_another = std::any_of(
      modules.begin(), modules.end(), [&](const std::string& other) { return other != module && ends_in_parts(other, module); });
  return (ends_another ? "^" : "") + module;
}

ModulePattern::ModulePattern(const std::string& key, Place place) {
  const std::string whole = place == Place::end ? kBefore + key + kAfter : key;
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(pcre2_compile_context_create(nullptr),
                                                                                         pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  pcre2_set_max_pattern_length(context.get(), 1 << 12);
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | (place == Place::end ? uint32_t{PCRE2_ANCHORED} : uint32_t{0});
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(), options, &error, &at, context.get());
  if (code == nullptr) throw InputError(pcre2_message(error) + " (at " + std::to_string(at) + " of " + whole + ")");
  code_ = std::shared_ptr<void>(code, [](void* c) { pcre2_code_free(static_cast<pcre2_code*>(c)); });
}

bool ModulePattern::fits(const std::string& module) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(pcre2_match_data_create_from_pattern(code, nullptr),
                                                                            pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(pcre2_match_context_create(nullptr),
                                                                                     pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), 10'000);    // names are short: a plain key takes some hundred
  pcre2_set_heap_limit(context.get(), 16 * 1024);  // KiB
  const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(module.data()), module.size(), 0, 0, data.get(), context.get());
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) throw InputError(pcre2_message(rc));
  return rc >= 0;
}

}  // namespace vitrine
