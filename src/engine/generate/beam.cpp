#include "generate/beam.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/merge_sort.h"

namespace vitrine {
namespace {

// The reference marks what may not be chosen by adding this to its score; such entries still take part in comparisons.
constexpr float kOut = -1e9f;

struct Candidate {
  float score;  // sum of log-probabilities
  int beam;
  int32_t token;
  bool finished = false;
};

struct Finished {
  std::vector<int32_t> tokens;
  float score = kOut;
  bool finished = false;
};

void check(const BeamOptions& o) {
  const auto refuse = [](const char* name, auto value, const char* expected) {
    throw UsageError(std::string(name) + " is " + std::to_string(value) + "; expected " + expected);
  };
  if (o.n_beams < 1) refuse("n_beams", o.n_beams, "at least 1");
  if (o.n_return < 1 || o.n_return > o.n_beams) refuse("n_return", o.n_return, "1 to n_beams");
  if (o.max_new_tokens < 1) refuse("max_new_tokens", o.max_new_tokens, "at least 1");
  if (!std::isfinite(o.length_penalty)) refuse("length_penalty", o.length_penalty, "a finite number");
}

// The best `n` continuations of all beams, best first; ties by beam, then by token.
std::vector<Candidate> best_continuations(std::span<const float> rows, size_t vocab, std::span<const float> running, size_t n) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
  };
  std::vector<Candidate> heap;  // the worst on top; candidates come in tie order, so an equal one never replaces another
  heap.reserve(n + 1);
  for (size_t beam = 0; beam < running.size(); ++beam) {
    // With one row all beams share it: before the first token they are the same prompt.
    const float* row = rows.data() + (rows.size() == vocab ? 0 : beam * vocab);
    for (size_t token = 0; token < vocab; ++token) {
      const float score = row[token] + running[beam];
      if (std::isnan(score))
        throw RunError("the scores of beam " + std::to_string(beam) + " hold NaN at token " + std::to_string(token) +
                       "; the model's weights may be damaged, or the computation overflowed");
      if (heap.size() == n && !(score > heap.front().score)) continue;
      heap.push_back({score, static_cast<int>(beam), static_cast<int32_t>(token)});
      std::push_heap(heap.begin(), heap.end(), better);
      if (heap.size() > n) {
        std::pop_heap(heap.begin(), heap.end(), better);
        heap.pop_back();
      }
    }
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  return heap;
}

float length_factor(int64_t tokens, double penalty) { return static_cast<float>(std::pow(static_cast<double>(tokens), penalty)); }

}  // namespace

std::vector<Hypothesis> beam_search(const BeamOptions& o, const BeamScores& scores) {
  check(o);
  const size_t n_beams = static_cast<size_t>(o.n_beams);
  // Enough continuations that n_beams of them are unfinished even if every beam meets every end token.
  const size_t keep = std::max<size_t>(2, 1 + o.eos.size()) * n_beams;

  std::vector<std::vector<int32_t>> sequences(n_beams);
  std::vector<float> running(n_beams, kOut);
  running[0] = 0;  // at first all beams are the prompt, and only one of them may be continued
  std::vector<Finished> finished(n_beams);
  std::vector<BeamChoice> choices;
  bool may_improve = true;
  size_t vocab = 0;

  for (int64_t length = 1;; ++length) {  // tokens generated when this step is done
    const std::span<const float> rows = scores(choices);
    if (length == 1) {
      vocab = rows.size();
      if (vocab < keep / n_beams)
        throw UsageError("the vocabulary has " + std::to_string(vocab) + " tokens; beam search with " +
                         std::to_string(o.eos.size()) + " end tokens needs at least " + std::to_string(keep / n_beams));
    } else if (rows.size() != n_beams * vocab) {
      throw ShapeError("beam scores have " + std::to_string(rows.size()) +
                       " entries; expected n_beams * vocab_size = " + std::to_string(n_beams) + " * " + std::to_string(vocab));
    }
    std::vector<Candidate> top = best_continuations(rows, vocab, running, keep);
    for (Candidate& c : top)
      c.finished = length >= o.max_new_tokens || std::find(o.eos.begin(), o.eos.end(), c.token) != o.eos.end();

    // Finished hypotheses: those there were and the finished ones among the first n_beams, if anything may still come in.
    const bool all_finished = std::all_of(finished.begin(), finished.end(), [](const Finished& f) { return f.finished; });
    const bool closed = all_finished && o.early_stopping == EarlyStopping::yes;
    const float factor = length_factor(length, o.length_penalty);
    std::vector<Finished> merged = finished;
    for (size_t i = 0; i < top.size(); ++i) {
      const bool counts = top[i].finished && i < n_beams;
      const float score = ((top[i].score / factor + (closed ? kOut : 0)) + (may_improve ? 0 : kOut)) + (counts ? 0 : kOut);
      Finished entry{.tokens = sequences[static_cast<size_t>(top[i].beam)], .score = score, .finished = counts};
      entry.tokens.push_back(top[i].token);
      merged.push_back(std::move(entry));
    }
    merge_sort(merged, [](const Finished& a, const Finished& b) { return a.score > b.score; });
    merged.resize(n_beams);
    finished = std::move(merged);

    // Running beams: the best n_beams that are not finished.
    const bool no_continuation = std::all_of(top.begin(), top.end(), [](const Candidate& c) { return c.finished; });
    for (Candidate& c : top) c.score += c.finished ? kOut : 0;
    merge_sort(top, [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    std::vector<std::vector<int32_t>> next(n_beams);
    choices.clear();
    for (size_t i = 0; i < n_beams; ++i) {
      next[i] = sequences[static_cast<size_t>(top[i].beam)];
      next[i].push_back(top[i].token);
      running[i] = top[i].score;
      choices.push_back({top[i].beam, top[i].token});
    }
    sequences = std::move(next);

    // Whether a running beam could still beat a finished one.
    const bool hopeful = o.early_stopping == EarlyStopping::never && o.length_penalty > 0;
    const float best = running[0] / length_factor(hopeful ? o.max_new_tokens : length, o.length_penalty);
    const float worst = std::min_element(finished.begin(), finished.end(), [](const Finished& a, const Finished& b) {
                          return a.score < b.score;
                        })->score;
    const bool beats_one =
        std::any_of(finished.begin(), finished.end(), [&](const Finished& f) { return best > (f.finished ? worst : kOut); });
    may_improve = may_improve && beats_one;
    const bool full = o.early_stopping == EarlyStopping::yes &&
                      std::all_of(finished.begin(), finished.end(), [](const Finished& f) { return f.finished; });
    if (!may_improve || full || no_continuation) break;
  }
  std::vector<Hypothesis> result;
  for (size_t i = 0; i < static_cast<size_t>(o.n_return); ++i)
    result.push_back({std::move(finished[i].tokens), finished[i].score});
  return result;
}

std::span<const int32_t> without_end(const Hypothesis& hypothesis, std::span<const int32_t> eos) {
  const std::span<const int32_t> ids = hypothesis.tokens;
  const bool ended = !ids.empty() && std::find(eos.begin(), eos.end(), ids.back()) != eos.end();
  return ids.first(ids.size() - (ended ? 1 : 0));
}

}  // namespace vitrine
