#pragma once
// Ctrl-C and the like, for runs that save before they end.
#include <csignal>
#include <iterator>
#include <string>

namespace vitrine::cli {

/// SIGINT, SIGTERM and SIGHUP (the terminal was closed) finish the step, save and end; a second one ends at once. Who ignores
/// them from outside goes on doing so. Without SIGPIPE a run outlives the reader of its messages.
class StopSignals {
 public:
  /// first: of several processes one says that it heard.
  explicit StopSignals(bool first, const std::string& text = "stopping: finishing this step and saving");
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one of them came since this was made.
  static bool asked();

 private:
  std::string text_;
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[std::size(kSignals)] = {}, before_pipe_ = {};
};

/// While one lives, a signal that ends the run first says `text`, if the folder `where` is there. For runs that may be cut off at
/// any time. There is one at a time.
class LastWords {
 public:
  LastWords(std::string text, std::string where);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  std::string text_, where_;
  struct sigaction before_[3] = {};
};

}  // namespace vitrine::cli
