#pragma once
// One JSON object a line for each request. Never what was said in it.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "http/access_entry.h"

namespace vitrine::http {

/// Writes from a thread of its own: a full disk or a pipe that nobody reads costs lines, never the requests.
class AccessLog {
 public:
  /// `path`: a file that is appended to, "-" is stderr, "" is none. Errors: FileError if it cannot be opened.
  explicit AccessLog(const std::string& path);
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void write(const AccessEntry& entry);
  int64_t lost() const { return lost_; }

 private:
  void work();
  bool ready();
  void put(std::string line);
  int fd_ = -1;
  bool owns_ = false, cut_ = false;  // cut_: the last line could only be written in part
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> lines_;
  bool stop_ = false;
  std::atomic<int64_t> lost_ = 0;
  std::thread thread_;
};

}  // namespace vitrine::http
