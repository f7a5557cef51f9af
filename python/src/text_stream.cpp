#include "text_stream.h"

#include "hooks/listening.h"

namespace vitrine::python {

TextStream::TextStream(std::shared_ptr<Session> session, std::vector<int32_t> prompt, GenerateOptions options, HookCalls hooks)
    : session_(std::move(session)),
      hooks_(std::move(hooks)),
      spliced_(session_->spliced()),
      loop_(session_->engine, std::move(prompt), std::move(options)) {
  session_->engine.tokenizer();  // says so if there is none
}

std::optional<std::string> TextStream::next() {
  const Running running(*session_, spliced_);
  PythonHooks listener(hooks_);
  const Listening listening(session_->engine.context(), listener);
  std::string shown;
  try {
    while (shown.empty() && !failed_ && !loop_.done()) shown = loop_.next();
  } catch (...) {
    failed_ = true;
    show();
    throw;
  }
  show();
  if (shown.empty()) return {};
  return shown;
}

void TextStream::show() {
  const nb::gil_scoped_acquire locked;
  const Generation& made = loop_.made();
  tokens_ = made.tokens;
  logprobs_ = made.logprobs;
  finish_reason_ = failed_ ? "error" : made.finish_reason;
}

}  // namespace vitrine::python
