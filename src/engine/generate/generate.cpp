#include "generate/generate.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/abilities.h"

namespace vitrine {
namespace {

std::unique_ptr<KvCache> cache_for(const Engine& engine, int64_t positions) {
  const bool keeps =
      is_causal(engine.model()) || !predicts_next(engine.model());  // decoding_cache says what is wrong with the latter
  return keeps ? engine.decoding_cache(positions) : nullptr;
}

}  // namespace

TokenLoop::TokenLoop(Engine& engine, std::vector<int32_t> prompt, GenerateOptions options)
    : engine_(engine),
      drafter_(options.drafter),
      sequence_(engine, std::move(prompt), std::move(options)),
      cache_(cache_for(engine, sequence_.positions())) {
  if (cache_ != nullptr) cached_ = cache_->sequence();
  if (drafter_ == nullptr) return;
  require_causal(engine.model(), engine.name(), "A drafter");
  check_goes_back(engine);
}

Tensor TokenLoop::run_all() {
  const Step step = Step::of(sequence_.text());
  const int64_t last = step.rows() - 1;
  return engine_.run(step, std::span(&last, 1));
}

Tensor TokenLoop::run(Step& step, std::span<const int32_t> drafts) {
  std::vector<int32_t> tokens = {sequence_.pending()[0]};
  tokens.insert(tokens.end(), drafts.begin(), drafts.end());
  std::vector<int64_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  step.add(tokens, &cached_);
  return engine_.run(step, rows);
}

std::string TokenLoop::next() {
  watch_.lap_ms();  // the reader's time between two calls is not the model's
  const bool first = made().tokens.empty();
  std::vector<int32_t> drafts;
  if (!first && drafter_ != nullptr) drafts = drafter_->draft(sequence_.text(), std::min(kMostDrafts, sequence_.room_left() - 1));
  Timings& timings = sequence_.timings();
  const auto frame = engine_.context().frame();
  Step step;
  Tensor z;
  if (first) {
    timings.prompt_tokens = std::ssize(sequence_.pending());
    z = cache_ == nullptr ? run_all() : engine_.prefill(sequence_.pending(), cached_);
    timings.prompt_ms = watch_.lap_ms();
  } else if (cache_ == nullptr) {
    z = run_all();
  } else {
    timings.drafted_tokens += std::ssize(drafts);
    try {
      z = run(step, drafts);
    } catch (const RunError&) {  // NaN, perhaps behind a draft that is wrong
      if (drafts.empty()) throw;
      drafts.clear();
      step = Step();
      z = run(step, drafts);
    }
  }
  std::string shown;
  size_t rows = 0;  // those that count
  for (bool right = true; right && !done(); ++rows) {
    shown += sequence_.push({z.row<float>(static_cast<int64_t>(rows)), static_cast<size_t>(z.row_size())});
    right = rows < drafts.size() && made().tokens.back() == drafts[rows];
    timings.accepted_tokens += right ? 1 : 0;
  }
  if (!first) {
    if (cache_ != nullptr) step.commit(0, static_cast<int64_t>(rows));
    timings.decode_tokens += static_cast<int64_t>(rows);
  }
  timings.decode_ms += watch_.lap_ms();
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
                                       Timings* timings, const BeamListener& listener) {
  check_prompt(engine, prompt, options.eos);
  BeamOptions bounded = options;
  bounded.max_new_tokens = room_for(engine, prompt.size(), options.max_new_tokens);
  Stopwatch watch;
  const auto cache = engine.decoding_cache(static_cast<int64_t>(prompt.size()) + bounded.max_new_tokens);
  Context& ctx = engine.context();
  const auto outer = ctx.frame();
  const auto vocab = static_cast<size_t>(engine.shape().vocab_size);
  std::vector<CacheSequence> beams;
  std::vector<float> scores;
  Timings spent;
  const auto log_probabilities = [&](std::span<const BeamChoice> choices, const Tensor& z) {
    scores.assign(z.data<float>(), z.data<float>() + z.count());
    for (size_t i = 0; i < scores.size(); i += vocab) log_softmax(std::span(scores).subspan(i, vocab));
    if (listener) listener(choices, scores);
  };
  std::vector<Hypothesis> found = beam_search(bounded, [&](std::span<const BeamChoice> choices) -> std::span<const float> {
    const auto frame = ctx.frame();
    if (choices.empty()) {
      beams.push_back(cache->sequence());
      log_probabilities(choices, engine.prefill(prompt, beams[0]));
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
    log_probabilities(choices, engine.run(step, rows));
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
