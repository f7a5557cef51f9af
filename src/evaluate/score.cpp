#include "evaluate/score.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/embed.h"

namespace vitrine {
namespace {

void check_labels(const Engine& engine, std::span<const int32_t> labels) {
  for (const int32_t& label : labels) engine.check_ids(std::span(&label, 1));
}

// In chunks through a cache.
std::vector<LabelScore> score_cached(Engine& engine, const ScoredSequence& sequence) {
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
    const std::vector<LabelScore> here = score_rows(engine, step, x, rows, labels);
    scores.insert(scores.end(), here.begin(), here.end());
  });
  return scores;
}

}  // namespace

std::vector<LabelScore> score_rows(Engine& engine, const Step& step, const Tensor& x, std::span<const int64_t> rows,
                                   std::span<const int32_t> labels) {
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  std::vector<LabelScore> scores = label_scores(ctx, take_rows(ctx, x, rows), engine.model().head(), labels);
  for (const LabelScore& score : scores)
    if (!std::isfinite(score.logprob)) engine.report_not_finite(step, rows);
  return scores;
}

std::vector<LabelScore> score_sequences(Engine& engine, std::span<const ScoredSequence> sequences) {
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
      const std::vector<LabelScore> scores = score_cached(engine, sequence);
      cached.insert(cached.end(), scores.begin(), scores.end());
      continue;
    }
    step.add(sequence.read);
    labels.insert(labels.end(), sequence.labels.begin(), sequence.labels.end());
    for (size_t i = sequence.labels.size(); i > 0; --i) rows.push_back(step.rows() - static_cast<int64_t>(i));
  }
  if (rows.empty()) return cached;
  const auto frame = engine.context().frame();
  return score_rows(engine, step, engine.model().residual(engine.context(), step), rows, labels);
}

}  // namespace vitrine
