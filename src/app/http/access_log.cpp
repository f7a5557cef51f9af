#include "http/access_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utc_time.h"

namespace vitrine::http {
namespace {

constexpr size_t kLines = 10'000;  // that wait at most
constexpr int kPollMs = 200;

}  // namespace

AccessLog::AccessLog(const std::string& path) {
  if (path.empty()) return;
  if (path == "-") {
    fd_ = STDERR_FILENO;
  } else {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
    if (fd_ < 0) throw FileError(path, std::string("cannot be opened for the log: ") + std::strerror(errno));
    owns_ = true;
  }
  thread_ = std::thread([this] { work(); });
}

AccessLog::~AccessLog() {
  if (fd_ < 0) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (owns_) ::close(fd_);
}

void AccessLog::write(const AccessEntry& e) {
  if (fd_ < 0) return;
  nlohmann::ordered_json line = {{"time", utc_time()},
                                 {"id", e.id},
                                 {"method", e.method},
                                 {"path", e.path},
                                 {"status", e.status},
                                 {"bytes", e.bytes},
                                 {"ms", std::round(e.ms * 1000) / 1000},
                                 {"owner", e.owner}};
  if (!e.model.empty()) line["model"] = e.model;
  if (e.prompt_tokens >= 0) line["prompt_tokens"] = e.prompt_tokens;
  if (e.new_tokens >= 0) line["new_tokens"] = e.new_tokens;
  if (!e.trace.trace_id.empty()) line["trace_id"] = e.trace.trace_id;
  if (!e.trace.span_id.empty()) line["span_id"] = e.trace.span_id;
  if (e.gone) line["gone"] = true;
  std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  {
    const std::lock_guard lock(mutex_);
    if (lines_.size() >= kLines) {
      ++lost_;
      return;
    }
    lines_.push_back(std::move(text));
  }
  wake_.notify_one();
}

void AccessLog::work() {
  for (;;) {
    std::string line;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !lines_.empty(); });
      if (lines_.empty()) return;
      line = std::move(lines_.front());
      lines_.pop_front();
    }
    put(std::move(line));
  }
}

// Whether fd_ takes bytes: waits for it, but not when the server ends.
bool AccessLog::ready() {
  pollfd waits = {fd_, POLLOUT, 0};
  while (::poll(&waits, 1, kPollMs) == 0) {
    const std::lock_guard lock(mutex_);
    if (!stop_) continue;
    lost_ += static_cast<int64_t>(lines_.size());
    lines_.clear();
    return false;
  }
  return true;
}

void AccessLog::put(std::string line) {
  if (cut_) line.insert(0, "\n");
  size_t done = 0;
  while (done < line.size() && ready()) {
    // A pipe that is ready takes so many without blocking (pipe(7)).
    const ssize_t n = ::write(fd_, line.data() + done, std::min<size_t>(line.size() - done, PIPE_BUF));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  if (done < line.size()) ++lost_;
  cut_ = done < line.size() && (done > 0 || cut_);
}

}  // namespace vitrine::http
