#pragma once
// Ctrl-C and the like, for runs that save before they end.
#include <csignal>
#include <iterator>

namespace vitrine::cli {

/// SIGINT, SIGTERM and SIGHUP (the terminal was closed) finish the step, save and end; a second one ends at once. Who ignores
/// them from outside goes on doing so. Without SIGPIPE a run outlives the reader of its messages.
class StopSignals {
 public:
  /// first: of several processes one says that it heard.
  explicit StopSignals(bool first);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one of them came since this was made.
  static bool asked();

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)] = {}, before_pipe_ = {};
};

}  // namespace vitrine::cli
