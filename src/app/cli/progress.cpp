#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/output.h"

namespace vitrine::cli {

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1), begin_(Clock::now()), last_(begin_) {}

Progress::~Progress() {
  if (drawn_) write_err("\r\x1b[K");
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

void Progress::begin(double share) {
  begin_share_ = std::clamp(share, 0.0, 1.0);
  begin_ = last_ = Clock::now();
}

void Progress::show(double share, const std::string& detail) {
  const Clock::time_point now = Clock::now();
  if (now - last_ < (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000))) return;
  last_ = now;
  share = std::clamp(share, 0.0, 1.0);
  const double done = share - begin_share_;
  const std::string left = done > 0 && share < 1 ? ", " + duration_text(seconds() / done * (1 - share)) + " left" : "";
  if (terminal_) {
    write_err(fmt::format("\r\x1b[K{} {}  {:.0f} %  {}{}", what_, pad_right(bar(share, 24), 24), share * 100, detail, left));
    drawn_ = true;
  } else {
    log("{}: {:.0f} %, {}{}", what_, share * 100, detail, left);
  }
}

std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 90 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace vitrine::cli
