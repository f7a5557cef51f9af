#include "merge/parameters.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace vitrine {
namespace {

const char* expected(ParameterSpec::Kind kind) {
  switch (kind) {
    case ParameterSpec::Kind::number: return "a number";
    case ParameterSpec::Kind::whole: return "a whole number";
    case ParameterSpec::Kind::flag: return "true or false";
  }
  return "";
}

std::optional<double> number_of(const ParameterScalar& value, ParameterSpec::Kind kind) {
  if (const double* number = std::get_if<double>(&value)) return *number;
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  std::string text = std::get<std::string>(value);
  if (kind == ParameterSpec::Kind::flag) {  // words in quotes, which mergekit takes for flags
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const char* yes : {"true", "yes", "on", "y", "t"})
      if (text == yes) return 1;
    for (const char* no : {"false", "no", "off", "n", "f"})
      if (text == no) return 0;
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) return {};
  return number;
}

std::string written(const ParameterScalar& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const std::string* text = std::get_if<std::string>(&value)) return "\"" + *text + "\"";
  std::string text = std::to_string(std::get<double>(value));
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text + "0" : text;
}

double checked(const ParameterSpec& spec, const ParameterScalar& value, const ParameterSetting& setting) {
  const auto number = number_of(value, spec.kind);
  const bool fits = number && (spec.kind == ParameterSpec::Kind::number ||
                               (spec.kind == ParameterSpec::Kind::whole && *number == std::floor(*number)) ||
                               (spec.kind == ParameterSpec::Kind::flag && (*number == 0 || *number == 1)));
  if (!fits) throw UsageError(setting.where + " is " + written(value) + "; expected " + expected(spec.kind));
  return *number;
}

double at(const ParameterSpec& spec, const std::vector<ParameterScalar>& values, double t, const ParameterSetting& setting) {
  std::vector<double> numbers;
  for (const ParameterScalar& value : values) numbers.push_back(checked(spec, value, setting));
  const double place = t * static_cast<double>(numbers.size() - 1);
  const auto low = static_cast<size_t>(place);
  if (spec.kind == ParameterSpec::Kind::flag) return numbers[low];
  const size_t high = std::min(low + 1, numbers.size() - 1);
  const double share = place - static_cast<double>(low);
  return checked(spec, (1 - share) * numbers[low] + share * numbers[high], setting);
}

}  // namespace

double resolve_parameter(const ParameterSpec& spec, SettingScopes scopes, std::string_view tensor, double t,
                         const std::string& where) {
  for (const ParameterSettings* scope : scopes) {
    if (scope == nullptr) continue;
    const auto found = scope->find(std::string_view(spec.name));
    if (found == scope->end()) continue;
    for (const ParameterSetting::Case& one : found->second.cases)
      if (one.filter.empty() || tensor.find(one.filter) != std::string_view::npos) return at(spec, one.values, t, found->second);
  }
  if (spec.fallback) return *spec.fallback;
  throw UsageError(where + ": the parameter \"" + spec.name + "\" is not given for the tensor " + std::string(tensor) +
                   "; it is " + spec.what + ". Put it under \"parameters\" of the " +
                   (spec.scope == ParameterScope::shared ? "slice or the recipe; it is not one of single models"
                                                         : "model, the slice or the recipe"));
}

}  // namespace vitrine
