#pragma once
// The certificate and key of a server that runs on while they are renewed.
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "http/transport.h"

namespace vitrine::http {

/// Reads the files again when they have changed: connections that are open keep what they began with. Thread-safe.
class TlsFiles {
 public:
  /// say: called with a message when changed files were loaded, or do not fit. Errors: as TlsContext.
  TlsFiles(std::string certificate, std::string key, std::function<void(const std::string&)> say);

  /// Loads the files if they have changed; looks at them at most once a second. If they do not fit, the previous ones stay in
  /// use.
  void look();
  /// As TlsContext::transport, with the files that were loaded last.
  std::unique_ptr<Transport> transport(int fd);
  /// Reads the files now. Errors: as TlsContext; then those of before stay in use.
  void reload();

 private:
  using Clock = std::chrono::steady_clock;
  using Stamp = std::array<int64_t, 5>;  // what changes with a file
  std::array<Stamp, 2> stamps() const;

  const std::string certificate_, key_;
  const std::function<void(const std::string&)> say_;
  std::mutex mutex_;
  std::shared_ptr<TlsContext> context_;
  std::array<Stamp, 2> stamps_;  // of the files as they were read last, whether or not they fitted
  Clock::time_point looked_;
};

}  // namespace vitrine::http
