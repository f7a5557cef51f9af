#pragma once
// What the model that learning began from thinks of the answers, kept in the run's folder: computed once, read when it goes on.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/data/mixed_source.h"
#include "train/learner.h"

namespace vitrine {

/// log p(answer | prompt) of every sequence of the preferences that a run reads, under its starting weights; of unpaired ones for
/// kto with the answers of other examples, too.
class ReferenceLogprobs {
 public:
  /// folder: of the run; the values are in reference.safetensors: f32 [windows, sequences of a window] for each kind of data, so
  /// [pairs, 2], chosen and rejected. train, validation: what the data are read with.
  ReferenceLogprobs(const std::string& folder, const BatchOptions& train, const BatchOptions& validation)
      : path_(folder + "/reference.safetensors"), options_{train, validation} {}

  /// What was computed before. Errors: FileError for a file that is missing, or was made for other data or another
  /// sequence_length, saying what to do.
  void read(const DataMix& train, const DataMix* validation);

  /// Runs every pair through the learner, which must have its starting weights. Every rank has a part and must call it;
  /// rank 0 writes the file. `going`, asked between batches on every rank, is told the share that is done; false ends it.
  /// Returns whether it came to the end. Errors: RunError from the disk.
  bool compute(Learner& learner, const DataMix& train, const DataMix* validation, const std::function<bool(double share)>& going);

  /// Sets the batch's reference from its pairs.
  void add_to(Batch& batch, bool validation) const;

 private:
  int64_t each(const DataMix& data, size_t kind) const;
  uint64_t windows(const DataMix& data, size_t kind) const;

  std::string path_;
  BatchOptions options_[2];
  std::vector<float> values_[2];  // of the training data; of the validation data
};

}  // namespace vitrine
