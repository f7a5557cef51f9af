#include "serve/tool_calls.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "serve/api_error.h"

namespace vitrine::serve {
namespace {

constexpr std::string_view kHermes = "<tool_call>", kHermesEnd = "</tool_call>", kMistral = "[TOOL_CALLS]", kArgs = "[ARGS]",
                           kPython = "<|python_tag|>";
constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// Without spaces at its end: what stood before them was streamed before a call was seen.
std::string ended(std::string_view text) { return std::string(text.substr(0, text.find_last_not_of(kSpace) + 1)); }

std::optional<OrderedJson> parsed(std::string_view text) {
  try {
    return parse_ordered_json(text, "a call of a tool");
  } catch (const Error&) {
    return {};
  }
}

// {"name": …, "arguments" or "parameters": {…} or "{…}"}
std::optional<ToolCall> call_of(const OrderedJson& json, const std::vector<std::string>& names) {
  if (!json.is_object()) return {};
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return {};
  auto arguments = json.find("arguments");
  if (arguments == json.end()) arguments = json.find("parameters");
  ToolCall call{name->get<std::string>(), "{}"};
  if (std::find(names.begin(), names.end(), call.name) == names.end()) return {};
  if (arguments == json.end() || arguments->is_null()) return call;
  if (arguments->is_string()) {
    const std::optional<OrderedJson> inner = parsed(arguments->get_ref<const std::string&>());
    if (!inner || !inner->is_object()) return {};
    call.arguments = json_text(*inner);
    return call;
  }
  if (!arguments->is_object()) return {};
  call.arguments = json_text(*arguments);
  return call;
}

// The end of the JSON object that begins at text[0]; npos if it does not end.
size_t object_end(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth <= 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

Said read_hermes(const std::string& text, const std::vector<std::string>& names) {
  Said said;
  std::string_view rest = text;
  std::string content;
  for (;;) {
    const size_t begin = rest.find(kHermes);
    if (begin == std::string_view::npos) break;
    std::string_view inner = rest.substr(begin + kHermes.size());
    // Its text may spell the end: that comes behind the object.
    const size_t brace = inner.find_first_not_of(" \t\r\n"),
                 object = brace == std::string_view::npos ? brace : object_end(inner.substr(brace));
    const size_t end = inner.find(kHermesEnd, object == std::string_view::npos ? 0 : brace + object);
    const std::optional<OrderedJson> json = parsed(trimmed(inner.substr(0, end)));
    const std::optional<ToolCall> call = json ? call_of(*json, names) : std::nullopt;
    const size_t next = end == std::string_view::npos ? rest.size() : begin + kHermes.size() + end + kHermesEnd.size();
    if (call) {
      content += rest.substr(0, begin);
      said.calls.push_back(*call);
    } else {
      content += rest.substr(0, next);
    }
    rest.remove_prefix(next);
  }
  content += rest;
  said.content = said.calls.empty() ? text : ended(content);
  return said;
}

Said read_mistral(const std::string& text, const std::vector<std::string>& names) {
  const size_t begin = text.find(kMistral);
  if (begin == std::string::npos) return {text, {}};
  Said said;
  said.content = ended(std::string_view(text).substr(0, begin));
  std::string_view rest = trimmed(std::string_view(text).substr(begin + kMistral.size()));
  if (rest.starts_with('[') || rest.starts_with('{')) {
    std::optional<OrderedJson> list = parsed(rest.substr(0, object_end(rest)));
    if (!list) return {text, {}};
    if (list->is_object()) list = OrderedJson::array({*list});
    for (const OrderedJson& each : *list) {
      const std::optional<ToolCall> call = call_of(each, names);
      if (!call) return {text, {}};
      said.calls.push_back(*call);
    }
    return said.calls.empty() ? Said{text, {}} : said;
  }
  while (!rest.empty()) {  // name[ARGS]{…}[TOOL_CALLS]name[ARGS]{…}
    const size_t brace = rest.find('{');
    if (brace == std::string_view::npos) return {text, {}};
    std::string_view name = trimmed(rest.substr(0, std::min(brace, rest.find(kArgs))));
    const std::string_view object = rest.substr(brace);
    const size_t end = object_end(object);
    const std::optional<OrderedJson> arguments = parsed(object.substr(0, end));
    if (!arguments) return {text, {}};
    const std::optional<ToolCall> call = call_of({{"name", std::string(name)}, {"arguments", *arguments}}, names);
    if (!call) return {text, {}};
    said.calls.push_back(*call);
    rest = trimmed(object.substr(std::min(end, object.size())));
    if (rest.starts_with(kMistral)) rest = trimmed(rest.substr(kMistral.size()));
  }
  return said.calls.empty() ? Said{text, {}} : said;
}

Said read_llama(const std::string& text, const std::vector<std::string>& names) {
  Said said;
  std::string_view rest = trimmed(text);
  if (rest.starts_with(kPython)) rest = trimmed(rest.substr(kPython.size()));
  while (!rest.empty()) {
    if (!rest.starts_with('{')) return {text, {}};
    const size_t end = object_end(rest);
    const std::optional<OrderedJson> json = parsed(rest.substr(0, end));
    const std::optional<ToolCall> call = json ? call_of(*json, names) : std::nullopt;
    if (!call) return {text, {}};
    said.calls.push_back(*call);
    rest = trimmed(rest.substr(std::min(end, rest.size())));
    if (rest.starts_with(';')) rest = trimmed(rest.substr(1));
  }
  return said.calls.empty() ? Said{text, {}} : said;
}

// The first place at which `marker` stands, or may stand once more text has come.
size_t may_begin(std::string_view text, std::string_view marker) {
  const size_t whole = text.find(marker);
  if (whole != std::string_view::npos) return whole;
  for (size_t n = std::min(marker.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(marker.substr(0, n))) return text.size() - n;
  return text.size();
}

}  // namespace

ToolForm tool_form(std::string_view chat_template) {
  if (chat_template.find(kHermes) != std::string_view::npos) return ToolForm::hermes;
  if (chat_template.find(kMistral) != std::string_view::npos) return ToolForm::mistral;
  return ToolForm::llama;
}

Said read_tool_calls(const std::string& text, ToolForm form, const std::vector<std::string>& names) {
  switch (form) {
    case ToolForm::hermes: return read_hermes(text, names);
    case ToolForm::mistral: return read_mistral(text, names);
    case ToolForm::llama: return read_llama(text, names);
  }
  return {text, {}};
}

size_t content_for_certain(std::string_view text, ToolForm form) {
  if (form == ToolForm::llama) {
    const size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos || text[first] == '{') return 0;
    const std::string_view rest = text.substr(first);
    if (rest.starts_with(kPython) || kPython.starts_with(rest)) return 0;
    return text.size();
  }
  size_t sure = may_begin(text, form == ToolForm::hermes ? kHermes : kMistral);
  while (sure > 0 && kSpace.find(text[sure - 1]) != std::string_view::npos) --sure;  // it is trimmed in front of a call
  return sure;
}

}  // namespace vitrine::serve
