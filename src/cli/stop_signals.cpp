#include "cli/stop_signals.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace vitrine::cli {
namespace {

volatile std::sig_atomic_t stop_asked = 0;
std::string_view stopping;  // what is said then

// A signal handler, which may only do what is safe in one.
void ask_to_stop(int) {
  stop_asked = 1;
  const int before = errno;
  static_cast<void>(!::write(STDERR_FILENO, stopping.data(), stopping.size()));
  errno = before;
}

}  // namespace

StopSignals::StopSignals(bool first) {
  stop_asked = 0;
  stopping = "\nstopping: finishing this step and saving\n";
  if (::isatty(STDERR_FILENO) != 1) stopping.remove_prefix(1);  // on a terminal a line of the view may stand there
  if (!first) stopping = {};
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action = {};
    action.sa_handler = ask_to_stop;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before_pipe_);
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  ::sigaction(SIGPIPE, &before_pipe_, nullptr);
}

bool StopSignals::asked() { return stop_asked != 0; }

}  // namespace vitrine::cli
