#include "evaluate/score.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/abilities.h"
#include "model/fingerprint.h"
#include "ops/embed.h"

namespace vitrine {
namespace {

void check_labels(const Engine& engine, std::span<const int32_t> labels) {
  for (const int32_t& label : labels) engine.check_ids(std::span(&label, 1));
}

// In chunks through a cache.
std::vector<LabelScore> score_cached(Engine& engine, const ScoredSequence& sequence, LikelyTokens* likely) {
  std::vector<LabelScore> scores;
  const std::unique_ptr<KvCache> cache = engine.make_cache(static_cast<int64_t>(sequence.read.size()));
  CacheSequence cached = cache->sequence();
  const size_t first = sequence.read.size() - sequence.labels.size();  // scored row
  engine.each_step(sequence.read, cached, [&](const Step& step, const Tensor& x, size_t begin) {
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < step.rows(); ++r)
      if (begin + static_cast<size_t>(r) >= first) rows.push_back(r);
    if (rows.empty()) return;
    const auto labels = std::span(sequence.labels).subspan(begin + static_cast<size_t>(rows[0]) - first, rows.size());
    const std::vector<LabelScore> here = score_rows(engine, step, x, rows, labels, likely);
    scores.insert(scores.end(), here.begin(), here.end());
  });
  return scores;
}

void add_likely(Engine& engine, const Tensor& x, std::span<const int64_t> rows, LikelyTokens& likely) {
  const auto top = static_cast<size_t>(std::min(likely.top, engine.shape().vocab_size));
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(kLogitRows)) {
    const auto frame = engine.context().frame();
    const Tensor z = logits(engine.context(), x, engine.model().head(),
                            rows.subspan(first, std::min(static_cast<size_t>(kLogitRows), rows.size() - first)));
    for (int64_t i = 0; i < z.rows(); ++i)
      likely.rows.push_back(top_logprobs({z.row<float>(i), static_cast<size_t>(z.row_size())}, top));
  }
}

}  // namespace

size_t labels_of(std::span<const ScoredSequence> sequences) {
  size_t labels = 0;
  for (const ScoredSequence& sequence : sequences) labels += sequence.labels.size();
  return labels;
}

uint64_t key_of(std::span<const ScoredSequence> sequences, uint64_t before) {
  uint64_t key = before;
  for (const ScoredSequence& sequence : sequences)
    for (const auto* ids : {&sequence.read, &sequence.labels}) key = add_to_fingerprint(key, std::as_bytes(std::span(*ids)));
  return key;
}

std::vector<LabelScore> score_rows(Engine& engine, const Step& step, const Tensor& x, std::span<const int64_t> rows,
                                   std::span<const int32_t> labels, LikelyTokens* likely) {
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  std::vector<LabelScore> scores = label_scores(ctx, take_rows(ctx, x, rows), engine.model().head(), labels);
  for (const LabelScore& score : scores)
    if (!std::isfinite(score.logprob)) engine.report_not_finite(step, rows);
  if (likely != nullptr) add_likely(engine, x, rows, *likely);
  return scores;
}

std::vector<LabelScore> score_sequences(Engine& engine, std::span<const ScoredSequence> sequences, LikelyTokens* likely) {
  require_causal(engine.model(), engine.name(), "A score of next tokens (perplexity, choices)");
  Step step;
  std::vector<int64_t> rows;
  std::vector<int32_t> labels;
  std::vector<LabelScore> cached;
  for (const ScoredSequence& sequence : sequences) {
    engine.check_ids(sequence.read);
    check_labels(engine, sequence.labels);
    VITRINE_CHECK(sequence.labels.size() <= sequence.read.size(), "a label needs a row that it follows");
    const bool longer = sequences.size() == 1 && static_cast<int64_t>(sequence.read.size()) > kScoredRows;
    if (longer || engine.cache_types() != CacheTypes{}) {  // a narrow cache counts: without it nothing would be rounded
      const std::vector<LabelScore> scores = score_cached(engine, sequence, likely);
      cached.insert(cached.end(), scores.begin(), scores.end());
      continue;
    }
    step.add(sequence.read);
    labels.insert(labels.end(), sequence.labels.begin(), sequence.labels.end());
    for (size_t i = sequence.labels.size(); i > 0; --i) rows.push_back(step.rows() - static_cast<int64_t>(i));
  }
  if (rows.empty()) return cached;
  const auto frame = engine.context().frame();
  return score_rows(engine, step, engine.model().residual(engine.context(), step), rows, labels, likely);
}

}  // namespace vitrine
