#pragma once
// The service manager that started this process (systemd, with Type=notify): it is told when the service is ready, ends or is
// alive. Without one nothing happens.
#include <chrono>
#include <string>

namespace vitrine::cli {

class ServiceManager {
 public:
  /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment: children are not the service.
  ServiceManager();

  /// The service takes requests; `status` is shown beside its name.
  void ready(const std::string& status) const;
  void stopping() const;
  /// Twice in each period of the watchdog, if there is one: alive() should be called if all is well.
  bool is_due() const { return every_.count() > 0 && std::chrono::steady_clock::now() >= next_; }
  void alive();

 private:
  void send(const std::string& text) const;

  std::string socket_;                         // a path, or '@' and an abstract name; empty: nobody is told
  std::chrono::steady_clock::duration every_;  // 0: no watchdog
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace vitrine::cli
