#pragma once
// SGD, AdamW, Muon, NorMuon and SOAP over all parameters at once: one pass over weights, gradients and moments, and then the
// matrices that are learned as wholes.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "train/orthogonal.h"
#include "train/parameters.h"
#include "train/shards.h"
#include "train/soap.h"

namespace vitrine {

struct OptimizerOptions {
  enum class Kind : uint8_t { adamw, sgd, muon, normuon, soap };
  Kind kind = Kind::adamw;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;  // AdamW, also of what Muon leaves to it; SOAP
  bool bf16_moments = false;                     // AdamW: kept in half the memory, rounded at random
  double momentum = 0;                           // SGD, Muon
  double neuron_beta = 0.95;                     // NorMuon: decay of each neuron's mean square
  double shampoo_beta = 0.95;                    // SOAP: decay of the means of G Gᵀ and Gᵀ G
  int64_t frequency = 10;                        // SOAP: steps from one renewal of the eigenbases to the next
  int64_t largest_side = 10000;                  // SOAP: longer sides of a matrix are not rotated
  bool nesterov = true;                          // Muon
  int iterations = 5;                            // Muon: of Newton-Schulz
  /// Muon: how the rate of a matrix follows from its shape. match_rms: 0.2 sqrt(larger side), so that an update is about as
  /// large as AdamW's (arXiv:2502.16982, section 2.2); original: sqrt(max(1, outputs / inputs)).
  enum class Scale : uint8_t { match_rms, original };
  Scale scale = Scale::match_rms;
  double adamw_lr = 1;  // Muon, NorMuon, SOAP: the rate of what AdamW learns, as a share of the rate

  /// Whether the matrices of the blocks are learned as wholes, and the rest by AdamW.
  bool by_matrices() const { return kind == Kind::muon || kind == Kind::normuon || kind == Kind::soap; }
  double weight_decay = 0.1;
  /// Globs of names (in the model's own file, * for any run of characters): which parameters decay. By default matrices
  /// do, and vectors (norms, biases) do not. `no_decay` takes away from what `decay` gives.
  std::vector<std::string> decay = {};
  std::vector<std::string> no_decay = {};
  /// Globs, and what the rate of the parameters that they fit is multiplied by; all that fit count. 0: frozen, which leaves a
  /// parameter out of the gradient's norm, too.
  std::vector<std::pair<std::string, double>> lr_groups = {};
};

/// Square roots of sums of squares.
struct Norms {
  double whole = 0;
  std::vector<double> each;  // of each parameter
};

/// Work is cut into chunks by shape and partial sums are joined in order: the same bits on any number of threads.
class Optimizer {
 public:
  /// Keeps the state of this rank's values alone, and steps those alone. Errors: InputError for a glob that no
  /// parameter's name fits.
  Optimizer(const OptimizerOptions& options, const Parameters& parameters, Shards& shards);

  /// Which parameters one rank must keep whole: those that Muon, NorMuon or SOAP learns. These are the matrices of the blocks (a
  /// stack of experts is one matrix for each); embeddings, the head and vectors are AdamW's.
  static std::vector<bool> whole(const OptimizerOptions& options, const Parameters& parameters);

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
  ///   Muon (as torch.optim.Muon, whose orthogonalization is in bf16): b = momentum b + (1 - momentum) g,
  ///     w = w (1 - lr decay) - lr scale · orthogonal(nesterov ? momentum b + (1 - momentum) g : b)
  ///   NorMuon (arXiv:2510.05491, algorithm 1): as Muon, but before it is subtracted each neuron's part u of the orthogonal
  ///   matrix is
  ///     divided by sqrt(v), v = neuron_beta v + (1 - neuron_beta) mean(u²), and the whole is brought to the root mean square 0.2
  ///     (scale match_rms) or to the length that it had, times the scale (original)
  ///   SOAP: train/soap.h
  /// In bf16, m and v are rounded up or down by chance, right on average: rounded to nearest, v would stand still, since a
  /// step changes it by less than half of its last place. The chance falls by `number` and the place among all parameters.
  /// `update`, if given, receives what changed.
  void step(ThreadPool& pool, double lr, double gradient_scale, int64_t number, Update* update = nullptr);

  const OptimizerOptions& options() const { return options_; }
  /// Whether that parameter decays.
  bool decays(size_t parameter) const { return decays_[parameter]; }
  /// What that parameter's rate is multiplied by: OptimizerOptions::lr_groups.
  double rate_of(size_t parameter) const { return rates_[parameter]; }
  /// Kinds of state to keep beside the weights.
  size_t states() const;
  /// What that kind is called of a parameter: "first_moment", "second_moment"; "momentum". Empty: it has none.
  std::string state_of(size_t which, const Parameter& parameter) const;
  /// All values of a kind of state, in the parameters' places: on rank 0, while the others send theirs. `room` is a buffer
  /// as long as the weights, which is used unless they lie so already.
  const float* whole_state(size_t which, float* room) const;
  /// Sets what this rank keeps of a kind of state of a parameter, all of whose `values` are given.
  void set_state(size_t which, const Parameter& parameter, const float* numbers);
  /// State of other shapes than the weights', of a parameter that is learned as a whole: NorMuon's mean squares, SOAP's
  /// preconditioners and bases.
  struct Aside {
    size_t parameter;
    std::string name;  // "neuron_squares", "left", "left_basis", "right", "right_basis"
    std::vector<int64_t> shape;
    std::vector<float> values;  // empty: another rank keeps it
    size_t size() const;
  };
  /// Of all parameters, the same list on every rank.
  const std::vector<Aside>& asides() const { return asides_; }
  std::vector<Aside>& asides() { return asides_; }

  /// Bytes of a rank for weights, gradients and state of that many values; for Muon as if it kept as much as AdamW, which is
  /// more than it takes; for SOAP as if all were in matrices four times as long as wide.
  static double bytes(const OptimizerOptions& options, double numbers, int ranks);

 private:
  struct Chunk {
    size_t parameter, begin, count;
    size_t kept[2];  // where its state begins, of each kind
  };
  struct Matrix {  // that is learned as a whole
    size_t parameter, begin, rows, columns;
    size_t kept[2];  // where its state begins, of each kind
    size_t number;   // among those of its parameter
  };
  // What one thread needs to learn a matrix.
  struct Worker {
    std::optional<Orthogonalizer> orthogonalizer;
    std::optional<Soap> soap;
    FloatBuffer update;  // of NorMuon
  };
  void add_asides(size_t parameter, bool here);
  float* aside(const Matrix& m, const char* name);
  void make_workers(int threads);
  void step_matrices(ThreadPool& pool, double lr, double gradient_scale, int64_t number, std::vector<double>* changes,
                     std::vector<double>* weights);
  void step_normuon(Worker& worker, const Matrix& m, double lr);
  template <class F>
  void each_chunk(ThreadPool& pool, F&& f) const;
  // Whether that kind of state is kept of a parameter.
  bool keeps(size_t which, size_t parameter) const {
    return which == 0 || !whole_[parameter] || options_.kind == OptimizerOptions::Kind::soap;
  }
  bool begins_with_zeros(const Chunk& c) const { return parameters_.begins_with_zeros(parameters_.list()[c.parameter]); }
  std::vector<double> joined(const std::vector<double>& of_chunks, const std::vector<double>& of_matrices = {}) const;

  OptimizerOptions options_;
  const Parameters& parameters_;
  Shards& shards_;
  std::vector<bool> decays_;
  std::vector<double> rates_;     // of each parameter
  std::vector<bool> whole_;       // of each parameter
  std::vector<Chunk> chunks_;     // of all values that this rank keeps
  std::vector<Matrix> matrices_;  // the largest first
  std::vector<Worker> workers_;   // of each thread, once they are known
  std::vector<Aside> asides_;
  struct State {  // of this rank's values: one of the two
    FloatBuffer f32;
    Buffer<uint16_t> bf16;
  };
  State state_[2];
};

}  // namespace vitrine
