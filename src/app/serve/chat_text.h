#pragma once
// The text of an answer in a conversation: content, reasoning and calls of tools, as its tokens come.
#include <map>
#include <string>
#include <vector>

#include "serve/answer.h"
#include "serve/chat_prompt.h"
#include "serve/chat_reader.h"

namespace vitrine::serve {

class ChatText {
 public:
  /// one_call: of several calls the first counts.
  ChatText(const ChatPrompt& prompt, bool one_call);

  /// What became certain since the last time; of a text that has ended, all the rest.
  std::vector<SaidPart> read(const Choice& choice);
  /// All parts of a text that has ended.
  Said said(const Choice& choice);

  /// "tool_calls", or why the text ended.
  static const char* finish_reason(const Choice& choice, const Said& said);
  /// Of all that was read.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  /// An id for a new call, as the model's template takes it.
  std::string call_id(const char* prefix = "call_") const;

 private:
  struct Reading {
    ChatReader reader;
    size_t tokens = 0, calls = 0;
    bool ended = false;
  };

  ChatReaderOptions options_;
  bool one_call_;
  int64_t reasoning_tokens_ = 0;
  std::map<size_t, Reading> readings_;  // by choice
};

/// The arguments of a call as an object; what is none stands as a text under "INVALID_JSON".
OrderedJson arguments_object(const ToolCall& call);

}  // namespace vitrine::serve
