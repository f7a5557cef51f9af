#pragma once
// A whole run: model and data opened and checked, steps, validation, samples, checkpoints, metrics.
#include <functional>
#include <optional>
#include <string>

#include "train/checkpoint.h"
#include "train/config.h"

namespace vitrine {

/// What a run tells while it goes. Every member may be empty.
struct TrainEvents {
  struct Start {
    int64_t parameters = 0, steps = 0, first_step = 0;
    double state_bytes = 0, activation_bytes = 0;
    uint64_t data_tokens = 0;
  };
  struct Rate {
    double tokens_per_s = 0;  // of the latest steps
    double seconds_left = 0;
  };
  std::function<void(const Start&)> started;
  std::function<void(const StepReport&, const Rate&)> stepped;
  std::function<void(int64_t step, double loss, bool best)> evaluated;
  std::function<void(int64_t step, const std::string& prompt, const std::string& text)> sampled;
  std::function<void(int64_t step, const std::string& path)> saved;
  std::function<bool()> stop;  // asked after every step: true saves and ends the run
};

struct TrainResult {
  int64_t step = 0, tokens = 0;
  std::optional<double> loss, validation_loss;  // the last ones of this process
  int64_t best_step = 0;                        // 0: none
  double best_loss = 0;
  bool stopped = false;    // by TrainEvents::stop
  std::string checkpoint;  // the newest
};

/// Runs a configuration to its end.
/// resume: goes on from the newest checkpoint in `out`, to the same bits as if the run had never stopped; from the beginning
/// if there is none yet. Errors: InputError for a configuration that does not fit the model, the data, the folder or the
/// memory (with numbers); RunError for NaN (with layer and op) and from the disk.
TrainResult train(const TrainConfig& config, bool resume, const TrainEvents& events = {});

}  // namespace vitrine
