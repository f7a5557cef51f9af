#pragma once
// SIGHUP for a service: read the files again.
#include <csignal>

namespace vitrine::cli {

/// Takes SIGHUP over from StopSignals while it lives. A program that runs in a terminal gets it also when the terminal is closed.
class ReloadSignal {
 public:
  ReloadSignal();
  ~ReloadSignal();
  ReloadSignal(const ReloadSignal&) = delete;
  ReloadSignal& operator=(const ReloadSignal&) = delete;

  enum class Asked { nothing, reload, end };
  /// What was asked since the last call; end: the terminal was closed, unless the program was started to outlive it (nohup).
  Asked take() const;

 private:
  struct sigaction before_ = {};
  bool ends_with_terminal_;
};

}  // namespace vitrine::cli
