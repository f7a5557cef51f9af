#include "evaluate/choices.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/stopwatch.h"
#include "evaluate/choice_tokens.h"
#include "evaluate/shared_prefix.h"
#include "jinja/unicode.h"

namespace vitrine {
namespace {

constexpr size_t kCacheBytes = size_t{1} << 29;  // of the caches of one batch

SharedGroup tokens_of(const Engine& engine, const ChoiceItem& item) {
  std::vector<ScoredSequence> sequences;
  try {
    for (const ChoiceItem::Choice& choice : item.choices)
      sequences.push_back(choice_tokens(engine, choice.context, choice.continuation));
  } catch (const InputError& error) {
    throw InputError(item.where + ": " + error.what());
  }
  return group_of(std::move(sequences));
}

int64_t longest_of(const SharedGroup& group) {
  size_t longest = 0;
  for (const ScoredSequence& sequence : group.sequences) longest = std::max(longest, sequence.read.size());
  return static_cast<int64_t>(longest);
}

// How items go through the model together: by rows and by the memory of their caches.
class Batch {
 public:
  Batch(Engine& engine, std::span<const SharedGroup> groups) : engine_(engine), groups_(groups) {
    int64_t longest = 1;
    for (const SharedGroup& group : groups)
      if (longest_of(group) <= kPrefillChunk) longest = std::max(longest, longest_of(group));
    cache_ = engine.make_cache(longest);
  }

  // As many groups from `begin` on as fit.
  size_t end(size_t begin) const {
    int64_t rows = 0;
    size_t bytes = 0, at = begin;
    for (; at < groups_.size() && !too_long(groups_[at]); ++at) {
      rows += groups_[at].rows();
      if (groups_[at].shared > 0) bytes += (groups_[at].sequences.size() + 1) * cache_->bytes_for(longest_of(groups_[at]));
      if (at > begin && (rows > kScoredRows || bytes > kCacheBytes)) break;
    }
    return std::max(at, begin + 1);
  }

  std::vector<LabelScore> score(size_t begin, size_t end) {
    if (!too_long(groups_[begin])) return score_groups(engine_, *cache_, groups_.subspan(begin, end - begin));
    std::vector<LabelScore> scores;  // each of its sequences by itself
    for (const ScoredSequence& sequence : groups_[begin].sequences) {
      const std::vector<LabelScore> here = score_sequences(engine_, std::span(&sequence, 1));
      scores.insert(scores.end(), here.begin(), here.end());
    }
    return scores;
  }

  size_t labels(size_t begin, size_t end) const {
    size_t labels = 0;
    for (const SharedGroup& group : groups_.subspan(begin, end - begin)) labels += labels_of(group.sequences);
    return labels;
  }
  // Of all that the groups read.
  uint64_t key(size_t begin, size_t end) const {
    uint64_t key = 0;
    for (const SharedGroup& group : groups_.subspan(begin, end - begin)) key = key_of(group.sequences, key);
    return key;
  }

  int64_t rows(size_t group) const {
    if (!too_long(groups_[group])) return groups_[group].rows();
    int64_t rows = 0;
    for (const ScoredSequence& sequence : groups_[group].sequences) rows += static_cast<int64_t>(sequence.read.size());
    return rows;
  }

 private:
  static bool too_long(const SharedGroup& group) { return longest_of(group) > kPrefillChunk; }

  Engine& engine_;
  std::span<const SharedGroup> groups_;
  std::unique_ptr<KvCache> cache_;
};

size_t best_of(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

ChoiceAnswer answer_of(const ChoiceItem& item, std::vector<ChoiceScore> scores) {
  std::vector<double> plain, by_characters, by_bytes;
  for (size_t c = 0; c < scores.size(); ++c) {
    const std::string& text = item.choices[c].text;
    plain.push_back(scores[c].logprob);
    by_characters.push_back(scores[c].logprob / static_cast<double>(jinja::code_point_count(text)));
    by_bytes.push_back(scores[c].logprob / static_cast<double>(text.size()));
  }
  return {std::move(scores), best_of(plain), best_of(by_characters), best_of(by_bytes)};
}

// Takes the scores of one item off the front of `scores`.
std::vector<ChoiceScore> take_scores(const SharedGroup& group, std::span<const LabelScore>& scores) {
  std::vector<ChoiceScore> choices;
  for (const ScoredSequence& sequence : group.sequences) {
    ChoiceScore choice{0, static_cast<int64_t>(sequence.labels.size()), true};
    for (size_t i = 0; i < sequence.labels.size(); ++i) {
      choice.logprob += static_cast<double>(scores[i].logprob);
      choice.greedy = choice.greedy && scores[i].most_likely == sequence.labels[i];
    }
    scores = scores.subspan(sequence.labels.size());
    choices.push_back(choice);
  }
  return choices;
}

Accuracy accuracy_of(std::span<const ChoiceItem> items, const std::vector<ChoiceAnswer>& answers, size_t ChoiceAnswer::* pick) {
  const auto n = static_cast<double>(items.size());
  double right = 0;
  for (size_t i = 0; i < items.size(); ++i) right += answers[i].*pick == items[i].gold ? 1 : 0;
  const double share = right / n;
  return {share, n > 1 ? std::sqrt(share * (1 - share) / (n - 1)) : 0};
}

}  // namespace

ChoicesResult answer_choices(Engine& engine, std::span<const ChoiceItem> items,
                             const std::function<void(double, double)>& progress, SharedWork* shared) {
  if (items.empty()) throw InputError("there are no items to answer");
  SharedWork alone = SharedWork::alone();
  SharedWork& work = shared != nullptr ? *shared : alone;
  ChoicesResult result;
  std::vector<SharedGroup> groups;
  for (const ChoiceItem& item : items) {
    groups.push_back(tokens_of(engine, item));
    for (const ScoredSequence& sequence : groups.back().sequences) result.tokens += static_cast<int64_t>(sequence.read.size());
    result.random += 1 / static_cast<double>(item.choices.size()) / static_cast<double>(items.size());
  }
  const Stopwatch watch;
  Batch batch(engine, groups);
  for (size_t begin = 0; begin < groups.size();) {
    const size_t end = batch.end(begin);
    std::vector<LabelScore> found;
    const bool here = work.unit(
        batch.key(begin, end), [&] { found = batch.score(begin, end); },
        [&](UnitBytes& bytes) { bytes.values(found, batch.labels(begin, end)); });
    std::span<const LabelScore> scores = found;
    for (size_t i = begin; here && i < end; ++i) {
      result.answers.push_back(answer_of(items[i], take_scores(groups[i], scores)));
      result.timings.tokens_read += batch.rows(i);
    }
    begin = end;
    result.timings.seconds = watch.ms() / 1000;
    if (progress) progress(static_cast<double>(begin) / static_cast<double>(groups.size()), result.timings.tokens_per_s());
  }
  if (!work.gives_all()) return result;
  result.accuracy = accuracy_of(items, result.answers, &ChoiceAnswer::pick);
  result.norm = accuracy_of(items, result.answers, &ChoiceAnswer::pick_norm);
  result.bytes = accuracy_of(items, result.answers, &ChoiceAnswer::pick_bytes);
  result.centered = (result.accuracy.value - result.random) / (1 - result.random);
  return result;
}

double centered_mean(std::span<const ChoicesResult> results) {
  double sum = 0;
  for (const ChoicesResult& result : results) sum += result.centered;
  return results.empty() ? 0 : sum / static_cast<double>(results.size());
}

}  // namespace vitrine
