#include "serve/tool_calls.h"

#include <algorithm>

namespace vitrine::serve {
namespace {

std::string names_of(const auto& table) {
  std::string names;
  for (const auto& syntax : table) names += (names.empty() ? "" : ", ") + std::string(syntax.name);
  return names;
}

}  // namespace

const ToolSyntax& tool_syntax(ToolForm form) { return *std::ranges::find(kToolSyntaxes, form, &ToolSyntax::form); }

ToolForm tool_form(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  for (const ToolSyntax& syntax : kToolSyntaxes) {
    if (syntax.form == ToolForm::harmony && !has("<|message|>")) continue;
    if (syntax.form == ToolForm::qwen_coder && !has(syntax.inside)) continue;
    if (syntax.form == ToolForm::glm && !has("<arg_key>")) continue;
    if (has(syntax.begin)) return syntax.form;
  }
  return ToolForm::llama;
}

std::optional<ToolForm> tool_form_named(std::string_view name) {
  static constexpr std::pair<std::string_view, ToolForm> kOthers[] = {
      {"qwen", ToolForm::hermes},          {"qwen3", ToolForm::hermes},          {"qwen3_xml", ToolForm::qwen_coder},
      {"llama3_json", ToolForm::llama},    {"pythonic", ToolForm::llama},        {"granite", ToolForm::phi},
      {"deepseek_v3", ToolForm::deepseek}, {"deepseek_v31", ToolForm::deepseek}, {"glm47", ToolForm::glm},
      {"openai", ToolForm::harmony},       {"gpt_oss", ToolForm::harmony}};
  for (const ToolSyntax& syntax : kToolSyntaxes)
    if (name == syntax.name) return syntax.form;
  for (const auto& [other, form] : kOthers)
    if (name == other) return form;
  return {};
}

const ReasoningSyntax* reasoning_syntax(std::string_view chat_template) {
  for (const ReasoningSyntax& syntax : kReasoningSyntaxes)
    if (chat_template.find(syntax.end) != std::string_view::npos) return &syntax;
  return nullptr;
}

std::optional<const ReasoningSyntax*> reasoning_syntax_named(std::string_view name, std::string_view chat_template) {
  if (name == "auto") return reasoning_syntax(chat_template);
  if (name == "none") return nullptr;
  for (const ReasoningSyntax& syntax : kReasoningSyntaxes)
    if (name == syntax.name) return &syntax;
  if (name == "deepseek") return kReasoningSyntaxes.data();
  return {};
}

std::string reasoning_format_names() { return names_of(kReasoningSyntaxes); }
std::string tool_form_names() { return names_of(kToolSyntaxes); }

}  // namespace vitrine::serve
