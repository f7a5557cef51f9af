#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cut_files.h"
#include "base/error.h"

namespace vitrine {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::string reason() { return std::strerror(errno); }

size_t open_regular(const std::string& path, Descriptor& file) {
  // O_NONBLOCK: opening a named pipe must not hang; it has no effect on regular files.
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) throw FileError(path, "cannot be opened: " + reason());
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) throw FileError(path, "cannot be examined: " + reason());
  if (S_ISDIR(info.st_mode)) throw FileError(path, "is a directory; expected a file");
  if (!S_ISREG(info.st_mode)) throw FileError(path, "is not a regular file");
  return static_cast<size_t>(info.st_size);
}

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
  Descriptor file;
  MappedFile mapped;
  mapped.size_ = open_regular(path, file);
  mapped.path_ = path;
  if (mapped.size_ == 0) return mapped;
  void* data = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) throw FileError(path, "cannot be mapped: " + reason());
  mapped.data_ = static_cast<const std::byte*>(data);
  file_is_mapped(mapped.data_, mapped.size_, path);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  file_is_unmapped(data_);  // before another file may get the place
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::will_need() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

std::string read_file(const std::string& path, size_t max_bytes) {
  Descriptor file;
  const size_t size = open_regular(path, file);
  if (size > max_bytes)
    throw FileError(path, "has " + std::to_string(size) + " bytes; at most " + std::to_string(max_bytes) + " are accepted here");
  std::string content(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.fd, content.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FileError(path, "cannot be read: " + reason());
    if (got == 0) throw FileError(path, "became shorter while it was read");
    done += static_cast<size_t>(got);
  }
  return content;
}

}  // namespace vitrine
