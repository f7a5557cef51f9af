#pragma once
// A model with what it needs to learn: its weights in the trainer's memory, gradients, optimizer, tape. One call, one step.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ops/divergence.h"
#include "ops/tape.h"
#include "runtime/engine.h"
#include "train/data/batch_source.h"
#include "train/ema.h"
#include "train/initialize.h"
#include "train/optimizer.h"
#include "train/policy.h"
#include "train/preference.h"
#include "train/shards.h"

namespace vitrine {

/// NaN or infinity, where it appeared first, and what to do.
class NotFiniteError : public RunError {
 public:
  using RunError::RunError;
};

struct LearnerOptions {
  OptimizerOptions optimizer = {};
  double clip = 0;                    // largest global norm of the gradient; 0: any
  int64_t recomputed_layers = 0;      // so many first blocks run again in backward, and keep their input alone; Tape::kAllBlocks
  uint64_t seed = 1;                  // of dropout and of fresh weights
  int threads = 0;                    // 0: the cores this process may use
  bool bf16 = false;                  // products of many rows round their operands to bf16; weights and sums stay f32
  std::optional<InitRule> init = {};  // fresh weights; nothing: those of the opened model
  Comm* comm = nullptr;               // the processes that learn together and each have a part of the batch; null: alone
  std::optional<double> ema = {};     // decay of an average of the weights that is kept beside them
  bool dropout = true;                // false: the model's dropout does nothing
  bool masked = false;                // labels are of the tokens at their own positions, in a model in both directions
};

/// A model whose predictions learning is drawn to: adds weight · divergence to the loss. Its pass leaves nothing on the tape,
/// and its dropout does nothing.
struct TeacherSpec {
  std::string name;              // of its divergence in metrics
  const Model* model = nullptr;  // of the learner's vocabulary; outlives the learner
  DivergenceSpec spec = {};
  double weight = 0;
  bool stored =
      false;  // where a batch brings what this teacher expects (Batch::teacher), that is read and the model does not run
};

/// What one step did.
struct StepReport {
  int64_t step = 0;    // its number, from 1
  int64_t tokens = 0;  // scored in it, on all ranks
  double loss = 0;     // mean over them, over pairs, examples or rewarded sequences, before the step; with teachers the whole sum
  std::optional<double> cross_entropy = {};         // with teachers: that part, over the batches that the model did not sample
  std::vector<double> divergences = {};             // with teachers: of each, not weighted
  std::optional<PreferenceReport> preference = {};  // of pairs and unpaired examples: means over them
  std::optional<PolicyReport> policy = {};          // of rewarded sequences: means over their scored tokens
  std::optional<double> reward = {};                // mean of the step's completions; set by who rewards them
  double lr = 0;
  double gradient_norm = 0;            // before clipping
  std::vector<double> gradient_norms;  // of each parameter
  Optimizer::Update update;            // of each parameter, if it was asked for
};

class Learner {
 public:
  /// Takes the opened model over: its weights are copied as f32, and its files are closed (but GGUF's, which holds the
  /// vocabulary; such a model must be as_huggingface()). If it has an adapter, that alone learns, and the model stays in its
  /// files, in the type that they have.
  /// Errors: as Optimizer; RunError if the memory is not there; InputError if ranks begin with different weights.
  Learner(OpenedModel opened, const LearnerOptions& options);

  /// Batches of pairs and of unpaired examples are learned from by preference_loss() with these options from now on.
  void set_preference(const PreferenceOptions& options) { preference_ = options; }
  /// log p of the answer of each of the batch's sequences, without dropout (sequence_logprobs()); of the averaged weights, if
  /// there are any and it is asked for.
  std::vector<double> answer_logprobs(const Batch& batch, bool averaged = false);
  /// Adds a batch's part to what preference_loss() depends on, where PreferenceOptions::needs_totals().
  void add_totals(const Batch& batch, PreferenceTotals& totals, bool averaged = false);

  /// Batches of rewarded sequences are learned from by policy_loss() with these options from now on.
  void set_policy(const PolicyOptions& options) { policy_ = options; }
  /// Under a model of this vocabulary, the log-probability of each row's label at the policy's temperature, without dropout; 0 of
  /// rows that are not scored.
  std::vector<float> label_logprobs(const Batch& batch, const Model& model);

  /// One step on the mean loss over the scored tokens of all batches together, or over their pairs: accumulation is the same as
  /// one big batch, however unequally scored tokens are spread; so are ranks, each of which gives its part of the batches, and as
  /// many of them. The weights change only if loss and gradient are finite. Errors: InputError for ids outside the vocabulary,
  /// sequences beyond the context, or nothing scored; RunError naming the layer and the op where NaN or infinity appeared first.
  /// watch, if given, sees the first sequence of the first batch that is scored; its listening changes no number.
  StepReport step(std::span<const Batch> batches, double lr, bool with_update = false, Listener* watch = nullptr);

  /// About so many rows of a batch go through the model together.
  int64_t pass_rows() const;
  /// The batch's sequences as a pass reads them; the batch must outlive it. Errors: InputError for one beyond the context.
  Step step_of(const Batch& batch) const;

  /// The loss is cross_entropy_weight · cross-entropy + the teachers' parts from now on. Batches that the model sampled count
  /// for the teachers only.
  void set_teachers(std::vector<TeacherSpec> teachers, double cross_entropy_weight);

  struct Sum {
    double loss = 0;     // over all scored tokens, pairs or examples
    int64_t tokens = 0;  // or pairs, or examples
    PreferenceReport preference = {};
  };
  /// The cross-entropy (of pairs and examples: preference_loss()) without learning, without dropout; of the averaged weights, if
  /// there are any and it is asked for. totals: of all that is measured together; nothing: of this batch.
  Sum evaluate(const Batch& batch, bool averaged = false, std::optional<PreferenceTotals> totals = {});

  /// Bytes that activations and their gradients take in a step of `batches` batches of that many rows in sequences of `length`:
  /// measured with small ones, whose memory grows by the row and by a row's keys, and extended to the largest pass.
  double activation_bytes(int64_t rows, int64_t length, int64_t batches = 1);
  /// From the next step on, runs as few blocks again in backward as steps of that size need for activation_bytes() to be at most
  /// `most`; all of them where that is not enough. Returns the activation_bytes() of that choice. No result depends on it.
  double recompute_within(double most, int64_t rows, int64_t length, int64_t batches = 1);
  int64_t recomputed_layers() const { return std::min(options_.recomputed_layers, engine_.shape().n_layers); }
  /// The most bytes that activations and their gradients really took so far.
  double peak_bytes();

  /// Runs text through the weights as they are now (samples); the same threads and memory.
  Engine& engine() { return engine_; }
  const Parameters& parameters() const { return parameters_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  Comm& comm() { return options_.comm != nullptr ? *options_.comm : alone_; }
  /// Shows all of the optimizer's state, kind after kind, and then what has other shapes than the weights, one after the other,
  /// to rank 0, which alone needs a `show`. Every rank must call it.
  void each_state(const std::function<void(size_t which, const float* whole)>& show = {},
                  const std::function<void(const Optimizer::Aside& aside, const float* values)>& show_aside = {});
  /// The averaged weights, or null.
  const Ema* ema() const { return ema_.get(); }
  int64_t steps_done() const { return steps_done_; }
  /// A checkpoint's state was read into the buffers: the next step has number steps + 1.
  void set_steps_done(int64_t steps) { steps_done_ = steps; }

 private:
  bool runs_side_by_side() { return engine_.context().pool().threads() % 2 == 0; }
  struct LossParts {
    std::optional<double> cross_entropy;
    std::vector<double> divergences;
    PreferenceReport preference;       // sums
    PolicyReport policy;               // sums
    RouterBalance* balance = nullptr;  // filled by the pass through the learner's own model
  };
  // A part of a batch that goes through the model at once.
  struct Pass {
    Batch batch;
    uint64_t step_number = 0;  // dropout falls by it: another for every step and batch
    double loss = 0;           // what came of it: the mean over its scored tokens
    LossParts parts = {};
  };
  // What passes go through: a model with gradients of its own.
  struct Replica {
    const Model& model;
    Context& ctx;
    Tape& tape;
  };
  // The other replica of a step on two: the same weights, and everything else of its own.
  struct SecondReplica {
    SecondReplica(std::unique_ptr<Model> model, const Parameters& parameters, int threads, int64_t recomputed);
    std::unique_ptr<Model> model;
    ParameterGradients gradients;
    ThreadPool teams[2];  // the threads of each side
    Context ctx;
    Tape tape;
  };
  void begin_together();
  bool may_use_two_replicas(int64_t rows);
  int64_t replica_pass_rows(int64_t rows) const;
  const Model& model(bool averaged) const { return averaged && ema_ != nullptr ? ema_->model() : engine_.model(); }
  std::vector<Pass> passes_of(std::span<const Batch> batches, int64_t most) const;
  std::vector<Pass> passes_of(std::span<const Batch> batches, size_t& first_half);
  void run(std::span<Pass> passes, const Replica& replica, double counted, Listener* watch);
  void run_in_two_replicas(std::span<Pass> first, std::span<Pass> second, double counted, Listener* watch);
  Tensor loss_of(const Replica& replica, const Step& step, const Batch& batch, LossParts& parts, Listener* watch = nullptr);
  void begin(Context& ctx, const Pass& pass) const;
  static void end_pass(Context& ctx, Tape& tape);
  void clear_gradients();
  void recompute(int64_t layers);
  void forget_step();
  Replica whole() { return {engine_.model(), engine_.context(), tape_}; }
  std::string first_not_finite_of(const Model& model, const Batch& batch, uint64_t step_number, bool learning);
  [[noreturn]] void report_guide(const TeacherSpec& teacher);
  [[noreturn]] void report_forward(const Pass& pass);
  [[noreturn]] void report_validation(const Model& model, const Batch& part);
  [[noreturn]] void report_backward(std::span<const Pass> passes, const std::vector<double>& norms);

  LearnerOptions options_;
  Comm alone_;
  Engine engine_;
  Parameters parameters_;
  Shards shards_;
  std::optional<Optimizer> optimizer_;
  std::unique_ptr<Ema> ema_;
  std::vector<TeacherSpec> teachers_;
  double cross_entropy_weight_ = 1;
  PreferenceOptions preference_;
  PolicyOptions policy_;
  PreferenceTotals totals_;  // of the running step
  Tape tape_;
  std::unique_ptr<SecondReplica> second_replica_;  // once a step used it
  int64_t steps_done_ = 0;
};

}  // namespace vitrine
