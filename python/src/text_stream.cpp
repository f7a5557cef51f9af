#include "text_stream.h"

#include <algorithm>

#include "inspect/listening.h"

namespace vitrine::python {
namespace {

// New tokens that fit behind the prompt; the last one needs no position of its own.
size_t room_for(const Engine& engine, std::span<const int32_t> prompt, int64_t wanted) {
  engine.check_ids(prompt);
  if (wanted < 0) throw UsageError("max_tokens is " + std::to_string(wanted) + "; expected 0 or more");
  const int64_t context = engine.shape().context_length;
  return static_cast<size_t>(context == 0 ? wanted : std::min(wanted, context - static_cast<int64_t>(prompt.size()) + 1));
}

}  // namespace

TextStream::TextStream(std::shared_ptr<Session> session, std::vector<int32_t> prompt, GenerateOptions options, HookCalls hooks)
    : session_(std::move(session)),
      prompt_(std::move(prompt)),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      sampler_(options_.sampling, session_->engine.shape().vocab_size),
      decoder_(session_->engine.tokenizer()),
      stop_(options_.stops),
      room_(room_for(session_->engine, prompt_, options_.max_tokens)),
      cache_(session_->engine.make_cache(static_cast<int64_t>(prompt_.size() + std::max<size_t>(room_, 1)))),
      sequence_(cache_->sequence()) {}

std::optional<std::string> TextStream::next() {
  const Running running(*session_);
  std::string shown;
  try {
    while (shown.empty() && finish_reason_.empty()) step(shown);
  } catch (...) {
    finish_reason_ = "error";
    throw;
  }
  if (shown.empty()) return {};
  return shown;
}

void TextStream::step(std::string& shown) {
  if (tokens_.size() < room_) {
    Engine& engine = session_->engine;
    PythonHooks listener(hooks_);
    const Listening listening(engine.context(), listener);
    const auto frame = engine.context().frame();
    const Tensor z =
        engine.prefill(tokens_.empty() ? std::span<const int32_t>(prompt_) : std::span(&tokens_.back(), 1), sequence_);
    row_.assign(z.data<float>(), z.data<float>() + z.count());
    const Pick pick = sampler_.pick(row_, prompt_, tokens_);
    tokens_.push_back(pick.token);
    logprobs_.push_back(pick.logprob);
    const bool ended =
        !options_.ignore_eos && std::find(options_.eos.begin(), options_.eos.end(), pick.token) != options_.eos.end();
    if (!ended) shown += stop_.push(decoder_.push(pick.token));
    if (!ended && stop_.stopped_by() == nullptr) return;
    finish_reason_ = "stop";
  } else {
    finish_reason_ = "length";
  }
  if (stop_.stopped_by() == nullptr) shown += stop_.push(decoder_.flush());
  if (stop_.stopped_by() == nullptr) shown += stop_.flush();
}

}  // namespace vitrine::python
