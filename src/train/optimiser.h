#pragma once
// SGD and AdamW over all parameters at once: one pass over weights, gradients and moments.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "train/parameters.h"
#include "train/shards.h"

namespace vitrine {

struct OptimiserOptions {
  enum class Kind : uint8_t { adamw, sgd };
  Kind kind = Kind::adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;  // AdamW
  bool bf16_moments = false;                     // AdamW: kept in half the memory, rounded at random
  double momentum = 0;                           // SGD
  double weight_decay = 0.1;
  /// Globs of names (in the model's own file, * for any run of characters): which parameters decay. By default matrices
  /// do, and vectors (norms, biases) do not. `no_decay` takes away from what `decay` gives.
  std::vector<std::string> decay = {};
  std::vector<std::string> no_decay = {};
};

/// Square roots of sums of squares.
struct Norms {
  double whole = 0;
  std::vector<double> each;  // of each parameter
};

/// Work is cut into chunks by shape and partial sums are joined in order: the same bits on any number of threads.
class Optimiser {
 public:
  /// Keeps the state of this rank's values alone, and steps those alone. Errors: InputError for a glob that no
  /// parameter's name fits.
  Optimiser(const OptimiserOptions& options, const Parameters& parameters, Shards& shards);

  /// Of the gradients of all ranks' values together. `more`, if given, is added to them first, and readied for the next step.
  Norms gradient_norms(ThreadPool& pool, const ParameterGradients* more = nullptr) const;

  /// Of what a step did: |change of the weights| and |weights after it|, for each parameter.
  struct Update {
    std::vector<double> change, weight;
  };
  /// Takes step number `number` (from 1) and readies the gradients for the next one. ParameterGradients count times
  /// `gradient_scale`.
  ///   AdamW (arXiv:1711.05101, algorithm 2): m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g²,
  ///     w = w (1 - lr decay) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
  ///   SGD: b = momentum b + g + decay w, w = w - lr b
  /// In bf16, m and v are rounded up or down by chance, right on average: rounded to nearest, v would stand still, since a
  /// step changes it by less than half of its last place. The chance falls by `number` and the place among all parameters.
  /// `update`, if given, receives what changed.
  void step(ThreadPool& pool, double lr, double gradient_scale, int64_t number, Update* update = nullptr);

  const OptimiserOptions& options() const { return options_; }
  /// Whether that parameter decays.
  bool decays(size_t parameter) const { return decays_[parameter]; }
  /// The state to keep beside the weights, by what it is called: "first_moment", "second_moment"; "momentum"; none.
  std::vector<std::string> state() const;
  /// All values of state()[which], in the parameters' places: on rank 0, while the others send theirs. `room` is a buffer
  /// as long as the weights, which is used unless they lie so already.
  const float* whole_state(size_t which, float* room) const;
  /// Sets what this rank keeps of state()[which] of a parameter, all of whose `values` are given.
  void set_state(size_t which, const Parameter& parameter, const float* numbers);
  /// Bytes of a rank for weights, gradients and state of that many values.
  static double bytes(const OptimiserOptions& options, double numbers, int ranks);

 private:
  struct Chunk {
    size_t parameter, begin, count;
    size_t kept;  // where its state begins
  };
  template <class F>
  void each_chunk(ThreadPool& pool, F&& f) const;
  bool begins_with_zeros(const Chunk& c) const { return parameters_.begins_with_zeros(parameters_.list()[c.parameter]); }
  std::vector<double> joined(const std::vector<double>& of_chunks) const;

  OptimiserOptions options_;
  const Parameters& parameters_;
  Shards& shards_;
  std::vector<bool> decays_;
  std::vector<Chunk> chunks_;
  struct State {  // of this rank's values: one of the two
    FloatBuffer f32;
    Buffer<uint16_t> bf16;
  };
  State state_[2];
};

}  // namespace vitrine
