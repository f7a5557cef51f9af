#pragma once
// Batches out of several folders of token data, each with its share of the sequences.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/batch_source.h"

namespace vitrine {

/// Token data, and what it counts for beside the others of a mixture.
struct DataPart {
  TokenData data;
  double weight = 1;  // above 0; the share of the sequences is weight / sum of all weights
};

/// What a run learns from: one folder, or several that are mixed.
class DataMix {
 public:
  /// Errors: InputError for no part, for preferences, unpaired ones or prompts beside other data, for weights that are not above
  /// 0, and for one of less than 1/65536 of their sum.
  explicit DataMix(std::vector<DataPart> parts);

  const std::vector<DataPart>& parts() const { return parts_; }
  double share(size_t part) const;
  /// The weights, for what depends on them: "3.0, 1.0"; empty for one part.
  std::string weights_text() const;
  /// Of preferences: the number that the part's first pair, or unpaired example, has among those of all parts.
  uint64_t first_pair(size_t part) const;
  /// The number that the part's first document has among those of all parts.
  uint64_t first_document(size_t part) const;
  /// Of prompts: the line that one of all parts' documents was made from.
  std::string_view line(uint64_t document) const;
  /// Of all parts together.
  uint64_t tokens() const;
  /// Two mixtures of the same data share it; that of one part is its own. Weights do not count.
  uint64_t checksum() const;
  /// The folders, for messages: "a", or "a and 2 others".
  std::string path() const;
  /// Where shares are mixed, which part the sequences 0, 1, … of a run come from, over and over: each part is spread as evenly
  /// as its share allows, so that any stretch holds nearly its share of each. Empty for one part.
  const std::vector<uint16_t>& turns() const { return turns_; }

 private:
  std::vector<DataPart> parts_;
  std::vector<uint16_t> turns_;
};

/// Where a mixture's part stands.
struct PartPosition {
  uint64_t sequences = 0;  // given out so far, over all its epochs
  uint64_t windows = 0;    // of an epoch
  uint64_t cut = 0;        // documents that lose their end (BatchSource::cut_documents)
};

/// With one part, what BatchSource gives. With several, each part is a BatchSource of its own, with its own order and epochs, and
/// the sequences of a run come from the parts in turn (DataMix::turns). Then a position is {0, sequences so far}.
class MixedSource {
 public:
  /// `mix` must outlive it. options.shuffle must be set where there are several parts. Errors: as BatchSource.
  MixedSource(const DataMix& mix, const BatchOptions& options);

  /// As BatchSource::next.
  Batch next();
  DataPosition position() const;
  /// As BatchSource::seek; takes no time either.
  void seek(DataPosition position);

  /// Sequences of an epoch: of all parts together, whatever their weights.
  uint64_t windows_per_epoch() const;
  uint64_t batches_per_epoch() const;
  std::vector<PartPosition> parts() const;
  /// The most rows of a window.
  int64_t rows_per_window() const;

 private:
  DataPosition place_in(size_t part, uint64_t sequences) const;

  const DataMix& mix_;
  BatchOptions options_;
  std::vector<BatchSource> sources_;
  std::vector<uint64_t> given_;  // sequences of each part
  uint64_t next_ = 0;            // of a mixture: the number of the next sequence
};

}  // namespace vitrine
