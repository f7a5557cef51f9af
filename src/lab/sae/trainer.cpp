#include "sae/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/table.h"
#include "ops/packed_product.h"
#include "sae/trainer_work.h"

namespace vitrine {
namespace {

constexpr size_t kFeatures = 16;  // of a task
constexpr size_t kAdamChunk = 1 << 14;

size_t size(int64_t n) { return static_cast<size_t>(n); }

// Calls f(first, n) for all features, a few at a time, which threads share.
template <class F>
void each_features(ThreadPool& pool, size_t features, F&& f) {
  pool.run(static_cast<int64_t>((features + kFeatures - 1) / kFeatures), [&](int64_t task, int) {
    const size_t first = size(task) * kFeatures;
    f(first, std::min(kFeatures, features - first));
  });
}

}  // namespace

double row_variation(const float* x, size_t rows, size_t d) {
  std::vector<double> sums(d, 0);
  double squares = 0;
  for (size_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < d; ++i) {
      const auto v = static_cast<double>(x[r * d + i]);
      sums[i] += v;
      squares += v * v;
    }
  for (const double sum : sums) squares -= sum * sum / static_cast<double>(rows);
  return squares;
}

void SaeUses::sort(const std::vector<SaeRows>& results, bool aux, size_t features) {
  begin.assign(features + 1, 0);
  for (const SaeRows& r : results)
    for (const SaeEntry& e : aux ? r.aux : r.entries) ++begin[size(e.feature) + 1];
  for (size_t f = 0; f < features; ++f) begin[f + 1] += begin[f];
  uses.resize(begin[features]);
  place_ = begin;
  for (size_t task = 0; task < results.size(); ++task) {
    const auto& entries = aux ? results[task].aux : results[task].entries;
    const auto& ends = aux ? results[task].aux_ends : results[task].ends;
    size_t at = 0;
    for (size_t r = 0; r < ends.size(); ++r)
      for (; at < ends[r]; ++at)
        uses[place_[size(entries[at].feature)]++] = {static_cast<uint32_t>(task * SaeRows::kRows + r), entries[at].f,
                                                     entries[at].dh};
  }
}

SaeTrainer::Work::Work(const SaeLearning& learning, const SaeParameters& parameters, size_t d_in, size_t d_out,
                       bool is_transcoder)
    : l(learning),
      q(parameters),
      F(size(learning.features)),
      D(d_in),
      O(d_out),
      transcoder(is_transcoder),
      norms(F),
      outputs(learning.widths.size() + 1) {
  for (size_t i = 0; i < SaeParameters::kCount; ++i) gradients[i].resize(parameters[i].size());
}

void SaeTrainer::Work::begin(ThreadPool& pool, const float* rows_of_batch, const float* targets, size_t n,
                             const std::vector<int64_t>& silent_steps, double coefficient, float* shared_y, size_t stride) {
  const PackedKernels& p = kernels().packed_f32;
  x = rows_of_batch;
  target = targets;
  shared = shared_y != nullptr;
  rows = n;
  each_features(pool, F, [&](size_t f, size_t here) {
    for (const size_t end = f + here; f < end; ++f)
      norms[f] = static_cast<float>(std::sqrt(kernels().sum_of_squares(q.W_dec.data() + f * O, O)));
  });
  dead.clear();
  for (size_t f = 0; f < F; ++f)
    if (silent_steps[f] > l.dead_window) dead.push_back(static_cast<int32_t>(f));
  const size_t half = O / 2;  // as many silent features take part for each row (arXiv:2406.04093, appendix B.1)
  const bool gated = l.architecture == SaeLearning::Architecture::gated;
  aux = gated || (takes_k(l) && !dead.empty() && l.aux_coefficient != 0 && half > 0);
  k_aux = std::min(half, dead.size());
  aux_scale = gated ? 1
              : aux ? l.aux_coefficient * std::min(static_cast<double>(dead.size()) / static_cast<double>(half), 1.0)
                    : 0;
  sparsity = coefficient;
  const auto count = static_cast<double>(rows);
  unit = static_cast<float>(2 / count);
  sparsity_unit = static_cast<float>(sparsity / count);
  aux_unit = static_cast<float>(2 * aux_scale / count);

  packed_enc.resize(packed_b_bytes(p, D, F) + 64);
  pack_b(p, {q.W_enc.data(), D, true}, D, F, aligned_begin(packed_enc));
  if (l.architecture == SaeLearning::Architecture::jumprelu || l.architecture == SaeLearning::Architecture::standard) {
    packed_dec.resize(packed_b_bytes(p, F, O) + 64);
    pack_b(p, {q.W_dec.data(), O}, F, O, aligned_begin(packed_dec));
    packed_dec_turned.resize(packed_b_bytes(p, O, F) + 64);
    pack_b(p, {q.W_dec.data(), O, true}, O, F, aligned_begin(packed_dec_turned));
  }
  if (l.skip) {
    packed_skip.resize(packed_b_bytes(p, D, O) + 64);
    pack_b(p, {q.W_skip.data(), D, true}, D, O, aligned_begin(packed_skip));
  }
  centered.resize(rows * D);
  for (size_t level = 0; level < outputs.size() - (shared ? 1 : 0); ++level) outputs[level].resize(rows * O);
  y = shared ? shared_y : outputs.back().data();
  y_stride = shared ? stride : O;
  if (aux) aux_output.resize(rows * O);
  results.resize((rows + SaeRows::kRows - 1) / SaeRows::kRows);
  threads.resize(size(pool.threads()));
}

void SaeTrainer::Work::count(SaeStep& now) const {
  const auto of_batch = static_cast<double>(rows);
  double sparse = 0;
  uint64_t active = 0;
  for (const SaeRows& r : results) {
    sparse += r.sparsity;
    active += r.active;
  }
  now.sparsity += sparse * (sparsity / of_batch);
  now.l0 += static_cast<double>(active) / of_batch;
  now.dead += static_cast<int64_t>(dead.size());
}

SaeStep SaeTrainer::Work::summed() const {
  SaeStep now;
  for (const SaeRows& r : results) now.mse += r.mse, now.aux += r.aux_loss, now.inner += r.inner;
  const auto of_batch = static_cast<double>(rows);
  const double all = row_variation(target, rows, O);
  now.explained_variance = all > 0 ? 1 - now.mse / all : 0;
  now.mse /= of_batch;
  now.aux *= aux_scale / of_batch;
  now.inner /= of_batch;
  count(now);
  now.loss = now.mse + now.sparsity + now.aux + now.inner;
  return now;
}

// The sums over rows of f · (gradient at the output) and of dh · x', of n features from `first` on: row by row where few of a
// feature's rows count, else as small dense products.
void SaeTrainer::Work::sum_rows(size_t first, size_t n, const SaeUses& from, const float* at_output, size_t stride) {
  const KernelTable& k = kernels();
  float *dec = gradients.W_dec.data() + first * O, *enc = gradients.W_enc.data() + first * D;
  if (from.begin[first + n] - from.begin[first] <= n * rows / kSparse) {
    for (size_t f = 0; f < n; ++f)
      for (size_t i = from.begin[first + f]; i < from.begin[first + f + 1]; ++i) {
        const SaeUses::Use& use = from.uses[i];
        if (use.f != 0) k.add_scaled(at_output + use.row * stride, use.f, O, dec + f * O);
        if (use.dh != 0) k.add_scaled(centered.data() + use.row * D, use.dh, D, enc + f * D);
      }
    return;
  }
  size_t at[kFeatures];
  for (size_t f = 0; f < n; ++f) at[f] = from.begin[first + f];
  for (size_t row = 0; row < rows; row += SaeRows::kRows) {
    const size_t here = std::min(SaeRows::kRows, rows - row);
    float activations_here[kFeatures * SaeRows::kRows] = {}, slopes[kFeatures * SaeRows::kRows] = {};
    for (size_t f = 0; f < n; ++f)
      for (; at[f] < from.begin[first + f + 1] && from.uses[at[f]].row < row + here; ++at[f]) {
        const SaeUses::Use& use = from.uses[at[f]];
        activations_here[f * SaeRows::kRows + use.row - row] = use.f;
        slopes[f * SaeRows::kRows + use.row - row] = use.dh;
      }
    k.add_products(activations_here, SaeRows::kRows, n, at_output + row * stride, stride, here, O, dec, O);
    k.add_products(slopes, SaeRows::kRows, n, centered.data() + row * D, D, here, D, enc, D);
  }
}

// Of the weights of n features from `first` on. Returns the sum of squares.
double SaeTrainer::Work::gradients_of(size_t first, size_t n) {
  const KernelTable& k = kernels();
  std::memset(gradients.W_dec.data() + first * O, 0, n * O * sizeof(float));
  std::memset(gradients.W_enc.data() + first * D, 0, n * D * sizeof(float));
  for (size_t f = first; f < first + n;) {  // those of a level together
    const size_t level = level_of(f), end = level < l.widths.size() ? std::min(first + n, size(l.widths[level])) : first + n;
    sum_rows(f, end - f, uses, at_level(level, 0), level < l.widths.size() ? O : y_stride);
    f = end;
  }
  if (aux) sum_rows(first, n, aux_uses, aux_output.data(), O);
  double all = 0;
  for (size_t f = first; f < first + n; ++f) {
    double of_entries = 0, of_aux = 0;
    for (size_t i = uses.begin[f]; i < uses.begin[f + 1]; ++i) of_entries += static_cast<double>(uses.uses[i].dh);
    for (size_t i = aux ? aux_uses.begin[f] : 0; aux && i < aux_uses.begin[f + 1]; ++i)
      of_aux += static_cast<double>(aux_uses.uses[i].dh);
    dh[f] = of_entries + of_aux;
    const double bias = gradients.r_mag.empty() ? dh[f] : of_aux;
    if (!gradients.r_mag.empty()) all += gradients_of_magnitude(f, of_entries);
    float* dec = gradients.W_dec.data() + f * O;
    if (dnorm[f] != 0 && norms[f] > 0) k.add_scaled(q.W_dec.data() + f * O, static_cast<float>(dnorm[f]) / norms[f], O, dec);
    gradients.b_enc[f] = static_cast<float>(bias);
    if (!gradients.threshold.empty()) gradients.threshold[f] = static_cast<float>(dthreshold[f]);
    all += k.sum_of_squares(dec, O) + k.sum_of_squares(gradients.W_enc.data() + f * D, D) + bias * bias +
           dthreshold[f] * dthreshold[f];
  }
  return all;
}

// Of a gated feature's r_mag and b_mag, from the sum of its dh: a dh is that of the magnitude (f, where it is active) times
// exp(r_mag). Returns the sum of squares.
double SaeTrainer::Work::gradients_of_magnitude(size_t f, double sum_dh) {
  const double factor = std::exp(static_cast<double>(q.r_mag[f])), b_mag = static_cast<double>(q.b_mag[f]);
  double weighted = 0;
  for (size_t i = uses.begin[f]; i < uses.begin[f + 1]; ++i)
    weighted += static_cast<double>(uses.uses[i].dh) * (static_cast<double>(uses.uses[i].f) - b_mag);
  gradients.b_mag[f] = static_cast<float>(sum_dh / factor);
  gradients.r_mag[f] = static_cast<float>(weighted / factor);
  return (sum_dh * sum_dh + weighted * weighted) / (factor * factor);
}

// x times the gradient at y, which is the same of all levels: the first has their sum.
double SaeTrainer::Work::gradients_of_skip(ThreadPool& pool) {
  std::vector<double> squares(O / kFeatures + 1);
  each_features(pool, O, [&](size_t first, size_t n) {
    float* const skip = gradients.W_skip.data() + first * D;
    std::memset(skip, 0, n * D * sizeof(float));
    for (size_t row = 0; row < rows; row += SaeRows::kRows) {
      const size_t here = std::min(SaeRows::kRows, rows - row);
      float at_outputs[kFeatures * SaeRows::kRows];
      for (size_t o = 0; o < n; ++o)
        for (size_t r = 0; r < here; ++r) at_outputs[o * SaeRows::kRows + r] = at_level(0, row + r)[first + o];
      kernels().add_products(at_outputs, SaeRows::kRows, n, x + row * D, D, here, D, skip, D);
    }
    squares[first / kFeatures] = kernels().sum_of_squares(skip, n * D);
  });
  return std::accumulate(squares.begin(), squares.end(), 0.0);
}

// b_dec is added to y, of gated to ŷ as well, and but of a transcoder taken from x. Returns the sum of squares.
double SaeTrainer::Work::gradients_of_bias() {
  std::vector<double> bias(O, 0);
  for (size_t row = 0; row < rows; ++row)
    for (size_t i = 0; i < O; ++i) bias[i] += static_cast<double>(at_level(0, row)[i]);
  if (l.architecture == SaeLearning::Architecture::gated)
    for (size_t i = 0; i < rows * O; ++i) bias[i % O] += static_cast<double>(aux_output[i]);
  for (size_t f = 0; f < F && !transcoder; ++f)
    if (dh[f] != 0)
      for (size_t i = 0; i < D; ++i) bias[i] -= dh[f] * static_cast<double>(q.W_enc[f * D + i]);
  double all = 0;
  for (size_t i = 0; i < O; ++i) {
    gradients.b_dec[i] = static_cast<float>(bias[i]);
    all += bias[i] * bias[i];
  }
  return all;
}

double SaeTrainer::Work::add_up(ThreadPool& pool) {
  uses.sort(results, false, F);
  if (aux) aux_uses.sort(results, true, F);
  dnorm.assign(F, 0);
  dthreshold.assign(F, 0);
  dh.assign(F, 0);
  if (!takes_k(l))
    for (const SaeRows& r : results)
      for (const SaeEntry& e : l.architecture == SaeLearning::Architecture::gated ? r.aux : r.entries) {
        dnorm[size(e.feature)] += static_cast<double>(e.dnorm);
        dthreshold[size(e.feature)] += static_cast<double>(e.dthreshold);
      }
  std::vector<double> squares(F / kFeatures + 1);
  each_features(pool, F, [&](size_t first, size_t n) { squares[first / kFeatures] = gradients_of(first, n); });
  double all = l.skip ? gradients_of_skip(pool) : 0;
  if (!gradients.b_dec.empty()) all += gradients_of_bias();
  for (const double one : squares) all += one;
  return all;
}

namespace {

// Rows of random directions of one norm; `word` chooses among the numbers of a draw.
void draw_rows(FloatVector& w, size_t rows, size_t width, double norm, uint64_t seed, size_t word) {
  w.resize(rows * width);
  for (size_t f = 0; f < rows; ++f) {
    float* row = w.data() + f * width;
    double squares = 0;
    for (size_t i = 0; i < width; ++i) {
      row[i] = uniform_from(philox(seed, f, i)[word]) * 2 - 1;
      squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    }
    const auto factor = static_cast<float>(norm / std::sqrt(std::max(squares, 1e-30)));
    for (size_t i = 0; i < width; ++i) row[i] *= factor;
  }
}

void check(const SaeLearning& l, int64_t d_in, int64_t d_out, bool transcoder) {
  if (l.features < 1) throw InputError("an autoencoder needs at least one feature");
  if (d_in < 1 || d_out < 1 || l.features > (int64_t{1} << 31) / std::max(d_in, d_out))
    throw InputError("an autoencoder of " + std::to_string(l.features) + " features for rows of " +
                     std::to_string(std::max(d_in, d_out)) + " numbers is too large: at most 2^31 weights a matrix");
  if (takes_k(l) && (l.k < 1 || l.k > l.features))
    throw InputError("k is " + std::to_string(l.k) + "; expected 1 to the number of features, " + std::to_string(l.features));
  if (l.skip && !transcoder)
    throw InputError("a skip connection is of transcoders; an autoencoder would learn to copy its input");
  using enum SaeLearning::Architecture;
  if (transcoder && (l.architecture == topk || l.architecture == gated))
    throw InputError(
        "SAELens and circuit-tracer have no transcoders of this architecture; expected batchtopk, jumprelu or standard");
  if (!l.widths.empty() && l.architecture != batchtopk) throw InputError("widths of inner levels (matryoshka) are of batchtopk");
  for (size_t i = 0; i < l.widths.size(); ++i)
    if (l.widths[i] <= (i == 0 ? 0 : l.widths[i - 1]) || l.widths[i] >= l.features)
      throw InputError("width " + std::to_string(l.widths[i]) + " of an inner level: expected ascending numbers from 1 to " +
                       std::to_string(l.features - 1) + ", below the number of features");
}

}  // namespace

SaeTrainer::SaeTrainer(const SaeLearning& learning, int64_t d_in, int64_t d_out)
    : learning_(learning), d_in_(d_in), d_out_(d_out == 0 ? d_in : d_out), is_transcoder_(d_out != 0) {
  check(learning, d_in_, d_out_, is_transcoder_);
  const size_t F = size(learning.features), D = size(d_in_), O = size(d_out_);
  draw_rows(parameters.W_dec, F, O, learning.decoder_norm, learning.seed, 0);
  if (is_transcoder_) {
    draw_rows(parameters.W_enc, F, D, learning.decoder_norm, learning.seed, 1);
  } else {
    parameters.W_enc = parameters.W_dec;
  }
  parameters.b_enc.assign(F, 0);
  parameters.b_dec.assign(O, 0);
  if (learning.architecture == SaeLearning::Architecture::jumprelu)
    parameters.threshold.assign(F, static_cast<float>(learning.threshold));
  if (learning.architecture == SaeLearning::Architecture::gated) {
    parameters.r_mag.assign(F, 0);
    parameters.b_mag.assign(F, 0);
  }
  if (learning.skip) parameters.W_skip.assign(O * D, 0);
  for (size_t i = 0; i < SaeParameters::kCount; ++i) {
    first_moment[i].assign(parameters[i].size(), 0);
    second_moment[i].assign(parameters[i].size(), 0);
  }
  work_ = std::make_unique<Work>(learning_, parameters, D, O, is_transcoder_);
  silent.assign(F, 0);
  activations.assign(F, 0);
}

SaeTrainer::~SaeTrainer() = default;

void require_finite(const SaeStep& now, int64_t step) {
  if (!std::isfinite(now.loss) || !std::isfinite(now.gradient_norm))
    throw RunError("the loss of step " + std::to_string(step) +
                   ", or its gradient, is NaN or infinite. Are the activations? If not, try a lower rate");
}

double SaeTrainer::lr_now() const {
  const SaeLearning& l = learning_;
  if (steps < l.lr_warm_up) return l.lr * static_cast<double>(steps + 1) / static_cast<double>(l.lr_warm_up);
  const int64_t begin = l.steps - l.lr_decay;
  if (l.lr_decay > 0 && steps > begin) return l.lr * (1 - static_cast<double>(steps - begin) / static_cast<double>(l.lr_decay));
  return l.lr;
}

double SaeTrainer::sparsity_now() const {
  const SaeLearning& l = learning_;
  if (steps >= l.sparsity_warm_up) return l.sparsity_coefficient;
  return l.sparsity_coefficient * static_cast<double>(steps) / static_cast<double>(l.sparsity_warm_up);
}

SaeStep SaeTrainer::step(ThreadPool& pool, const float* x, size_t rows, const float* target) {
  if (is_transcoder_ != (target != nullptr))
    throw UsageError("a transcoder learns from rows with targets, an autoencoder from rows");
  Work& w = *work_;
  for (float& t : parameters.threshold) t = std::max(t, 0.0f);
  w.begin(pool, x, is_transcoder_ ? target : x, rows, silent, sparsity_now());
  w.forward(pool);
  w.backward(pool);
  SaeStep now = w.summed();
  if (std::isfinite(now.loss)) now.gradient_norm = std::sqrt(w.add_up(pool));
  require_finite(now, steps + 1);
  update(pool, now.gradient_norm);
  return now;
}

void SaeTrainer::update(ThreadPool& pool, double gradient_norm) {
  Work& w = *work_;
  const SaeLearning& l = learning_;
  const auto lr = static_cast<float>(lr_now()), limit = static_cast<float>(std::min(1.0, 1.0 / (gradient_norm + 1e-6)));
  ++steps;
  const auto bias1 = static_cast<float>(1 - std::pow(l.beta1, static_cast<double>(steps)));
  const auto bias2 = static_cast<float>(1 - std::pow(l.beta2, static_cast<double>(steps)));
  for (size_t i = 0; i < SaeParameters::kCount; ++i) {
    const size_t n = parameters[i].size();
    pool.run(static_cast<int64_t>((n + kAdamChunk - 1) / kAdamChunk), [&](int64_t task, int) {
      const size_t from = size(task) * kAdamChunk;
      kernels().adamw(parameters[i].data() + from, w.gradients[i].data() + from, first_moment[i].data() + from,
                      second_moment[i].data() + from, std::min(kAdamChunk, n - from), lr, static_cast<float>(l.beta1),
                      static_cast<float>(l.beta2), static_cast<float>(l.eps), 0, bias1, bias2, limit);
    });
  }
  if (w.smallest_chosen > 0) batch_threshold += l.threshold_lr * (static_cast<double>(w.smallest_chosen) - batch_threshold);
  for (int64_t& s : silent) ++s;
  for (const SaeRows& r : w.results)
    for (const SaeEntry& e : r.entries)
      if (e.f != 0) {
        silent[size(e.feature)] = 0;
        ++activations[size(e.feature)];
      }
  rows_seen += w.rows;
}

}  // namespace vitrine
