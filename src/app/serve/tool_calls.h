#pragma once
// How families of models write calls of tools and reasoning: one row for each syntax. What stands inside a call says by itself
// which form it has: JSON (one object or a list, name and arguments), name[ARGS]{JSON}, <function=name> with tags, a name and
// <arg_key>, DeepSeek's marker of a call, call:name{…}, or name(key=value). serve/chat_reader.h reads them.
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace vitrine::serve {

enum class ToolForm : uint8_t {
  hermes,
  qwen_coder,
  glm,
  deepseek,
  mistral,
  llama,
  phi,
  gemma,
  function_gemma,
  lfm2,
  olmo3,
  tool_code,
  harmony
};

struct ToolSyntax {
  ToolForm form;
  const char* name;      // as in --tool-parser
  const char* families;  // that write so
  std::string_view begin, end = {};
  std::string_view inside = {};  // begins a call without `begin`, and is part of it
  std::string_view bare = {};    // characters that begin a call where a text begins with one
};

inline constexpr std::array kToolSyntaxes = {
    ToolSyntax{ToolForm::harmony, "harmony", "gpt-oss", "<|channel|>"},
    ToolSyntax{ToolForm::glm, "glm45", "GLM-4.5", "<tool_call>", "</tool_call>"},
    ToolSyntax{ToolForm::deepseek, "deepseek", "DeepSeek V3, R1, V3.1", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
               "<｜tool▁call▁begin｜>"},
    ToolSyntax{ToolForm::qwen_coder, "qwen3_coder", "Qwen3-Coder, Qwen 3.5", "<tool_call>", "</tool_call>", "<function="},
    ToolSyntax{ToolForm::hermes, "hermes", "Hermes, Qwen 2.5, Qwen 3, SmolLM3, Granite 4", "<tool_call>", "</tool_call>"},
    ToolSyntax{ToolForm::mistral, "mistral", "Mistral", "[TOOL_CALLS]"},
    ToolSyntax{ToolForm::phi, "phi4_mini", "Phi-4-mini, Granite 3", "<|tool_call|>", "<|/tool_call|>", "functools["},
    ToolSyntax{ToolForm::gemma, "gemma4", "Gemma 4", "<|tool_call>", "<tool_call|>"},
    ToolSyntax{ToolForm::function_gemma, "functiongemma", "FunctionGemma", "<start_function_call>", "<end_function_call>"},
    ToolSyntax{ToolForm::lfm2, "lfm2", "LFM2", "<|tool_call_start|>", "<|tool_call_end|>"},
    ToolSyntax{ToolForm::olmo3, "olmo3", "OLMo 3", "<function_calls>", "</function_calls>"},
    ToolSyntax{ToolForm::tool_code, "tool_code", "Gemma 3", "```tool_code", "```", "", "["},
    ToolSyntax{ToolForm::llama, "llama3", "Llama 3, Llama 4; where a template shows none of the others", "<|python_tag|>", "",
               "<function=", "{["},
};

/// Markers around reasoning. Harmony's channels need none.
struct ReasoningSyntax {
  const char* name;  // as in --reasoning-format
  std::string_view begin, end;
};

inline constexpr std::array kReasoningSyntaxes = {
    ReasoningSyntax{"think", "<think>", "</think>"},
    ReasoningSyntax{"mistral", "[THINK]", "[/THINK]"},
    ReasoningSyntax{"gemma4", "<|channel>thought", "<channel|>"},
};

const ToolSyntax& tool_syntax(ToolForm form);
/// The form that a chat template teaches.
ToolForm tool_form(std::string_view chat_template);
/// That of a name of the table, or of another name that it is known by; none: not known.
std::optional<ToolForm> tool_form_named(std::string_view name);

/// What a chat template shows reasoning in; null: it shows none, or Harmony's channels.
const ReasoningSyntax* reasoning_syntax(std::string_view chat_template);

/// That of a name: "none" (null), "auto" (reasoning_syntax()), a name of the table or "deepseek", llama-server's word for think;
/// none: not known.
std::optional<const ReasoningSyntax*> reasoning_syntax_named(std::string_view name, std::string_view chat_template);

/// Names for messages: "hermes, mistral, …".
std::string tool_form_names();
std::string reasoning_format_names();

}  // namespace vitrine::serve
