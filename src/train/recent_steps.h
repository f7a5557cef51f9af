#pragma once
#include <cstdint>
#include <deque>

#include "base/stopwatch.h"
#include "train/train.h"

namespace vitrine {

/// Steps per second of late, and what that means for the rest.
class RecentSteps {
 public:
  /// peak: FLOP per second that the machine reaches at most.
  explicit RecentSteps(double peak) : peak_(peak) {}
  TrainEvents::Rate step(int64_t tokens, double flop, int64_t steps_left);
  void restart() { watch_.lap_ms(); }

 private:
  static constexpr size_t kSteps = 20;
  Stopwatch watch_;
  double peak_;
  std::deque<double> seconds_, flop_;
  std::deque<int64_t> tokens_;
};

}  // namespace vitrine
