#pragma once
// Batches out of token data: every sequence of an epoch once, in an order that seed and epoch decide.
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/divergence.h"
#include "train/data/token_data.h"

namespace vitrine {

/// What sequences that the model sampled are learned by (train/policy.h). Rows are those of the batch.
struct PolicyTargets {
  std::vector<double> advantages = {};     // of each sequence
  std::vector<double> token_weights = {};  // of each sequence's scored rows
  std::vector<float> sampled_by = {};      // log-probability of each row's label when it was sampled; empty: as it is now
  std::vector<float> reference = {};       // under the model that learning began from; empty: there is none
};

/// The rows of all sequences, one after the other.
struct Batch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;   // the next token, or kNotScored (-100) where a document ends
  std::vector<int64_t> lengths;  // rows of each sequence; attention never crosses them
  uint64_t first_row = 0;        // of these rows among those of all ranks

  /// Preferences only: the number of each pair in its data. Sequences 2 i and 2 i + 1 are the prompt of pair i with its chosen
  /// and with its rejected answer. Unpaired preferences: of each example, whose sequence 2 i is the prompt with its answer, and
  /// 2 i + 1 the prompt with the answer of another example (BatchOptions::together), or is missing.
  std::vector<uint64_t> pairs = {};
  std::vector<uint8_t> desirable = {};  // unpaired preferences only: of each example, whether its answer is
  std::vector<double> reference = {};   // log p of each sequence's answer under the model that learning began from

  /// Prompts only: the number of each sequence's prompt in its data.
  std::vector<uint64_t> prompts = {};
  /// Sequences that the model sampled and that were rewarded; empty: others.
  PolicyTargets policy = {};

  // Distillation only:
  bool sampled = false;    // the model continued these sequences itself: labels say which rows count, not what is right
  TopTokens teacher = {};  // what the teacher expects after each row, if that was stored; k 0: it was not
};

/// What the loss of a batch is a mean over: its pairs or examples, its rewarded sequences, or its scored tokens.
int64_t counted_in(const Batch& batch);

/// The sequences 2 i (which = 0) or 2 i + 1 (which = 1) of a batch of pairs, as a batch with one sequence each.
Batch halves_of(const Batch& batch, size_t which);

/// The batch in parts of whole sequences, and of whole pairs or examples, in order: as few as have about `most` rows each, and as
/// equal as sequences allow.
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
  bool whole = false;   // a document's last token has a row of its own, which is not scored: routers choose experts for it, too
  /// Unpaired preferences: so many examples stay together, as a step's whose batches begin at their first one. Each has a second
  /// sequence, its prompt with the answer of the one before, and the first one with that of the last. 0: none has.
  uint64_t together = 0;
};

/// Text: the tokens are cut into windows of sequence_length, whose begin is moved from epoch to epoch; windows are shuffled. Each
/// token of a window is scored against the one that follows it in the data, the last one, too.
/// Conversations: a window holds as many whole ones, in the order of the data, as fit into sequence_length; each is a sequence
/// of its own, and one that does not fit by itself loses its end. Preferences: a window is a pair, each of whose two sequences
/// loses what is beyond sequence_length. Prompts: a window is one, with all its tokens, none of them scored. Unpaired
/// preferences: a window is an example. Those that stay together are drawn once; epochs differ in the order of these groups, and
/// the last group is filled up with the first examples. `ranks` sources with the ranks 0, 1, … give together what one source with
/// a batch `ranks` times as large gives.
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

  /// Appends the sequences of one window of an epoch; the position stays. Errors: as TokenData::read.
  void add_window(DataPosition place, Batch& batch) const;
  /// Of masked data, the window with that number, whatever the order of an epoch. Errors: as TokenData::read.
  void add_documents(uint64_t window, Batch& batch) const;

  uint64_t windows_per_epoch() const { return windows_; }
  /// Documents of masked data that lose their end.
  uint64_t cut_documents() const { return cut_; }
  /// The most rows of a window.
  int64_t rows_per_window() const {
    return options_.sequence_length * (data_.content() == DataContent::preferences || options_.together > 0 ? 2 : 1);
  }
  /// With shuffle rounded down, but at least 1; without, rounded up.
  uint64_t batches_per_epoch() const;

 private:
  void pack();
  void add_prompt(uint64_t document, Batch& batch) const;
  void add_scored(uint64_t document, Batch& batch, std::optional<uint64_t> answer_of = {}) const;
  void add_example(uint64_t window, Batch& batch) const;
  uint64_t example(uint64_t window) const;
  uint64_t ordered(DataPosition place) const;

  const TokenData& data_;
  BatchOptions options_;
  uint64_t windows_ = 0;
  DataPosition position_;
  // Of masked data:
  std::vector<uint64_t> starts_;  // of each document, and the end of the last
  std::vector<uint64_t> packed_;  // the first document of each window, and the end of the last
  uint64_t cut_ = 0;
};

}  // namespace vitrine
