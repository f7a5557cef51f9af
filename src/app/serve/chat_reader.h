#pragma once
// Splits the text of an answer into content, reasoning and calls of tools while it grows.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/jinja.h"
#include "serve/call_arguments.h"
#include "serve/tool_calls.h"

namespace vitrine::serve {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON, an object if the call is complete
  bool complete = false;
};

/// A message that a model said, in its parts.
struct Said {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
};

/// What became certain, in order.
struct SaidPart {
  enum class Kind : uint8_t {
    content,
    reasoning,
    call,       // a call begins; the text is the tool's name
    arguments,  // of the last call: JSON that follows what came before
    call_end,   // of the last call; the text is empty
  };
  Kind kind;
  std::string text;
  bool complete = true;  // of call_end: its arguments are a whole object
};

struct ChatReaderOptions {
  ToolForm form = ToolForm::hermes;
  OrderedJson tools = nullptr;                 // that may be called ({function: {name, parameters}}); null: no calls are read
  const ReasoningSyntax* reasoning = nullptr;  // null: none is told apart
  bool harmony = false;                        // the text is Harmony's messages
  bool in_reasoning = false;                   // the prompt has begun the reasoning
};

/// Nothing is lost and nothing throws: what is neither markers nor part of a call is content or reasoning, whatever it is. A call
/// begins once its name, which must be a tool's, and the beginning of its arguments are there. If the arguments then break off,
/// the call stays incomplete and the rest is content. Blanks around markers are dropped. Any way to cut a text gives the same
/// content, reasoning, calls and arguments.
class ChatReader {
 public:
  explicit ChatReader(ChatReaderOptions options);

  /// Reads what the text goes on with.
  std::vector<SaidPart> read(std::string_view more);
  /// The text has ended.
  std::vector<SaidPart> end();
  /// All parts that were given.
  const Said& said() const { return said_; }
  /// Whether the text goes on with reasoning.
  bool in_reasoning() const {
    return state_ == State::reasoning || (state_ == State::message && message_ == SaidPart::Kind::reasoning);
  }

 private:
  enum class State : uint8_t { start, content, reasoning, head, whole, arguments, tail, after, header, message };
  enum class Step : uint8_t { on, wait };  // go on, or wait for more text

  std::vector<SaidPart> run(bool ended);
  Step step(bool ended);
  Step start(bool ended);
  Step content(bool ended);
  Step reasoning(bool ended);
  Step head(bool ended);
  Step whole(bool ended);
  Step arguments(bool ended);
  Step tail(bool ended);
  Step after(bool ended);
  Step header(bool ended);
  Step message(bool ended);

  Step no_call();
  Step begin_call(const std::string& name, size_t used, State next);
  void end_call(bool complete, State next);
  void give(SaidPart::Kind kind, std::string_view text);
  void give_content(std::string_view text);
  std::string_view rest() const { return std::string_view(buffer_).substr(at_); }
  const OrderedJson* tool(std::string_view name) const;

  ChatReaderOptions options_;
  ToolSyntax syntax_;
  State state_ = State::start;
  Said said_;
  std::vector<SaidPart> parts_;
  std::string buffer_;  // not yet read from at_ on
  size_t at_ = 0;

  std::string blanks_;  // behind what was given: dropped in front of a marker
  bool was_reasoning_ = false;
  bool fresh_ = true;    // of the reasoning nothing was given yet
  std::string markers_;  // in front of at_, which are content if no call follows
  size_t inside_ = 0;    // bytes at at_ that are content in this case
  bool block_ = false;   // between `begin` and `end`
  bool list_ = false;    // within [ ] of calls
  size_t scanned_ = 0;   // bytes behind at_ that `object_` has read
  std::optional<BracketArguments> object_;
  std::optional<TagArguments> tags_;
  bool envelope_ = false;                             // the arguments stand in an object with the name
  SaidPart::Kind message_ = SaidPart::Kind::content;  // Harmony's
  bool message_begins_ = false;
};

}  // namespace vitrine::serve
