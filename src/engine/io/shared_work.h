#pragma once
// Work that several processes share without talking to each other: what starts them gives each its number.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/part_file.h"
#include "io/unit_bytes.h"

namespace vitrine {

/// A command's work as a sequence of units, each of which depends on the command's input alone: a step of windows, a chunk. Every
/// process goes over all units in the same order, and this class decides what becomes of each:
///   alone()  all are computed here, and no file is touched
///   shard()  those of one part are computed and kept in a file of `folder`; the others are skipped
///   join()   all are read from the parts, so that what follows gives the bits of a run alone
/// A unit's key is a checksum of its input; it tells other texts.
class SharedWork {
 public:
  static SharedWork alone() { return SharedWork(); }
  /// Makes `folder`. A part that is complete is only compared with the units of this call, and computes nothing; one that was
  /// interrupted goes on after its last whole unit.
  /// Errors: InputError for a part of another identity or number of parts; FileError for a damaged one; as PartWriter.
  static SharedWork shard(const std::string& folder, const WorkShard& shard, const WorkIdentity& identity);
  /// Errors: InputError for a folder without parts, for missing parts, all named, for parts of different runs and parts that were
  /// not made from `identity`; FileError for damaged ones.
  static SharedWork join(const std::string& folder, const WorkIdentity& identity);

  /// Whether all units' values are there in the end: alone() and join().
  bool gives_all() const { return path_.empty(); }
  bool joins() const { return !parts_.empty(); }

  /// The next unit. compute() makes its values, fields(UnitBytes&) writes and reads them. Returns whether they are there.
  /// Errors: InputError for a key that is not that of a part; FileError from `fields`; RunError from the disk.
  template <class Compute, class Fields>
  bool unit(uint64_t key, Compute&& compute, Fields&& fields) {
    const uint64_t number = total_.units;
    switch (next(key)) {
      case Turn::skip: return false;
      case Turn::read: {
        const auto [bytes, where] = stored(number);
        UnitBytes from(bytes, where);
        fields(from);
        from.require_end();
        return true;
      }
      case Turn::compute: break;
    }
    compute();
    ++computed_;
    if (writer_ == nullptr) return true;
    UnitBytes to;
    fields(to);
    writer_->add(number, key, to.written());
    return true;
  }

  /// After the last unit: completes the part, or sees that the parts have no more units. Further calls do nothing.
  /// Errors: InputError for parts of a longer text.
  void finish();

  uint64_t units() const { return total_.units; }  // so far
  uint64_t computed() const { return computed_; }  // of them, by this call
  uint64_t found() const { return found_units_; }  // of this shard, that were there before
  bool was_complete() const { return found_.has_value(); }
  const std::string& path() const { return path_; }  // of the part

 private:
  enum class Turn : uint8_t { compute, read, skip };
  SharedWork() = default;
  Turn next(uint64_t key);
  std::pair<std::span<const std::byte>, std::string> stored(uint64_t number) const;
  void require_key(uint64_t number, uint64_t key, uint64_t expected, const std::string& path) const;

  WorkShard shard_;
  std::string path_;
  std::unique_ptr<PartWriter> writer_;                // of shard()
  std::optional<PartFile> found_;                     // of shard(), where it is complete
  std::vector<std::pair<uint64_t, uint64_t>> begun_;  // number and key of the units that were there
  std::vector<PartFile> parts_;                       // of join(), by index
  WorkTotal total_;                                   // so far
  uint64_t computed_ = 0, found_units_ = 0;
  bool finished_ = false;
};

}  // namespace vitrine
