#include "train/recent_steps.h"

#include <algorithm>

namespace vitrine {

TrainEvents::Rate RecentSteps::step(int64_t tokens, double flop, int64_t steps_left) {
  seconds_.push_back(watch_.lap_ms() / 1000);
  tokens_.push_back(tokens);
  flop_.push_back(flop);
  if (seconds_.size() > kSteps) {
    seconds_.pop_front();
    tokens_.pop_front();
    flop_.pop_front();
  }
  double time = 0, all = 0, work = 0;
  for (const double s : seconds_) time += s;
  for (const int64_t t : tokens_) all += static_cast<double>(t);
  for (const double f : flop_) work += f;
  time = std::max(time, 1e-9);
  const bool again = ++steps_ <= kMeasured && (steps_ & (steps_ - 1)) == 0;
  if (again || work / time > peak_) peak_ = std::max(peak_, measure_());
  const double share = work / time / peak_;
  return {all / time, time / static_cast<double>(seconds_.size()) * static_cast<double>(steps_left),
          share <= 1 ? std::optional(share) : std::nullopt};
}

}  // namespace vitrine
