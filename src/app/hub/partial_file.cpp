#include "hub/partial_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "io/descriptor.h"

namespace vitrine {

PartialFile::PartialFile(const std::string& path, const std::string& etag, uint64_t size)
    : path_(path), etag_(etag), size_(size) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail("cannot be written");
  digest_.emplace(etag_, size_);
  struct stat status{};
  if (::fstat(fd_, &status) != 0) fail("cannot be read");
  if (static_cast<uint64_t>(status.st_size) > size_) restart();
  std::vector<std::byte> block(size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(fd_, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot be read");
    if (got == 0) return;
    digest_->add(std::span(block).first(static_cast<size_t>(got)));
    written_ += static_cast<uint64_t>(got);
  }
}

PartialFile::~PartialFile() {
  if (fd_ >= 0) ::close(fd_);
}

void PartialFile::fail(const std::string& what) const {
  const std::string reason = std::strerror(errno);
  throw RunError(path_ + ": " + what + ": " + reason + ". Downloaded data is kept; the same command continues from there");
}

void PartialFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(written_));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot be written at byte " + std::to_string(written_));
    digest_->add(bytes.first(static_cast<size_t>(put)));
    written_ += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
}

void PartialFile::restart() {
  if (::ftruncate(fd_, 0) != 0) fail("cannot be emptied");
  written_ = 0;
  digest_.emplace(etag_, size_);
}

std::string PartialFile::wrong_hash() {
  const std::string hash = digest_->finish();
  return hash == etag_ ? "" : hash;
}

void PartialFile::move_to(const std::string& path) {
  if (::fsync(fd_) != 0) fail("cannot be written to the disk");
  if (::rename(path_.c_str(), path.c_str()) != 0) fail("cannot be named " + path);
  sync_folder_of(path);
}

void PartialFile::remove() { ::unlink(path_.c_str()); }

}  // namespace vitrine
