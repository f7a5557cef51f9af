#pragma once
// A conversation as the ids a chat model expects: the model's own template, exactly one BOS, and content that stays text.
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "jinja/jinja.h"

namespace vitrine {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant"
  std::string content;  // always text: control tokens spelled out in it are not obeyed (features.md F08)
};

class ChatFormat {
 public:
  /// The engine's special tokens and template, or `source` in the template's place, `called` so in messages. Errors: InputError
  /// if the model has no chat template or no tokenizer; InputError with the line for a mistake in the template.
  explicit ChatFormat(const Engine& engine, const std::optional<std::string>& source = {}, const std::string& called = "");

  /// The conversation as text, as the template writes it; `answer`: up to where the assistant's next message begins.
  Rendered text(const std::vector<ChatMessage>& messages, bool answer = true) const;

  /// The same as ids: control tokens of the template count, those within messages are text; BOS exactly once where the
  /// tokenizer adds one. Errors: InputError from raise_exception() in the template (roles in the wrong order).
  std::vector<int32_t> ids(const std::vector<ChatMessage>& messages, bool answer = true) const;

 private:
  const Engine& engine_;
  Template template_;
  OrderedJson trusted_;  // bos_token, eos_token, … as the template may print them
};

}  // namespace vitrine
