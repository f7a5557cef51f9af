#pragma once
// Which learning rate suits a run: the loss while the rate rises, and where it falls fastest (Smith, arXiv:1506.01186, section
// 3.3; smoothed and ended as in PyTorch Lightning, read as fastai's `steep`).
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "train/config.h"

namespace vitrine {

struct RateSearch {
  double from = 1e-8, to = 1;  // rates of the first and the last step; those between grow geometrically
  int64_t steps = 100;
};

struct RateCurve {
  struct Point {
    double rate = 0;
    double loss = 0;      // before the step at that rate
    double smoothed = 0;  // mean of the losses so far, in which each step counts 0.98 times as much as the next one
  };
  std::vector<Point> points;
  bool diverged = false;  // ended by a smoothed loss above 4 times the lowest, or by NaN
  /// The rate at which the smoothed loss falls fastest by the logarithm of the rate, without the first tenth of `steps` and the
  /// last point. Nothing: there are too few points, or it never falls.
  std::optional<double> suggestion;

  /// Adds a step. False: the search is over, as the loss has diverged.
  bool add(double rate, double loss);
  /// Sets the suggestion.
  void read(int64_t steps);

 private:
  double sum_ = 0, lowest_ = 0;
};

/// Takes so many steps of the configuration's run from its beginning, at rising rates, in this process alone. Nothing is written
/// into the run's folder. stepped, if given, is called after each; false ends the search. Errors: as train(); InputError with
/// grpo, whose loss does not fall with the reward.
RateCurve find_rate(const TrainConfig& config, const RateSearch& search,
                    const std::function<bool(const RateCurve::Point& point)>& stepped = {});

}  // namespace vitrine
