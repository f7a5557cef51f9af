#include "generate/token_sequence.h"

#include <limits>

#include "base/error.h"

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

GenerateOptions with_breakers(const Engine& engine, GenerateOptions options) {
  if (options.breakers == nullptr) options.breakers = breakers_of(engine, options.sampling);
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
      options_(with_breakers(engine, std::move(options))),
      stream_(stream),
      sampler_(options_.sampling, engine.shape().vocab_size, options_.breakers),
      stop_(options_.stops),
      room_(checked_room(engine, text_, options_.max_tokens, options_.eos)) {
  if (engine.has_tokenizer()) {
    decoder_.emplace(options_.alone ? StreamDecoder(engine.tokenizer()) : engine.decoder_behind(text_));
  } else if (!options_.stops.empty()) {
    throw UsageError("stop strings need a tokenizer, which this model lacks; use end tokens (--eos)");
  } else if (options_.constraint != nullptr) {
    throw UsageError("a grammar constrains text, and this model lacks a tokenizer");
  }
  if (options_.constraint != nullptr) {
    constraint_ = options_.constraint->clone();
    constraint_->prepare();  // while the model reads the prompt
  }
  if (options_.min_tokens < 0) throw UsageError("min_tokens is " + std::to_string(options_.min_tokens) + "; expected 0 or more");
  if (options_.min_tokens > options_.max_tokens)
    throw UsageError("min_tokens is " + std::to_string(options_.min_tokens) + ", more than max_tokens, which is " +
                     std::to_string(options_.max_tokens));
  if (options_.min_tokens > 0 && !options_.ignore_eos && !options_.eos.empty())
    early_.emplace(without_end(options_.sampling, options_.eos), engine.shape().vocab_size, options_.breakers);
  if (room_ <= 0) made_.finish_reason = "length";
}

std::span<const int32_t> TokenSequence::pending() const { return made_.tokens.empty() ? text() : text().last(1); }

bool TokenSequence::is_end(int32_t token) const {
  return !options_.ignore_eos && std::find(options_.eos.begin(), options_.eos.end(), token) != options_.eos.end();
}

// Nothing where the text can only end and there is no end token.
std::optional<Pick> TokenSequence::pick(std::span<const float> logits) {
  if (constraint_ != nullptr) {
    const std::span<const uint32_t> words = constraint_->allowed();
    allowed_.assign(words.begin(), words.end());
    if (!options_.ignore_eos)
      for (const int32_t token : options_.eos) {
        const uint32_t bit = uint32_t{1} << token % 32;
        uint32_t& word = allowed_[static_cast<size_t>(token) / 32];
        word = constraint_->may_end() ? word | bit : word & ~bit;
      }
    if (std::ranges::all_of(allowed_, [](uint32_t word) { return word == 0; }) && constraint_->may_end()) return {};
  }
  return (early_ ? *early_ : sampler_).pick(logits, prompt(), made_.tokens, stream_, allowed_);
}

// What became certain with a token that ends nothing.
std::string TokenSequence::spell(int32_t token) {
  std::string text;
  if (constraint_ != nullptr)
    constrained_.push(engine_.tokenizer().token_bytes(token), text);
  else if (decoder_ && token < engine_.tokenizer().vocab_size())  // models may have spare rows
    text = decoder_->push(token);
  else
    return {};
  return stop_.push(text);
}

// The text that was held back.
void TokenSequence::finish(std::string& shown) {
  if (stop_.stopped_by() != nullptr) return;
  std::string rest;
  if (constraint_ != nullptr)
    constrained_.flush(rest);
  else if (decoder_)
    rest = decoder_->flush();
  shown += stop_.push(rest);
  if (stop_.stopped_by() == nullptr) shown += stop_.flush();
}

std::string TokenSequence::push(std::span<const float> logits) {
  VITRINE_CHECK(!done(), "a sequence that is done has no next token");
  if (early_ && std::ssize(made_.tokens) >= options_.min_tokens) {
    sampler_.follow(*early_);
    early_.reset();
  }
  const std::optional<Pick> picked = pick(logits);
  std::string shown;
  bool ended = !picked.has_value();
  if (picked) {
    text_.push_back(picked->token);
    made_.tokens.push_back(picked->token);
    made_.logprobs.push_back(picked->logprob);
    ended = is_end(picked->token);
    if (!ended) {
      shown = spell(picked->token);
      if (constraint_ != nullptr) constraint_->accept(picked->token);
      ended = constraint_ != nullptr && constraint_->must_end();
    }
  }
  if (ended || stop_.stopped_by() != nullptr) {
    made_.finish_reason = "stop";
  } else if (static_cast<int64_t>(made_.tokens.size()) == room_) {
    made_.finish_reason = "length";
  }
  if (done())
    finish(shown);
  else if (constraint_ != nullptr)
    constraint_->prepare();
  made_.text += shown;
  return shown;
}

}  // namespace vitrine
