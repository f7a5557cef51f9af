#pragma once
// A content that arrives piece by piece: always its beginning, without gaps, so that a run that was stopped can go on.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hub/digest.h"

namespace vitrine {

class PartialFile {
 public:
  /// Opens or makes the file. What it holds already is read once, for the hash. Errors: RunError with the system's reason.
  PartialFile(const std::string& path, const std::string& etag, uint64_t size);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  uint64_t written() const { return written_; }
  void append(std::span<const std::byte> bytes);
  void restart();  // with nothing

  /// The hash of all of it; empty if it is the one that was announced.
  std::string wrong_hash();
  /// Writes it to the disk under its final name.
  void move_to(const std::string& path);
  void remove();

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_, etag_;
  uint64_t size_, written_ = 0;
  int fd_ = -1;
  std::optional<Digest> digest_;
};

}  // namespace vitrine
