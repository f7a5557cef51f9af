#include "io/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "io/descriptor.h"

namespace vitrine {

namespace {

constexpr const char* kTemporary = ".tmp.";  // stands behind the name, before what makes it a process's own

// Renaming over a name would replace a link or a device (/dev/stdout) instead of what stands behind it.
std::string file_behind(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw InputError(path + ": is not a regular file, and only those can be written. Name a file, and copy it from there");
  if (!std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) return path;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  if (error || std::filesystem::is_symlink(std::filesystem::symlink_status(target, error)))
    throw InputError(path + ": is a link that points at nothing. Remove it, or name the file itself");
  return target.string();
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(file_behind(path)) {
  static std::atomic<int> counter{0};  // two writers of one process must not share a temporary name
  temporary_ = path_ + kTemporary + std::to_string(::getpid()) + "." + std::to_string(counter++);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("cannot be written");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const std::string& what) const { throw RunError(path_ + ": " + what + ": " + std::strerror(errno)); }

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> data) {
  const uint64_t end = offset + data.size(), put = vitrine::write_at(fd_, offset, data);
  if (put != end) fail("cannot be written at byte " + std::to_string(put));
}

void AtomicFile::sync() {
  if (::fsync(fd_) != 0) fail("cannot be written to the disk");
}

void AtomicFile::finish() {
  sync();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be put in place");
  ::close(fd_);
  fd_ = -1;
  sync_folder_of(path_);
}

bool is_or_becomes(std::string_view file, std::string_view name) {
  return file.starts_with(name) && (file.size() == name.size() || file.substr(name.size()).starts_with(kTemporary));
}

void remove_leftovers(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const size_t end = name.find(kTemporary);
    if (end != std::string::npos && name.find_first_not_of("0123456789.", end + std::strlen(kTemporary)) == std::string::npos)
      std::filesystem::remove(entry.path(), ignored);
  }
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write_at(0, std::as_bytes(std::span(content)));
  file.finish();
}

void write_files_atomically(const std::vector<std::pair<std::string, std::string>>& contents_by_path) {
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (const auto& [path, content] : contents_by_path) {
    files.push_back(std::make_unique<AtomicFile>(path));
    files.back()->write_at(0, std::as_bytes(std::span(content)));
    files.back()->sync();
  }
  for (const auto& file : files) file->finish();
}

}  // namespace vitrine
