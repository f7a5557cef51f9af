#pragma once
// A whole run: model and data opened and checked, steps, validation, samples, checkpoints, metrics.
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/checkpoint.h"
#include "train/config.h"

namespace vitrine {

/// What a run tells while it goes. Every member may be empty.
struct TrainEvents {
  /// A folder of the training data.
  struct DataShare {
    std::string path;
    double share = 1;     // of the run's sequences
    uint64_t tokens = 0;  // in it
    double epochs = 0;    // how often the run reads it
    uint64_t cut = 0;     // conversations or answers that are longer than a sequence and lose their end
  };
  struct Start {
    int64_t parameters = 0, steps = 0, first_step = 0;
    double state_bytes = 0, activation_bytes = 0;
    int64_t recomputed_layers = 0;  // blocks that run again in backward
    uint64_t data_tokens = 0;
    std::vector<DataShare> data = {};
    int ranks = 1, threads = 0;  // processes, and threads of each
  };
  struct Rate {
    double tokens_per_s = 0;  // of the latest steps
    double seconds_left = 0;
    /// Work of the latest steps as a share of what matrix products reach on this machine (ops/product_peak.h). Nothing: it is
    /// not known, since the steps are faster than what was measured, beside other work.
    std::optional<double> peak_share = {};
  };
  std::function<void(const Start&)> started;
  std::function<void(const StepReport&, const Rate&)> stepped;
  /// dpo, before the first step: the share of the pairs whose reference is computed.
  std::function<void(double share)> referred;
  std::function<void(int64_t step, double loss, bool best)> evaluated;
  /// Where the configuration has tasks: what the model reaches in them now, by the names that metrics.jsonl gives them.
  std::function<std::vector<std::pair<std::string, double>>(Engine& engine)> measure;
  /// What `measure` gave.
  std::function<void(int64_t step, const std::vector<std::pair<std::string, double>>& values)> measured;
  std::function<void(int64_t step, const std::string& prompt, const std::string& text)> sampled;
  /// unlinked: why `last` or `best` could not be set; mostly empty.
  std::function<void(int64_t step, const std::string& path, const std::string& unlinked)> saved;
  /// At the end, where the configuration has an average: of which checkpoints it is, and where it lies.
  std::function<void(const std::vector<int64_t>& steps, const std::string& path)> averaged;
  /// Asked after every step, between batches of a validation and between samples: true saves and ends the run. A validation
  /// that was broken off is made up for by `resume`, before the next step.
  std::function<bool()> stop;
};

struct TrainResult {
  int64_t step = 0, tokens = 0;
  std::optional<double> loss, validation_loss;  // the last ones of this process
  int64_t best_step = 0;                        // 0: none
  double best_loss = 0;
  bool stopped = false;    // by TrainEvents::stop
  bool early = false;      // ended by TrainConfig::patience
  double comm_share = 0;   // of the time of this process's steps that went into other ranks, waiting for them included
  std::string checkpoint;  // the newest; empty: stopped before the first
  std::string average;     // the mean of the newest ones; empty: there is none
};

/// Runs a configuration to its end.
/// resume: goes on from the newest checkpoint in `out`, to the same bits as if the run had never stopped; from the beginning
/// if there is none yet. Errors: InputError for a configuration that does not fit the model, the data, the folder or the
/// memory (with the numbers); RunError for NaN (with layer and op) and from the disk.
/// comm: the ranks that train together, all of which call this with the same configuration; null: this process alone. Each has
/// its part of every batch. Rank 0 alone writes, samples and calls `events`, except `stop`, which any rank may answer. If a
/// rank throws, the others wait for it until Comm::abort ends them.
TrainResult train(const TrainConfig& config, bool resume, const TrainEvents& events = {}, Comm* comm = nullptr);

}  // namespace vitrine
