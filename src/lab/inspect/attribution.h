#pragma once
// Which tokens of a prompt a prediction comes from, told by gradients at the embeddings.
// Sources: Simonyan et al., arXiv:1312.6034 (saliency); Shrikumar et al., arXiv:1605.01713 section 3 (gradient times input);
// Sundararajan et al., arXiv:1703.01365 (integrated gradients); Yin and Neubig, arXiv:2202.10419 (one token against another).
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

/// The embeddings from which integrated gradients start.
enum class Baseline : uint8_t {
  mean,  // every position the mean of the vocabulary's embeddings
  zero,  // every position 0. An RMSNorm divides by the length of what it reads, so that the way from 0 is steep at its very
         // begin: the sum rule may then be missed (Attribution::gap)
};

constexpr const char* name_of(Baseline baseline) { return baseline == Baseline::mean ? "mean" : "zero"; }

struct AttributionOptions {
  std::optional<int32_t> token = {};    // whose log-probability is explained; none: the most likely
  std::optional<int32_t> against = {};  // less that of this one
  Baseline baseline = Baseline::mean;
  int64_t steps = 64;  // points at which the integral is taken (Gauss-Legendre), 1 to 4096; 0: no integrated gradients
};

/// f is the log-probability of `token` after the last position, less that of `against` if there is one; e_t the embedding at
/// position t as it enters the stream, before positions are added (hook_embed); b the baseline's.
struct Attribution {
  int32_t token = 0;
  std::optional<NamedToken> against;
  double value = 0;                    // f(e)
  std::vector<double> saliency;        // |df/de_t|, the Euclidean length, for each position
  std::vector<double> gradient_input;  // df/de_t · e_t
  int64_t steps = 0;
  // None with steps 0:
  std::optional<Baseline> baseline;
  std::optional<double> baseline_value;           // f(b)
  std::optional<std::vector<double>> integrated;  // (e_t - b) · ∫ df/de_t(b + a (e - b)) da
  std::optional<double> gap;                      // Σ integrated - (f(e) - f(b)): 0 but for the steps' and rounding's error

  VITRINE_MEMBERS(token, against, value, saliency, gradient_input, integrated, baseline, baseline_value, gap, steps);
};

/// Runs the prompt forward and backward once, and with steps at the baseline and once more for each: a run a call, between which
/// the engine may do other things.
class AttributionRuns {
 public:
  /// The engine's tokenizer and configuration alone are read. Errors: InputError as Engine::check_ids, for tokens outside the
  /// vocabulary and for steps out of range.
  AttributionRuns(Engine& engine, std::span<const int32_t> ids, const AttributionOptions& options);
  ~AttributionRuns();
  AttributionRuns(const AttributionRuns&) = delete;
  AttributionRuns& operator=(const AttributionRuns&) = delete;

  bool done() const;
  /// Not to be called when done, nor after an error. Errors: InputError for a token against itself; RunError if f is NaN or
  /// infinite.
  void next();
  /// To be called once, when done.
  Attribution take() &&;

 private:
  class Runs;
  std::unique_ptr<Runs> runs_;
};

/// All the runs. before_run: called before each; what it throws ends the call. Errors: as AttributionRuns.
Attribution attribute(Engine& engine, std::span<const int32_t> ids, const AttributionOptions& options = {},
                      const std::function<void()>& before_run = {});

/// Points and weights of Gauss-Legendre quadrature with n >= 1 points on [0, 1]: exact for polynomials of degree 2n - 1.
struct Quadrature {
  std::vector<double> points, weights;
};
Quadrature gauss_legendre(int64_t n);

}  // namespace vitrine
