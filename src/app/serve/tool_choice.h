#pragma once
// Whether a text may, must or must not call a tool.
#include <optional>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "jinja/jinja.h"
#include "serve/sampling_fields.h"
#include "serve/service.h"
#include "serve/tool_calls.h"

namespace vitrine::serve {

struct ToolChoice {
  bool told = true;     // the model is told of the tools
  bool forced = false;  // the text is one call
  std::string only;     // of this tool; empty: of any
};

/// Reads OpenAI's tool_choice: none, auto, required, {"type": "function", "function": {"name": …}} or {"type": "function",
/// "name": …}. null: auto. names: of the tools. Errors: ApiError 400 for anything else, and for a call of a tool that is not
/// there.
ToolChoice read_tool_choice(const OrderedJson* choice, const std::vector<std::string>& names);

/// Those of `tools` ({type, function: {name, …}}) that a choice forces a call of; null: the text is free.
OrderedJson forced_tools(const ToolChoice& choice, const OrderedJson& tools);

/// A call of one of `tools`, for a text that may also have a format; none: there are no tools, or such a model does not write
/// calls as JSON.
std::optional<GrammarAlternative> free_call(const OrderedJson& tools, ToolForm form);

/// Makes the text one call of one of `tools` (forced_tools), with arguments as its schema says; none of them: it stays as it is.
/// Stop strings, which would cut the call, are named as ignored, as the field `stops`, and so is a grammar or a format of the
/// answer. Errors: ApiError 400 for a schema that cannot be followed; 501 in a build without llguidance.
void force_call(Sampled& sampled, const OrderedJson& tools, ToolForm form, const Service& service, Fields& fields,
                const char* stops = "stop");

}  // namespace vitrine::serve
