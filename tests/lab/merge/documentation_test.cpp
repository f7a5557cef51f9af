// docs/merge.md lists the methods of the table, with their parameters and defaults.
#include <gtest/gtest.h>

#include <sstream>

#include "base/mapped_file.h"
#include "merge/method.h"

namespace vitrine {
namespace {

using Base = MergeMethod::Base;

// "base + 2 or more", "2", "any, with or without a base".
std::string models_text(const MergeMethod& method) {
  const size_t base = method.base == Base::required ? 1 : 0;
  const size_t least = std::max(method.fewest_others, method.fewest > base ? method.fewest - base : 0);
  const size_t most = method.most_others != 0 ? method.most_others : method.most > base ? method.most - base : 0;
  std::string text = most != 0 && least == most ? std::to_string(least)
                     : most != 0                ? "?"
                     : least == 0               ? "any"
                                                : std::to_string(least) + " or more";
  if (method.base == Base::required) text = "base + " + text;
  if (method.base == Base::optional) text += ", perhaps a base";
  return text;
}

std::string default_text(const ParameterSpec& spec) {
  if (!spec.fallback) return "*";
  if (spec.kind == ParameterSpec::Kind::flag) return *spec.fallback != 0 ? " true" : " false";
  std::ostringstream text;
  text << ' ' << *spec.fallback;
  return text.str();
}

// The row of a method without its last column, which says what it computes.
std::string row_of(const MergeMethod& method) {
  const std::string name = std::string("`") + method.name + "`";
  std::string row =
      "| " + (*method.paper == '\0' ? name : "[" + name + "](" + method.paper + ")") + " | " + models_text(method) + " | ";
  std::string parameters;
  for (const ParameterSpec& spec : method.parameters)
    parameters += std::string(parameters.empty() ? "" : ", ") + "`" + spec.name + "`" + default_text(spec);
  return row + (parameters.empty() ? "none" : parameters) + " | ";
}

TEST(MergeDocumentation, TheTableOfMethodsIsComplete) {
  const std::string page = read_file(std::string(VITRINE_SOURCE) + "/docs/merge.md");
  for (const MergeMethod& method : merge_methods()) EXPECT_NE(page.find(row_of(method)), std::string::npos) << row_of(method);
}

}  // namespace
}  // namespace vitrine
