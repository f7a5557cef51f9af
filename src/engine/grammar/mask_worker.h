#pragma once
// Threads that compute masks while the model runs.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace vitrine {

class MaskWorker {
 public:
  /// The process's two; their threads start with start() or the first job. Grammars that need long have one apart, so that the
  /// others do not wait for them, and it yields to threads that run the model.
  static MaskWorker& quick();
  static MaskWorker& slow();
  ~MaskWorker();
  /// Jobs run one after the other in the order in which they come. They do not throw. Those left at the end are dropped.
  void add(std::function<void()> job);
  void start();

 private:
  explicit MaskWorker(int niceness) : niceness_(niceness) {}
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  const int niceness_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace vitrine
