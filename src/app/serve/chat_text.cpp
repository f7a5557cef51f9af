#include "serve/chat_text.h"

namespace vitrine::serve {

ChatText::ChatText(const ChatPrompt& prompt, bool one_call) : options_(prompt.reading), one_call_(one_call) {}

std::vector<SaidPart> ChatText::read(const Choice& choice) {
  Reading& reading = readings_.try_emplace(choice.index, Reading{ChatReader(options_)}).first->second;
  std::vector<SaidPart> parts;
  const auto add = [&](std::vector<SaidPart> more) {
    for (SaidPart& part : more) {
      if (part.kind == SaidPart::Kind::call) ++reading.calls;
      const bool of_text = part.kind == SaidPart::Kind::content || part.kind == SaidPart::Kind::reasoning;
      if (of_text || !one_call_ || reading.calls == 1) parts.push_back(std::move(part));
    }
  };
  for (; reading.tokens < choice.tokens.size(); ++reading.tokens) {
    const bool before = reading.reader.in_reasoning();
    add(reading.reader.read(choice.tokens[reading.tokens].text));
    if (before || reading.reader.in_reasoning()) ++reasoning_tokens_;
  }
  if (choice.ended && !reading.ended) {
    reading.ended = true;
    add(reading.reader.read(choice.tail));
    add(reading.reader.end());
  }
  return parts;
}

Said ChatText::said(const Choice& choice) {
  read(choice);
  Said said = readings_.at(choice.index).reader.said();
  if (one_call_ && said.calls.size() > 1) said.calls.resize(1);
  return said;
}

const char* ChatText::finish_reason(const Choice& choice, const Said& said) {
  if (said.calls.empty() || (choice.end.end == End::length && !said.calls.back().complete)) return choice.finish_reason();
  return "tool_calls";
}

std::string ChatText::call_id(const char* prefix) const {
  return options_.form == ToolForm::mistral ? random_id("").substr(0, 9) : random_id(prefix);
}

OrderedJson arguments_object(const ToolCall& call) {
  return parsed_object(call.arguments).value_or(OrderedJson{{"INVALID_JSON", call.arguments}});
}

}  // namespace vitrine::serve
