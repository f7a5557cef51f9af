#include "cli/stop_signals.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

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

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};
std::string_view last_words;
const char* last_words_where = nullptr;

// The same. The signal is raised again, so that the shell sees what ended the process.
void speak_and_end(int signal) {
  if (::access(last_words_where, F_OK) == 0) static_cast<void>(!::write(STDERR_FILENO, last_words.data(), last_words.size()));
  ::raise(signal);  // is held back until the handler returns, and has its default action by then
}

}  // namespace

LastWords::LastWords(std::string text, std::string where) : text_("\n" + std::move(text) + "\n"), where_(std::move(where)) {
  last_words = text_;
  if (::isatty(STDERR_FILENO) != 1) last_words.remove_prefix(1);  // on a terminal the line of the progress stands there
  last_words_where = where_.c_str();
  for (size_t i = 0; i < std::size(kEnding); ++i) {
    struct sigaction action = {};
    action.sa_handler = speak_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    ::sigaction(kEnding[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_DFL) ::sigaction(kEnding[i], &action, nullptr);
  }
}

LastWords::~LastWords() {
  for (size_t i = 0; i < std::size(kEnding); ++i) ::sigaction(kEnding[i], &before_[i], nullptr);
}

StopSignals::StopSignals(bool first, const std::string& text) : text_(first ? "\n" + text + "\n" : "") {
  stop_asked = 0;
  stopping = text_;
  if (::isatty(STDERR_FILENO) != 1 && !text_.empty())
    stopping.remove_prefix(1);  // on a terminal a line of the view may stand there
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
