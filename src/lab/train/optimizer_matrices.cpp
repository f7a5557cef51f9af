// What the optimizer learns as wholes: the matrices of the blocks, by Muon, NorMuon or SOAP.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "kernels/table.h"
#include "train/matrix_shape.h"
#include "train/optimizer.h"

namespace vitrine {
namespace {

using Kind = OptimizerOptions::Kind;

// Muon's: how the rate of a matrix follows from its shape.
double scale_of(const OptimizerOptions& options, const Parameter& p) {
  const MatrixShape shape = matrix_shape(p);
  const auto rows = static_cast<double>(shape.rows), columns = static_cast<double>(shape.columns);
  if (options.scale == OptimizerOptions::Scale::match_rms) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, p.by_columns ? columns / rows : rows / columns));
}

// What goes by elements: m gathers the gradient, and g becomes what is made orthogonal.
void gather_momentum(float* g, float* m, size_t n, float momentum, bool nesterov, float gradient_scale) {
  for (size_t i = 0; i < n; ++i) {
    const float slope = gradient_scale * g[i];
    m[i] += (1 - momentum) * (slope - m[i]);
    g[i] = nesterov ? slope + momentum * (m[i] - slope) : m[i];
  }
}

}  // namespace

size_t Optimizer::Aside::size() const {
  return static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
}

// here: this rank keeps it.
void Optimizer::add_asides(size_t parameter, bool here) {
  const Parameter& p = parameters_.list()[parameter];
  const MatrixShape shape = matrix_shape(p);
  const auto matrices = static_cast<int64_t>(shape.matrices), rows = static_cast<int64_t>(shape.rows),
             columns = static_cast<int64_t>(shape.columns);
  const auto add = [&](const char* name, std::vector<int64_t> sides) {
    sides.insert(sides.begin(), matrices);
    Aside aside{parameter, name, std::move(sides), {}};
    if (here) aside.values.resize(aside.size());
    asides_.push_back(std::move(aside));
  };
  if (options_.kind == Kind::normuon) add("neuron_squares", {p.by_columns ? columns : rows});
  if (options_.kind != Kind::soap) return;
  for (const auto& [side, name, basis] : {std::tuple(rows, "left", "left_basis"), {columns, "right", "right_basis"}}) {
    if (side > options_.largest_side) continue;
    add(name, {side, side});
    add(basis, {side, side});
  }
}

// The values that a matrix keeps under that name; null: it keeps none.
float* Optimizer::aside(const Matrix& m, const char* name) {
  auto a = std::ranges::lower_bound(asides_, m.parameter, {}, &Aside::parameter);  // they are in the parameters' order
  for (; a != asides_.end() && a->parameter == m.parameter; ++a)
    if (a->name == name) return a->values.data() + m.number * (a->size() / static_cast<size_t>(a->shape[0]));
  return nullptr;
}

void Optimizer::make_workers(int threads) {
  size_t rows = 0, columns = 0, side = 0, longer = 0, all = 0, rotated = 1;
  for (const Matrix& m : matrices_) {
    rows = std::max(rows, m.rows);
    columns = std::max(columns, m.columns);
    side = std::max(side, std::min(m.rows, m.columns));
    longer = std::max(longer, std::max(m.rows, m.columns));
    all += m.rows * m.columns;
    for (const size_t one : {m.rows, m.columns})
      if (static_cast<int64_t>(one) <= options_.largest_side) rotated = std::max(rotated, one);
  }
  // No more at a time than fit into what Muon saves by keeping one moment: bytes() counts two.
  const double fit = options_.kind == Kind::soap ? static_cast<double>(threads)
                                                 : static_cast<double>(all * sizeof(float)) / Orthogonalizer::bytes(side, longer);
  const size_t most = std::min({static_cast<size_t>(threads), matrices_.size(), static_cast<size_t>(std::max(1.0, fit))});
  while (workers_.size() < most) {
    Worker& worker = workers_.emplace_back();
    if (options_.kind == Kind::soap)
      worker.soap.emplace(rows, columns, rotated);
    else
      worker.orthogonalizer.emplace(side, longer);
    if (options_.kind == Kind::normuon) worker.update = FloatBuffer(rows * columns);
  }
}

// The orthogonal matrix, each neuron's part divided by the root of its mean square over the steps, then brought to its length.
void Optimizer::step_normuon(Worker& worker, const Matrix& m, double lr) {
  constexpr double kSmallest = 1e-10;
  const Parameter& p = parameters_.list()[m.parameter];
  const size_t count = m.rows * m.columns, neurons = p.by_columns ? m.columns : m.rows, inputs = count / neurons;
  float* const u = worker.update.data();
  std::fill_n(u, count, 0.0f);
  worker.orthogonalizer->add(parameters_.gradients() + m.begin, m.rows, m.columns, options_.iterations, 1, u);
  const double before = std::sqrt(kernels().sum_of_squares(u, count));
  float* const squares = aside(m, "neuron_squares");
  const size_t next_input = p.by_columns ? m.columns : 1, next_neuron = p.by_columns ? 1 : m.columns;
  for (size_t n = 0; n < neurons; ++n) {
    float* const part = u + n * next_neuron;
    double sum = 0;
    for (size_t i = 0; i < inputs; ++i)
      sum += static_cast<double>(part[i * next_input]) * static_cast<double>(part[i * next_input]);
    const double mean = sum / static_cast<double>(inputs), had = static_cast<double>(squares[n]);
    squares[n] = static_cast<float>(had + (1 - options_.neuron_beta) * (mean - had));
    const auto factor = static_cast<float>(1 / (std::sqrt(static_cast<double>(squares[n])) + kSmallest));
    for (size_t i = 0; i < inputs; ++i) part[i * next_input] *= factor;
  }
  const double length = std::sqrt(kernels().sum_of_squares(u, count)) + kSmallest;
  const double wanted = options_.scale == OptimizerOptions::Scale::match_rms ? 0.2 * std::sqrt(static_cast<double>(count))
                                                                             : scale_of(options_, p) * before;
  const auto rate = static_cast<float>(lr * wanted / length);
  float* const w = parameters_.weights() + m.begin;
  for (size_t i = 0; i < count; ++i) w[i] -= rate * u[i];
}

// They are done after all else. Each is one thread's from begin to end: those of a model are many, and what they take stays in a
// core's cache.
void Optimizer::step_matrices(ThreadPool& pool, double lr, double gradient_scale, int64_t number, std::vector<double>* changes,
                              std::vector<double>* weights) {
  if (workers_.empty()) make_workers(pool.threads());
  for (std::vector<double>* sums : {changes, weights})
    if (sums != nullptr) sums->resize(matrices_.size());
  const auto workers = static_cast<int64_t>(workers_.size());
  std::atomic<size_t> next = 0;  // each result is the same whoever computes it
  pool.run(workers, [&](int64_t worker, int) {
    std::vector<float> before;
    Worker& mine = workers_[static_cast<size_t>(worker)];
    for (size_t i = next++; i < matrices_.size(); i = next++) {
      const Matrix& m = matrices_[i];
      const Parameter& p = parameters_.list()[m.parameter];
      float *const w = parameters_.weights() + m.begin, *const g = parameters_.gradients() + m.begin;
      const size_t count = m.rows * m.columns;
      const double decay = decays_[m.parameter] ? options_.weight_decay : 0;
      const double rate = rates_[m.parameter] * lr;
      if (changes != nullptr) before.assign(w, w + count);
      if (rates_[m.parameter] == 0) {
        // it stays as it is
      } else if (options_.kind == Kind::soap) {
        const SoapState state{state_[0].f32.data() + m.kept[0],
                              state_[1].f32.data() + m.kept[1],
                              aside(m, "left"),
                              aside(m, "left_basis"),
                              aside(m, "right"),
                              aside(m, "right_basis")};
        const SoapRule rule{options_.beta1, options_.beta2, options_.eps, options_.shampoo_beta, options_.frequency};
        mine.soap->step(w, g, static_cast<float>(gradient_scale), m.rows, m.columns, state, rule, rate, decay, number);
      } else {
        gather_momentum(g, state_[0].f32.data() + m.kept[0], count, static_cast<float>(options_.momentum), options_.nesterov,
                        static_cast<float>(gradient_scale));  // here, since the matrix then stays in a core's cache
        if (decay != 0) kernels().scale(w, static_cast<float>(1 - rate * decay), count, w);
        if (options_.kind == Kind::normuon)
          step_normuon(mine, m, rate);
        else
          mine.orthogonalizer->add(g, m.rows, m.columns, options_.iterations, -rate * scale_of(options_, p), w);
      }
      if (parameters_.begins_with_zeros(p)) std::memset(g, 0, count * sizeof(float));
      if (changes == nullptr) continue;
      for (size_t k = 0; k < count; ++k) before[k] = w[k] - before[k];
      (*changes)[i] = kernels().sum_of_squares(before.data(), count);
      (*weights)[i] = kernels().sum_of_squares(w, count);
    }
  });
}

}  // namespace vitrine
