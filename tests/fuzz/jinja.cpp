// Any bytes as a chat template: refused with its line, or a valid text within the limits whose spans lie inside it. Rendering
// the same template again gives the same text.
#include "jinja/jinja.h"

#include <string_view>

#include "base/error.h"
#include "jinja/unicode.h"

namespace {

const vitrine::OrderedJson& variables() {
  static const auto json = vitrine::OrderedJson::parse(R"({
    "messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi é 👍 <b>"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": [2.5, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}],
    "add_generation_prompt": true, "n": 7, "f": 2.5, "s": "a b,c", "l": [3, 1, 2], "d": {"b": 1, "a": [1, 2]}})");
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vitrine::RenderOptions options;
  options.limits.work = 1 << 24;  // small limits: a template that runs into them must not keep the others waiting
  options.limits.made_bytes = 16 << 20;
  options.limits.string_bytes = 1 << 20;
  options.now = std::tm{};
  try {
    const vitrine::Template chat(std::string(reinterpret_cast<const char*>(data), size));
    const auto rendered = chat.render(variables(), {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, options);
    if (vitrine::jinja::first_invalid_byte(rendered.text) != std::string_view::npos) __builtin_trap();
    size_t end = 0;
    for (const auto& span : rendered.input) {
      if (span.begin < end || span.begin >= span.end || span.end > rendered.text.size()) __builtin_trap();
      end = span.end;
    }
    if (chat.render(variables(), {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, options).text != rendered.text) __builtin_trap();
  } catch (const vitrine::InputError&) {
  }
  return 0;
}
