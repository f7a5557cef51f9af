#pragma once
// A large file that is made from its first byte to its last, and goes on where a run that was stopped left off.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/folder_lock.h"

namespace vitrine {

/// Until finish() the bytes lie in the folder `work_folder(path)`, beside a text that says what they are made from. The folder
/// stays when the process ends in whatever way; a file with the same text goes on behind its bytes, one with another begins anew.
/// So does one after the machine was started anew: its bytes may not have reached the disk.
class ResumableFile {
 public:
  /// `made_from`: all that the bytes depend on. Errors: InputError if the folder cannot be made or is a link; UsageError if
  /// another process writes the file; RunError with the system's reason.
  ResumableFile(const std::string& path, std::string_view made_from);
  ~ResumableFile();
  ResumableFile(const ResumableFile&) = delete;
  ResumableFile& operator=(const ResumableFile&) = delete;

  /// "folder/.converting-NAME" of "folder/NAME".
  static std::string work_folder(const std::string& path);
  /// Where the bytes lie until finish().
  std::string bytes_path() const;
  /// Bytes of a run that was stopped, whatever it made them from.
  static uint64_t left_behind(const std::string& path);

  /// The bytes that are there: always the file's beginning, without gaps.
  uint64_t written() const { return written_; }
  /// Whether bytes of a run before were thrown away, because it made them from something else.
  bool began_anew() const { return began_anew_; }
  bool begins_with(std::span<const std::byte> bytes) const;
  /// Drops all bytes behind the first `size`.
  void cut(uint64_t size);
  /// Errors: RunError that says how to go on.
  void append(std::span<const std::byte> bytes);
  /// Gives the whole file its name, and removes the folder.
  void finish();
  /// Removes the folder with all bytes.
  void discard();

 private:
  [[noreturn]] void fail(const std::string& what) const;
  bool take_up(std::string_view record);

  std::string path_, folder_;
  std::optional<FolderLock> lock_;
  uint64_t written_ = 0;
  bool began_anew_ = false;
  int fd_ = -1;
};

}  // namespace vitrine
