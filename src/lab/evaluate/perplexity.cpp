#include "evaluate/perplexity.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "base/stopwatch.h"
#include "evaluate/score.h"

namespace vitrine {
namespace {

constexpr float kNotScoredHere = std::numeric_limits<float>::quiet_NaN();

// The windows of one text.
struct Plan {
  size_t text;
  TextWindow window;
};

ScoredSequence sequence_of(const ScoredText& text, const TextWindow& w) {
  ScoredSequence s;
  if (w.lead) s.read.push_back(*w.lead);
  for (size_t i = w.begin; i + 1 < w.end; ++i) s.read.push_back(text.tokens[i].id);
  for (size_t i = w.first; i < w.end; ++i) s.labels.push_back(text.tokens[i].id);
  return s;
}

size_t rows_of(const TextWindow& w) { return w.end - 1 - w.begin + (w.lead ? 1 : 0); }

// As many windows as a step takes, from `begin` on.
size_t end_of_step(std::span<const Plan> plans, size_t begin) {
  size_t rows = rows_of(plans[begin].window), end = begin + 1;
  while (end < plans.size() && (rows += rows_of(plans[end].window)) <= kScoredRows) ++end;
  return end;
}

std::vector<Plan> plan_windows(const Engine& engine, std::span<const std::string> texts, PerplexityResult& result) {
  std::vector<Plan> plans;
  for (size_t t = 0; t < texts.size(); ++t) {
    ScoredText& text = result.texts.emplace_back();
    text.tokens = tokenize(engine, result.definition, texts[t]);
    text.bytes = texts[t].size();
    text.logprobs.assign(text.tokens.size(), kNotScoredHere);
    text.before.assign(text.tokens.size(), 0);
    for (const TextWindow& window : windows_over(text.tokens.size(), result.definition)) plans.push_back({t, window});
  }
  result.windows = static_cast<int64_t>(plans.size());
  return plans;
}

// Puts the scores of a step's windows where their tokens are.
void note_scores(std::span<const Plan> plans, const std::vector<LabelScore>& scores, LikelyTokens* likely,
                 PerplexityResult& result) {
  size_t next = 0;
  for (const Plan& plan : plans) {
    ScoredText& text = result.texts[plan.text];
    if (likely != nullptr) text.likely.resize(text.tokens.size());
    for (size_t i = plan.window.first; i < plan.window.end; ++i, ++next) {
      text.logprobs[i] = scores[next].logprob;
      text.before[i] = static_cast<uint32_t>(plan.window.before(i));
      if (likely != nullptr) text.likely[i] = std::move(likely->rows[next]);
    }
  }
}

void run_windows(Engine& engine, std::span<const Plan> plans, PerplexityResult& result, const EvaluationProgress& progress,
                 const LikelyOptions& options, SharedWork& work) {
  const Stopwatch watch;
  size_t kept = 0;  // tokens with their most likely
  for (size_t begin = 0; begin < plans.size();) {
    const size_t end = end_of_step(plans, begin);
    std::vector<ScoredSequence> sequences;
    for (const Plan& plan : plans.subspan(begin, end - begin)) {
      sequences.push_back(sequence_of(result.texts[plan.text], plan.window));
    }
    LikelyTokens likely{options.top, {}};
    const bool keep = options.top > 0 && kept < options.tokens;
    const size_t labels = labels_of(sequences);
    if (keep) kept += labels;
    std::vector<LabelScore> scores;
    const bool here = work.unit(
        key_of(sequences, keep ? static_cast<uint64_t>(options.top) : 0),
        [&] { scores = score_sequences(engine, sequences, keep ? &likely : nullptr); },
        [&](UnitBytes& bytes) {
          bytes.values(scores, labels);
          bytes.each(likely.rows, [&](std::vector<TokenLogprob>& row) { bytes.values(row); }, keep ? labels : 0);
        });
    if (here) {
      for (const ScoredSequence& sequence : sequences) result.timings.tokens_read += static_cast<int64_t>(sequence.read.size());
      note_scores(plans.subspan(begin, end - begin), scores, keep ? &likely : nullptr, result);
    }
    begin = end;
    result.timings.seconds = watch.ms() / 1000;
    if (progress) progress(static_cast<double>(begin) / static_cast<double>(plans.size()), result.timings.tokens_per_s());
  }
}

// Buckets of powers of two: 1, 2-3, 4-7, …; bucket 0 holds 0 alone.
class Buckets {
 public:
  void add(uint64_t value, double nll) {
    const auto at = static_cast<size_t>(std::bit_width(value));
    if (all_.size() <= at) all_.resize(at + 1);
    ++all_[at].tokens;
    all_[at].nll += nll;
  }
  std::vector<LossBucket> means() const {
    std::vector<LossBucket> used;
    for (size_t at = 0; at < all_.size(); ++at) {
      if (all_[at].tokens == 0) continue;
      LossBucket& bucket = used.emplace_back(all_[at]);
      bucket.from = at == 0 ? 0 : int64_t{1} << (at - 1);
      bucket.to = at == 0 ? 0 : (int64_t{1} << at) - 1;
      bucket.nll /= static_cast<double>(bucket.tokens);
    }
    return used;
  }

 private:
  std::vector<LossBucket> all_;
};

// Of each text those of tokens that were scored, and all of them.
void count_bytes(PerplexityResult& result) {
  for (ScoredText& text : result.texts) {
    for (size_t i = 0; i < text.tokens.size(); ++i)
      if (std::isnan(text.logprobs[i])) text.bytes -= std::min(text.bytes, text.tokens[i].end - text.tokens[i].begin);
    result.bytes += static_cast<int64_t>(text.bytes);
  }
}

void sum_up(PerplexityResult& result) {
  std::unordered_map<int32_t, uint64_t> occurrences;
  for (const ScoredText& text : result.texts)
    for (const TokenPiece& token : text.tokens) ++occurrences[token.id];
  Buckets by_position, by_frequency;
  double sum = 0;
  for (const ScoredText& text : result.texts)
    for (size_t i = 0; i < text.tokens.size(); ++i) {
      if (std::isnan(text.logprobs[i])) continue;
      const double nll = -static_cast<double>(text.logprobs[i]);
      sum += nll;
      ++result.tokens;
      by_position.add(text.before[i], nll);
      by_frequency.add(occurrences[text.tokens[i].id], nll);
    }
  if (result.tokens == 0) throw InputError("the text has too few tokens to be scored; give a longer one");
  const auto n = static_cast<double>(result.tokens);
  result.nll = sum / n;
  double squares = 0;
  for (const ScoredText& text : result.texts)
    for (const float logprob : text.logprobs)
      if (!std::isnan(logprob))
        squares += (-static_cast<double>(logprob) - result.nll) * (-static_cast<double>(logprob) - result.nll);
  result.nll_error = n > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
  result.perplexity = std::exp(result.nll);
  result.perplexity_error = result.perplexity * result.nll_error;
  result.bits_per_byte = result.bytes > 0 ? sum / std::log(2.0) / static_cast<double>(result.bytes) : 0;
  result.by_position = by_position.means();
  result.by_frequency = by_frequency.means();
}

bool continues_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

}  // namespace

PerplexityResult perplexity(Engine& engine, std::span<const std::string> texts, const WindowOptions& options,
                            const EvaluationProgress& progress, const LikelyOptions& likely, SharedWork* shared) {
  SharedWork alone = SharedWork::alone();
  SharedWork& work = shared != nullptr ? *shared : alone;
  PerplexityResult result;
  result.definition = define_windows(engine, options);
  const std::vector<Plan> plans = plan_windows(engine, texts, result);
  run_windows(engine, plans, result, progress, likely, work);
  if (!work.gives_all()) return result;
  count_bytes(result);
  sum_up(result);
  return result;
}

PerplexityResult ensemble_of(std::span<const PerplexityResult> members) {
  VITRINE_CHECK(!members.empty(), "an ensemble has members");
  for (size_t m = 1; m < members.size(); ++m)
    if (!difference_of(members.front(), members[m]))
      throw InputError("the models of an ensemble must score the same tokens; number " + std::to_string(m + 1) +
                       " of them scored others than the first: do they have the same tokenizer and context?");
  PerplexityResult result = members.front();
  result.tokens = 0;
  result.timings = {};
  for (const PerplexityResult& member : members) {
    result.timings.seconds += member.timings.seconds;
    result.timings.tokens_read += member.timings.tokens_read;
  }
  for (size_t t = 0; t < result.texts.size(); ++t) {
    ScoredText& text = result.texts[t];
    text.likely.clear();
    for (size_t i = 0; i < text.tokens.size(); ++i) {
      double sum = 0;  // NaN where the token is not scored
      for (const PerplexityResult& member : members) sum += std::exp(static_cast<double>(member.texts[t].logprobs[i]));
      text.logprobs[i] = static_cast<float>(std::log(sum / static_cast<double>(members.size())));
    }
  }
  sum_up(result);
  return result;
}

std::optional<LossDifference> difference_of(const PerplexityResult& a, const PerplexityResult& b) {
  if (a.tokens != b.tokens || a.texts.size() != b.texts.size()) return {};
  std::vector<double> differences;
  LossDifference result;
  for (size_t t = 0; t < a.texts.size(); ++t) {
    const ScoredText &x = a.texts[t], &y = b.texts[t];
    if (x.tokens != y.tokens) return {};
    for (size_t i = 0; i < x.tokens.size(); ++i) {
      if (std::isnan(x.logprobs[i]) != std::isnan(y.logprobs[i])) return {};
      if (!std::isnan(x.logprobs[i]))
        differences.push_back(static_cast<double>(x.logprobs[i]) - static_cast<double>(y.logprobs[i]));
    }
  }
  const auto n = static_cast<double>(differences.size());
  double squares = 0;
  for (const double d : differences) {
    result.nll += d / n;
    result.better += d < 0 ? 1 / n : 0;
  }
  for (const double d : differences) squares += (d - result.nll) * (d - result.nll);
  result.nll_error = n > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
  return result;
}

std::vector<LossSpan> spans_of(const ScoredText& scored, std::string_view text) {
  std::vector<LossSpan> spans;
  size_t shown = 0;  // bytes of the text in the spans so far
  for (size_t i = 0; i < scored.tokens.size();) {
    LossSpan span{shown, shown, i, 0, std::numeric_limits<double>::quiet_NaN()};
    do {
      const double nll = -static_cast<double>(scored.logprobs[i]);
      if (!std::isnan(nll)) span.nll = std::isnan(span.nll) ? nll : span.nll + nll;
      span.end = std::clamp(scored.tokens[i].end, span.end, text.size());
      ++span.tokens;
      ++i;
    } while (i < scored.tokens.size() && continues_character(text, span.end));
    shown = span.end;
    spans.push_back(span);
  }
  if (!spans.empty()) spans.back().end = text.size();
  return spans;
}

}  // namespace vitrine
