#pragma once
// A thread that runs what it is given, in order. JSON is formed there, so that the thread which runs the model does not wait for
// it.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace vitrine::serve {

class TaskThread {
 public:
  TaskThread();
  /// Runs what is left.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// Returns at once. A task must not throw.
  void post(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> tasks_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace vitrine::serve
