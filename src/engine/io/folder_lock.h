#pragma once
// A folder that one process at a time works in.
#include <string>

namespace vitrine {

/// Holds a folder until it is destroyed, or the process ends in whatever way. Where a file system has no locks it keeps nobody
/// out.
class FolderLock {
 public:
  /// Errors: InputError if `folder` cannot be opened; UsageError(taken) if somebody else holds it.
  FolderLock(const std::string& folder, const std::string& taken);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Whether the folder still has this name: who held it before may have renamed or removed it in between.
  bool is_at(const std::string& folder) const;

 private:
  int fd_ = -1;
};

}  // namespace vitrine
