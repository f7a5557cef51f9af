#pragma once
// `vitrine sae train`: a sparse autoencoder or a transcoder learned from collected activations, as a directory that SAELens
// reads.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "io/activations.h"
#include "sae/trainer.h"

namespace vitrine {

inline constexpr char kSaeTrainerState[] = "trainer.safetensors";
inline constexpr char kSaeMetrics[] = "metrics.csv";

struct SaeTrainOptions {
  SaeLearning learning;
  std::string hook;    // whose values; empty: the only one that was collected
  std::string target;  // the hook where a transcoder writes; empty: an autoencoder
  /// hook and target then hold a * for the layer, such as blocks.*.hook_resid_mid; layers are those from 0 on that were
  /// collected.
  bool cross_layer = false;
  std::string out;       // the directory to make
  int64_t batch = 4096;  // tokens of a step
  /// Activations are multiplied by one number so that their mean norm is sqrt(d_in) (SAELens's "expected_average_only_in"), those
  /// of a transcoder's target by another, which are folded into the weights that are written; false: they are learned as they
  /// are.
  bool normalize = true;
  int64_t skip_positions = 0;  // the first tokens of each context are left out: BOS often has a norm of its own
  int64_t save_every = 0;      // steps; 0: at the end alone
  bool resume = false;
  size_t memory = 0;  // bytes that training may take; 0: what the system has left
};

/// Where training stands after a step.
struct SaeProgress {
  int64_t step = 0;  // from 1
  SaeStep now;
  double lr = 0, activations_per_s = 0;  // of this call, without saving
  bool saved = false;                    // as soon as see() returns
};

struct SaeTrained {
  int64_t first_step = 0, steps = 0;  // of this call; of the run
  double seconds = 0;
  /// What activations were multiplied by, and those of the target (of an autoencoder the same), of each layer.
  std::vector<double> scales, target_scales;
  SaeStep last;
  int64_t dead = 0;  // features silent for longer than the window, at the end
};

/// Draws tokens in an order that `seed` decides, each once before any comes again, and learns from them. Writes cfg.json,
/// sae_weights.safetensors, sparsity.safetensors (log10 of how often each feature was active) and the trainer's state, from which
/// `resume` goes on with the bits of a run that was never cut off, or begins where a run was killed before its first state; of a
/// cross-layer transcoder circuit-tracer's files and the state. see(progress) after every step; false: save and end here.
///
/// Errors: as SaeTrainer, Activations::hook and write_sae; InputError for what does not fit into memory, for an `out` that holds
/// something (without resume), for other options or activations than those of the run to resume, and for fewer tokens than one;
/// FileError for a state that was damaged.
SaeTrained train_sae(ThreadPool& pool, const Activations& activations, const SaeTrainOptions& options,
                     const std::function<bool(const SaeProgress&)>& see = {});

}  // namespace vitrine
