#pragma once
// A thread that computes masks while the model runs.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace vitrine {

class MaskWorker {
 public:
  /// The process's one; its thread starts with the first job.
  static MaskWorker& instance();
  ~MaskWorker();
  /// Jobs run one after the other in the order in which they come. They do not throw. Those left at the end are dropped.
  void add(std::function<void()> job);

 private:
  MaskWorker() = default;
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace vitrine
