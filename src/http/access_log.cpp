#include "http/access_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace vitrine::http {
namespace {

constexpr size_t kLines = 10'000;  // that wait at most

std::string now_utc() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm t = {};
  ::gmtime_r(&seconds, &t);
  char text[40];
  const size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
  std::string fraction = std::to_string(1000 + ms);
  fraction[0] = '.';
  return std::string(text, n) + fraction + "Z";
}

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
  nlohmann::ordered_json line = {{"time", now_utc()},
                                 {"id", e.id},
                                 {"method", e.method},
                                 {"path", e.path},
                                 {"status", e.status},
                                 {"bytes", e.bytes},
                                 {"ms", std::round(e.ms * 1000) / 1000},
                                 {"owner", e.owner}};
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

void AccessLog::put(std::string line) {
  if (cut_) line.insert(0, "\n");
  size_t done = 0;
  while (done < line.size()) {
    // A pipe or terminal that takes nothing must not keep the server from ending.
    pollfd ready = {fd_, POLLOUT, 0};
    bool stopping = false;
    while (::poll(&ready, 1, 200) == 0 && !stopping) {
      const std::lock_guard lock(mutex_);
      stopping = stop_;
    }
    if (stopping) break;
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  if (done < line.size()) ++lost_;
  cut_ = done < line.size() && (done > 0 || cut_);
}

}  // namespace vitrine::http
