#include "train/reference.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/file_checks.h"
#include "io/safetensors.h"
#include "model/fingerprint.h"

namespace vitrine {
namespace {

constexpr const char* kKinds[] = {"train", "validation"};
constexpr uint64_t kTogether = 8;  // pairs of a batch

Checkpoint::Metadata identity_of(const DataMix* const (&data)[2], int64_t sequence_length) {
  Checkpoint::Metadata metadata = {{"sequence_length", std::to_string(sequence_length)}};
  for (size_t i = 0; i < 2; ++i)
    if (data[i] != nullptr) metadata[kKinds[i]] = hexadecimal(data[i]->checksum());
  return metadata;
}

}  // namespace

// Sequences of a window.
int64_t ReferenceLogprobs::each(const DataMix& data, size_t kind) const {
  return data.parts()[0].data.content() == DataContent::preferences || options_[kind].together > 0 ? 2 : 1;
}

// Of all parts.
uint64_t ReferenceLogprobs::windows(const DataMix& data, size_t kind) const {
  return data.first_pair(data.parts().size() - 1) + BatchSource(data.parts().back().data, options_[kind]).windows_per_epoch();
}

void ReferenceLogprobs::read(const DataMix& train, const DataMix* validation) {
  constexpr const char* kAdvice =
      ", and the weights that the run began from are gone. Put it back as it was, or begin a new run with another out:";
  if (!present(path_))
    throw FileError(path_, std::string("is missing: it holds the log-probabilities of the reference model") + kAdvice);
  const Checkpoint stored = open_safetensors(path_);
  const DataMix* const data[] = {&train, validation};
  for (const auto& [key, value] : identity_of(data, options_[0].sequence_length)) {
    const auto found = stored.metadata().find(key);
    if (found == stored.metadata().end() || found->second != value)
      throw FileError(path_, "was computed for " + key + " " + (found == stored.metadata().end() ? "nothing" : found->second) +
                                 ", and the run now has " + value + kAdvice);
  }
  for (size_t i = 0; i < 2; ++i) {
    if (data[i] == nullptr) continue;
    const auto rows = static_cast<int64_t>(windows(*data[i], i)), columns = each(*data[i], i);
    const StoredTensor* t = stored.find(kKinds[i]);
    if (t == nullptr || t->dtype != DType::f32 || t->shape != std::vector<int64_t>{rows, columns})
      throw FileError(path_, std::string("lacks the f32 tensor \"") + kKinds[i] + "\" of shape [" + std::to_string(rows) + ", " +
                                 std::to_string(columns) + "]" + kAdvice);
    values_[i].resize(static_cast<size_t>(rows * columns));
    std::memcpy(values_[i].data(), t->data, values_[i].size() * sizeof(float));
  }
}

bool ReferenceLogprobs::compute(Learner& learner, const DataMix& train, const DataMix* validation,
                                const std::function<bool(double share)>& going) {
  const auto ranks = static_cast<uint64_t>(learner.comm().size()), rank = static_cast<uint64_t>(learner.comm().rank());
  const DataMix* const data[] = {&train, validation};
  uint64_t all = 0, done = 0;
  for (const DataMix* one : data) all += one != nullptr ? windows(*one, one == validation ? 1 : 0) : 0;
  for (size_t i = 0; i < 2; ++i) {
    if (data[i] == nullptr) continue;
    const auto columns = static_cast<uint64_t>(each(*data[i], i));
    std::vector<double> values(columns * windows(*data[i], i));
    for (size_t part = 0; part < data[i]->parts().size(); ++part) {
      const BatchSource source(data[i]->parts()[part].data, options_[i]);
      const uint64_t first_pair = data[i]->first_pair(part), pairs = source.windows_per_epoch();
      for (uint64_t first = 0; first < pairs; first += kTogether * ranks) {
        if (!going(static_cast<double>(done) / static_cast<double>(all))) return false;
        Batch batch;
        const uint64_t begin = std::min(pairs, first + rank * kTogether), end = std::min(pairs, begin + kTogether);
        for (uint64_t pair = begin; pair < end; ++pair) source.add_documents(pair, batch);
        const std::vector<double> logprobs = learner.answer_logprobs(batch);
        std::copy(logprobs.begin(), logprobs.end(), values.begin() + static_cast<std::ptrdiff_t>(columns * (first_pair + begin)));
        done += std::min(kTogether * ranks, pairs - first);
      }
    }
    learner.comm().all_reduce(values);
    values_[i].assign(values.begin(), values.end());
  }
  if (rank > 0) return true;
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < 2; ++i)
    if (data[i] != nullptr)
      tensors.push_back(
          {kKinds[i], DType::f32, {static_cast<int64_t>(windows(*data[i], i)), each(*data[i], i)}, values_[i].data()});
  write_safetensors(path_, tensors, identity_of(data, options_[0].sequence_length));
  return true;
}

void ReferenceLogprobs::add_to(Batch& batch, bool validation) const {
  const std::vector<float>& values = values_[validation ? 1 : 0];
  const size_t each = batch.pairs.empty() ? 0 : batch.lengths.size() / batch.pairs.size();
  batch.reference.clear();
  for (const uint64_t pair : batch.pairs)
    for (size_t i = 0; i < each; ++i) batch.reference.push_back(static_cast<double>(values[each * pair + i]));
}

}  // namespace vitrine
