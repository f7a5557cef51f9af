#pragma once
// A file that has its name only when it is complete.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vitrine {

/// Collects bytes under a temporary name beside `path`; finish() syncs and renames. Destroyed before that, it removes the
/// temporary file and leaves `path` as it was. A link is followed: the file it points at is replaced.
/// Errors: InputError if something that is no regular file (a device, a pipe, a directory) has the name; otherwise RunError
/// with the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write_at(uint64_t offset, std::span<const std::byte> data);
  void sync();  // what was written is on the disk, still under the temporary name
  void finish();
  const std::string& path() const { return path_; }  // of the file itself, links followed

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_, temporary_;
  int fd_ = -1;
};

/// Whether a file's name is `name`, or what an AtomicFile of that name leaves behind when its process is killed.
bool is_or_becomes(std::string_view file, std::string_view name);

/// Removes what AtomicFiles of processes that were killed have left in the folder. Nobody else may be writing into it.
void remove_leftovers(const std::string& folder);

/// Replaces the file: `path` holds the old content or the new, never half of it. Errors: as AtomicFile.
void write_file_atomically(const std::string& path, std::string_view content);

/// Replaces several files that belong together: the first is put in place when all of them are on the disk. Only a rename that
/// fails, or a process that ends between two of them, leaves old files beside new ones. Errors: as AtomicFile.
void write_files_atomically(const std::vector<std::pair<std::string, std::string>>& contents_by_path);

}  // namespace vitrine
