#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "base/stopwatch.h"
#include "train/train.h"

namespace vitrine {

/// Steps per second of late, and what that means for the rest.
class RecentSteps {
 public:
  /// measure: FLOP per second that the machine reaches now. Other programs may use it meanwhile, so that is asked for more than
  /// once: at the begin, after a few of the first steps, and when steps turn out to be faster. The largest counts.
  explicit RecentSteps(std::function<double()> measure) : measure_(std::move(measure)), peak_(measure_()) {}
  TrainEvents::Rate step(int64_t tokens, double flop, int64_t steps_left);
  void restart() { watch_.lap_ms(); }

 private:
  static constexpr size_t kSteps = 20;
  static constexpr int64_t kMeasured = 1024;  // after steps 1, 2, 4, … up to here
  Stopwatch watch_;
  std::function<double()> measure_;
  double peak_;
  int64_t steps_ = 0;
  std::deque<double> seconds_, flop_;
  std::deque<int64_t> tokens_;
};

}  // namespace vitrine
