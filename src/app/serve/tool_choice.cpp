#include "serve/tool_choice.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "grammar/grammar.h"
#include "grammar/schemas.h"
#include "requests/fields.h"
#include "serve/api_error.h"
#include "serve/grammars.h"

namespace vitrine::serve {
namespace {

// The text around a call, and the key of its arguments.
struct CallForm {
  const char *before, *after, *arguments;
};
CallForm call_form(ToolForm form) {
  switch (form) {
    case ToolForm::hermes: return {"<tool_call>\n", "\n</tool_call>", "arguments"};
    case ToolForm::mistral: return {"[TOOL_CALLS][", "]", "arguments"};
    case ToolForm::llama: return {"", "", "parameters"};
    default: return call_form(ToolForm::hermes);  // ChatPrompt::force()
  }
}

// References of a schema to its own parts, once it stands at `place` of another.
void move_references(OrderedJson& schema, const std::string& place) {
  each_schema(schema, [&](OrderedJson& one) {
    const auto reference = one.find("$ref");
    if (reference == one.end() || !reference->is_string()) return true;
    const std::string target = reference->get<std::string>();
    if (target == "#" || target.starts_with("#/")) *reference = "#" + place + target.substr(1);
    return true;
  });
}

}  // namespace

ToolChoice read_tool_choice(const OrderedJson* choice, const std::vector<std::string>& names) {
  ToolChoice read;
  read.told = !names.empty();
  if (choice == nullptr) return read;
  if (choice->is_string()) {
    const std::string word = choice->get<std::string>();
    if (word == "none") {
      read.told = false;
    } else if (word == "required") {
      if (names.empty()) throw invalid("tool_choice", "\"tool_choice\" is \"required\", and there are no \"tools\"");
      read.forced = true;
    } else if (word != "auto") {
      throw invalid("tool_choice", "\"tool_choice\" is \"" + word + "\"; expected none, auto, required or a function");
    }
    return read;
  }
  if (const OrderedJson type = choice->value("type", OrderedJson()); !type.is_null() && type != "function")
    throw invalid("tool_choice.type", "\"tool_choice.type\" is " + json_text(type) + "; expected function, with its name");
  refuse_others(*choice, "tool_choice", {"type", "function", "name"});
  const auto inside = choice->find("function");
  const OrderedJson& holder = inside != choice->end() && inside->is_object() ? *inside : *choice;
  if (&holder != choice) refuse_others(holder, "tool_choice.function", {"name"});
  const auto name = holder.find("name");
  if (name == holder.end() || !name->is_string())
    throw invalid("tool_choice",
                  "\"tool_choice\" names no function; expected {\"type\": \"function\", \"function\": {\"name\": …}}");
  read.forced = true;
  read.only = name->get<std::string>();
  if (std::find(names.begin(), names.end(), read.only) == names.end())
    throw invalid("tool_choice", "\"tool_choice\" names \"" + read.only + "\", which is not among \"tools\"");
  return read;
}

OrderedJson forced_tools(const ToolChoice& choice, const OrderedJson& tools) {
  if (!choice.forced) return nullptr;
  OrderedJson forced = OrderedJson::array();
  for (const OrderedJson& tool : tools)
    if (choice.only.empty() || tool["function"]["name"] == choice.only) forced.push_back(tool);
  return forced;
}

namespace {

// Of the JSON of a call of one of `tools`.
std::string calls_schema(const OrderedJson& tools, const CallForm& written) {
  OrderedJson calls = OrderedJson::array();
  for (const OrderedJson& tool : tools) {
    const OrderedJson& function = tool["function"];
    OrderedJson parameters = function.value("parameters", OrderedJson());
    if (parameters.is_null()) parameters = {{"type", "object"}};
    move_references(parameters, "/anyOf/" + std::to_string(calls.size()) + "/properties/" + written.arguments);
    calls.push_back({{"type", "object"},
                     {"properties", {{"name", {{"const", function["name"]}}}, {written.arguments, std::move(parameters)}}},
                     {"required", {"name", written.arguments}},
                     {"additionalProperties", false}});
  }
  return json_text(OrderedJson::object({{"anyOf", std::move(calls)}}));
}

// A call of one of `tools`.
std::shared_ptr<const Constraint> forced_call(const OrderedJson& tools, ToolForm form, const Service& service) {
  if (tools.is_null()) return nullptr;
  if (!has_grammars())
    throw unsupported("tool_choice",
                      "\"tool_choice\" forces a call by constrained decoding, which this server was built without");
  const CallForm written = call_form(form);
  try {
    return service.grammars().compile({.kind = GrammarKind::json_schema,
                                       .text = calls_schema(tools, written),
                                       .source = "the parameters of \"tools\"",
                                       .before = written.before,
                                       .after = written.after});
  } catch (const InputError& error) {
    throw invalid("tools", error.what(), "invalid_json_schema");
  }
}

}  // namespace

std::optional<GrammarAlternative> free_call(const OrderedJson& tools, ToolForm form) {
  const bool json = form == ToolForm::hermes || form == ToolForm::mistral || form == ToolForm::llama;
  if (!json || !tools.is_array() || tools.empty()) return {};
  const CallForm written = call_form(form);
  return GrammarAlternative{calls_schema(tools, written), written.before, written.after};
}

void force_call(Sampled& sampled, const OrderedJson& tools, ToolForm form, const Service& service, Fields& fields,
                const char* stops) {
  std::shared_ptr<const Constraint> call = forced_call(tools, form, service);
  if (call == nullptr) return;
  GenerateOptions& options = sampled.options;
  if (options.constraint != nullptr) ignore_grammar(fields);
  options.constraint = std::move(call);
  if (!options.stops.empty()) fields.ignore(stops);
  options.stops.clear();
}

}  // namespace vitrine::serve
