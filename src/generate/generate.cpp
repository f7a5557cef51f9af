#include "generate/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "generate/stop.h"

namespace vitrine {
namespace {

class Stopwatch {
 public:
  double lap_ms() {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Positions left after the prompt, at most `wanted` new tokens; the last new token needs no position of its own.
int64_t room_for(const Engine& engine, size_t prompt, int64_t wanted) {
  int64_t context = engine.shape().context_length;
  if (context == 0) context = INT32_MAX;  // positions are 32-bit
  return std::min(wanted, context - static_cast<int64_t>(prompt) + 1);
}

// Text of tokens as they come, cut at stop strings.
class TextStream {
 public:
  TextStream(const Engine& engine, const GenerateOptions& options, const std::function<void(std::string_view)>& on_text,
             std::string& text)
      : stop_(options.stops), on_text_(on_text), text_(text) {
    if (engine.has_tokenizer()) {
      decoder_.emplace(engine.tokenizer());
    } else if (!options.stops.empty()) {
      throw UsageError("stop strings need a tokenizer, which this model lacks; use end tokens (--eos)");
    }
  }
  /// Whether a stop string is complete.
  bool push(int32_t token) {
    if (decoder_) show(stop_.push(decoder_->push(token)));
    return stop_.stopped_by() != nullptr;
  }
  void end() {
    if (!decoder_ || stop_.stopped_by() != nullptr) return;
    show(stop_.push(decoder_->flush()));
    if (stop_.stopped_by() == nullptr) show(stop_.flush());
  }

 private:
  void show(const std::string& piece) {
    text_ += piece;
    if (on_text_ && !piece.empty()) on_text_(piece);
  }
  StopFilter stop_;
  std::optional<StreamDecoder> decoder_;
  const std::function<void(std::string_view)>& on_text_;
  std::string& text_;
};

}  // namespace

Generation generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options,
                    const std::function<void(std::string_view)>& on_text) {
  engine.check_ids(prompt);
  if (options.max_tokens < 0) throw UsageError("max_tokens is " + std::to_string(options.max_tokens) + "; expected 0 or more");
  Sampler sampler(options.sampling, engine.shape().vocab_size);
  Generation result;
  result.finish_reason = "length";
  TextStream text(engine, options, on_text, result.text);
  Stopwatch watch;
  const int64_t room = room_for(engine, prompt.size(), options.max_tokens);
  const auto cache = engine.make_cache(static_cast<int64_t>(prompt.size()) + std::max<int64_t>(room, 1));
  CacheSequence sequence = cache->sequence();
  Context& ctx = engine.context();
  const auto outer = ctx.frame();
  std::vector<float> row(static_cast<size_t>(engine.shape().vocab_size));
  const auto keep = [&](const Tensor& z) { std::copy(z.data<float>(), z.data<float>() + z.count(), row.begin()); };
  {
    const auto frame = ctx.frame();
    keep(engine.prefill(prompt, sequence));
  }
  result.timings.prompt_tokens = static_cast<int64_t>(prompt.size());
  result.timings.prompt_ms = watch.lap_ms();
  for (int64_t i = 0; i < room; ++i) {
    const Pick pick = sampler.pick(row, prompt, result.tokens);
    result.tokens.push_back(pick.token);
    result.logprobs.push_back(pick.logprob);
    const bool ended = !options.ignore_eos && std::find(options.eos.begin(), options.eos.end(), pick.token) != options.eos.end();
    if (ended || text.push(pick.token)) {
      result.finish_reason = "stop";
      break;
    }
    if (i + 1 == room) break;
    const auto frame = ctx.frame();
    keep(engine.prefill(std::span(&pick.token, 1), sequence));
    ++result.timings.decode_tokens;
  }
  text.end();
  result.timings.decode_ms = watch.lap_ms();
  return result;
}

std::vector<Hypothesis> generate_beams(Engine& engine, std::span<const int32_t> prompt, const BeamOptions& options,
                                       Timings* timings) {
  engine.check_ids(prompt);
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
  return found;
}

}  // namespace vitrine
