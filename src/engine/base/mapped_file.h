#pragma once
// Read-only memory maps. Opening a model maps its file; nothing is read until a page is touched.
#include <cstddef>
#include <span>
#include <string>

namespace vitrine {

/// A whole file, mapped read-only and shared with every other process that maps it. Movable, unmapped on destruction.
/// Errors: FileError for a missing, unreadable or special file. An empty file gives an empty span.
class MappedFile {
 public:
  static MappedFile open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  /// Tells the kernel that the bytes will be wanted soon; returns at once.
  void will_need() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

/// The content of a small text file. Errors: FileError; also if it is longer than `max_bytes`.
std::string read_file(const std::string& path, size_t max_bytes = size_t{1} << 30);

}  // namespace vitrine
