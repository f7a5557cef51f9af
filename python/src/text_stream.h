#pragma once
// Generation that waits for its reader: one piece of text a call, for Python's iterators.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/generate.h"
#include "hooks.h"
#include "session.h"

namespace vitrine::python {

/// The tokens and the text that generate() gives for the same prompt and options, as far as they are asked for. Between two
/// calls the model may run other things. An exception ends the stream.
class TextStream {
 public:
  /// Errors: as generate(), and InputError for a model without a tokenizer.
  TextStream(std::shared_ptr<Session> session, std::vector<int32_t> prompt, GenerateOptions options, HookCalls hooks);

  /// The next text that is certain, never empty and never half a character; nothing at the end. Takes the right to run.
  std::optional<std::string> next();

  /// As the last call of next() left them. finish_reason: "" until the end, then generate()'s, or "error" after an exception.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::vector<float>& logprobs() const { return logprobs_; }
  const std::string& finish_reason() const { return finish_reason_; }

 private:
  void show();

  std::shared_ptr<Session> session_;
  HookCalls hooks_;
  std::shared_ptr<const SplicedModel> spliced_;  // of who made it
  TokenLoop loop_;
  bool failed_ = false;
  // What Python sees: changed and read under the interpreter's lock, while another thread may be in next().
  std::vector<int32_t> tokens_;
  std::vector<float> logprobs_;
  std::string finish_reason_;
};

}  // namespace vitrine::python
