#pragma once
// The text of an answer in a conversation: content, and calls of tools.
#include <map>
#include <string>

#include "serve/answer.h"
#include "serve/chat_prompt.h"
#include "serve/tool_calls.h"

namespace vitrine::serve {

class ChatText {
 public:
  /// one_call: of several calls the first counts.
  ChatText(const ChatPrompt& prompt, bool one_call) : tools_(prompt.tools), form_(prompt.form), one_call_(one_call) {}

  /// Of a text that has ended.
  Said said(const Choice& choice) const;

  /// What of a text that grows is content for certain and was not given before.
  std::string certain(const Choice& choice);
  /// The rest of its content, when it has ended.
  std::string rest(const Choice& choice, const Said& said);

 private:
  std::vector<std::string> tools_;
  ToolForm form_;
  bool one_call_;
  std::map<size_t, size_t> given_;  // bytes of each choice's content
};

}  // namespace vitrine::serve
