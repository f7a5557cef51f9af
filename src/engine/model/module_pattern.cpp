#include "model/module_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <vector>

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

namespace {

// The ends of a name, the shortest first, without those that begin with a layer's number.
std::vector<std::string_view> ends_of(std::string_view module) {
  std::vector<std::string_view> ends;
  for (size_t dot = module.rfind('.');; dot = module.rfind('.', dot - 1)) {
    const std::string_view end = module.substr(dot == std::string_view::npos ? 0 : dot + 1);
    if (std::isdigit(static_cast<unsigned char>(end.front())) == 0) ends.push_back(end);
    if (dot == std::string_view::npos || dot == 0) return ends;
  }
}

}  // namespace

std::map<std::string, double> pattern_keys(const std::map<std::string, double>& numbers, double usual) {
  std::map<std::string_view, std::optional<double>> shared;  // by the modules of each end; none: they have several
  for (const auto& [module, number] : numbers)
    for (const std::string_view end : ends_of(module))
      if (const auto [place, fresh] = shared.try_emplace(end, number); !fresh && place->second != number) place->second.reset();
  std::map<std::string, double> keys;
  for (const auto& [module, number] : numbers) {
    if (number == usual) continue;
    const std::vector<std::string_view> ends = ends_of(module);
    const auto end = std::find_if(ends.begin(), ends.end(), [&](std::string_view e) { return shared.at(e).has_value(); });
    keys[end != ends.end() ? std::string(*end) : "^" + module] = number;
  }
  return keys;
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
