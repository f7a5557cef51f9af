#include "train/reward_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/json.h"

extern char** environ;

namespace vitrine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOfLine = size_t{1} << 16;   // bytes of a number, and of all that may be printed for each line
constexpr size_t kMostOfError = size_t{1} << 12;  // bytes of standard error that are kept, the last ones
constexpr size_t kShown = 200;                    // bytes of a line in a message

std::string in_quotes(std::string_view text) {
  std::string line = Json(text.substr(0, kShown)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > kShown ? line + " …" : line;
}

// A pipe whose ends close themselves, and are closed in other programs that this one starts.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw RunError(std::string("no pipe to a reward command: ") + std::strerror(errno));
  }
  ~Pipe() {
    close(0);
    close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close(int end) {
    if (const int fd = std::exchange(ends[end], -1); fd >= 0) ::close(fd);
  }
};

// A write to a program that has ended is an error here, not the end of this one.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now{};
    if (::sigismember(&before_, SIGPIPE) == 0)
      while (::sigtimedwait(&pipe_, nullptr, &now) > 0) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
};

// The program, in a process group of its own: Ctrl-C in the terminal is the run's, and whatever it starts ends with it.
class Child {
 public:
  Child(const std::string& command, const Pipe& in, const Pipe& out, const Pipe& err, const std::string& where) {
    std::string shell = "/bin/sh", flag = "-c", text = command;
    char* arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&files, in.ends[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out.ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, err.ends[1], STDERR_FILENO);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigemptyset(&all);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&all, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int failed = ::posix_spawn(&id_, shell.c_str(), &files, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (failed != 0) throw RunError(where + ": " + shell + " cannot be started: " + std::strerror(failed));
  }
  ~Child() {
    if (running_) kill();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() {
    ::kill(-id_, SIGKILL);
    while (::waitpid(id_, &status_, 0) < 0 && errno == EINTR) {
    }
    running_ = false;
  }
  // Whether it has ended; then with all that it has started. Where SIGCHLD is ignored there is nothing to wait for, and no
  // status.
  bool ended() {
    siginfo_t info{};
    if (running_ && (::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != 0)) kill();
    return !running_;
  }
  // Empty: it returned 0.
  std::string failure() const {
    if (WIFSIGNALED(status_)) return std::string("was ended by a signal: ") + ::strsignal(WTERMSIG(status_));
    const int code = WEXITSTATUS(status_);
    return code == 0 ? "" : "returned " + std::to_string(code);
  }

 private:
  pid_t id_ = 0;
  int status_ = 0;
  bool running_ = true;
};

// What the program reads and writes.
struct Talk {
  std::string in, out, err;
  size_t written = 0;
  bool late = false, too_much = false;
};

void read_some(Pipe& pipe, std::string& to) {
  char piece[1 << 14];
  const ssize_t n = ::read(pipe.ends[0], piece, sizeof piece);
  if (n > 0)
    to.append(piece, static_cast<size_t>(n));
  else if (n == 0 || (errno != EINTR && errno != EAGAIN))
    pipe.close(0);
}

// Until the program has closed its output and ended, or the time is over.
void talk(Talk& t, Child& child, Pipe& in, Pipe& out, Pipe& err, size_t most, Clock::time_point end) {
  const NoSigpipe no_sigpipe;
  ::fcntl(in.ends[1], F_SETFL, O_NONBLOCK);
  while (true) {
    if (t.written == t.in.size()) in.close(1);
    const bool silent = out.ends[0] < 0 && err.ends[0] < 0;
    if (silent && child.ended()) return;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    t.late = left <= 0;
    t.too_much = t.out.size() > most;
    if (t.late || t.too_much) return child.kill();
    pollfd watched[] = {{in.ends[1], POLLOUT, 0}, {out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}};  // below 0: ignored
    // Once its output is closed nothing wakes the poll when it ends.
    if (::poll(watched, 3, static_cast<int>(std::min<int64_t>(left, silent ? 1 : 1000))) <= 0) continue;
    if (watched[0].revents != 0) {
      const ssize_t n = ::write(in.ends[1], t.in.data() + t.written, t.in.size() - t.written);
      if (n > 0) t.written += static_cast<size_t>(n);
      if (n < 0 && errno != EINTR && errno != EAGAIN) in.close(1);  // it reads no more
    }
    if (watched[1].revents != 0) read_some(out, t.out);
    if (watched[2].revents != 0) read_some(err, t.err);
    if (t.err.size() > 2 * kMostOfError) t.err.erase(0, t.err.size() - kMostOfError);
  }
}

std::vector<std::string_view> lines_in(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::vector<double> run_reward_command(const std::string& command, std::span<const std::string> lines, double seconds,
                                       const std::string& where) {
  Talk t;
  for (const std::string& line : lines) t.in += line + "\n";
  Pipe in, out, err;
  Child child(command, in, out, err, where);
  in.close(0);
  out.close(1);
  err.close(1);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  talk(t, child, in, out, err, kMostOfLine * (lines.size() + 1), end);

  const std::string program = where + ": `" + command + "` ";
  const auto asked = [&](size_t i) { return "line " + std::to_string(i + 1) + ", which asked about " + in_quotes(lines[i]); };
  const auto said = [&] {
    std::string text = t.err.substr(t.err.size() > kMostOfError ? t.err.size() - kMostOfError : 0);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.empty() ? std::string(". It printed nothing on standard error") : ". Its standard error ends with:\n" + text;
  };
  const std::vector<std::string_view> answers = lines_in(t.out);
  const size_t whole = std::min(answers.size() - (t.out.empty() || t.out.back() == '\n' ? 0 : 1), lines.size());
  if (t.late)
    throw RunError(program + "had answered " + std::to_string(whole) + " of " + std::to_string(lines.size()) + " lines after " +
                   Json(seconds).dump() + " s" + (whole < lines.size() ? ", and not " + asked(whole) : ", and did not end") +
                   ". Raise grpo.reward_timeout if it needs longer" + said());
  if (const std::string failure = child.failure(); !failure.empty() && !t.too_much)
    throw RunError(program + failure + " after " + std::to_string(whole) + " of " + std::to_string(lines.size()) + " answers" +
                   said());
  std::vector<double> rewards;
  for (size_t i = 0; i < std::min(answers.size(), lines.size()); ++i) {
    const Json number = Json::parse(answers[i], nullptr, false);
    if (!number.is_number() || !std::isfinite(number.get<double>()))
      throw RunError(program + "printed " + in_quotes(answers[i]) + " for " + asked(i) + "; expected a finite number");
    rewards.push_back(number.get<double>());
  }
  if (answers.size() < lines.size())
    throw RunError(program + "printed " + std::to_string(answers.size()) + " lines for " + std::to_string(lines.size()) +
                   "; the first without a number is " + asked(answers.size()) + said());
  if (answers.size() > lines.size() || t.too_much)
    throw RunError(program + "printed more than " + std::to_string(lines.size()) +
                   " lines, one for each line that it was given; the first too many is " +
                   in_quotes(answers.size() > lines.size() ? answers[lines.size()] : answers.back()));
  return rewards;
}

}  // namespace vitrine
