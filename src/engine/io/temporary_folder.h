#pragma once
// A folder for files that are needed for a moment.
#include <string>

namespace vitrine {

/// A new empty folder in the system's folder for temporary files, removed with its content at the end. Errors: RunError.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace vitrine
