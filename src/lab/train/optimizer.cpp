#include "train/optimizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "base/merge_sort.h"
#include "base/nearest.h"
#include "base/philox.h"
#include "kernels/table.h"
#include "ops/recorder.h"
#include "train/matrix_shape.h"

namespace vitrine {
namespace {

constexpr size_t kStateBorder = 64 / sizeof(float);
constexpr size_t kChunk = size_t{1} << 15;  // values; four buffers of it stay in the second cache

bool any_fits(const std::vector<std::string>& globs, std::string_view name) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return fits(glob, name); });
}

void check_globs(const char* key, const std::vector<std::string>& globs, const Parameters& parameters) {
  std::vector<std::string> names;
  for (const Parameter& p : parameters.list()) names.push_back(p.name);
  for (const std::string& glob : globs)
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) { return fits(glob, name); }))
      throw InputError(std::string("optimizer.") + key + ": \"" + glob +
                       "\" fits no parameter of this model; the nearest name is \"" + nearest(glob, names) +
                       "\", and * matches any characters");
}

int state_buffers(const OptimizerOptions& options) {
  if (options.kind != OptimizerOptions::Kind::sgd) return 2;
  return options.momentum != 0 ? 1 : 0;
}
bool in_bf16(const OptimizerOptions& options) { return options.kind == OptimizerOptions::Kind::adamw && options.bf16_moments; }

}  // namespace

std::vector<bool> Optimizer::whole(const OptimizerOptions& options, const Parameters& parameters) {
  std::vector<bool> whole;
  for (const Parameter& p : parameters.list()) {
    const MatrixShape shape = matrix_shape(p);
    whole.push_back(options.by_matrices() && p.layer >= 0 && p.matrix && !p.constant && shape.rows > 1 && shape.columns > 1);
  }
  return whole;
}

Optimizer::Optimizer(const OptimizerOptions& options, const Parameters& parameters, Shards& shards)
    : options_(options), parameters_(parameters), shards_(shards) {
  check_globs("decay", options.decay, parameters);
  check_globs("no_decay", options.no_decay, parameters);
  for (const auto& [glob, factor] : options.lr_groups) check_globs("lr_groups", {glob}, parameters);
  whole_ = whole(options, parameters);
  size_t kept[2] = {};  // numbers of each kind of state
  for (size_t i = 0; i < parameters.list().size(); ++i) {
    const Parameter& p = parameters.list()[i];
    const bool wanted = options.decay.empty() ? p.matrix : any_fits(options.decay, p.name);
    decays_.push_back(wanted && !p.constant && !any_fits(options.no_decay, p.name));
    rates_.push_back(1);
    for (const auto& [glob, factor] : options.lr_groups)
      if (fits(glob, p.name)) rates_.back() *= factor;
    if (whole_[i])
      add_asides(i, std::any_of(shards.mine().begin(), shards.mine().end(),
                                [&](const Shards::Range& r) { return r.begin <= p.begin && p.begin < r.end; }));
    for (const auto& [begin, end] : shards.mine()) {
      const size_t first = std::max(begin, p.begin), last = std::min(end, p.begin + p.count);
      if (first >= last) continue;
      for (size_t at = first; at < last; at += kChunk)
        chunks_.push_back({i, at, std::min(kChunk, last - at), {kept[0] + at - first, kept[1] + at - first}});
      const size_t taken =
          (last - first + kStateBorder - 1) / kStateBorder * kStateBorder;  // each begins on a border, as the weights do
      if (whole_[i]) {
        VITRINE_CHECK(last - first == p.count, "a parameter that is learned as a whole lies on one rank");
        const MatrixShape shape = matrix_shape(p);
        for (size_t m = 0; m < shape.matrices; ++m) {
          const size_t at = m * shape.rows * shape.columns;
          matrices_.push_back({i, p.begin + at, shape.rows, shape.columns, {kept[0] + at, kept[1] + at}, m});
        }
      }
      kept[0] += taken;
      if (keeps(1, i)) kept[1] += taken;
    }
  }
  merge_sort(matrices_, [](const Matrix& a, const Matrix& b) { return a.rows * a.columns > b.rows * b.columns; });
  for (int i = 0; i < state_buffers(options); ++i) {
    if (in_bf16(options))
      state_[i].bf16 = Buffer<uint16_t>(kept[i]);
    else
      state_[i].f32 = FloatBuffer(kept[i]);
  }
}

double Optimizer::bytes(const OptimizerOptions& options, double numbers, int ranks) {
  const double asides = options.kind == OptimizerOptions::Kind::soap ? 8.5 * sizeof(float) : 0;
  const double of_state = asides + (in_bf16(options) ? sizeof(uint16_t) : sizeof(float)) * state_buffers(options);
  return numbers * (2 * sizeof(float) + of_state / ranks);
}

template <class F>
void Optimizer::each_chunk(ThreadPool& pool, F&& f) const {
  pool.run(static_cast<int64_t>(chunks_.size()),
           [&](int64_t i, int) { f(static_cast<size_t>(i), chunks_[static_cast<size_t>(i)]); });
}

std::vector<double> Optimizer::joined(const std::vector<double>& of_chunks, const std::vector<double>& of_matrices) const {
  std::vector<double> sums(parameters_.list().size());
  for (size_t i = 0; i < chunks_.size(); ++i) sums[chunks_[i].parameter] += of_chunks[i];
  for (size_t i = 0; i < of_matrices.size(); ++i) sums[matrices_[i].parameter] += of_matrices[i];
  shards_.comm().all_reduce(sums);
  return sums;
}

Norms Optimizer::gradient_norms(ThreadPool& pool, const ParameterGradients* more) const {
  parameters_.all_gradients().complete();
  if (more != nullptr) more->complete();
  std::vector<double> sums(chunks_.size());
  each_chunk(pool, [&](size_t i, const Chunk& c) {
    float* const g = parameters_.gradients() + c.begin;
    if (more != nullptr) {
      float* const of_more = more->data() + c.begin;
      kernels().add(g, of_more, c.count, g);
      if (begins_with_zeros(c)) std::memset(of_more, 0, c.count * sizeof(float));
    }
    if (rates_[c.parameter] > 0) sums[i] = kernels().sum_of_squares(g, c.count);
  });
  if (more != nullptr) more->unset();
  Norms norms{.whole = 0, .each = joined(sums)};
  for (double& norm : norms.each) {
    norms.whole += norm;
    norm = std::sqrt(norm);
  }
  norms.whole = std::sqrt(norms.whole);
  return norms;
}

void Optimizer::step(ThreadPool& pool, double lr, double gradient_scale, int64_t number, Update* update) {
  const auto t = static_cast<double>(number);
  const auto f = [](double x) { return static_cast<float>(x); };
  const float bias1 = f(1 - std::pow(options_.beta1, t)), bias2 = f(1 - std::pow(options_.beta2, t));
  const double adamw_lr = options_.by_matrices() ? lr * options_.adamw_lr : lr;
  const uint32_t seed = philox(0, static_cast<uint64_t>(number), 0)[0];
  std::vector<double> changes(update != nullptr ? chunks_.size() : 0), weights(changes.size());
  each_chunk(pool, [&](size_t i, const Chunk& c) {
    if (whole_[c.parameter]) return;  // step_matrices() does them
    float* const w = parameters_.weights() + c.begin;
    float* const g = parameters_.gradients() + c.begin;
    const double rate = rates_[c.parameter];
    const float decay = decays_[c.parameter] ? f(options_.weight_decay) : 0.0f;
    float before[kChunk];
    if (update != nullptr) std::memcpy(before, w, c.count * sizeof(float));
    const auto& [m, m_bf16] = state_[0];
    const auto& [v, v_bf16] = state_[1];
    if (rate > 0) {
      if (options_.kind == OptimizerOptions::Kind::sgd)
        kernels().sgd(w, g, m ? m.data() + c.kept[0] : nullptr, c.count, f(rate * lr), f(options_.momentum), decay,
                      f(gradient_scale));
      else if (options_.bf16_moments)
        kernels().adamw_bf16(w, g, m_bf16.data() + c.kept[0], v_bf16.data() + c.kept[1], c.count, f(rate * lr), f(options_.beta1),
                             f(options_.beta2), f(options_.eps), decay, bias1, bias2, f(gradient_scale),
                             static_cast<uint32_t>(c.begin), seed);
      else
        kernels().adamw(w, g, m.data() + c.kept[0], v.data() + c.kept[1], c.count, f(rate * adamw_lr), f(options_.beta1),
                        f(options_.beta2), f(options_.eps), decay, bias1, bias2, f(gradient_scale));
    }
    if (begins_with_zeros(c)) std::memset(g, 0, c.count * sizeof(float));  // it is in the cache now
    if (update == nullptr) return;
    for (size_t k = 0; k < c.count; ++k) before[k] = w[k] - before[k];
    changes[i] = kernels().sum_of_squares(before, c.count);
    weights[i] = kernels().sum_of_squares(w, c.count);
  });
  std::vector<double> of_matrices[2];
  if (!matrices_.empty())
    step_matrices(pool, lr, gradient_scale, number, update != nullptr ? &of_matrices[0] : nullptr,
                  update != nullptr ? &of_matrices[1] : nullptr);
  parameters_.all_gradients().unset();
  if (update == nullptr) return;
  update->change = joined(changes, of_matrices[0]);
  update->weight = joined(weights, of_matrices[1]);
  for (double& x : update->change) x = std::sqrt(x);
  for (double& x : update->weight) x = std::sqrt(x);
}

size_t Optimizer::states() const { return static_cast<size_t>(state_buffers(options_)); }

std::string Optimizer::state_of(size_t which, const Parameter& parameter) const {
  const auto i = static_cast<size_t>(&parameter - parameters_.list().data());
  if (options_.kind == OptimizerOptions::Kind::sgd || !keeps(1, i)) return which == 0 ? "momentum" : "";
  return which == 0 ? "first_moment" : "second_moment";
}

const float* Optimizer::whole_state(size_t which, float* room) const {
  const auto& [f32, bf16] = state_[which];
  if (f32 && f32.size() == parameters_.size()) return f32.data();
  for (const Chunk& c : chunks_) {
    if (!keeps(which, c.parameter)) continue;
    if (f32)
      std::memcpy(room + c.begin, f32.data() + c.kept[which], c.count * sizeof(float));
    else
      std::transform(bf16.data() + c.kept[which], bf16.data() + c.kept[which] + c.count, room + c.begin, bf16_to_f32);
  }
  shards_.gather(room);
  return room;
}

void Optimizer::set_state(size_t which, const Parameter& parameter, const float* numbers) {
  const auto& [f32, bf16] = state_[which];
  for (const Chunk& c : chunks_) {
    if (&parameters_.list()[c.parameter] != &parameter) continue;
    const float* const from = numbers + (c.begin - parameter.begin);
    if (f32)
      std::memcpy(f32.data() + c.kept[which], from, c.count * sizeof(float));
    else
      std::transform(from, from + c.count, bf16.data() + c.kept[which], f32_to_bf16);
  }
}

}  // namespace vitrine
