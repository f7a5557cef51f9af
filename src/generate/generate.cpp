#include "generate/generate.h"

#include <algorithm>

namespace vitrine {
namespace {

// New tokens that fit behind a prompt of this length, at most `wanted`; the last one needs no position of its own.
int64_t room_for(const Engine& engine, size_t prompt, int64_t wanted) {
  int64_t context = engine.shape().context_length;
  if (context == 0) context = INT32_MAX;  // positions are 32-bit
  return std::min(wanted, context - static_cast<int64_t>(prompt) + 1);
}

void check_ids(const Engine& engine, std::span<const int32_t> prompt, std::span<const int32_t> eos) {
  engine.check_ids(prompt);
  for (const int32_t id : eos)
    if (id < 0 || id >= engine.shape().vocab_size)
      throw UsageError("the end token " + std::to_string(id) + " is outside the vocabulary; it has the ids 0 to " +
                       std::to_string(engine.shape().vocab_size - 1));
}

int64_t checked_room(const Engine& engine, std::span<const int32_t> prompt, int64_t max_tokens, std::span<const int32_t> eos) {
  check_ids(engine, prompt, eos);
  if (max_tokens < 0) throw UsageError("max_tokens is " + std::to_string(max_tokens) + "; expected 0 or more");
  return room_for(engine, prompt.size(), max_tokens);
}

}  // namespace

TokenLoop::TokenLoop(Engine& engine, std::vector<int32_t> prompt, GenerateOptions options)
    : engine_(engine),
      prompt_(std::move(prompt)),
      options_(std::move(options)),
      sampler_(options_.sampling, engine.shape().vocab_size),
      stop_(options_.stops),
      room_(checked_room(engine, prompt_, options_.max_tokens, options_.eos)),
      cache_(engine.make_cache(static_cast<int64_t>(prompt_.size()) + std::max<int64_t>(room_, 1))),
      sequence_(cache_->sequence()) {
  if (engine.has_tokenizer()) {
    decoder_.emplace(options_.alone ? StreamDecoder(engine.tokenizer()) : engine.decoder_behind(prompt_));
  } else if (!options_.stops.empty()) {
    throw UsageError("stop strings need a tokenizer, which this model lacks; use end tokens (--eos)");
  }
  if (room_ <= 0) made_.finish_reason = "length";
}

std::string TokenLoop::next() {
  VITRINE_CHECK(!done(), "a loop that is done has no next token");
  const bool first = made_.tokens.empty();
  watch_.lap_ms();  // the reader's time between two calls is not the model's
  {
    const auto frame = engine_.context().frame();
    const Tensor z = engine_.prefill(first ? std::span<const int32_t>(prompt_) : std::span(&made_.tokens.back(), 1), sequence_);
    row_.assign(z.data<float>(), z.data<float>() + z.count());
  }
  if (first) {
    made_.timings.prompt_tokens = static_cast<int64_t>(prompt_.size());
    made_.timings.prompt_ms = watch_.lap_ms();
  } else {
    ++made_.timings.decode_tokens;
  }
  const Pick pick = sampler_.pick(row_, prompt_, made_.tokens);
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
  made_.timings.decode_ms += watch_.lap_ms();
  return shown;
}

Generation generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<void(std::string_view)>& on_text) {
  TokenLoop loop(engine, {prompt.begin(), prompt.end()}, options);
  while (!loop.done()) {
    const std::string shown = loop.next();
    if (on_text && !shown.empty()) on_text(shown);
  }
  return std::move(loop).take();
}

std::vector<Hypothesis> generate_beams(Engine& engine, std::span<const int32_t> prompt, const BeamOptions& options,
                                       Timings* timings) {
  check_ids(engine, prompt, options.eos);
  BeamOptions bounded = options;
  bounded.max_new_tokens = room_for(engine, prompt.size(), options.max_new_tokens);
  Stopwatch watch;
  const auto cache = engine.make_cache(static_cast<int64_t>(prompt.size()) + bounded.max_new_tokens);
  Context& ctx = engine.context();
  const auto outer = ctx.frame();
  const auto vocab = static_cast<size_t>(engine.shape().vocab_size);
  std::vector<CacheSequence> beams;
  std::vector<float> scores;
  Timings spent;
  const auto log_probabilities = [&](const Tensor& z) {
    scores.assign(z.data<float>(), z.data<float>() + z.count());
    for (size_t i = 0; i < scores.size(); i += vocab) log_softmax(std::span(scores).subspan(i, vocab));
  };
  std::vector<Hypothesis> found = beam_search(bounded, [&](std::span<const BeamChoice> choices) -> std::span<const float> {
    const auto frame = ctx.frame();
    if (choices.empty()) {
      beams.push_back(cache->sequence());
      log_probabilities(engine.prefill(prompt, beams[0]));
      spent.prompt_tokens = static_cast<int64_t>(prompt.size());
      spent.prompt_ms = watch.lap_ms();
      return scores;
    }
    std::vector<CacheSequence> next;          // forks share their parent's pages until they write
    for (const BeamChoice& choice : choices)  // at first all beams are the prompt, in one sequence
      next.push_back(beams[beams.size() == 1 ? 0 : static_cast<size_t>(choice.parent)]);
    beams = std::move(next);
    Step step;
    std::vector<int64_t> rows(choices.size());
    for (size_t i = 0; i < choices.size(); ++i) {
      step.add(std::span(&choices[i].token, 1), &beams[i]);
      rows[i] = static_cast<int64_t>(i);
    }
    log_probabilities(engine.run(step, rows));
    step.commit();
    ++spent.decode_tokens;
    return scores;
  });
  spent.decode_ms = watch.lap_ms();
  if (timings != nullptr) *timings = spent;
  std::erase_if(found, [](const Hypothesis& h) { return h.tokens.empty(); });  // there were fewer continuations than beams
  return found;
}

}  // namespace vitrine
