#pragma once
// `vitrine lens train`: a tuned lens (inspect/tuned_lens.h) learned from text, with the model frozen.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/members.h"
#include "collect/collect.h"
#include "inspect/final_norm.h"
#include "inspect/tuned_lens.h"
#include "ops/tape.h"
#include "train/optimizer.h"

namespace vitrine {

/// How far the prediction read off the stream at a point is from the model's own: KL(model || lens), in nats, mean over tokens.
struct LensKl {
  std::string point;  // "blocks.3.hook_resid_pre"
  double logit = 0;   // with the logit lens
  double tuned = 0;   // with the tuned lens

  VITRINE_MEMBERS(point, logit, tuned);
};

/// Of contexts that are run each by itself. Errors: RunError for NaN.
std::vector<LensKl> lens_kl(Engine& engine, const TunedLens& lens, std::span<const std::vector<int32_t>> contexts);

/// Learns the translators from zeros on, each on the mean of KL(model || its own prediction) over tokens. The engine runs the
/// model and outlives this. Same bits for any number of threads.
class LensTrainer {
 public:
  LensTrainer(Engine& engine, const OptimizerOptions& optimizer);

  /// One step on all tokens of these contexts. Returns each translator's KL before the step. Errors: RunError for a KL or a
  /// gradient that is no number; what was learned is as it was, and this can learn no more.
  std::vector<double> step(std::span<const std::vector<int32_t>> contexts, double lr);
  TunedLens lens() const;

 private:
  Engine& engine_;
  FinalNorm norm_;
  std::vector<Weight> weights_;
  Parameters parameters_;
  Comm alone_;
  Shards shards_;
  Optimizer optimizer_;
  Tape tape_;
  int64_t steps_ = 0;
};

struct LensTrainOptions {
  int64_t steps = 250;
  int64_t batch = 16;       // contexts of a step
  int64_t context = 0;      // most tokens of one; 0: 256, or what the model holds
  int64_t held_out = 32;    // contexts that are not learned from
  uint64_t max_tokens = 0;  // of the text, at most; 0: all
  bool special = true;      // every context begins with BOS, if the tokenizer puts one in front of texts
  double lr = 1e-3;
  int64_t lr_warm_up = -1;  // steps; -1: a tenth of all
  uint64_t seed = 0;        // of the order of contexts, and which are held out
};

struct LensProgress {
  int64_t step = 0;  // from 1
  double kl = 0;     // before the step, mean over the translators
  double lr = 0, tokens_per_s = 0;
};

struct TrainedLens {
  TunedLens lens;
  std::vector<LensKl> kl;  // on the contexts that were held out
  int64_t steps = 0;
  uint64_t tokens = 0;           // learned from, those read again counted again
  uint64_t held_out_tokens = 0;  // `kl` is a mean over them
  double seconds = 0;            // of the steps
};

/// Cuts the documents into contexts and learns from them in an order that the seed decides, by AdamW without weight decay, with a
/// rate that rises and then falls to 0. see(progress) after every step; false: end here.
/// Errors: InputError as require_plain_head, for fewer contexts than are held out and one, and for a context longer than the
/// model's; as LensTrainer.
TrainedLens train_lens(Engine& engine, DocumentTokens& documents, const LensTrainOptions& options,
                       const std::function<bool(const LensProgress&)>& see = {});

}  // namespace vitrine
