#include "io/resumable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/descriptor.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBytes = "/bytes";
constexpr const char* kRecord = "/made-from";

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id + "\n";
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string made_folder(const std::string& path) {
  const std::string folder = ResumableFile::work_folder(path);
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(folder, error)))
    throw InputError(folder + ", where " + path + " is to be written, is a link; remove it, or name another file");
  error.clear();
  fs::create_directories(folder, error);
  if (error) throw InputError(path + " cannot be made: " + error.message() + ". Name a place that you may write to");
  return folder;
}

}  // namespace

std::string ResumableFile::work_folder(const std::string& path) {
  const fs::path file = path;
  return (file.parent_path() / (".converting-" + file.filename().string())).string();
}

std::string ResumableFile::bytes_path() const { return folder_ + kBytes; }

uint64_t ResumableFile::left_behind(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(work_folder(path) + kBytes, error);
  return error ? 0 : bytes;
}

ResumableFile::ResumableFile(const std::string& path, std::string_view made_from) : path_(path), folder_(made_folder(path)) {
  lock_.emplace(folder_, path_ + " is being written by another process; wait for it, or name another file");
  if (!lock_->is_at(folder_)) throw InputError(path_ + " has just been written by another process");
  const std::string record = boot_id() + std::string(made_from);
  const bool goes_on = take_up(record);
  // The text is replaced only when no bytes of another run are left.
  fd_ = ::open((folder_ + kBytes).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (goes_on ? 0 : O_TRUNC), 0666);
  if (fd_ < 0) fail("cannot be written");
  if (!goes_on) {
    write_file_atomically(folder_ + kRecord, record);
    return;
  }
  struct stat status{};
  if (::fstat(fd_, &status) != 0) fail("cannot be read");
  written_ = static_cast<uint64_t>(status.st_size);
}

ResumableFile::~ResumableFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool ResumableFile::take_up(std::string_view record) {
  if (content_of(folder_ + kRecord) == record) return true;
  began_anew_ = left_behind(path_) > 0;
  return false;
}

void ResumableFile::fail(const std::string& what) const {
  const int error = errno;
  throw RunError(path_ + ": " + what + ": " + std::strerror(error) + ". What is done is kept in " + folder_ +
                 "; the same command continues from there" + (error == ENOSPC ? " once there is room" : ""));
}

void ResumableFile::cut(uint64_t size) {
  if (size >= written_) return;
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) fail("cannot be cut");
  written_ = size;
}

bool ResumableFile::begins_with(std::span<const std::byte> bytes) const {
  std::vector<std::byte> there(bytes.size());
  size_t have = 0;
  while (have < there.size()) {
    const ssize_t got = ::pread(fd_, there.data() + have, there.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot be read");
    if (got == 0) return false;
    have += static_cast<size_t>(got);
  }
  return std::equal(there.begin(), there.end(), bytes.begin());
}

void ResumableFile::append(std::span<const std::byte> bytes) {
  const uint64_t end = written_ + bytes.size();
  written_ = write_at(fd_, written_, bytes);
  if (written_ != end) fail("cannot be written at byte " + std::to_string(written_));
}

void ResumableFile::finish() {
  if (::fsync(fd_) != 0) fail("cannot be written to the disk");
  if (::rename(bytes_path().c_str(), path_.c_str()) != 0) fail("cannot be put in place");
  discard();
  sync_folder_of(path_);
}

void ResumableFile::discard() {
  std::error_code error;
  for (const char* file : {kBytes, kRecord}) fs::remove(folder_ + file, error);
  fs::remove(folder_, error);
}

}  // namespace vitrine
