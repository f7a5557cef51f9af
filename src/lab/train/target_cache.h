#pragma once
// What a teacher expects after each row of the training data, kept on disk: computed once, read by every later run.
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "ops/divergence.h"

namespace vitrine {

/// A folder with index.json, which says what the values depend on, and targets.bin: a record for each sequence of a run, in
/// the order in which training reads them, at record number · record size. Little-endian:
///   u64  checksum of the number and of what follows; 0: not computed yet
///   i32  tokens [sequence_length, k]
///   f32  log-probabilities [sequence_length, k + 1]; zeros up to a multiple of 8 bytes
/// A record that a killed run left half-written does not fit its checksum and counts as not computed.
class TargetCache {
 public:
  /// identity   what the values depend on: {"teacher": …, "seed": …}
  /// where      of the configuration, for messages
  /// Errors: InputError for a folder that cannot be made, holds something else or was made for another identity, naming what
  /// differs and both values.
  TargetCache(const std::string& folder, const Json& identity, int64_t sequence_length, int64_t k, const std::string& where);
  ~TargetCache();
  TargetCache(const TargetCache&) = delete;
  TargetCache& operator=(const TargetCache&) = delete;

  /// Appends the rows of a sequence to `to`; false, and `to` as it was, if they are not there. Errors: RunError from the disk.
  bool read(uint64_t sequence, TopTokens& to);
  /// Stores rows [first, first + sequence_length) of `from`. Errors: RunError from the disk.
  void write(uint64_t sequence, const TopTokens& from, size_t first);

  /// Errors: InputError with the numbers if the disk has no room for the records of a run of so many sequences.
  void check_space(uint64_t sequences) const;

 private:
  size_t record_bytes() const;
  std::vector<std::byte> record_;
  std::string where_, path_;
  size_t rows_, k_;
  int file_ = -1;
};

}  // namespace vitrine
