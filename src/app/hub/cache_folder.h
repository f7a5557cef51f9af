#pragma once
// One repository in the cache of huggingface_hub, as it lays it out:
//   models--OWNER--NAME/blobs/<etag>                    contents, by their hash
//   models--OWNER--NAME/snapshots/<commit>/<name>       a link to its blob
//   models--OWNER--NAME/refs/<revision>                 the commit that a branch or tag stood at
//   .locks/models--OWNER--NAME/<etag>.lock              held (flock) by who fetches that blob
// A content that is not whole is blobs/<etag>.incomplete: its beginning, without gaps, which versions of huggingface_hub
// before 1.0 go on with, too.
#include <cstdint>
#include <string>

#include "hub/client.h"

namespace vitrine {

class CacheFolder {
 public:
  CacheFolder(const std::string& cache, const std::string& id);
  void make() const;  // the folders. Errors: RunError with the system's reason

  const std::string& path() const { return path_; }
  std::string blob(const std::string& etag) const { return path_ + "/blobs/" + etag; }
  std::string incomplete(const std::string& etag) const { return blob(etag) + ".incomplete"; }
  std::string snapshot(const std::string& commit) const { return path_ + "/snapshots/" + commit; }
  std::string lock(const std::string& etag) const { return locks_ + "/" + etag + ".lock"; }

  /// Whether the whole content is there: a blob with the size of the file.
  bool has(const RemoteFile& file) const;
  /// The bytes of it that an earlier run left.
  uint64_t started(const RemoteFile& file) const;

  /// Makes the name of a file whose blob is there a link to it. Errors: RunError.
  void link(const std::string& commit, const RemoteFile& file) const;
  /// Notes where the revision stands, unless it is that commit. Errors: RunError.
  void note(const std::string& revision, const std::string& commit) const;

 private:
  std::string path_, locks_;
};

/// Bytes that can be written below `path`, which need not exist yet.
uint64_t free_bytes(const std::string& path);

/// Holds the lock of one blob; huggingface_hub takes the same.
class BlobLock {
 public:
  /// Errors: UsageError if another program holds it; RunError.
  BlobLock(const std::string& path, const std::string& what);
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace vitrine
