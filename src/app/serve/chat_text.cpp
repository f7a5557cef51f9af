#include "serve/chat_text.h"

namespace vitrine::serve {

Said ChatText::said(const Choice& choice) const {
  if (tools_.empty()) return {choice.text, {}};
  Said said = read_tool_calls(choice.text, form_, tools_);
  if (one_call_ && said.calls.size() > 1) said.calls.resize(1);
  return said;
}

std::string ChatText::certain(const Choice& choice) {
  size_t& given = given_[choice.index];
  const size_t sure = tools_.empty() ? choice.text.size() : content_for_certain(choice.text, form_);
  if (sure <= given) return "";
  std::string text = choice.text.substr(given, sure - given);
  given = sure;
  return text;
}

std::string ChatText::rest(const Choice& choice, const Said& said) {
  size_t& given = given_[choice.index];
  if (given >= said.content.size()) return "";
  std::string text = said.content.substr(given);
  given = said.content.size();
  return text;
}

}  // namespace vitrine::serve
