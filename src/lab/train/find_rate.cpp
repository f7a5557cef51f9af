#include "train/find_rate.h"

#include <cmath>

#include "base/error.h"
#include "io/temporary_folder.h"
#include "train/train_run.h"

namespace vitrine {
namespace {

constexpr double kSmoothing = 0.98;
constexpr double kDiverged = 4;  // times the lowest smoothed loss

}  // namespace

bool RateCurve::add(double rate, double loss) {
  sum_ = kSmoothing * sum_ + (1 - kSmoothing) * loss;
  const double smoothed = sum_ / (1 - std::pow(kSmoothing, static_cast<double>(points.size() + 1)));
  points.push_back({rate, loss, smoothed});
  diverged = points.size() > 1 && !(smoothed <= kDiverged * lowest_);
  if (points.size() == 1 || smoothed < lowest_) lowest_ = smoothed;
  return !diverged;
}

// Points are equally far apart by the logarithm of the rate: central differences, and one-sided ones at the ends.
void RateCurve::read(int64_t steps) {
  suggestion.reset();
  const auto begin = static_cast<size_t>(steps / 10);
  if (points.size() < begin + 3) return;
  const size_t end = points.size() - 1;  // without the last point
  double steepest = 0;
  for (size_t i = begin; i < end; ++i) {
    const size_t left = i > begin ? i - 1 : i, right = i + 1 < end ? i + 1 : i;
    const double slope = (points[right].smoothed - points[left].smoothed) / static_cast<double>(right - left);
    if (!(slope < steepest)) continue;
    steepest = slope;
    suggestion = points[i].rate;
  }
}

RateCurve TrainRun::find_rate(const RateSearch& search, const std::function<bool(const RateCurve::Point& point)>& stepped) {
  find_reference();
  RateCurve curve;
  const double growth = std::log(search.to / search.from) / static_cast<double>(search.steps - 1);
  for (int64_t i = 0; i < search.steps; ++i) {
    const double rate = search.from * std::exp(growth * static_cast<double>(i));
    const std::vector<Batch> batches = next_batches();
    double loss = 0;
    try {
      const StepReport report = learner_.step(batches, rate);
      progress_.step = report.step;
      loss = report.loss;
    } catch (const NotFiniteError&) {
      curve.diverged = true;
      break;
    }
    const bool goes_on = curve.add(rate, loss);
    if ((stepped && !stepped(curve.points.back())) || !goes_on) break;
  }
  curve.read(search.steps);
  return curve;
}

RateCurve find_rate(const TrainConfig& config, const RateSearch& search,
                    const std::function<bool(const RateCurve::Point& point)>& stepped) {
  if (config.policy)
    throw InputError(config.path + ": grpo: its loss does not fall as the reward rises, so it shows no learning rate");
  Comm alone;
  const TemporaryFolder folder;
  TrainConfig elsewhere = config;
  elsewhere.out = folder.path();
  elsewhere.metrics = {};
  const TrainEvents none;
  return TrainRun(elsewhere, false, none, alone).find_rate(search, stepped);
}

}  // namespace vitrine
