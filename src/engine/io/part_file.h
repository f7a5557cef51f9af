#pragma once
// The file of one process that shares a command's work with others: the results of its units (docs/many-machines.md has the
// format).
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "io/unit_bytes.h"

namespace vitrine {

/// Which part a process computes: the units whose number leaves `index` when divided by `count`.
struct WorkShard {
  static constexpr int64_t kMost = 99999;  // of count
  int64_t index = 0, count = 1;            // index: 0 to count - 1
  bool has(uint64_t unit) const { return unit % static_cast<uint64_t>(count) == static_cast<uint64_t>(index); }
};

/// What results depend on besides the text, by names of which none is there twice: {"model", "0123…"}, {"--context", "512"}.
struct WorkIdentity {
  std::vector<std::pair<std::string, std::string>> made_from;  // the same in all parts and where they are joined
  std::vector<std::pair<std::string, std::string>> machine;    // the same in all parts
};

/// Everything that a part goes over, its own units and others'.
struct WorkTotal {
  uint64_t units = 0, keys = 0;  // keys: a checksum of all units' keys, in order
  void add(uint64_t key);
  bool operator==(const WorkTotal&) const = default;
};

/// "folder/part-00002-of-00008".
std::string part_path(const std::string& folder, const WorkShard& shard);

/// The part that a file's name is that of; nothing for other names.
std::optional<WorkShard> part_named(const std::string& file);

/// A part as it lies on the disk, complete or not.
class PartFile {
 public:
  struct Unit {
    uint64_t number = 0, key = 0;
    std::span<const std::byte> bytes;
  };
  /// Checks every byte. Errors: FileError naming what is damaged, found and expected; for a part that is not complete what comes
  /// after the last whole unit is left out instead.
  static PartFile open(const std::string& path, bool complete);

  const std::string& path() const { return path_; }
  const WorkShard& shard() const { return shard_; }
  const WorkIdentity& identity() const { return identity_; }
  const std::vector<Unit>& units() const { return units_; }  // in order of their numbers
  const WorkTotal& total() const { return total_; }          // of a complete part
  uint64_t whole_bytes() const { return whole_; }            // up to the end of the last whole unit

  /// Throws FileError where it holds another shard than its name says.
  void require_shard(const WorkShard& shard) const;
  /// Throws InputError where the identities differ, naming what differs and both values. machines: compare those, too.
  void require_identity(const WorkIdentity& other, const std::string& of_other, bool machines) const;

 private:
  MappedFile file_;
  std::string path_;
  WorkShard shard_;
  WorkIdentity identity_;
  std::vector<Unit> units_;
  WorkTotal total_;
  uint64_t whole_ = 0;
};

/// Writes a part unit by unit under the name PATH.unfinished, and gives it its name at the end. A process that ends in whatever
/// way loses the unit it was in: whoever opens the file again goes on behind the last whole one.
class PartWriter {
 public:
  /// Errors: UsageError if another process writes the part; InputError for an unfinished file of another identity; FileError for
  /// one of another shard; RunError from the disk.
  PartWriter(const std::string& path, const WorkShard& shard, const WorkIdentity& identity);
  ~PartWriter();
  PartWriter(const PartWriter&) = delete;
  PartWriter& operator=(const PartWriter&) = delete;

  /// Number and key of the units that are there.
  const std::vector<std::pair<uint64_t, uint64_t>>& units() const { return units_; }
  std::string unfinished() const { return path_ + ".unfinished"; }
  void add(uint64_t number, uint64_t key, std::span<const std::byte> bytes);
  void finish(const WorkTotal& total);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void lock();  // opens the unfinished file, alone
  void append(std::span<const std::byte> bytes);

  std::string path_;
  std::vector<std::pair<uint64_t, uint64_t>> units_;
  uint64_t at_ = 0;
  int fd_ = -1;
};

}  // namespace vitrine
