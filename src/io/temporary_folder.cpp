#include "io/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace vitrine {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "vitrine-XXXXXX").string();
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
