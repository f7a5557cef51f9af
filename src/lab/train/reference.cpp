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

uint64_t pairs_in(const DataMix& data) {
  return data.first_pair(data.parts().size() - 1) + data.parts().back().data.documents() / 2;
}

Checkpoint::Metadata identity_of(const DataMix* const (&data)[2], int64_t sequence_length) {
  Checkpoint::Metadata metadata = {{"sequence_length", std::to_string(sequence_length)}};
  for (size_t i = 0; i < 2; ++i)
    if (data[i] != nullptr) metadata[kKinds[i]] = hexadecimal(data[i]->checksum());
  return metadata;
}

}  // namespace

void ReferenceLogprobs::read(const DataMix& train, const DataMix* validation, int64_t sequence_length) {
  constexpr const char* kAdvice =
      ", and the weights that the run began from are gone. Put it back as it was, or begin a new run with another out:";
  if (!present(path_)) throw FileError(path_, std::string("is missing: it holds the reference of dpo") + kAdvice);
  const Checkpoint stored = open_safetensors(path_);
  const DataMix* const data[] = {&train, validation};
  for (const auto& [key, value] : identity_of(data, sequence_length)) {
    const auto found = stored.metadata().find(key);
    if (found == stored.metadata().end() || found->second != value)
      throw FileError(path_, "was computed for " + key + " " + (found == stored.metadata().end() ? "nothing" : found->second) +
                                 ", and the run now has " + value + kAdvice);
  }
  for (size_t i = 0; i < 2; ++i) {
    if (data[i] == nullptr) continue;
    const auto pairs = static_cast<int64_t>(pairs_in(*data[i]));
    const StoredTensor* t = stored.find(kKinds[i]);
    if (t == nullptr || t->dtype != DType::f32 || t->shape != std::vector<int64_t>{pairs, 2})
      throw FileError(
          path_, std::string("lacks the f32 tensor \"") + kKinds[i] + "\" of shape [" + std::to_string(pairs) + ", 2]" + kAdvice);
    values_[i].resize(static_cast<size_t>(2 * pairs));
    std::memcpy(values_[i].data(), t->data, values_[i].size() * sizeof(float));
  }
}

bool ReferenceLogprobs::compute(Learner& learner, const DataMix& train, const DataMix* validation, int64_t sequence_length,
                                const std::function<bool(double share)>& going) {
  const auto ranks = static_cast<uint64_t>(learner.comm().size()), rank = static_cast<uint64_t>(learner.comm().rank());
  const DataMix* const data[] = {&train, validation};
  uint64_t all = 0, done = 0;
  for (const DataMix* one : data) all += one != nullptr ? pairs_in(*one) : 0;
  for (size_t i = 0; i < 2; ++i) {
    if (data[i] == nullptr) continue;
    std::vector<double> values(2 * pairs_in(*data[i]));
    for (size_t part = 0; part < data[i]->parts().size(); ++part) {
      const BatchSource source(data[i]->parts()[part].data, {.sequence_length = sequence_length, .batch = 1, .shuffle = false});
      const uint64_t first_pair = data[i]->first_pair(part), pairs = source.windows_per_epoch();
      for (uint64_t first = 0; first < pairs; first += kTogether * ranks) {
        if (!going(static_cast<double>(done) / static_cast<double>(all))) return false;
        Batch batch;
        const uint64_t begin = std::min(pairs, first + rank * kTogether), end = std::min(pairs, begin + kTogether);
        for (uint64_t pair = begin; pair < end; ++pair) source.add_window({0, pair}, batch);
        const std::vector<double> logprobs = learner.answer_logprobs(batch);
        std::copy(logprobs.begin(), logprobs.end(), values.begin() + static_cast<std::ptrdiff_t>(2 * (first_pair + begin)));
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
      tensors.push_back({kKinds[i], DType::f32, {static_cast<int64_t>(values_[i].size() / 2), 2}, values_[i].data()});
  write_safetensors(path_, tensors, identity_of(data, sequence_length));
  return true;
}

void ReferenceLogprobs::add_to(Batch& batch, bool validation) const {
  batch.reference.clear();
  for (const uint64_t pair : batch.pairs)
    for (size_t i = 0; i < 2; ++i) batch.reference.push_back(static_cast<double>(values_[validation ? 1 : 0][2 * pair + i]));
}

}  // namespace vitrine
