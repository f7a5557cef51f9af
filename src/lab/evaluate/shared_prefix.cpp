#include "evaluate/shared_prefix.h"

#include <algorithm>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr size_t kLeastShared = 8;  // tokens; below, copying the cache's pages costs more than it saves

// Labels that are scored in one step, and where their scores go.
struct Wanted {
  std::vector<int64_t> rows;
  std::vector<int32_t> labels;
  std::vector<size_t> places;
};

// The labels of `sequence` at its rows [begin, end), which are the step's rows from `first_row` on. `place`: of its first label.
void want(const ScoredSequence& sequence, size_t begin, size_t end, int64_t first_row, size_t place, Wanted& wanted) {
  const size_t first = sequence.read.size() - sequence.labels.size();
  for (size_t row = std::max(begin, first); row < end; ++row) {
    wanted.rows.push_back(first_row + static_cast<int64_t>(row - begin));
    wanted.labels.push_back(sequence.labels[row - first]);
    wanted.places.push_back(place + row - first);
  }
}

void run(Engine& engine, Step& step, const Wanted& wanted, std::vector<LabelScore>& scores) {
  if (step.rows() == 0) return;
  const auto frame = engine.context().frame();
  const Tensor x = engine.model().residual(engine.context(), step);
  if (!wanted.rows.empty()) {
    const std::vector<LabelScore> found = score_rows(engine, step, x, wanted.rows, wanted.labels);
    for (size_t i = 0; i < found.size(); ++i) scores[wanted.places[i]] = found[i];
  }
  step.commit();
}

// Calls f(sequence, place of its first label among all) for each sequence of the group.
template <class F>
void each_sequence(const SharedGroup& group, size_t& place, F&& f) {
  for (const ScoredSequence& sequence : group.sequences) {
    f(sequence, place);
    place += sequence.labels.size();
  }
}

}  // namespace

int64_t SharedGroup::rows() const {
  size_t rows = shared;
  for (const ScoredSequence& sequence : sequences) rows += sequence.read.size() - shared;
  return static_cast<int64_t>(rows);
}

SharedGroup group_of(std::vector<ScoredSequence> sequences) {
  SharedGroup group{std::move(sequences), 0};
  if (group.sequences.size() < 2) return group;
  const std::vector<int32_t>& first = group.sequences[0].read;
  size_t shared = first.size();
  for (const ScoredSequence& other : group.sequences) {
    const auto apart =
        std::mismatch(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(shared), other.read.begin(), other.read.end());
    shared = static_cast<size_t>(apart.first - first.begin());
  }
  group.shared = shared >= kLeastShared ? shared : 0;
  return group;
}

std::vector<LabelScore> score_groups(Engine& engine, KvCache& cache, std::span<const SharedGroup> groups) {
  size_t labels = 0;
  for (const SharedGroup& group : groups)
    for (const ScoredSequence& sequence : group.sequences) {
      engine.check_ids(sequence.read);
      for (const int32_t& label : sequence.labels) engine.check_ids(std::span(&label, 1));
      labels += sequence.labels.size();
    }
  std::vector<LabelScore> scores(labels);

  std::vector<CacheSequence> beginnings;
  for (size_t g = 0; g < groups.size(); ++g) beginnings.push_back(cache.sequence());
  Step shared;
  Wanted of_shared;
  size_t place = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const SharedGroup& group = groups[g];
    const int64_t first_row = shared.rows();
    if (group.shared > 0) shared.add(std::span(group.sequences[0].read).first(group.shared), &beginnings[g]);
    each_sequence(group, place, [&](const ScoredSequence& s, size_t at) { want(s, 0, group.shared, first_row, at, of_shared); });
  }
  run(engine, shared, of_shared, scores);

  std::vector<CacheSequence> copies;
  size_t sequences = 0;
  for (const SharedGroup& group : groups) sequences += group.sequences.size();
  copies.reserve(sequences);  // a step holds pointers to them
  Step rest;
  Wanted of_rest;
  place = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const SharedGroup& group = groups[g];
    each_sequence(group, place, [&](const ScoredSequence& s, size_t at) {
      if (s.read.size() == group.shared) return;
      const int64_t first_row = rest.rows();
      CacheSequence* const copy = group.shared > 0 ? &copies.emplace_back(beginnings[g]) : nullptr;
      rest.add(std::span(s.read).subspan(group.shared), copy);
      want(s, group.shared, s.read.size(), first_row, at, of_rest);
    });
  }
  run(engine, rest, of_rest, scores);
  return scores;
}

}  // namespace vitrine
