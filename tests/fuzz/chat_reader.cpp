// Any bytes as the text of an answer, in any syntax of reasoning and calls and in any pieces: what the parts give together does
// not depend on the pieces, and a complete call has a JSON object. The first byte chooses the syntax, the second the pieces.
#include "serve/chat_reader.h"

#include <algorithm>

namespace {

using namespace vitrine;
using namespace vitrine::serve;

bool same(const Said& a, const Said& b) {
  return a.content == b.content && a.reasoning == b.reasoning &&
         std::ranges::equal(a.calls, b.calls, [](const ToolCall& x, const ToolCall& y) {
           return x.name == y.name && x.arguments == y.arguments && x.complete == y.complete;
         });
}

Said read_in_pieces(const ChatReaderOptions& options, std::string_view text, size_t size) {
  ChatReader reader(options);
  for (size_t at = 0; at < text.size(); at += size) reader.read(text.substr(at, size));
  reader.end();
  return reader.said();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  ChatReaderOptions options;
  options.form = kToolSyntaxes[data[0] % kToolSyntaxes.size()].form;
  options.harmony = options.form == ToolForm::harmony;
  if (!options.harmony && data[0] >= 64) options.reasoning = &kReasoningSyntaxes[data[0] % kReasoningSyntaxes.size()];
  options.in_reasoning = data[0] >= 192;
  options.tools = OrderedJson::parse(
      R"([{"function": {"name": "add", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "number"}}}}}])");
  const Said whole = read_in_pieces(options, text, std::max<size_t>(text.size(), 1));
  if (!same(whole, read_in_pieces(options, text, 1 + data[1]))) __builtin_trap();
  if (!same(whole, read_in_pieces(options, text, 1))) __builtin_trap();
  for (const ToolCall& call : whole.calls)
    if (call.complete && !call.arguments.starts_with('{')) __builtin_trap();
  return 0;
}
