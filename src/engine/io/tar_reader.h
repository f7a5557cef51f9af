#pragma once
// The files in a tar archive, in order, as a stream: shards of WebDataset are such archives.
#include <cstdint>
#include <span>
#include <string>

#include "io/byte_stream.h"

namespace vitrine {

/// Reads ustar archives with the long names of GNU tar and of pax. Memory does not grow with the archive. Names are given as they
/// stand in it, for messages and endings alone: nothing is written to the disk.
class TarReader {
 public:
  /// Of a stream that outlives this; `path` is named in messages.
  TarReader(ByteStream& archive, std::string path) : archive_(archive), path_(std::move(path)) {}

  /// Goes to the next regular file, past what was not read of the one before; false after the last one. Folders, links and other
  /// kinds are skipped. Errors: FileError naming the byte of the archive for a header that is none, for a name of more than
  /// kLongestName bytes and for an archive that ends too early; as ByteStream::read.
  bool next();
  const std::string& name() const { return name_; }  // without control characters

  /// Fills `into` (not empty) with bytes of that file; 0 at its end. Errors: as next().
  size_t read(std::span<char> into);

  static constexpr size_t kLongestName = 4096;

 private:
  bool read_block(char (&block)[512]);
  std::string read_text(uint64_t size, size_t most);
  void skip(uint64_t bytes);
  [[noreturn]] void fail(const std::string& problem) const;

  ByteStream& archive_;
  std::string path_, name_;
  uint64_t at_ = 0;       // bytes of the archive that were read
  uint64_t left_ = 0;     // of the file
  uint64_t padding_ = 0;  // behind it, up to a whole block
};

/// Whether a file of that name is read as a tar archive: it ends in .tar or .tgz, or so before .gz or .zst.
bool is_tar(std::string_view path);

}  // namespace vitrine
