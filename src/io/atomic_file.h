#pragma once
// A file that has its name only when it is complete.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vitrine {

/// Collects bytes under a temporary name beside `path`; finish() syncs and renames. Destroyed before that, it removes the
/// temporary file and leaves `path` as it was. All errors are RunError with the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write_at(uint64_t offset, std::span<const std::byte> data);
  void finish();
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_, temporary_;
  int fd_ = -1;
};

}  // namespace vitrine
