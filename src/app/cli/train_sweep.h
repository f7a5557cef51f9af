#pragma once
// vitrine train --sweep: runs one after the other, and what came of them.
#include <functional>
#include <string>

#include "train/sweep.h"
#include "train/train.h"

namespace vitrine::cli {

struct SweepOptions {
  bool json = false;
  bool writes = true;      // of several processes that train together, one writes and prints
  bool goes_on = true;     // after a run that failed, as with NaN, the others follow
  std::string again = "";  // the command that goes on with a sweep that was stopped
};

/// Runs them by `run`, which goes on with a run that a stopped sweep began. After each, sweep.csv and sweep.html in the sweep's
/// folder have a row and curves of all so far; at the end the table is printed.
/// Errors: as `run`; RunError at the end, naming the runs that failed.
void run_train_sweep(const TrainSweep& sweep, const SweepOptions& options,
                     const std::function<TrainResult(const TrainConfig& config)>& run);

}  // namespace vitrine::cli
