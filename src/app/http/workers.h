#pragma once
// A few threads that run what they are given, in order.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace vitrine::http {

class Workers {
 public:
  /// behind: at a lower priority (on Linux): where processors are busy, each has about a tenth of the time of another thread.
  explicit Workers(int threads, bool behind = false);
  ~Workers();  // runs what is waiting, and joins
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  void run(std::function<void()> job);  // the job must not throw

 private:
  void work(bool behind);
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace vitrine::http
