#include "grammar/mask_worker.h"

#ifdef __linux__
#include <sys/resource.h>
#include <unistd.h>
#endif

#include <utility>

namespace vitrine {

MaskWorker& MaskWorker::quick() {
  static MaskWorker worker(0);
  return worker;
}

MaskWorker& MaskWorker::slow() {
  static MaskWorker worker(10);
  return worker;
}

MaskWorker::~MaskWorker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskWorker::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  start();
  changed_.notify_one();
}

void MaskWorker::start() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void MaskWorker::run() {
#ifdef __linux__
  // There the niceness is a thread's own.
  if (niceness_ > 0) static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), niceness_));
#endif
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (ends_) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace vitrine
