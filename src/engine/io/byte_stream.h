#pragma once
// The bytes of a file in order, decompressed on the way: text comes as it is, as gzip or as Zstandard.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace vitrine {

/// Reads a file from its start to its end, in as little memory as a window of the compression takes (at most 128 MiB, but
/// 2 GiB of a file that zstd --long=31 made). Which compression it is, the first bytes say, not the name. Several gzip members or
/// zstd frames one after the other are one stream; zeros behind the last gzip member are ignored.
class ByteStream {
 public:
  /// Errors: FileError for a missing, unreadable or special file, and for Parquet.
  static std::unique_ptr<ByteStream> open(const std::string& path);
  virtual ~ByteStream() = default;

  /// Fills `into` (not empty) from the front; 0 at the end of the file.
  /// Errors: FileError for damaged or truncated compressed data, with the byte of the file; RunError from the disk.
  virtual size_t read(std::span<char> into) = 0;

  uint64_t consumed() const { return consumed_; }      // bytes of the file that were read
  uint64_t file_bytes() const { return file_bytes_; }  // its size when it was opened

 protected:
  uint64_t consumed_ = 0, file_bytes_ = 0;
};

/// The end of a message about a Parquet file, or a folder of them: the command that writes it as JSON lines.
std::string parquet_advice(const std::string& path);

/// Whether a file's name, without .gz or .zst, ends in one of these.
bool name_ends_in(std::string_view path, std::initializer_list<std::string_view> ends);

}  // namespace vitrine
