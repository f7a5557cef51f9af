#include "base/loaded_library.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"

namespace vitrine {

LoadedLibrary::LoadedLibrary(const char* who, const char* file, const char* package)
    : who_(who), file_(file), package_(package), handle_(::dlopen(file, RTLD_NOW)) {
  if (handle_ == nullptr) fail(::dlerror());
}

void* LoadedLibrary::symbol(const char* name) const {
  void* found = ::dlsym(handle_, name);
  if (found == nullptr) fail(::dlerror());
  return found;
}

void LoadedLibrary::fail(const char* why) const {
  throw RunError(std::string(who_) + " " + file_ + ": " + (why == nullptr ? "unknown error" : why) +
                 ". Debian and Ubuntu: apt-get install " + package_);
}

}  // namespace vitrine
