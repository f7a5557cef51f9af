#pragma once
// How long something took.
#include <chrono>

namespace vitrine {

class Stopwatch {
 public:
  /// Milliseconds since the last lap, or since it was made.
  double ms() const { return since(last_, Clock::now()); }
  /// The same, and a new lap begins.
  double lap_ms() {
    const Clock::time_point now = Clock::now();
    const double ms = since(last_, now);
    last_ = now;
    return ms;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double, std::milli>(end - begin).count();
  }
  Clock::time_point last_ = Clock::now();
};

}  // namespace vitrine
