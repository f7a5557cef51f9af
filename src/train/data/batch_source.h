#pragma once
// Batches out of token data: every sequence of an epoch once, in an order that seed and epoch decide.
#include <cstdint>
#include <vector>

#include "ops/divergence.h"
#include "train/data/token_data.h"

namespace vitrine {

/// The rows of all sequences, one after the other.
struct Batch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;   // the next token, or kNotScored (-100) where a document ends
  std::vector<int64_t> lengths;  // rows of each sequence; attention never crosses them
  uint64_t first_row = 0;        // of these rows among those of all ranks

  // Distillation only:
  bool sampled = false;    // the model continued these sequences itself: labels say which rows count, not what is right
  TopTokens teacher = {};  // what the teacher expects after each row, if that was stored; k 0: it was not
};

/// The batch in parts of whole sequences, in order: as few as have about `most` rows each, and as equal as sequences allow.
std::vector<Batch> parts_of(const Batch& batch, int64_t most);
/// Rows of the largest part of a batch of so many rows in sequences of `length`.
int64_t rows_of_part(int64_t rows, int64_t length, int64_t most);

/// Where in the data a source stands: `next` sequences of the epoch were given out, to all ranks together.
struct DataPosition {
  uint64_t epoch = 0, next = 0;
  bool operator==(const DataPosition&) const = default;
};

struct BatchOptions {
  int64_t sequence_length = 0;  // rows of a window
  int64_t batch = 0;            // windows of a batch, for each rank
  uint64_t seed = 0;
  bool documents = false;  // windows are cut at the ends of documents into sequences of their own; otherwise text runs on
  int rank = 0, ranks = 1;
  bool shuffle = true;  // false, for validation: file order, every token, and the epoch ends with a batch that may be short
};

/// The tokens are cut into windows of sequence_length, whose begin is moved from epoch to epoch; windows are shuffled. Each
/// token of a window is scored against the one that follows it in the data, the last one, too.
/// `ranks` sources with the ranks 0, 1, … give together what one source with a batch `ranks` times as large gives.
class BatchSource {
 public:
  /// `data` must outlive it. Errors: InputError with the numbers for data that has no window of this length; UsageError for
  /// sizes below 1.
  BatchSource(const TokenData& data, const BatchOptions& options);

  /// The next batch of this rank; behind the last one of an epoch comes the next epoch's first. With shuffle, a batch may
  /// hold windows of both. Without, an epoch's last batch has what is left, which may be nothing for a rank.
  /// Errors: as TokenData::read.
  Batch next();

  DataPosition position() const { return position_; }
  /// Goes on from there; takes no time. Errors: InputError for a place behind the epoch's end.
  void seek(DataPosition position);

  uint64_t windows_per_epoch() const { return windows_; }
  /// With shuffle rounded down, but at least 1; without, rounded up.
  uint64_t batches_per_epoch() const;

 private:
  void add_window(DataPosition place, Batch& batch) const;

  const TokenData& data_;
  BatchOptions options_;
  uint64_t windows_ = 0;
  DataPosition position_;
};

}  // namespace vitrine
