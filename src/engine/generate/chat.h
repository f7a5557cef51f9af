#pragma once
// A conversation as the ids a chat model expects: the model's own template, exactly one BOS, and content that stays text.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jinja/jinja.h"
#include "runtime/engine.h"

namespace vitrine {

struct ChatMessage {
  std::string role;     // "system", "user", "assistant"
  std::string content;  // always text: control tokens spelled out in it are not obeyed (features.md F08)
};

/// A conversation as clients of an API send it.
struct Conversation {
  OrderedJson messages = OrderedJson::array();    // objects with "role" and whatever else the template reads
  OrderedJson tools = nullptr;                    // a list of them, or null
  OrderedJson variables = OrderedJson::object();  // what else the template reads, such as {"enable_thinking": false}
  bool answer = true;                             // up to where the assistant's next message begins
  std::string begun = {};                         // with `answer`: what that message begins with, which is text
};

/// Ids, and which of them the assistant said: 1 where it did.
struct MaskedIds {
  std::vector<int32_t> ids;
  std::vector<uint8_t> said;
};

/// A mark for each id of a whole text: 0 up to where it and the ids of the prompt that it begins with differ, 1 from there on.
std::vector<uint8_t> said_after(std::span<const int32_t> prompt, std::span<const int32_t> whole);

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

  /// Whatever a conversation holds is text as the messages above are. Errors: as ids().
  Rendered rendered(const Conversation& conversation) const;
  std::vector<int32_t> ids_of(const Rendered& rendered) const;

  /// Whether the template writes tools: a conversation with one gives another text than without.
  bool reads_tools() const;
  /// The template itself.
  const std::string& source() const { return source_; }

  /// A whole conversation as training data has it: a list of messages, each an object with "role" and whatever else the template
  /// reads ("content", "tool_calls"), and the tools it names, or null. The assistant said what the template's {% generation %}
  /// blocks write. A template without them is asked for the conversation up to each of the assistant's turns and up to its end,
  /// which differ by the turn. Where such a template writes a turn otherwise once others follow it (without its thoughts), there
  /// is one result for each of the assistant's turns, which ends with it and has that turn alone marked; else one result.
  /// Errors: InputError as ids(), and for a template that does not begin a turn as it announces it.
  std::vector<MaskedIds> masked(const OrderedJson& messages, const OrderedJson& tools = nullptr) const;

  /// `answer`, messages that follow those of `prompt`, with all of them marked as said: what comes after the ids that the prompt
  /// and both together begin with. Errors: InputError as ids(), and for a template that writes the prompt otherwise where the
  /// answer follows.
  MaskedIds answered(const OrderedJson& prompt, const OrderedJson& answer, const OrderedJson& tools = nullptr) const;

 private:
  Rendered render(const OrderedJson& messages, const OrderedJson& tools, bool answer,
                  const OrderedJson& variables = OrderedJson::object()) const;
  std::vector<TokenPiece> pieces(const Rendered& rendered) const;
  MaskedIds marked(const Rendered& rendered, const std::vector<TextSpan>& said) const;

  const Engine& engine_;
  std::string source_;
  Template template_;
  OrderedJson trusted_;  // bos_token, eos_token, … as the template may print them
};

}  // namespace vitrine
