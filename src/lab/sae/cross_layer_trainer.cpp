#include "sae/cross_layer_trainer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/table.h"
#include "sae/trainer_work.h"

namespace vitrine {
namespace {

constexpr size_t kRows = SaeRows::kRows;  // of a task

// Calls f(first, n) for all rows, a few at a time, which threads share.
template <class F>
void each_rows(ThreadPool& pool, size_t rows, F&& f) {
  pool.run(static_cast<int64_t>((rows + kRows - 1) / kRows), [&](int64_t task, int) {
    const size_t first = static_cast<size_t>(task) * kRows;
    f(first, std::min(kRows, rows - first));
  });
}

}  // namespace

CrossLayerTrainer::CrossLayerTrainer(const SaeLearning& learning, int64_t n_layers, int64_t d_in, int64_t d_out) : d_out_(d_out) {
  if (n_layers < 1) throw InputError("a cross-layer transcoder needs at least one layer");
  if (learning.skip || !learning.widths.empty())
    throw InputError("a cross-layer transcoder has no skip connection and no inner levels");
  if (d_out < 1 || n_layers > (int64_t{1} << 31) / d_out)
    throw InputError("a cross-layer transcoder of " + std::to_string(n_layers) + " layers of " + std::to_string(d_out) +
                     " numbers is too large: at most 2^31 weights a matrix");
  for (int64_t i = 0; i < n_layers; ++i) {
    SaeLearning own = learning;
    own.seed += 0x9E3779B97F4A7C15u * static_cast<uint64_t>(i);
    own.aux_coefficient = 0;
    layers_.push_back(std::make_unique<SaeTrainer>(own, d_in, (n_layers - i) * d_out));
  }
  for (size_t i = 1; i < layers_.size(); ++i) {
    SaeTrainer& layer = *layers_[i];
    for (SaeParameters* of : {&layer.parameters, &layer.first_moment, &layer.second_moment, &layer.work_->gradients})
      of->b_dec.clear();
  }
}

SaeStep CrossLayerTrainer::step(ThreadPool& pool, const std::vector<const float*>& x, size_t rows, const float* target) {
  if (x.size() != layers_.size())
    throw UsageError("rows of " + std::to_string(x.size()) + " layers for a cross-layer transcoder of " +
                     std::to_string(layers_.size()));
  const KernelTable& k = kernels();
  const size_t width = layers_.size() * static_cast<size_t>(d_out_);
  const FloatVector& bias = layers_[0]->parameters.b_dec;
  y_.resize(rows * width);
  each_rows(pool, rows, [&](size_t first, size_t n) {
    for (size_t r = first; r < first + n; ++r)
      for (size_t i = 0; i < width; ++i) y_[r * width + i] = bias[i] - target[r * width + i];
  });
  for (size_t i = 0; i < layers_.size(); ++i) {  // layers one after the other: they add to the same rows
    SaeTrainer& layer = *layers_[i];
    for (float& t : layer.parameters.threshold) t = std::max(t, 0.0F);
    layer.work_->begin(pool, x[i], target, rows, layer.silent, layer.sparsity_now(), y_.data() + i * static_cast<size_t>(d_out_),
                       width);
    layer.work_->forward(pool);
  }
  std::vector<double> squares((rows + kRows - 1) / kRows);
  each_rows(pool, rows, [&](size_t first, size_t n) {
    float* const at = y_.data() + first * width;
    squares[first / kRows] = k.sum_of_squares(at, n * width);
    k.scale(at, static_cast<float>(2 / static_cast<double>(rows)), n * width, at);
  });
  SaeStep now;
  for (const double one : squares) now.mse += one;
  const double all = row_variation(target, rows, width);
  now.explained_variance = all > 0 ? 1 - now.mse / all : 0;
  now.mse /= static_cast<double>(rows);
  double of_gradients = 0;
  for (const auto& layer : layers_) {
    layer->work_->backward(pool);
    layer->work_->count(now);
  }
  now.loss = now.mse + now.sparsity;
  if (std::isfinite(now.loss)) {
    for (const auto& layer : layers_) of_gradients += layer->work_->add_up(pool);
    now.gradient_norm = std::sqrt(of_gradients);
  }
  require_finite(now, layers_[0]->steps + 1);
  for (const auto& layer : layers_) layer->update(pool, now.gradient_norm);
  return now;
}

}  // namespace vitrine
