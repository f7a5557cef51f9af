#include "io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace vitrine {

FolderLock::FolderLock(const std::string& folder, const std::string& taken)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) throw InputError(folder + ": cannot be opened: " + std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  throw UsageError(taken);
}

FolderLock::~FolderLock() { ::close(fd_); }

bool FolderLock::is_at(const std::string& folder) const {
  struct stat held{}, there{};
  return ::fstat(fd_, &held) == 0 && ::stat(folder.c_str(), &there) == 0 && held.st_dev == there.st_dev &&
         held.st_ino == there.st_ino;
}

}  // namespace vitrine
