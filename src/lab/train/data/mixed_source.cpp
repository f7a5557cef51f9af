#include "train/data/mixed_source.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"

namespace vitrine {
namespace {

constexpr uint64_t kCycle = 65536;  // sequences after which the turns begin again
constexpr uint64_t kMixture = 0x6d78;

// Of kCycle, how many each part has: rounded down, and what is left goes to the largest remainders.
std::vector<int64_t> counts_of(const std::vector<DataPart>& parts, double sum) {
  std::vector<int64_t> counts;
  std::vector<double> left;
  for (const DataPart& part : parts) {
    const double exact = part.weight / sum * static_cast<double>(kCycle);
    counts.push_back(static_cast<int64_t>(exact));
    left.push_back(exact - static_cast<double>(counts.back()));
  }
  int64_t missing = static_cast<int64_t>(kCycle) - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (; missing > 0; --missing) {
    const auto most = std::max_element(left.begin(), left.end()) - left.begin();
    ++counts[static_cast<size_t>(most)];
    left[static_cast<size_t>(most)] = -1;
  }
  return counts;
}

}  // namespace

DataMix::DataMix(std::vector<DataPart> parts) : parts_(std::move(parts)) {
  if (parts_.empty()) throw InputError("a mixture needs at least one folder of token data");
  double sum = 0;
  const DataPart& first = parts_[0];
  for (const DataPart& part : parts_) {
    for (const DataContent alone : {DataContent::preferences, DataContent::prompts, DataContent::unpaired})
      if ((part.data.content() == alone) != (first.data.content() == alone))
        throw InputError(part.data.path() + " holds " + content_name(part.data.content()) + ", and " + first.data.path() + " " +
                         content_name(first.data.content()) + "; " + content_name(alone) + " are not mixed with anything else");
    if (!(part.weight > 0) || !std::isfinite(part.weight))
      throw InputError(part.data.path() + ": its weight is " + std::to_string(part.weight) + "; expected a number above 0");
    sum += part.weight;
  }
  if (parts_.size() == 1) return;
  const std::vector<int64_t> counts = counts_of(parts_, sum);
  for (size_t i = 0; i < parts_.size(); ++i)
    if (counts[i] == 0)
      throw InputError(parts_[i].data.path() + ": its weight is less than 1/" + std::to_string(kCycle) +
                       " of all weights together, so it would never be read. Raise it, or leave the folder out");
  // Each turn goes to the part that is furthest behind its share.
  std::vector<int64_t> behind(parts_.size());
  for (uint64_t turn = 0; turn < kCycle; ++turn) {
    for (size_t i = 0; i < behind.size(); ++i) behind[i] += counts[i];
    const auto chosen = static_cast<size_t>(std::max_element(behind.begin(), behind.end()) - behind.begin());
    behind[chosen] -= static_cast<int64_t>(kCycle);
    turns_.push_back(static_cast<uint16_t>(chosen));
  }
}

double DataMix::share(size_t part) const {
  double sum = 0;
  for (const DataPart& p : parts_) sum += p.weight;
  return parts_[part].weight / sum;
}

std::string DataMix::weights_text() const {
  std::string text;
  for (size_t i = 0; parts_.size() > 1 && i < parts_.size(); ++i) text += (i > 0 ? ", " : "") + Json(parts_[i].weight).dump();
  return text;
}

uint64_t DataMix::first_pair(size_t part) const {
  return first_document(part) / (parts_[0].data.content() == DataContent::preferences ? 2 : 1);
}

uint64_t DataMix::first_document(size_t part) const {
  uint64_t documents = 0;
  for (size_t i = 0; i < part; ++i) documents += parts_[i].data.documents();
  return documents;
}

std::string_view DataMix::line(uint64_t document) const {
  size_t part = parts_.size() - 1;
  while (first_document(part) > document) --part;
  return parts_[part].data.line(document - first_document(part));
}

uint64_t DataMix::tokens() const {
  uint64_t sum = 0;
  for (const DataPart& part : parts_) sum += part.data.tokens();
  return sum;
}

uint64_t DataMix::checksum() const {
  uint64_t sum = parts_[0].data.checksum();
  for (size_t i = 1; i < parts_.size(); ++i) sum = (sum * 0x9E3779B97F4A7C15u) ^ parts_[i].data.checksum();
  return sum;
}

std::string DataMix::path() const {
  const size_t others = parts_.size() - 1;
  return parts_[0].data.path() + (others == 0 ? "" : " and " + std::to_string(others) + (others == 1 ? " other" : " others"));
}

MixedSource::MixedSource(const DataMix& mix, const BatchOptions& options)
    : mix_(mix), options_(options), given_(mix.parts().size()) {
  const bool alone = mix.parts().size() == 1;
  VITRINE_CHECK(alone || options.shuffle, "a mixture is shuffled");
  for (size_t i = 0; i < mix.parts().size(); ++i) {
    BatchOptions own = options;
    if (i > 0) {  // the same text in two folders comes in two orders
      const auto words = philox(options.seed, i, kMixture);
      own.seed = uint64_t{words[0]} << 32 | words[1];
    }
    sources_.emplace_back(mix.parts()[i].data, own);
  }
}

DataPosition MixedSource::place_in(size_t part, uint64_t sequences) const {
  const uint64_t windows = sources_[part].windows_per_epoch();
  return {sequences / windows, sequences % windows};
}

Batch MixedSource::next() {
  if (sources_.size() == 1) return sources_[0].next();
  const auto batch = static_cast<uint64_t>(options_.batch), mine = static_cast<uint64_t>(options_.rank) * batch;
  Batch result;
  result.first_row = mine * static_cast<uint64_t>(rows_per_window());
  for (uint64_t i = 0; i < batch * static_cast<uint64_t>(options_.ranks); ++i, ++next_) {
    const size_t part = mix_.turns()[next_ % kCycle];
    if (i >= mine && i < mine + batch) {
      sources_[part].add_window(place_in(part, given_[part]), result);
      if (!result.pairs.empty()) result.pairs.back() += mix_.first_pair(part);
      if (!result.prompts.empty()) result.prompts.back() += mix_.first_document(part);
    }
    ++given_[part];
  }
  return result;
}

DataPosition MixedSource::position() const { return sources_.size() == 1 ? sources_[0].position() : DataPosition{0, next_}; }

void MixedSource::seek(DataPosition position) {
  if (sources_.size() == 1) return sources_[0].seek(position);
  if (position.epoch != 0)
    throw InputError(mix_.path() + ": a mixture has no epoch " + std::to_string(position.epoch) +
                     ". Did the run begin with the same folders in data.train?");
  next_ = position.next;
  std::fill(given_.begin(), given_.end(), uint64_t{0});
  for (uint64_t turn = 0; turn < kCycle; ++turn) given_[mix_.turns()[turn]] += next_ / kCycle + (turn < next_ % kCycle ? 1 : 0);
}

uint64_t MixedSource::windows_per_epoch() const {
  uint64_t sum = 0;
  for (const BatchSource& source : sources_) sum += source.windows_per_epoch();
  return sum;
}

uint64_t MixedSource::batches_per_epoch() const {
  if (sources_.size() == 1) return sources_[0].batches_per_epoch();
  return std::max<uint64_t>(
      1, windows_per_epoch() / (static_cast<uint64_t>(options_.batch) * static_cast<uint64_t>(options_.ranks)));
}

int64_t MixedSource::rows_per_window() const {
  int64_t most = 0;
  for (const BatchSource& source : sources_) most = std::max(most, source.rows_per_window());
  return most;
}

std::vector<PartPosition> MixedSource::parts() const {
  std::vector<PartPosition> all;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const uint64_t windows = sources_[i].windows_per_epoch();
    const DataPosition at = sources_[i].position();
    all.push_back({sources_.size() == 1 ? at.epoch * windows + at.next : given_[i], windows, sources_[i].cut_documents()});
  }
  return all;
}

}  // namespace vitrine
