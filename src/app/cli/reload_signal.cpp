#include "cli/reload_signal.h"

#include <fcntl.h>
#include <unistd.h>

namespace vitrine::cli {
namespace {

volatile std::sig_atomic_t reload_asked = 0;

// A signal handler, which may only do what is safe in one.
void ask_to_reload(int) { reload_asked = 1; }

bool has_terminal() {
  const int fd = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

}  // namespace

ReloadSignal::ReloadSignal() {
  reload_asked = 0;
  struct sigaction action = {};
  action.sa_handler = ask_to_reload;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGHUP, &action, &before_);
  ends_with_terminal_ = before_.sa_handler != SIG_IGN && has_terminal();
}

ReloadSignal::~ReloadSignal() { ::sigaction(SIGHUP, &before_, nullptr); }

ReloadSignal::Asked ReloadSignal::take() const {
  if (reload_asked == 0) return Asked::nothing;
  reload_asked = 0;
  return ends_with_terminal_ && !has_terminal() ? Asked::end : Asked::reload;
}

}  // namespace vitrine::cli
