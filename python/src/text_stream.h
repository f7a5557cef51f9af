#pragma once
// Generation that waits for its reader: one piece of text a call, for Python's iterators.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/generate.h"
#include "generate/sampler.h"
#include "generate/stop.h"
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

  /// So far. finish_reason: "" until the end, then generate()'s, or "error" after an exception.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::vector<float>& logprobs() const { return logprobs_; }
  const std::string& finish_reason() const { return finish_reason_; }

 private:
  void step(std::string& shown);

  std::shared_ptr<Session> session_;
  std::vector<int32_t> prompt_;
  GenerateOptions options_;
  HookCalls hooks_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopFilter stop_;
  size_t room_;  // new tokens at most
  std::unique_ptr<KvCache> cache_;
  CacheSequence sequence_;
  std::vector<float> row_;
  std::vector<int32_t> tokens_;
  std::vector<float> logprobs_;
  std::string finish_reason_;
};

}  // namespace vitrine::python
