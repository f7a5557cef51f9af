#pragma once
// The statistics of a scheduler, which several threads change and read.
#include <mutex>

#include "schedule/stats.h"

namespace vitrine {

class Meter {
 public:
  template <class F>
  void change(F f) {
    const std::lock_guard lock(mutex_);
    f(stats_);
  }
  SchedulerStats read() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  mutable std::mutex mutex_;
  SchedulerStats stats_;
};

}  // namespace vitrine
