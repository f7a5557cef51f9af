#pragma once
// Runs the built program on a pseudo-terminal of some size.
#include <pty.h>
#include <sys/ioctl.h>

#include <string>
#include <vector>

#include "cli/program.h"

namespace vitrine {

/// Runs `vitrine ARGUMENTS…` with all its outputs on a terminal of that size; returns what was written there.
inline std::string on_terminal(std::vector<std::string> arguments, unsigned short columns, unsigned short rows,
                               const std::string& environment = "") {
  arguments.insert(arguments.begin(), VITRINE_PROGRAM);
  std::vector<char*> argv;
  for (std::string& word : arguments) argv.push_back(word.data());
  argv.push_back(nullptr);
  winsize size{};
  size.ws_col = columns;
  size.ws_row = rows;
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
    if (const size_t equals = environment.find('='); equals != std::string::npos)
      ::setenv(environment.substr(0, equals).c_str(), environment.substr(equals + 1).c_str(), 1);
    ::execv(VITRINE_PROGRAM, argv.data());
    ::_exit(127);
  }
  std::string written;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(terminal, buffer, sizeof(buffer))) > 0;) written.append(buffer, static_cast<size_t>(n));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << written;
  return written;
}

/// Without escape sequences; lines as a terminal would show them one below the other.
inline std::vector<std::string> shown_lines(const std::string& written) {
  std::vector<std::string> lines(1);
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i] == '\x1b' && i + 1 < written.size() && written[i + 1] == '[') {
      for (i += 2; i < written.size() && (written[i] < '@' || written[i] > '~');) ++i;
    } else if (written[i] == '\n' || written[i] == '\r') {
      lines.emplace_back();
    } else {
      lines.back() += written[i];
    }
  }
  return lines;
}

}  // namespace vitrine
