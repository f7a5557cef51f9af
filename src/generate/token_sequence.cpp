#include "generate/token_sequence.h"

#include <limits>

namespace vitrine {
namespace {

int64_t checked_room(const Engine& engine, std::span<const int32_t> prompt, int64_t max_tokens, std::span<const int32_t> eos) {
  check_prompt(engine, prompt, eos);
  if (max_tokens < 0) throw UsageError("max_tokens is " + std::to_string(max_tokens) + "; expected 0 or more");
  return room_for(engine, prompt.size(), max_tokens);
}

// The same rules, and no end token.
SamplingOptions without_end(SamplingOptions options, std::span<const int32_t> eos) {
  for (const int32_t id : eos) options.logit_bias.emplace_back(id, -std::numeric_limits<double>::infinity());
  if (std::find(options.order.begin(), options.order.end(), SamplingRule::bias) == options.order.end())
    options.order.insert(options.order.begin(), SamplingRule::bias);
  return options;
}

}  // namespace

int64_t room_for(const Engine& engine, size_t prompt, int64_t wanted) {
  int64_t context = engine.shape().context_length;
  if (context == 0) context = INT32_MAX;  // positions are 32-bit
  return std::min(wanted, context - static_cast<int64_t>(prompt) + 1);
}

void check_prompt(const Engine& engine, std::span<const int32_t> prompt, std::span<const int32_t> eos) {
  engine.check_ids(prompt);
  for (const int32_t id : eos)
    if (id < 0 || id >= engine.shape().vocab_size)
      throw UsageError("the end token " + std::to_string(id) + " is outside the vocabulary; it has the ids 0 to " +
                       std::to_string(engine.shape().vocab_size - 1));
}

TokenSequence::TokenSequence(const Engine& engine, std::vector<int32_t> prompt, GenerateOptions options, uint64_t stream)
    : engine_(engine),
      text_(std::move(prompt)),
      prompt_size_(std::ssize(text_)),
      options_(std::move(options)),
      stream_(stream),
      sampler_(options_.sampling, engine.shape().vocab_size),
      stop_(options_.stops),
      room_(checked_room(engine, text_, options_.max_tokens, options_.eos)) {
  if (engine.has_tokenizer()) {
    decoder_.emplace(options_.alone ? StreamDecoder(engine.tokenizer()) : engine.decoder_behind(text_));
  } else if (!options_.stops.empty()) {
    throw UsageError("stop strings need a tokenizer, which this model lacks; use end tokens (--eos)");
  }
  if (options_.min_tokens < 0) throw UsageError("min_tokens is " + std::to_string(options_.min_tokens) + "; expected 0 or more");
  if (options_.min_tokens > options_.max_tokens)
    throw UsageError("min_tokens is " + std::to_string(options_.min_tokens) + ", more than max_tokens, which is " +
                     std::to_string(options_.max_tokens));
  if (options_.min_tokens > 0 && !options_.ignore_eos && !options_.eos.empty())
    early_.emplace(without_end(options_.sampling, options_.eos), engine.shape().vocab_size);
  if (room_ <= 0) made_.finish_reason = "length";
}

std::span<const int32_t> TokenSequence::pending() const { return made_.tokens.empty() ? text() : text().last(1); }

std::string TokenSequence::push(std::span<const float> logits) {
  VITRINE_CHECK(!done(), "a sequence that is done has no next token");
  if (early_ && std::ssize(made_.tokens) >= options_.min_tokens) early_.reset();
  const Pick pick = (early_ ? *early_ : sampler_).pick(logits, prompt(), made_.tokens, stream_);
  text_.push_back(pick.token);
  made_.tokens.push_back(pick.token);
  made_.logprobs.push_back(pick.logprob);
  const bool ended =
      !options_.ignore_eos && std::find(options_.eos.begin(), options_.eos.end(), pick.token) != options_.eos.end();
  const bool spelled = decoder_ && pick.token < engine_.tokenizer().vocab_size();  // models may have spare rows
  std::string shown = ended || !spelled ? std::string() : stop_.push(decoder_->push(pick.token));
  const auto stopped = [&] { return stop_.stopped_by() != nullptr; };
  if (ended || stopped()) {
    made_.finish_reason = "stop";
  } else if (static_cast<int64_t>(made_.tokens.size()) == room_) {
    made_.finish_reason = "length";
  }
  if (done() && decoder_ && !stopped()) shown += stop_.push(decoder_->flush());
  if (done() && !stopped()) shown += stop_.flush();
  made_.text += shown;
  return shown;
}

}  // namespace vitrine
