#include "train/data/batch_source.h"

#include <algorithm>
#include <type_traits>

#include "base/error.h"
#include "base/permutation.h"
#include "base/philox.h"
#include "ops/head.h"
#include "ops/layout.h"

namespace vitrine {
namespace {

enum Purpose : uint64_t { kShuffle, kShift, kGroups };  // of the random numbers of an epoch

uint64_t draw(uint64_t seed, uint64_t epoch, Purpose purpose) {
  const auto words = philox(seed, epoch, purpose);
  return uint64_t{words[0]} << 32 | words[1];
}

// `n` sequences from number `first` on, which are `rows` rows from `row` on.
Batch part_of(const Batch& batch, size_t first, size_t n, size_t row, size_t rows) {
  const auto copy = [](const auto& all, size_t begin, size_t count) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::decay_t<decltype(all)>(at, at + static_cast<std::ptrdiff_t>(count));
  };
  Batch part;
  part.lengths = copy(batch.lengths, first, n);
  part.first_row = batch.first_row + row;
  part.sampled = batch.sampled;
  if (!batch.pairs.empty()) {
    const size_t each = batch.lengths.size() / batch.pairs.size();
    part.pairs = copy(batch.pairs, first / each, n / each);
    if (!batch.desirable.empty()) part.desirable = copy(batch.desirable, first / each, n / each);
  }
  if (!batch.reference.empty()) part.reference = copy(batch.reference, first, n);
  if (!batch.prompts.empty()) part.prompts = copy(batch.prompts, first, n);
  if (const PolicyTargets& policy = batch.policy; !policy.advantages.empty()) {
    part.policy.advantages = copy(policy.advantages, first, n);
    part.policy.token_weights = copy(policy.token_weights, first, n);
    if (!policy.sampled_by.empty()) part.policy.sampled_by = copy(policy.sampled_by, row, rows);
    if (!policy.reference.empty()) part.policy.reference = copy(policy.reference, row, rows);
  }
  part.tokens = copy(batch.tokens, row, rows);
  part.labels = copy(batch.labels, row, rows);
  if (const auto k = static_cast<size_t>(batch.teacher.k); k > 0)
    part.teacher = TopTokens{batch.teacher.k, copy(batch.teacher.tokens, row * k, rows * k),
                             copy(batch.teacher.logprobs, row * (k + 1), rows * (k + 1))};
  return part;
}

int64_t equal_part(int64_t rows, int64_t most) { return ceil_div(rows, std::max<int64_t>(1, ceil_div(rows, most))); }

}  // namespace

int64_t counted_in(const Batch& batch) {
  if (!batch.policy.advantages.empty()) return static_cast<int64_t>(batch.policy.advantages.size());
  return batch.pairs.empty() ? scored_in(batch.labels) : static_cast<int64_t>(batch.pairs.size());
}

Batch halves_of(const Batch& batch, size_t which) {
  if (which == 0 && batch.lengths.size() == batch.pairs.size()) return batch;
  VITRINE_CHECK(batch.lengths.size() == 2 * batch.pairs.size(), "a pair has two sequences");
  Batch half{.tokens = {}, .labels = {}, .lengths = {}, .first_row = batch.first_row, .pairs = batch.pairs};
  half.desirable = batch.desirable;
  size_t row = 0;
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    const auto rows = static_cast<size_t>(batch.lengths[i]);
    const auto append = [&](const auto& from, auto& to) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row);
      to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(rows));
    };
    if (i % 2 == which) {
      append(batch.tokens, half.tokens);
      append(batch.labels, half.labels);
      half.lengths.push_back(batch.lengths[i]);
      if (!batch.reference.empty()) half.reference.push_back(batch.reference[i]);
    }
    row += rows;
  }
  return half;
}

std::vector<Batch> parts_of(const Batch& batch, int64_t most) {
  const int64_t wanted = equal_part(static_cast<int64_t>(batch.tokens.size()), most);
  std::vector<Batch> parts;
  for (size_t first = 0, row = 0; first < batch.lengths.size();) {
    int64_t rows = 0;
    size_t n = 0;
    const size_t together = batch.pairs.empty() ? 1 : batch.lengths.size() / batch.pairs.size();
    while (first + n < batch.lengths.size() && (rows < wanted || n % together != 0)) rows += batch.lengths[first + n++];
    parts.push_back(part_of(batch, first, n, row, static_cast<size_t>(rows)));
    first += n, row += static_cast<size_t>(rows);
  }
  return parts;
}

int64_t rows_of_part(int64_t rows, int64_t length, int64_t most) {
  return std::min(rows, ceil_div(equal_part(rows, most), length) * length);
}

BatchSource::BatchSource(const TokenData& data, const BatchOptions& options) : data_(data), options_(options) {
  if (options.sequence_length < 1 || options.batch < 1 || options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks)
    throw UsageError("a batch needs at least one sequence of one token, and a rank below the number of ranks");
  if (data.masked()) {
    pack();
    return;
  }
  const auto length = static_cast<uint64_t>(options.sequence_length);
  const uint64_t least = options.shuffle ? length + 1 : 2;
  if (data.tokens() < least)
    throw InputError(data.path() + ": holds " + std::to_string(data.tokens()) + " tokens; a sequence of " +
                     std::to_string(length) + " and the token that follows it need " + std::to_string(least) +
                     ". Shorten sequence_length or add text");
  const uint64_t scored = data.tokens() - 1;  // the last token has nothing to predict
  // Shuffled windows are one fewer than would fit, so that they can begin anywhere in the first window, and end anywhere in
  // the last one.
  windows_ = options.shuffle ? std::max<uint64_t>(1, (data.tokens() - length) / length) : (scored + length - 1) / length;
}

// Which documents of masked data share a window.
void BatchSource::pack() {
  const bool pairs = data_.content() == DataContent::preferences, prompts = data_.content() == DataContent::prompts,
             examples = data_.content() == DataContent::unpaired;
  starts_ = data_.document_starts(0, data_.tokens());
  starts_.push_back(data_.tokens());
  const auto most = static_cast<uint64_t>(options_.sequence_length);
  uint64_t rows = 0;
  for (uint64_t d = 0; d + 1 < starts_.size(); ++d) {
    const uint64_t scored = starts_[d + 1] - starts_[d] - 1, own = scored + (options_.whole && scored > 0 ? 1 : 0);
    if ((pairs || examples) && scored == 0)
      throw FileError(data_.path(),
                      "document " + std::to_string(d) + " has one token; a prompt with its answer has two at least");
    if (prompts && starts_[d + 1] - starts_[d] > most)
      throw InputError(data_.path() + ": prompt " + std::to_string(d) + " has " + std::to_string(starts_[d + 1] - starts_[d]) +
                       " tokens; sequence_length is " + std::to_string(most) + ". Raise it, or leave the prompt out");
    if (scored > most) ++cut_;
    const uint64_t kept = std::min(own, most);
    if (prompts || examples || (pairs ? d % 2 == 0 : packed_.empty() || rows + kept > most)) {
      packed_.push_back(d);
      rows = 0;
    }
    rows += kept;
  }
  windows_ = packed_.size();
  if (options_.together > 0) windows_ = ceil_div(windows_, options_.together) * options_.together;
  packed_.push_back(starts_.size() - 1);
  if (windows_ == 0) throw InputError(data_.path() + ": holds no document to learn from");
}

void BatchSource::add_documents(uint64_t window, Batch& batch) const {
  if (data_.content() == DataContent::unpaired) return add_example(window, batch);
  if (data_.content() == DataContent::prompts) return add_prompt(packed_[window], batch);
  if (data_.content() == DataContent::preferences) batch.pairs.push_back(packed_[window] / 2);
  for (uint64_t d = packed_[window]; d < packed_[window + 1]; ++d) add_scored(d, batch);
}

void BatchSource::add_prompt(uint64_t document, Batch& batch) const {
  const uint64_t tokens = starts_[document + 1] - starts_[document];
  batch.prompts.push_back(document);
  batch.lengths.push_back(static_cast<int64_t>(tokens));
  batch.tokens.resize(batch.tokens.size() + tokens);
  data_.read(starts_[document], std::span(batch.tokens).last(tokens));
  batch.labels.resize(batch.tokens.size(), kNotScored);
}

// A document with what of it is scored, or its prompt with the answer of another one.
void BatchSource::add_scored(uint64_t document, Batch& batch, std::optional<uint64_t> answer_of) const {
  std::vector<int32_t> ids;
  std::vector<uint8_t> scored;
  const auto append = [&](uint64_t d, bool answer) {
    // An answer that is put behind another prompt may begin anywhere; of all else no more is read than a sequence has.
    const uint64_t whole = starts_[d + 1] - starts_[d];
    const uint64_t read = answer && answer_of ? whole : std::min(whole, static_cast<uint64_t>(options_.sequence_length) + 1);
    std::vector<int32_t> own(read);
    std::vector<uint8_t> marks(read);
    data_.read(starts_[d], own);
    data_.read_scored(starts_[d], marks);
    const auto border = answer_of ? std::find(marks.begin(), marks.end(), 1) - marks.begin() : 0;
    ids.insert(ids.end(), own.begin() + (answer ? border : 0), answer ? own.end() : own.begin() + border);
    scored.insert(scored.end(), marks.begin() + (answer ? border : 0), answer ? marks.end() : marks.begin() + border);
  };
  if (answer_of) append(document, false);
  append(answer_of.value_or(document), true);
  const uint64_t tokens = ids.size(), own = options_.whole ? tokens : tokens - 1;
  const uint64_t rows = std::min(own, static_cast<uint64_t>(options_.sequence_length));
  if (tokens < 2) return;
  batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(rows));
  for (uint64_t i = 1; i <= rows; ++i) batch.labels.push_back(i < tokens && scored[i] != 0 ? ids[i] : kNotScored);
  batch.lengths.push_back(static_cast<int64_t>(rows));
}

// The document of a window of unpaired preferences.
uint64_t BatchSource::example(uint64_t window) const {
  const uint64_t documents = starts_.size() - 1, number = window % documents;
  if (options_.together == 0 || !options_.shuffle) return number;
  return Permutation(documents, draw(options_.seed, 0, kGroups))(number);
}

void BatchSource::add_example(uint64_t window, Batch& batch) const {
  const uint64_t document = example(window), together = options_.together;
  batch.pairs.push_back(window);
  batch.desirable.push_back(data_.desirable(starts_[document]) ? 1 : 0);
  add_scored(document, batch);
  if (together == 0) return;
  const uint64_t first = window / together * together;
  add_scored(document, batch, example(first + (window - first + together - 1) % together));
}

// The number of the window at that place.
uint64_t BatchSource::ordered(DataPosition place) const {
  if (!options_.shuffle) return place.next;
  const uint64_t together = std::max<uint64_t>(1, options_.together);
  const Permutation order(windows_ / together, draw(options_.seed, place.epoch, kShuffle));
  return order(place.next / together) * together + place.next % together;
}

uint64_t BatchSource::batches_per_epoch() const {
  const uint64_t together = static_cast<uint64_t>(options_.batch) * static_cast<uint64_t>(options_.ranks);
  return options_.shuffle ? std::max<uint64_t>(1, windows_ / together) : (windows_ + together - 1) / together;
}

void BatchSource::seek(DataPosition position) {
  if (position.next > windows_)
    throw InputError(data_.path() + ": place " + std::to_string(position.next) + " of an epoch of " + std::to_string(windows_) +
                     " sequences does not exist. Is this the data, and the sequence_length, that the run began with?");
  position_ = position;
}

void BatchSource::add_window(DataPosition place, Batch& batch) const {
  const auto length = static_cast<uint64_t>(options_.sequence_length);
  if (data_.masked()) return add_documents(ordered(place), batch);
  uint64_t first = place.next * length;
  if (options_.shuffle) {
    const uint64_t room = data_.tokens() - 1 - windows_ * length;  // for the first window's begin
    const uint64_t shift = draw(options_.seed, place.epoch, kShift) % (room + 1);
    first = Permutation(windows_, draw(options_.seed, place.epoch, kShuffle))(place.next) * length + shift;
  }
  const uint64_t rows = std::min(length, data_.tokens() - 1 - first), end = first + rows;
  std::vector<int32_t> ids(rows + 1);
  data_.read(first, ids);
  const size_t begin = batch.labels.size();
  batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.end() - 1);
  batch.labels.insert(batch.labels.end(), ids.begin() + 1, ids.end());
  if (!options_.documents) {
    batch.lengths.push_back(static_cast<int64_t>(rows));
    return;
  }
  uint64_t at = first;
  for (const uint64_t start : data_.document_starts(first + 1, end + 1)) {
    batch.labels[begin + (start - 1 - first)] = kNotScored;
    batch.lengths.push_back(static_cast<int64_t>(start - at));
    at = start;
  }
  if (at < end) batch.lengths.push_back(static_cast<int64_t>(end - at));
}

Batch BatchSource::next() {
  if (position_.next >= windows_) position_ = {position_.epoch + 1, 0};
  const auto batch = static_cast<uint64_t>(options_.batch), ranks = static_cast<uint64_t>(options_.ranks);
  const uint64_t mine = static_cast<uint64_t>(options_.rank) * batch;
  Batch result;
  result.first_row = mine * static_cast<uint64_t>(rows_per_window());
  DataPosition place = position_;
  for (uint64_t i = 0; i < batch * ranks; ++i, ++place.next) {
    if (place.next >= windows_) {
      if (!options_.shuffle) break;
      place = {place.epoch + 1, 0};
    }
    if (i >= mine && i < mine + batch) add_window(place, result);
  }
  position_ = place;
  return result;
}

}  // namespace vitrine
