#include "serve/task_thread.h"

namespace vitrine::serve {

TaskThread::TaskThread() : thread_([this] { run(); }) {}

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TaskThread::post(std::function<void()> task) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first) changed_.notify_one();
}

void TaskThread::run() {
  std::vector<std::function<void()>> mine;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      mine.swap(tasks_);
    }
    for (std::function<void()>& task : mine) {
      task();
      task = nullptr;  // what it holds goes now
    }
    mine.clear();
  }
}

}  // namespace vitrine::serve
