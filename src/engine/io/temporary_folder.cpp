#include "io/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace vitrine {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::error_code missing;
  const fs::path parent = fs::temp_directory_path(missing);
  if (missing) {
    const char* const named = std::getenv("TMPDIR");
    throw RunError("the folder for temporary files" +
                   (named == nullptr ? std::string() : ", TMPDIR = " + std::string(named) + ",") +
                   " cannot be used: " + missing.message() + "; set TMPDIR to one that is there");
  }
  std::string name = (parent / "vitrine-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    const int error = errno;
    throw RunError(name + " cannot be made: " + std::strerror(error));
  }
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

}  // namespace vitrine
