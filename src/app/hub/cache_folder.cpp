#include "hub/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/atomic_file.h"
#include "io/file_checks.h"
#include "io/huggingface.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

void make_folders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw RunError(path.string() + ": cannot be made: " + error.message() + ". HF_HUB_CACHE names another folder for the cache");
}

}  // namespace

CacheFolder::CacheFolder(const std::string& cache, const std::string& id)
    : path_(cache + "/" + cache_folder_name(id)), locks_(cache + "/.locks/" + cache_folder_name(id)) {}

void CacheFolder::make() const {
  for (const std::string& folder : {path_ + "/blobs", path_ + "/snapshots", path_ + "/refs", locks_}) make_folders(folder);
}

bool CacheFolder::has(const RemoteFile& file) const {
  std::error_code error;
  return fs::is_regular_file(blob(file.etag), error) && fs::file_size(blob(file.etag), error) == file.size && !error;
}

uint64_t CacheFolder::started(const RemoteFile& file) const {
  std::error_code error;
  const uint64_t bytes = fs::file_size(incomplete(file.etag), error);
  return error || bytes > file.size ? 0 : bytes;
}

void CacheFolder::link(const std::string& commit, const RemoteFile& file) const {
  const fs::path name = fs::path(snapshot(commit)) / file.name;
  make_folders(name.parent_path());
  std::string target = "../../blobs/" + file.etag;
  for (const char c : file.name)
    if (c == '/') target.insert(0, "../");
  std::error_code error;
  if (fs::is_symlink(name, error) && fs::read_symlink(name, error) == target) return;
  // Renamed into place, so that the name never points at nothing.
  const fs::path made = name.string() + ".tmp." + std::to_string(::getpid());
  fs::remove(made, error);
  fs::create_symlink(target, made, error);
  if (!error) fs::rename(made, name, error);
  if (error) throw RunError(name.string() + ": cannot be made a link to " + target + ": " + error.message());
}

void CacheFolder::note(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path ref = fs::path(path_) / "refs" / revision;
  // A cache that may only be read can be complete all the same.
  if (present(ref.string()) && read_file(ref.string(), 4096) == commit) return;
  make_folders(ref.parent_path());
  write_file_atomically(ref.string(), commit);
}

uint64_t free_bytes(const std::string& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const fs::space_info space = fs::space(at, error);
  return error ? ~uint64_t{0} : space.available;  // a file system that does not tell keeps nobody from trying
}

BlobLock::BlobLock(const std::string& path, const std::string& what)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw RunError(path + ": cannot be made: " + std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  throw UsageError(what + " is being downloaded by another program (it holds " + path + "). Try again when it has ended");
}

BlobLock::~BlobLock() { ::close(fd_); }

}  // namespace vitrine
