#include "http/tls_files.h"

#include <sys/stat.h>

#include <exception>
#include <utility>

namespace vitrine::http {
namespace {
constexpr std::chrono::seconds kLookEvery{1};
}

TlsFiles::TlsFiles(std::string certificate, std::string key, std::function<void(const std::string&)> say)
    : certificate_(std::move(certificate)), key_(std::move(key)), say_(std::move(say)), stamps_(stamps()), looked_(Clock::now()) {
  context_ = std::make_shared<TlsContext>(certificate_, key_);
}

std::array<TlsFiles::Stamp, 2> TlsFiles::stamps() const {
  const auto of = [](const std::string& path) {
    struct stat file = {};
    if (::stat(path.c_str(), &file) != 0) return Stamp{};
    return Stamp{static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino), file.st_size, file.st_mtim.tv_sec,
                 file.st_mtim.tv_nsec};
  };
  return {of(certificate_), of(key_)};
}

void TlsFiles::reload() {
  const std::array<Stamp, 2> now = stamps();  // before they are read: what is written meanwhile is seen at the next look
  {
    const std::lock_guard lock(mutex_);
    stamps_ = now;
  }
  auto context = std::make_shared<TlsContext>(certificate_, key_);
  const std::lock_guard lock(mutex_);
  context_ = std::move(context);
}

void TlsFiles::look() {
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (now - looked_ < kLookEvery) return;
    looked_ = now;
  }
  const std::array<Stamp, 2> now = stamps();
  {
    const std::lock_guard lock(mutex_);
    if (now == stamps_) return;
  }
  try {
    reload();
    say_("the certificate " + certificate_ + " has changed and is in use");
  } catch (const std::exception& e) {
    say_(std::string("the certificate was not changed, that of before stays in use: ") + e.what());
  }
}

std::unique_ptr<Transport> TlsFiles::transport(int fd) {
  std::shared_ptr<TlsContext> context;
  {
    const std::lock_guard lock(mutex_);
    context = context_;
  }
  return context->transport(fd);
}

}  // namespace vitrine::http
